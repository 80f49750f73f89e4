//! Letting go of the clients of links whose tasks went elsewhere.

use std::sync::Arc;

use kreplicator_model::ids::LinkId;
use tokio::{task::JoinError, time::Instant};
use tracing::debug;

use super::{Error, Shift};

impl Shift<'_> {
    pub(super) fn release_idle_links(&mut self) {
        // Before, the books do not know of everything that runs.
        if !self.is_admitted {
            return;
        }
        let now = Instant::now();
        let idle_max = self.supervisor.parts.settings.link_idle_max;
        let is_due = |since: &Instant| now.saturating_duration_since(*since) >= idle_max;
        let idle = self.supervisor.idle.iter();
        let due: Vec<LinkId> = idle
            .filter(|(link, since)| is_due(since) && !self.books.uses(link))
            .map(|(link, _)| link.clone())
            .collect();
        for link in due {
            self.supervisor.idle.remove(&link);
            self.releasing.insert(link.clone());
            let engine = Arc::clone(&self.supervisor.parts.engine);
            let limit = self.supervisor.parts.settings.task_stop_timeout;
            self.releases.spawn(async move {
                engine.release_link(&link, limit).await;
                link
            });
        }
    }

    pub(super) fn released(&mut self, link: Result<LinkId, JoinError>) -> Result<(), Error> {
        let link = link.map_err(|error| Error::Broken(error.to_string()))?;
        debug!(%link, "clients of an idle link were let go");
        self.releasing.remove(&link);
        Ok(())
    }
}

//! Lines in memory.

use std::{collections::BTreeMap, sync::Mutex};

use async_trait::async_trait;
use kreplicator_model::{
    exact::{Line, ProducerId},
    ids::{LinkId, OwnerEpoch},
};
use kreplicator_worker::batches::lines::{Error, Kept, LineBook, Of};

/// Lines in memory, kept by whoever holds this.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    lines: BTreeMap<String, Line>,
    producers: BTreeMap<LinkId, ProducerId>,
}

impl Memory {
    /// Forgets everything, as a store that was lost.
    pub(crate) fn wipe(&self) {
        *self.lock() = Inner::default();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().expect("no test panics inside")
    }
}

fn key(of: &Of) -> String {
    format!("{}/{}/{}", of.link, of.topic, of.partition)
}

#[async_trait]
impl LineBook for Memory {
    async fn line(&self, of: &Of) -> Result<Option<Kept>, Error> {
        let line = self.lock().lines.get(&key(of)).cloned();
        Ok(line.map(|line| Kept {
            line,
            target_is_another: false,
        }))
    }

    async fn write(
        &self,
        of: &Of,
        before: Option<&Line>,
        line: &Line,
        _epoch: OwnerEpoch,
    ) -> Result<bool, Error> {
        let mut inner = self.lock();
        let is_same = inner.lines.get(&key(of)) == before;
        if is_same {
            inner.lines.insert(key(of), line.clone());
        }
        Ok(is_same)
    }

    async fn producer_id(
        &self,
        link: &LinkId,
        _target_cluster_id: Option<&str>,
    ) -> Result<Option<ProducerId>, Error> {
        Ok(self.lock().producers.get(link).copied())
    }

    async fn note_producer_id(
        &self,
        link: &LinkId,
        _target_cluster_id: Option<&str>,
        id: ProducerId,
    ) -> Result<ProducerId, Error> {
        Ok(*self.lock().producers.entry(link.clone()).or_insert(id))
    }
}

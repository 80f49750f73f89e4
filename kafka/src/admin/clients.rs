//! The clients behind an admin and the thread they live on.

use std::{
    fmt,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use kreplicator_model::ids::ClusterId;
use rdkafka::{
    admin::AdminClient,
    client::DefaultClientContext,
    config::{ClientConfig, RDKafkaLogLevel},
    consumer::BaseConsumer,
};

use crate::{diagnosis::Diagnosis, error::Error, properties::ClientProperties};

/// How often the thread looks for the end, and serves events while nobody calls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What the calls need.
pub(super) struct Handles {
    /// Metadata; its error events tell causes.
    pub(super) reader: BaseConsumer<Diagnosis>,
    /// Everything else.
    pub(super) admin: AdminClient<DefaultClientContext>,
    /// What the reader saw go wrong.
    pub(super) diagnosis: Diagnosis,
}

/// The clients; dropped on a thread of their own.
pub(super) struct Clients {
    handles: Option<Arc<Handles>>,
    /// Brings the clients back to their thread. None only after drop.
    farewell: Option<mpsc::SyncSender<Arc<Handles>>>,
    properties: ClientProperties,
}

impl Clients {
    pub(super) fn create(
        cluster: &ClusterId,
        properties: &ClientProperties,
    ) -> Result<Self, Error> {
        let fault = |fault| Error::from_creation(cluster, &fault);
        let diagnosis = Diagnosis::new(cluster.clone());
        let config = properties.to_config();
        let mut quiet: ClientConfig = properties.to_config();
        // Nobody can serve the admin client's log queue, so it must not fill.
        quiet.set_log_level(RDKafkaLogLevel::Emerg);
        let handles = Arc::new(Handles {
            reader: config
                .create_with_context(diagnosis.clone())
                .map_err(fault)?,
            admin: quiet.create().map_err(fault)?,
            diagnosis,
        });
        let (farewell, thread_end) = mpsc::sync_channel(1);
        let served = Arc::clone(&handles);
        thread::Builder::new()
            .name(thread_name(cluster))
            .spawn(move || serve(served, &thread_end))
            .map_err(|fault| Error::Settings {
                cluster: cluster.clone(),
                detail: format!("no thread for the client: {fault}"),
            })?;
        Ok(Self {
            handles: Some(handles),
            farewell: Some(farewell),
            properties: properties.clone(),
        })
    }

    pub(super) fn handles(&self) -> Arc<Handles> {
        Arc::clone(self.handles.as_ref().expect("taken by drop alone"))
    }

    /// What the clients were made with.
    pub(super) fn properties(&self) -> &ClientProperties {
        &self.properties
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        if let (Some(handles), Some(farewell)) = (self.handles.take(), self.farewell.take()) {
            // Cannot be full: this is the only message ever. The thread outlives the channel, and
            // calls still under way are on blocking threads, where a drop does no harm.
            drop(farewell.send(handles));
        }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

fn serve(handles: Arc<Handles>, end: &mpsc::Receiver<Arc<Handles>>) {
    loop {
        handles.drain_events();
        match end.recv_timeout(POLL_INTERVAL) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Ok(_) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Handles {
    /// Serves what the reader's queue holds, so that causes reach the diagnosis.
    pub(super) fn drain_events(&self) {
        while self.reader.poll(Duration::from_millis(1)).is_some() {}
    }
}

/// Linux shows the first 15 bytes.
fn thread_name(cluster: &ClusterId) -> String {
    format!("admin-{cluster}")
}

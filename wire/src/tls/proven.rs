//! What TLS was last set up with and worked (C127).

use std::sync::{Arc, Mutex, PoisonError};

use rustls::ClientConfig;
use tracing::warn;

use crate::error::Error;

/// Certificates and key that a broker has accepted, of all connections of a client. Clones share it.
///
/// Whoever renews files may be half-way through, or may have put in a key that fits no certificate. Connections
/// of that time are made with what worked before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proven(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    config: Option<Arc<ClientConfig>>,
    /// What is wrong with the files, as it was told last.
    told: Option<String>,
}

impl Proven {
    /// What to connect with, when this was read from the files.
    ///
    /// # Errors
    /// The files cannot be used, and nothing has worked yet.
    pub(super) fn or_last(
        &self,
        read: Result<ClientConfig, Error>,
    ) -> Result<Arc<ClientConfig>, Error> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(config) => {
                state.told = None;
                Ok(Arc::new(config))
            }
            Err(error) => {
                let config = state.config.clone().ok_or_else(|| error.clone())?;
                let cause = error.to_string();
                if state.told.as_deref() != Some(&cause) {
                    warn!(%cause, "renewed TLS files cannot be used; connections are made with the former ones");
                    state.told = Some(cause);
                }
                Ok(config)
            }
        }
    }

    /// A broker has answered a request on a connection that was made with it.
    pub(crate) fn worked(&self, config: Arc<ClientConfig>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.config = Some(config);
    }
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;

    use super::*;

    fn config() -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("they are there")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth()
    }

    fn broken() -> Error {
        Error::TlsFile {
            field: "tls.key_file",
            path: "/k".to_owned(),
            cause: "half a key".to_owned(),
        }
    }

    #[test]
    fn c127_broken_files_are_a_fault_until_something_has_worked() {
        let proven = Proven::default();
        assert!(proven.or_last(Err(broken())).is_err());
        let first = proven.or_last(Ok(config())).expect("read");
        // Read, and not shown to work.
        assert!(proven.or_last(Err(broken())).is_err());
        proven.worked(Arc::clone(&first));
        let again = proven.or_last(Err(broken())).expect("the former");
        assert!(Arc::ptr_eq(&first, &again));
        let second = proven.or_last(Ok(config())).expect("read");
        assert!(!Arc::ptr_eq(&first, &second), "renewed ones come first");
    }
}

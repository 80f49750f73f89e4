//! Authentication against a broker that gives short sessions.

use std::{
    collections::BTreeMap,
    sync::{Mutex, mpsc},
};

use kafka_protocol::messages::{
    ApiKey, InitProducerIdRequest, InitProducerIdResponse, SaslHandshakeResponse,
};
use kreplicator_model::{ids::ClusterId, spec};
use tokio::{sync::Notify, time::timeout};
use tokio_util::task::TaskTracker;

use super::*;
use crate::{
    cluster::{
        Purpose,
        fake::{FakeBroker, body},
    },
    open,
    settings::{Secrets, Settings},
};

const SPEAKS: &[(ApiKey, i16)] = &[
    (ApiKey::SaslHandshake, 1),
    (ApiKey::SaslAuthenticate, 1),
    (ApiKey::InitProducerId, 1),
];

/// A place of secrets that answers once; after that whoever asks waits until the test is over.
#[derive(Debug)]
struct Stuck {
    is_asked_again: Arc<Notify>,
    /// Whether it was asked, and what ends with the test.
    over: Mutex<(bool, mpsc::Receiver<()>)>,
}

impl Secrets for Stuck {
    fn read(&self, _reference: &SecretRef) -> Result<Secret, String> {
        let mut over = self.over.lock().expect("no test panics holding it");
        if over.0 {
            self.is_asked_again.notify_one();
            // Ends with the test.
            over.1.recv().ok();
        }
        over.0 = true;
        Ok(Secret::new("open sesame"))
    }
}

fn settings(address: String, reference: SecretRef) -> Settings {
    let cluster = spec::Cluster {
        id: ClusterId::new("here").expect("legal"),
        bootstrap_servers: vec![address],
        security: spec::Security::default(),
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    };
    let mut settings = Settings::of(&cluster, "test");
    settings.security.sasl = Some(Sasl::Password {
        mechanism: SaslMechanism::Plain,
        username: "us".to_owned(),
        password: reference,
    });
    settings
}

#[tokio::test]
async fn a_secret_that_does_not_come_holds_no_request_and_ends_the_connection() {
    let broker = FakeBroker::start(SPEAKS, |api, version, _| match api {
        ApiKey::SaslHandshake => Some(body(&SaslHandshakeResponse::default(), version)),
        ApiKey::SaslAuthenticate => {
            let answer = SaslAuthenticateResponse::default().with_session_lifetime_ms(1_200);
            Some(body(&answer, version))
        }
        _ => Some(body(&InitProducerIdResponse::default(), version)),
    })
    .await;
    let mut settings = settings(broker.address(), SecretRef::File("token".into()));
    settings.limits.open_timeout = Duration::from_secs(3);
    let is_asked_again = Arc::new(Notify::new());
    let (_over, ends) = mpsc::channel();
    let profile = Profile {
        proven_tls: crate::tls::Proven::default(),
        settings: Arc::new(settings),
        secrets: Arc::new(Stuck {
            is_asked_again: Arc::clone(&is_asked_again),
            over: Mutex::new((false, ends)),
        }),
        tasks: Arc::new(TaskTracker::new()),
    };
    let soon = || Instant::now() + Duration::from_secs(20);
    let connection = open::open(&profile, &broker.address(), Purpose::Control, soon()).await;
    let connection = connection.expect("open");
    let asked_again = timeout(Duration::from_secs(20), is_asked_again.notified());
    asked_again.await.expect("before the session is over");
    let ordinary = InitProducerIdRequest::default().with_transactional_id(None);
    let ordinary = connection.send(ordinary, Instant::now() + Duration::from_secs(1));
    assert!(ordinary.await.is_ok(), "it need not wait for the secret");
    let fault = timeout(Duration::from_secs(20), connection.closed()).await;
    let fault = fault.expect("not for ever");
    assert!(matches!(fault, Error::Secret { .. }), "{fault:?}");
}

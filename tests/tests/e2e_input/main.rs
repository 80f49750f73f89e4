//! Secured clusters, wrong input, and the command line, on one small system.

mod command_line;
mod permissions;
mod readme;
mod refusals;
mod security;

use std::{fs, path::PathBuf, time::Duration};

use anyhow::Result;
use kreplicator_proto::v1;
use kreplicator_tests::{
    api::{self, Api},
    folder::RunDir,
    kafka::{KafkaCluster, KafkaOptions, TlsMode},
    shared::{Shared, Stage},
    system::{System, SystemOptions},
};

const DEADLINE: Duration = Duration::from_secs(30);
/// Who may pass to the secured cluster.
const USER: &str = "alice";
/// Secrets that must never be shown.
const RIGHT: &str = "open-sesame-7f3a";
const WRONG: &str = "close-sesame-91bc";

/// A plain cluster, one with TLS and passwords, and a system that has been told of neither.
struct Small {
    system: System,
    api: Api,
    plain: KafkaCluster,
    secured: KafkaCluster,
    folder: RunDir,
}

impl Small {
    async fn start() -> Result<Self> {
        let secured = KafkaOptions {
            tls: TlsMode::Mutual,
            ..KafkaOptions::single("secured").user(USER, RIGHT)
        };
        // Whoever is let in may do everything where no rule says otherwise; the harness always.
        let secured = secured
            .property(
                "authorizer.class.name",
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            )
            .property("allow.everyone.if.no.acl.found", "true")
            .property("super.users", "User:ANONYMOUS");
        let mut options = SystemOptions::new("input", 1, 1);
        options.env = vec![
            ("RIGHT_PASSWORD".to_owned(), RIGHT.to_owned()),
            ("WRONG_PASSWORD".to_owned(), WRONG.to_owned()),
        ];
        let (plain, secured, system) = futures::try_join!(
            KafkaCluster::start(KafkaOptions::single("plain")),
            KafkaCluster::start(secured),
            System::start(options),
        )?;
        let folder = RunDir::new("secrets")?;
        fs::write(folder.path().join("password"), format!("{RIGHT}\n"))?;
        let api = system.api()?;
        api.put_cluster(api::cluster("plain", plain.bootstrap()))
            .await?;
        Ok(Self {
            system,
            api,
            plain,
            secured,
            folder,
        })
    }

    fn password_file(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    /// The secured cluster under a name of ours.
    fn secured(
        &self,
        id: &str,
        mechanism: v1::SaslMechanism,
        password: v1::secret_ref::From,
    ) -> v1::Cluster {
        let certificates = self.secured.certificates().expect("TLS is on");
        let text = |path: PathBuf| path.display().to_string();
        v1::Cluster {
            security: Some(v1::Security {
                tls: Some(v1::Tls {
                    ca_file: text(certificates.ca()),
                    cert_file: text(certificates.client_certificate()),
                    key_file: text(certificates.client_key()),
                    ..Default::default()
                }),
                sasl: Some(v1::Sasl {
                    mechanism: mechanism.into(),
                    username: USER.to_owned(),
                    password: Some(v1::SecretRef {
                        from: Some(password),
                    }),
                }),
            }),
            ..api::cluster(id, self.secured.bootstrap())
        }
    }
}

static SHARED: Shared<Small> = Shared::new();

/// Runs a scenario on the shared system.
fn scenario(run: impl AsyncFnOnce(&mut Small) -> Result<()>) {
    SHARED.scenario(Small::start, run);
}

impl Stage for Small {
    const OUTLIVES_FAILURE: bool = false;

    fn check(&mut self) -> Result<()> {
        self.system.check()
    }

    fn failed(&self) {
        self.plain.failed();
        self.secured.failed();
        self.system.failed();
    }
}

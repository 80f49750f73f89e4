//! Section `store`: etcd for fleets, one file for a standalone process.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use kreplicator_kafka::secrets::SecretSource;
use kreplicator_model::spec::SecretRef;
use kreplicator_store::{EtcdConfig, EtcdIdentity, EtcdTls, EtcdUser, StoreConfig};
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{Role, is_empty};
use crate::yaml::{
    Faults, Fields, Node, Path,
    scalars::{duration, text, texts},
    secret::secret_ref,
};

/// File name of the embedded store within its folder.
pub(crate) const FILE_NAME: &str = "store.redb";
/// Folder of the embedded store, below the working directory.
const FOLDER_DEFAULT: &str = "kreplicator-data";

/// The metadata store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Store {
    /// etcd.
    Etcd(Etcd),
    /// One file, for one process.
    Embedded(Embedded),
}

/// How to reach etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Etcd {
    /// `http://host:port` or `https://host:port`.
    pub(crate) endpoints: Vec<String>,
    /// Put before every key, so that fleets can share an etcd.
    root: String,
    /// Deadline of each call.
    #[serde(serialize_with = "as_text")]
    call_timeout: Duration,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_place")]
    password: Option<SecretRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<Tls>,
}

/// Files with TLS material, all PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Tls {
    ca_file: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    cert_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_name: Option<String>,
}

/// A file of this process alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Embedded {
    path: PathBuf,
}

impl Embedded {
    /// The store's file.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }
}

impl Store {
    /// What is used when nothing is set.
    pub(super) fn default_of(role: Role) -> Self {
        match role {
            Role::Standalone => Self::Embedded(Embedded {
                path: [FOLDER_DEFAULT, FILE_NAME].iter().collect(),
            }),
            Role::Controller | Role::Worker => {
                let default = EtcdConfig::new(["http://127.0.0.1:2379"]);
                Self::Etcd(Etcd {
                    endpoints: default.endpoints,
                    root: default.root,
                    call_timeout: default.call_timeout,
                    user: None,
                    password: None,
                    tls: None,
                })
            }
        }
    }

    /// With secrets and files read, ready to be opened.
    ///
    /// # Errors
    /// A secret or file that cannot be read, by name.
    pub(crate) fn resolve(&self, secrets: &dyn SecretSource) -> anyhow::Result<StoreConfig> {
        let etcd = match self {
            Self::Embedded(Embedded { path }) => return Ok(StoreConfig::File(path.clone())),
            Self::Etcd(etcd) => etcd,
        };
        let user = match (&etcd.user, &etcd.password) {
            (Some(name), Some(password)) => Some(EtcdUser {
                name: name.clone(),
                password: secrets
                    .read(password)
                    .context("store.etcd.password")?
                    .expose()
                    .to_owned(),
            }),
            _ => None,
        };
        let tls = etcd.tls.as_ref().map(Tls::read).transpose()?;
        Ok(StoreConfig::Etcd(EtcdConfig {
            endpoints: etcd.endpoints.clone(),
            user,
            tls,
            root: etcd.root.clone(),
            call_timeout: etcd.call_timeout,
        }))
    }
}

impl Tls {
    fn read(&self) -> anyhow::Result<EtcdTls> {
        let read = |key: &str, path: &PathBuf| {
            std::fs::read(path).with_context(|| {
                format!(
                    "store.etcd.tls.{key}: file {} cannot be read",
                    path.display()
                )
            })
        };
        let identity = match (&self.cert_file, &self.key_file) {
            (Some(certificate), Some(key)) => Some(EtcdIdentity {
                certificate: read("cert_file", certificate)?,
                key: read("key_file", key)?,
            }),
            _ => None,
        };
        Ok(EtcdTls {
            ca: read("ca_file", &self.ca_file)?,
            identity,
            server_name: self.server_name.clone(),
        })
    }
}

/// Reads the section.
pub(super) fn read(node: &Node, path: &Path, faults: &mut Faults, role: Role) -> Option<Store> {
    if is_empty(node) {
        return Some(Store::default_of(role));
    }
    let mut fields = Fields::of(node, path, faults)?;
    let etcd = fields.optional("etcd", etcd);
    let embedded = fields.optional("embedded", embedded);
    match (fields.has("etcd"), fields.has("embedded")) {
        (true, true) => fields.fault("both etcd and embedded are given; keep one"),
        (false, true) if role != Role::Standalone => fields.fault_at(
            "embedded",
            "an embedded store serves one process; use `kreplicator standalone`, or set store.etcd",
        ),
        _ => {}
    }
    fields.finish();
    etcd.map(Store::Etcd).or(embedded.map(Store::Embedded))
}

fn etcd(node: &Node, path: &Path, faults: &mut Faults) -> Option<Etcd> {
    let default = EtcdConfig::new(["http://127.0.0.1:2379"]);
    let mut fields = Fields::of(node, path, faults)?;
    let endpoints = fields.optional("endpoints", endpoints);
    let root = fields.optional("root", root);
    let call_timeout = fields.optional("call_timeout", duration);
    let user = fields.optional("user", text);
    let password = fields.optional("password", secret_ref);
    let tls = fields.optional("tls", tls);
    if fields.has("user") != fields.has("password") {
        fields.fault("user and password belong together; give both or none");
    }
    let endpoints = endpoints.unwrap_or(default.endpoints);
    let is_secure = endpoints
        .iter()
        .any(|endpoint| endpoint.starts_with("https://"));
    if is_secure && !fields.has("tls") {
        fields.fault("an https endpoint needs tls; add tls: {ca_file: …}");
    }
    fields.finish();
    Some(Etcd {
        endpoints,
        root: root.unwrap_or(default.root),
        call_timeout: call_timeout.unwrap_or(default.call_timeout),
        user,
        password,
        tls,
    })
}

fn endpoints(node: &Node, path: &Path, faults: &mut Faults) -> Option<Vec<String>> {
    let endpoints = texts(node, path, faults)?;
    if endpoints.is_empty() {
        faults.push(&node.place, path, "no endpoint; write [http://host:2379]");
    }
    for endpoint in &endpoints {
        // It would be shown by `--print-config` and in every log line that names the endpoint.
        if endpoint.contains('@') {
            let message = "an endpoint must not hold a user or password; set store.etcd.user and \
                           store.etcd.password";
            faults.push(&node.place, path, message);
            continue;
        }
        let has_scheme = endpoint.starts_with("http://") || endpoint.starts_with("https://");
        if !has_scheme {
            let message = format!("{endpoint:?} has no scheme; write http://{endpoint}");
            faults.push(&node.place, path, message);
        }
    }
    Some(endpoints)
}

fn root(node: &Node, path: &Path, faults: &mut Faults) -> Option<String> {
    let mut root = text(node, path, faults)?;
    if root.is_empty() {
        faults.push(
            &node.place,
            path,
            "is empty; write for example /kreplicator/",
        );
    }
    if !root.ends_with('/') {
        root.push('/');
    }
    Some(root)
}

fn tls(node: &Node, path: &Path, faults: &mut Faults) -> Option<Tls> {
    let mut fields = Fields::of(node, path, faults)?;
    let remedy = "name the file with the certificates that sign etcd's";
    let ca_file = fields.required("ca_file", remedy, text);
    let cert_file = fields.optional("cert_file", text);
    let key_file = fields.optional("key_file", text);
    let server_name = fields.optional("server_name", text);
    if fields.has("cert_file") != fields.has("key_file") {
        fields.fault("cert_file and key_file belong together; give both or none");
    }
    fields.finish();
    Some(Tls {
        ca_file: ca_file?.into(),
        cert_file: cert_file.map(PathBuf::from),
        key_file: key_file.map(PathBuf::from),
        server_name,
    })
}

fn embedded(node: &Node, path: &Path, faults: &mut Faults) -> Option<Embedded> {
    let mut fields = Fields::of(node, path, faults)?;
    let file = fields.required("path", "name the store's file", text);
    fields.finish();
    Some(Embedded { path: file?.into() })
}

fn as_text<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

fn as_place<S: Serializer>(secret: &Option<SecretRef>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    match secret {
        Some(SecretRef::Env(name)) => map.serialize_entry("env", name)?,
        Some(SecretRef::File(path)) => map.serialize_entry("file", path)?,
        None => {}
    }
    map.end()
}

//! A cluster in the file.

use kreplicator_model::{ids::ClusterId, spec::SecretRef};
use kreplicator_proto::v1;

use crate::yaml::{
    Content, Faults, Field, Fields, Node, Path,
    fields::entries,
    scalars::{boolean, text, texts, word},
    secret::secret_ref,
};

const MECHANISMS: &[(&str, v1::SaslMechanism)] = &[
    ("PLAIN", v1::SaslMechanism::Plain),
    ("SCRAM-SHA-256", v1::SaslMechanism::ScramSha256),
    ("SCRAM-SHA-512", v1::SaslMechanism::ScramSha512),
];

/// Reads one entry of `clusters`.
pub(super) fn read(field: &Field, path: &Path, faults: &mut Faults) -> Option<v1::Cluster> {
    let id = ClusterId::new(&field.key);
    if let Err(fault) = &id {
        faults.push(&field.place, path, fault.to_string());
    }
    let mut fields = Fields::of(&field.value, path, faults)?;
    let remedy = "list at least one host:port";
    let bootstrap_servers = fields.required("bootstrap_servers", remedy, servers);
    let tls = fields.optional("tls", tls);
    let sasl = fields.optional("sasl", sasl);
    let client_options = fields.optional("client_options", options);
    let expected_cluster_id = fields.optional("expected_cluster_id", text);
    fields.finish();
    let security = (tls.is_some() || sasl.is_some()).then_some(v1::Security { tls, sasl });
    Some(v1::Cluster {
        id: id.ok()?.to_string(),
        bootstrap_servers: bootstrap_servers?,
        security,
        client_options: client_options.unwrap_or_default(),
        expected_cluster_id: expected_cluster_id.unwrap_or_default(),
    })
}

fn servers(node: &Node, path: &Path, faults: &mut Faults) -> Option<Vec<String>> {
    let servers = texts(node, path, faults)?;
    if servers.is_empty() {
        faults.push(&node.place, path, "no server; list at least one host:port");
    }
    for server in &servers {
        let port = server.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            let message = format!("{server:?} has no port; write host:port");
            faults.push(&node.place, path, message);
        }
    }
    Some(servers)
}

/// `true` for the system's certificates, or a mapping.
fn tls(node: &Node, path: &Path, faults: &mut Faults) -> Option<v1::Tls> {
    if let Content::Scalar { .. } = node.content {
        return match boolean(node, path, faults)? {
            true => Some(v1::Tls::default()),
            false => None,
        };
    }
    let mut fields = Fields::of(node, path, faults)?;
    let tls = v1::Tls {
        ca_file: fields.optional("ca_file", text).unwrap_or_default(),
        cert_file: fields.optional("cert_file", text).unwrap_or_default(),
        key_file: fields.optional("key_file", text).unwrap_or_default(),
        key_password: fields.optional("key_password", secret_ref).map(secret),
        skip_hostname_check: fields
            .optional("skip_hostname_check", boolean)
            .unwrap_or_default(),
    };
    fields.finish();
    Some(tls)
}

fn sasl(node: &Node, path: &Path, faults: &mut Faults) -> Option<v1::Sasl> {
    let mut fields = Fields::of(node, path, faults)?;
    let remedy = "write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512";
    let mechanism = fields.required("mechanism", remedy, word(MECHANISMS));
    let username = fields.required("username", "add it", text);
    let remedy = "write {env: NAME} or {file: path}";
    let password = fields.required("password", remedy, secret_ref);
    fields.finish();
    Some(v1::Sasl {
        mechanism: i32::from(mechanism?),
        username: username?,
        password: password.map(secret),
    })
}

/// A mapping from text to text.
pub(super) fn options<M: FromIterator<(String, String)>>(
    node: &Node,
    path: &Path,
    faults: &mut Faults,
) -> Option<M> {
    let pairs = entries(node, path, faults, |field, path, faults| {
        Some((field.key.clone(), text(&field.value, path, faults)?))
    })?;
    Some(pairs.into_iter().collect())
}

fn secret(secret: SecretRef) -> v1::SecretRef {
    let from = match secret {
        SecretRef::Env(name) => v1::secret_ref::From::Env(name),
        SecretRef::File(path) => v1::secret_ref::From::File(path),
    };
    v1::SecretRef { from: Some(from) }
}

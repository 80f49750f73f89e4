//! TLS: certificates and keys are read from their files at each connection, so that renewed ones
//! are used without a restart. While they cannot be used, those that worked last are.

mod files;
mod proven;
mod verifier;

use std::{io, sync::Arc};

use kreplicator_model::spec::Tls;
use rustls::{ClientConfig, crypto::CryptoProvider, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

pub(crate) use self::proven::Proven;
use crate::error::Error;

/// Encrypts a connected stream; gives what it was done with, for [`Proven::worked`].
///
/// # Errors
/// [`Error::TlsFile`] or [`Error::Tls`]; [`Error::Connect`] when the broker closed in between, which it
/// does when it stops and when the port does not speak TLS.
pub(crate) async fn wrap(
    stream: TcpStream,
    tls: &Tls,
    proven: &Proven,
    broker: &Arc<str>,
) -> Result<(TlsStream<TcpStream>, Arc<ClientConfig>), Error> {
    let fault = |cause: String| Error::Tls {
        broker: Arc::clone(broker),
        cause,
    };
    let settings = tls.clone();
    // Files may be on slow disks.
    let config = tokio::task::spawn_blocking(move || config(&settings))
        .await
        .map_err(|panic| fault(panic.to_string()))?;
    let config = proven.or_last(config)?;
    let host = host_of(broker).to_owned();
    let name = ServerName::try_from(host)
        .map_err(|_| fault("the host name is not one that a certificate can carry".to_owned()))?;
    let connector = TlsConnector::from(Arc::clone(&config));
    let connected = connector.connect(name, stream).await;
    let stream = connected.map_err(|cause| {
        if is_tls(&cause) {
            fault(cause.to_string())
        } else {
            Error::Connect {
                broker: Arc::clone(broker),
                cause: format!("TLS handshake: {cause}; does the port speak TLS?"),
            }
        }
    })?;
    Ok((stream, config))
}

/// Whether TLS itself is at fault, and not the network.
pub(crate) fn is_tls(fault: &io::Error) -> bool {
    fault
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

/// The host of `host:port`, without the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host)
}

fn config(tls: &Tls) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let settings = |cause: rustls::Error| Error::TlsFile {
        field: "tls",
        path: String::new(),
        cause: cause.to_string(),
    };
    let roots = Arc::new(match &tls.ca_file {
        Some(path) => files::roots(path)?,
        None => files::system_roots()?,
    });
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(settings)?;
    let builder = if tls.skip_hostname_check {
        let verifier = verifier::AnyName::new(roots, provider_algorithms(&provider));
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
    } else {
        builder.with_root_certificates(roots)
    };
    match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => {
            let chain = files::certificates("tls.cert_file", cert)?;
            let private = files::private_key(key)?;
            builder
                .with_client_auth_cert(chain, private)
                .map_err(|cause| Error::TlsFile {
                    field: "tls.key_file",
                    path: key.clone(),
                    cause: format!("it does not fit tls.cert_file: {cause}"),
                })
        }
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(path), None) | (None, Some(path)) => Err(Error::TlsFile {
            field: "tls.cert_file and tls.key_file",
            path: path.clone(),
            cause: "one is given without the other; give both or none".to_owned(),
        }),
    }
}

fn provider_algorithms(provider: &CryptoProvider) -> rustls::crypto::WebPkiSupportedAlgorithms {
    provider.signature_verification_algorithms
}

//! PEM files.

use std::{
    fs::File,
    io::{self, Read as _},
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::error::Error;

/// Most bytes of a PEM file; a bundle of all public authorities has some 200 kB.
const PEM_BYTES_MAX: u64 = 4 << 20;

fn fault(field: &'static str, path: &str, cause: impl ToString) -> Error {
    Error::TlsFile {
        field,
        path: path.to_owned(),
        cause: cause.to_string(),
    }
}

/// Devices and pipes are refused: they may hold the reader for ever or have no end.
fn read(field: &'static str, path: &str) -> Result<Vec<u8>, Error> {
    let open = || -> io::Result<Vec<u8>> {
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut content = Vec::new();
        let file = File::open(path)?;
        file.take(PEM_BYTES_MAX + 1).read_to_end(&mut content)?;
        if content.len() as u64 > PEM_BYTES_MAX {
            let cause = format!("larger than {PEM_BYTES_MAX} bytes");
            return Err(io::Error::other(cause));
        }
        Ok(content)
    };
    open().map_err(|cause| fault(field, path, cause))
}

/// All certificates of a file, at least one.
pub(super) fn certificates(
    field: &'static str,
    path: &str,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let content = read(field, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let certificates = certificates.map_err(|cause| fault(field, path, cause))?;
    if certificates.is_empty() {
        return Err(fault(field, path, "it holds no certificate in PEM form"));
    }
    Ok(certificates)
}

/// The trusted certificates of a file.
pub(super) fn roots(path: &str) -> Result<RootCertStore, Error> {
    let field = "tls.ca_file";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(field, path)? {
        roots
            .add(certificate)
            .map_err(|cause| fault(field, path, cause))?;
    }
    Ok(roots)
}

/// The certificates that the system trusts.
pub(super) fn system_roots() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Old authorities with odd certificates are of no use to anybody.
    let (added, _ignored) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let cause = match found.errors.first() {
            Some(cause) => format!("the system's certificates cannot be read: {cause}"),
            None => "the system has no trusted certificates; name a file".to_owned(),
        };
        return Err(fault("tls.ca_file", "", cause));
    }
    Ok(roots)
}

/// The private key of a file.
pub(super) fn private_key(path: &str) -> Result<PrivateKeyDer<'static>, Error> {
    let field = "tls.key_file";
    let content = read(field, path)?;
    let text = String::from_utf8_lossy(&content);
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        let cause = "the key is encrypted, which the batch engine does not read; decrypt it by \
                     `openssl pkey -in <key> -out <file>` and protect the file by its mode";
        return Err(fault(field, path, cause));
    }
    PrivateKeyDer::from_pem_slice(&content).map_err(|cause| fault(field, path, cause))
}

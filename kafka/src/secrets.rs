//! Where passwords come from. A secret is read when a client is made, lives in memory only, and has
//! no way to reach a log: [`Secret`] shows nothing of itself.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
};

use kreplicator_model::spec::SecretRef;

/// Most bytes of a secret's file. Whoever names the file by the API chooses what we read.
pub const SECRET_BYTES_MAX: u64 = 64 << 10;

/// A secret value. `Debug` hides it and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the client library alone.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// A secret that could not be read. Names where it was looked for, never what was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set.
    #[error("environment variable {0} is not set; set it where this process starts")]
    VariableMissing(String),
    /// The variable holds bytes that are no text.
    #[error("environment variable {0} is not UTF-8 text; set it to the password as text")]
    VariableNotText(String),
    /// The file cannot be read.
    #[error("secret file {path:?} cannot be read ({cause}); check its path, owner and mode")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        cause: String,
    },
    /// The file holds nothing but perhaps a line end.
    #[error("secret file {0:?} is empty; write the password into it")]
    FileEmpty(String),
    /// The file is larger than any secret.
    #[error(
        "secret file {0:?} is larger than {SECRET_BYTES_MAX} bytes; name the file of the password"
    )]
    FileTooLarge(String),
}

/// Reads secrets. An interface, so that tests need no environment.
pub trait SecretSource: Send + Sync + fmt::Debug {
    /// The secret that `reference` names, read anew at each call so that a rotated one is found.
    ///
    /// # Errors
    /// [`SecretError`] with the place and what to do there.
    fn read(&self, reference: &SecretRef) -> Result<Secret, SecretError>;
}

/// Secrets from this process's environment and from files.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessSecrets;

impl SecretSource for ProcessSecrets {
    fn read(&self, reference: &SecretRef) -> Result<Secret, SecretError> {
        match reference {
            SecretRef::Env(name) => read_variable(name),
            SecretRef::File(path) => read_file(path),
        }
    }
}

fn read_variable(name: &str) -> Result<Secret, SecretError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the variable's name is itself a setting, so the config loader cannot read it"
    )]
    let value = std::env::var(name);
    match value {
        Ok(value) => Ok(Secret::new(value)),
        Err(std::env::VarError::NotPresent) => Err(SecretError::VariableMissing(name.to_owned())),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(SecretError::VariableNotText(name.to_owned()))
        }
    }
}

fn read_file(path: &str) -> Result<Secret, SecretError> {
    let mut text = String::new();
    // One byte more than allowed tells that there is more.
    open_regular(path)
        .and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|fault| SecretError::File {
            path: path.to_owned(),
            cause: fault.to_string(),
        })?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        return Err(SecretError::FileTooLarge(path.to_owned()));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(SecretError::FileEmpty(path.to_owned()));
    }
    Ok(Secret::new(line))
}

/// Opens a file or a link to one. Devices and pipes are refused before they are opened: they may hold
/// the caller for ever or have no end.
pub(crate) fn open_regular(path: &str) -> io::Result<File> {
    if std::fs::metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with(content: &[u8]) -> (tempfile::TempDir, SecretRef) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("password");
        std::fs::write(&path, content).expect("written");
        let path = path.to_str().expect("text").to_owned();
        (folder, SecretRef::File(path))
    }

    #[test]
    fn one_trailing_line_end_is_cut_off_a_file() {
        for (content, secret) in [
            ("s3cret", "s3cret"),
            ("s3cret\n", "s3cret"),
            ("s3cret\r\n", "s3cret"),
            ("s3cret\n\n", "s3cret\n"),
            (" s3cret ", " s3cret "),
        ] {
            let (_folder, reference) = file_with(content.as_bytes());
            let read = ProcessSecrets.read(&reference).expect("readable");
            assert_eq!(read.expose(), secret, "{content:?}");
        }
    }

    #[test]
    fn a_missing_place_is_named_with_its_remedy() {
        let fault = ProcessSecrets
            .read(&SecretRef::Env("KREPLICATOR_TEST_NO_SUCH_VARIABLE".into()))
            .expect_err("not set");
        assert!(
            fault
                .to_string()
                .contains("KREPLICATOR_TEST_NO_SUCH_VARIABLE is not set"),
            "{fault}"
        );
        let fault = ProcessSecrets
            .read(&SecretRef::File("/no/such/file".into()))
            .expect_err("not there");
        assert!(fault.to_string().contains("\"/no/such/file\""), "{fault}");
        let (_folder, reference) = file_with(b"\n");
        let fault = ProcessSecrets.read(&reference).expect_err("empty");
        assert!(fault.to_string().contains("is empty"), "{fault}");
    }

    #[test]
    fn what_has_no_end_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().to_str().expect("text");
        for path in ["/dev/zero", folder] {
            let fault = ProcessSecrets
                .read(&SecretRef::File(path.to_owned()))
                .expect_err("no file");
            assert!(
                fault.to_string().contains("not a regular file"),
                "{path}: {fault}"
            );
        }
        let limit = usize::try_from(SECRET_BYTES_MAX).expect("small");
        let (_folder, longest) = file_with(&vec![b'x'; limit]);
        let read = ProcessSecrets.read(&longest).expect("just not too large");
        assert_eq!(read.expose().len(), limit);
        let (_folder, longer) = file_with(&vec![b'x'; limit + 1]);
        let fault = ProcessSecrets.read(&longer).expect_err("too large");
        assert!(matches!(&fault, SecretError::FileTooLarge(_)), "{fault}");
    }

    #[test]
    fn a_link_to_a_file_is_followed() {
        let (folder, reference) = file_with(b"s3cret");
        let SecretRef::File(path) = &reference else {
            panic!("made above")
        };
        // As Kubernetes mounts secrets.
        let link = folder.path().join("..data");
        std::os::unix::fs::symlink(path, &link).expect("linked");
        let link = link.to_str().expect("text").to_owned();
        let read = ProcessSecrets.read(&SecretRef::File(link));
        assert_eq!(read.expect("readable").expose(), "s3cret");
    }

    #[test]
    fn a_set_variable_is_read() {
        // Cargo sets this one for every test it runs.
        let read = ProcessSecrets
            .read(&SecretRef::Env("CARGO_PKG_NAME".into()))
            .expect("set by cargo");
        assert_eq!(read.expose(), env!("CARGO_PKG_NAME"));
    }

    #[test]
    fn a_secret_shows_nothing_of_itself() {
        let secret = Secret::new("hunter2");
        assert!(!format!("{secret:?} {:?}", Some(&secret)).contains("hunter2"));
    }
}

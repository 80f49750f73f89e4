//! Certificates of a test: an authority of its own, a broker's and a client's, made by `openssl`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

/// PEM files in a folder.
#[derive(Debug, Clone)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes all files in `folder`, valid for 127.0.0.1 and localhost, for two days.
    ///
    /// # Errors
    /// When `openssl` is missing or fails; shows what it said.
    pub fn make(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let made = Self {
            folder: folder.to_owned(),
        };
        openssl(
            folder,
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-authority \
             -keyout ca.key -out ca.pem",
        )?;
        fs::write(
            folder.join("names.cnf"),
            "subjectAltName=IP:127.0.0.1,DNS:localhost\n",
        )?;
        for name in ["server", "client"] {
            openssl(
                folder,
                &format!(
                    "req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
                ),
            )?;
            openssl(
                folder,
                &format!(
                    "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                     -extfile names.cnf -out {name}.pem"
                ),
            )?;
        }
        let key = fs::read_to_string(folder.join("server.key"))?;
        let certificate = fs::read_to_string(folder.join("server.pem"))?;
        fs::write(made.server_keystore(), key + &certificate)?;
        Ok(made)
    }

    /// Makes all files anew, the authority too: what was made before is worth nothing then. Brokers take
    /// theirs when they are restarted.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn renew(&self) -> Result<()> {
        Self::make(&self.folder).map(drop)
    }

    /// The authority's certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A client's certificate.
    #[must_use]
    pub fn client_certificate(&self) -> PathBuf {
        self.folder.join("client.pem")
    }

    /// The key of [`Self::client_certificate`], without a password.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    /// Key and certificate of the broker in one file.
    pub(super) fn server_keystore(&self) -> PathBuf {
        self.folder.join("server-keystore.pem")
    }
}

fn openssl(folder: &Path, arguments: &str) -> Result<()> {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("cannot run openssl; install it")?;
    ensure!(
        output.status.success(),
        "openssl {arguments}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

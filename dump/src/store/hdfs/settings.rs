//! Where an HDFS is and how it is spoken to.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use kreplicator_model::dump::path::StorePath;

/// Longest deadline that makes sense.
const DEADLINE_MAX: Duration = Duration::from_mins(10);
/// The default of `dfs.replication.max`.
const REPLICATION_MAX: u16 = 512;
/// The default of `dfs.namenode.fs-limits.min-block-size`.
const BLOCK_BYTES_MIN: u64 = 1 << 20;
/// The default of `dfs.bytes-per-checksum`: a block has a whole number of these.
const CHECKSUM_BYTES: u64 = 512;

/// An HDFS and the folder of it that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HdfsSettings {
    /// `hdfs://<name service>/<folder>` or `hdfs://<host>:<port>/<folder>`. The folder is made if it is not there, if
    /// the user may do that.
    pub url: String,
    /// A folder with `core-site.xml`, `hdfs-site.xml` or both; None: the one that `HADOOP_CONF_DIR` names, or
    /// `HADOOP_HOME`, or none at all.
    pub config_dir: Option<PathBuf>,
    /// On top of those files, by Hadoop's names: `dfs.ha.namenodes.<name service>`, … Among them are limits of the
    /// library's own attempts (`dfs.client.failover.max.attempts`), which are short here if nothing is said.
    pub properties: BTreeMap<String, String>,
    /// The user as whom files are written, where the cluster believes what it is told; with Kerberos, the one for whom
    /// the principal acts as a proxy. None: `HADOOP_USER_NAME`, else the user of this process.
    pub user: Option<String>,
    /// The login where the cluster asks for one. Sets `hadoop.security.authentication` too.
    pub kerberos: Option<Kerberos>,
    /// How long a call of the NameNode may take, and a block to be brought to the disks of its DataNodes; up to 10
    /// minutes. A call that is later may have been done.
    pub deadline: Duration,
    /// How long 4 MiB may take to be written, a file to be closed, and a range to be read; at least `deadline`.
    pub data_deadline: Duration,
    /// Copies of each block, 1 to 512; None: the default of the cluster.
    pub replication: Option<u16>,
    /// Size of blocks in bytes, at least 1 MiB, in steps of 512; None: the default of the cluster.
    pub block_size: Option<u64>,
}

/// Who logs in by Kerberos. Needs the system's `libgssapi_krb5.so.2`, which is loaded when it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kerberos {
    /// `user@REALM` or `service/host@REALM`.
    pub principal: String,
    /// A file with its keys, from which a ticket is drawn for each connection, kept in memory; None: the ticket that
    /// somebody else keeps fresh in the default cache.
    pub keytab: Option<PathBuf>,
}

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Name service, or host and port.
    pub(super) authority: String,
    /// The same without a port.
    pub(super) host: String,
    /// The folder's path, without a slash at its end.
    pub(super) base: String,
}

impl HdfsSettings {
    /// That place, with defaults.
    ///
    /// - `deadline` 20 s: longer than pauses of a NameNode's memory and most of its fail-overs, shorter than patience.
    /// - `data_deadline` 90 s: the library notices a silent DataNode after 60 s, and then goes on with the others if
    ///   the silent one is the first of its pipeline.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            config_dir: None,
            properties: BTreeMap::new(),
            user: None,
            kerberos: None,
            deadline: Duration::from_secs(20),
            data_deadline: Duration::from_secs(90),
            replication: None,
            block_size: None,
        }
    }

    /// All that is wrong with it, each with the name of its setting.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.place().err().unwrap_or_default()
    }

    /// The parts of its URL, if all is well.
    pub(super) fn place(&self) -> Result<Place, Vec<String>> {
        let mut faults = Vec::new();
        let place = parse(&self.url)
            .map_err(|rule| faults.push(format!("url: {:?} {rule}", self.url)))
            .ok();
        if let Some(folder) = &self.config_dir
            && !["core-site.xml", "hdfs-site.xml"]
                .iter()
                .any(|name| folder.join(name).is_file())
        {
            faults.push(format!(
                "config_dir: neither core-site.xml nor hdfs-site.xml is in {}",
                folder.display()
            ));
        }
        if self.properties.keys().any(|key| key.trim().is_empty()) {
            faults.push("properties: one has no name".to_owned());
        }
        if self
            .user
            .as_deref()
            .is_some_and(|user| user.trim().is_empty())
        {
            faults.push("user: is empty".to_owned());
        }
        if let Some(Kerberos { principal, keytab }) = &self.kerberos {
            if principal.trim().is_empty() {
                faults.push("kerberos.principal: is empty".to_owned());
            }
            if keytab.as_ref().is_some_and(|keytab| !keytab.is_file()) {
                faults.push("kerberos.keytab: is no file that can be seen".to_owned());
            }
        }
        if self.deadline.is_zero() || self.deadline > DEADLINE_MAX {
            faults.push("deadline: must be more than 0 and at most 10 minutes".to_owned());
        }
        if self.data_deadline < self.deadline || self.data_deadline > DEADLINE_MAX {
            faults.push("data_deadline: must be between deadline and 10 minutes".to_owned());
        }
        if self
            .replication
            .is_some_and(|copies| copies == 0 || copies > REPLICATION_MAX)
        {
            faults.push(format!("replication: must be 1 to {REPLICATION_MAX}"));
        }
        if self
            .block_size
            .is_some_and(|bytes| bytes < BLOCK_BYTES_MIN || bytes % CHECKSUM_BYTES != 0)
        {
            faults.push(format!(
                "block_size: must be at least {BLOCK_BYTES_MIN} bytes, in steps of {CHECKSUM_BYTES}"
            ));
        }
        match place {
            Some(place) if faults.is_empty() => Ok(place),
            _ => Err(faults),
        }
    }
}

/// The parts of a URL, or the rule that it breaks.
fn parse(url: &str) -> Result<Place, &'static str> {
    let Some(rest) = url.strip_prefix("hdfs://") else {
        return Err("does not begin with hdfs://");
    };
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) => (authority, path.trim_end_matches('/')),
        None => (rest, ""),
    };
    if authority.is_empty() {
        return Err("names no host and no name service");
    }
    if authority.contains(|char: char| char.is_whitespace() || "@?#%,\\".contains(char)) {
        return Err("names a host with characters that no host has; a user is set by `user`");
    }
    let (host, port) = match authority.rsplit_once(':') {
        // The colons within an address of IPv6 are no port.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if host.is_empty() || (host.contains(':') && !(host.starts_with('[') && host.ends_with(']'))) {
        return Err("names a host that is none");
    }
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        return Err("has a port that is no number from 1 to 65535");
    }
    if !path.is_empty() && StorePath::new(path).is_err() {
        return Err(
            "names a folder that HDFS or the dump does not take: no empty parts, no '.' and '..', no colons",
        );
    }
    if path.contains('%') {
        return Err("has a '%' in its folder; write its characters as they are");
    }
    let base = match path {
        "" => String::new(),
        path => format!("/{path}"),
    };
    Ok(Place {
        authority: authority.to_owned(),
        host: host.to_owned(),
        base,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> Option<(String, String, String)> {
        let place = parse(url).ok()?;
        Some((place.authority, place.host, place.base))
    }

    fn owned(authority: &str, host: &str, base: &str) -> Option<(String, String, String)> {
        Some((authority.to_owned(), host.to_owned(), base.to_owned()))
    }

    #[test]
    fn urls_are_taken_apart() {
        assert_eq!(
            parts("hdfs://ns/warehouse/x"),
            owned("ns", "ns", "/warehouse/x")
        );
        assert_eq!(parts("hdfs://nn:8020/a/"), owned("nn:8020", "nn", "/a"));
        assert_eq!(parts("hdfs://nn:8020"), owned("nn:8020", "nn", ""));
        assert_eq!(parts("hdfs://nn:8020///"), owned("nn:8020", "nn", ""));
        assert_eq!(
            parts("hdfs://[::1]:8020/a"),
            owned("[::1]:8020", "[::1]", "/a")
        );
        assert_eq!(parts("hdfs://[::1]/a"), owned("[::1]", "[::1]", "/a"));
        for bad in [
            "",
            "/a",
            "file:///a",
            "viewfs://x/a",
            "hdfs://",
            "hdfs:///a",
            "hdfs://u@nn:1/a",
            "hdfs://nn:x/a",
            "hdfs://nn:0/a",
            "hdfs://nn:70000/a",
            "hdfs://:8020/a",
            "hdfs://a:b:1/a",
            "hdfs://nn:1/a/../b",
            "hdfs://nn:1/a//b",
            "hdfs://nn:1/a:b",
            "hdfs://nn:1/a%20b",
            "hdfs://n n/a",
            "hdfs://nn?x/a",
        ] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let settings = HdfsSettings {
            config_dir: Some("/nowhere/at/all".into()),
            user: Some(" ".to_owned()),
            kerberos: Some(Kerberos {
                principal: String::new(),
                keytab: Some("/nowhere/at/all".into()),
            }),
            deadline: Duration::from_hours(1),
            replication: Some(0),
            block_size: Some(BLOCK_BYTES_MIN + 1),
            ..HdfsSettings::new("nn:8020")
        };
        let faults = settings.faults();
        let names: Vec<_> = faults
            .iter()
            .map(|fault| fault.split(':').next().unwrap_or_default())
            .collect();
        assert_eq!(
            names,
            [
                "url",
                "config_dir",
                "user",
                "kerberos.principal",
                "kerberos.keytab",
                "deadline",
                "data_deadline",
                "replication",
                "block_size"
            ]
        );
        assert!(HdfsSettings::new("hdfs://nn:8020/a").faults().is_empty());
    }
}

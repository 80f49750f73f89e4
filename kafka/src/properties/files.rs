//! What a file holds, in few bytes, so that a renewed one is told from the same one written again.

use std::{
    collections::hash_map::DefaultHasher,
    hash::Hasher as _,
    io::{self, Read as _},
};

use crate::secrets::open_regular;

/// Most bytes of a file of certificates or keys; the bundles of operating systems have a quarter of a
/// megabyte. Whoever names the file by the API chooses what we read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The content of a file: its length and a hash, which says nothing of what is secret in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest {
    bytes: u64,
    hash: u64,
}

impl Digest {
    /// Reads a file.
    ///
    /// # Errors
    /// It is no file, cannot be read, or holds more than certificates do.
    pub(super) fn of(path: &str) -> io::Result<Self> {
        let mut file = open_regular(path)?.take(FILE_BYTES_MAX + 1);
        let mut hasher = DefaultHasher::new();
        let mut bytes = 0;
        let mut chunk = [0; 8 << 10];
        loop {
            let read = match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => continue,
                Err(fault) => return Err(fault),
            };
            hasher.write(chunk.get(..read).unwrap_or_default());
            bytes += read as u64;
        }
        if bytes > FILE_BYTES_MAX {
            let cause = format!("larger than {FILE_BYTES_MAX} bytes");
            return Err(io::Error::other(cause));
        }
        Ok(Self {
            bytes,
            hash: hasher.finish(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_content_of_a_file_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ca.pem");
        let digest = |content: &[u8]| {
            std::fs::write(&path, content).expect("written");
            Digest::of(path.to_str().expect("text")).map_err(|fault| fault.to_string())
        };
        let long = vec![b'x'; 20_000];
        let first = digest(&long).expect("readable");
        assert!(digest(&long) == Ok(first), "the same, written again");
        let mut other = long.clone();
        other[19_999] = b'y';
        assert!(digest(&other) != Ok(first), "one byte differs");
        assert!(digest(&long[1..]) != Ok(first), "one byte is missing");
        assert!(
            digest(b"").is_ok(),
            "the library says what is wrong with it"
        );
    }

    #[test]
    fn what_is_too_large_for_certificates_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("text");
        file.as_file().set_len(FILE_BYTES_MAX).expect("sparse");
        assert!(Digest::of(path).is_ok());
        file.as_file().set_len(FILE_BYTES_MAX + 1).expect("sparse");
        let fault = Digest::of(path).err().expect("too large");
        assert!(fault.to_string().contains("4194304"), "{fault}");
    }
}

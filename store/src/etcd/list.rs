//! Reading a whole prefix: in pages, all at one revision.

use std::{collections::BTreeMap, sync::atomic::AtomicI64, sync::atomic::Ordering};

use etcd_client::{GetOptions, GetResponse, KeyValue};
use tracing::debug;

use super::{EtcdStore, MESSAGE_BYTES_MAX, Repeat};
use crate::api::{Entry, Error, LeaseId, Result, Revision, Snapshot};

/// Most keys of a page.
const PAGE_KEYS: i64 = 1_000;
/// Attempts to read all pages before history under them is compacted.
const ATTEMPTS: u32 = 3;

/// A stored value as etcd gives it.
pub(super) fn entry(kv: &KeyValue) -> Entry {
    Entry {
        value: kv.value().to_vec(),
        create_revision: Revision(kv.create_revision()),
        mod_revision: Revision(kv.mod_revision()),
        lease: (kv.lease() != 0).then(|| LeaseId(kv.lease())),
    }
}

impl EtcdStore {
    pub(super) async fn list_paged(&self, prefix: &str) -> Result<Snapshot> {
        let mut attempt = 1;
        loop {
            match self.list_once(prefix).await {
                Err(Error::Compacted { .. }) if attempt < ATTEMPTS => attempt += 1,
                done => return done,
            }
        }
    }

    async fn list_once(&self, prefix: &str) -> Result<Snapshot> {
        let end = range_end(&self.full(prefix));
        let mut start = self.full(prefix);
        let mut snapshot = Snapshot::default();
        let limit = AtomicI64::new(PAGE_KEYS);
        loop {
            let mut page = self.page(&start, &end, snapshot.revision, &limit).await?;
            if snapshot.revision == Revision::default() {
                let header = page.take_header();
                snapshot.revision = Revision(header.map_or(0, |header| header.revision()));
            }
            self.collect(&page, &mut snapshot.entries);
            match page.kvs().last() {
                Some(last) if page.more() => {
                    start = last.key().to_vec();
                    start.push(0);
                }
                _ => return Ok(snapshot),
            }
        }
    }

    /// One page at `revision`, or at the newest for revision 0. Where the values are so large that
    /// `limit` of them do not fit in a message, it is lowered until they do.
    async fn page(
        &self,
        start: &[u8],
        end: &[u8],
        revision: Revision,
        limit: &AtomicI64,
    ) -> Result<GetResponse> {
        loop {
            let keys = limit.load(Ordering::Relaxed);
            let page = self.call(Repeat::Harmless, |link| {
                let options = GetOptions::new()
                    .with_range(end)
                    .with_limit(keys)
                    .with_revision(revision.0);
                let start = start.to_vec();
                async move {
                    let mut kv = link
                        .client
                        .kv_client()
                        .max_decoding_message_size(MESSAGE_BYTES_MAX);
                    Ok(kv.get(start, Some(options)).await?)
                }
            });
            match page.await {
                // The client's own refusal of a message too large has the code "out of range".
                Err(Error::Invalid(message)) if keys > 1 => {
                    debug!(keys, %message, "page too large, asking for fewer keys");
                    limit.store((keys / 8).max(1), Ordering::Relaxed);
                }
                done => return done,
            }
        }
    }

    fn collect(&self, page: &GetResponse, entries: &mut BTreeMap<String, Entry>) {
        for kv in page.kvs() {
            // Our keys are text; what others may have put under the root is not for us.
            if let Some(key) = kv
                .key_str()
                .ok()
                .and_then(|key| key.strip_prefix(&self.root))
            {
                entries.insert(key.to_owned(), entry(kv));
            }
        }
    }
}

/// The first key after all that start with `prefix`.
pub(super) fn range_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // etcd's word for "to the last key".
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::range_end;

    #[test]
    fn a_range_ends_after_the_last_key_of_the_prefix() {
        assert_eq!(range_end(b"/k/"), b"/k0");
        assert_eq!(range_end(b"a\xff"), b"b");
        assert_eq!(range_end(b"\xff"), b"\0");
    }
}

//! Finding out whether a store keeps its promises to this process before anything rests on them.

use bytes::Bytes;
use kreplicator_model::dump::{commit::RenameOutcome, path::StorePath};

use super::{FileStore, Kind, Result, StoreError};

/// Some bytes, so that a store that takes names and no data is found out too.
const CONTENT: &[u8] = b"written by kreplicator to find out whether it may; may be deleted\n";

/// Makes, closes, renames and deletes files directly below the root, under names that nobody else uses and that
/// readers of tables pass over. What is left when it fails half-way may be deleted.
///
/// # Errors
/// What the store says; [`Kind::Setting`] where it renames over what is there, or loses what was written.
pub(super) async fn probe(store: &dyn FileStore) -> Result<()> {
    let draw: u64 = rand::random();
    let name = |end: &str| {
        StorePath::new(format!("_kreplicator-probe-{draw:016x}-{end}")).expect("a plain name")
    };
    let (source, target) = (name("a"), name("b"));
    let outcome = steps(store, &source, &target).await;
    let mut deleted = Ok(());
    for path in [&source, &target] {
        deleted = deleted.and(store.delete(path).await);
    }
    outcome.and(deleted)
}

async fn steps(store: &dyn FileStore, source: &StorePath, target: &StorePath) -> Result<()> {
    let fault = |kind, text: String| {
        Err(StoreError {
            kind,
            root: store.root().to_owned(),
            path: None,
            text,
        })
    };
    let mut file = store.create(source).await?;
    file.write(Bytes::from_static(CONTENT)).await?;
    let length = file.close().await?;
    if usize::try_from(length) != Ok(CONTENT.len()) {
        return fault(
            Kind::Setting,
            format!("of {} bytes written it keeps {length}", CONTENT.len()),
        );
    }
    match store.rename(source, target).await? {
        RenameOutcome::Done => {}
        RenameOutcome::Unknown => {
            return fault(
                Kind::Unknown,
                "a rename was not answered in time".to_owned(),
            );
        }
        odd @ (RenameOutcome::Occupied | RenameOutcome::SourceMissing) => {
            return fault(
                Kind::Setting,
                format!("it renames a file of ours to a free name and says {odd:?}"),
            );
        }
    }
    store.create(source).await?.close().await?;
    match store.rename(source, target).await? {
        RenameOutcome::Occupied => Ok(()),
        RenameOutcome::Unknown => fault(
            Kind::Unknown,
            "a rename was not answered in time".to_owned(),
        ),
        odd @ (RenameOutcome::Done | RenameOutcome::SourceMissing) => fault(
            Kind::Setting,
            format!(
                "asked to rename over a file it says {odd:?}; the dump needs a store that refuses that"
            ),
        ),
    }
}

//! A lane without network.

/// When tests happen, milliseconds since 1970.
pub(in crate::batches) const BASE_TIME: i64 = 1_700_000_000_000;

pub(in crate::batches) struct Rig;

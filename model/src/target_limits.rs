//! What a target topic refuses, as far as a sender must know it before it sends.

use std::time::Duration;

/// Settings of the target topic that decide whether a record may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TargetLimits {
    /// Largest batch in bytes; None: unknown.
    pub max_message_bytes: Option<u64>,
    /// Oldest record accepted, before now; None: no limit.
    pub timestamp_before_max: Option<Duration>,
    /// Newest record accepted, after now; None: no limit.
    pub timestamp_after_max: Option<Duration>,
    /// Null keys are refused.
    pub compacted: bool,
    /// The target overwrites timestamps.
    pub log_append_time: bool,
}

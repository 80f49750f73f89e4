//! The bits that say how a batch is compressed, timed and meant.

use crate::codec::Compression;

/// Which clock set a record's timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer's: each record has its own.
    CreateTime,
    /// The broker's, when it appended the batch: readers see the batch's maximum for every record.
    LogAppendTime,
}

/// The attribute bits of a batch; the codec in them is a known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attributes {
    bits: i16,
    compression: Compression,
}

impl Attributes {
    const TIMESTAMP_TYPE: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;
    const DELETE_HORIZON: i16 = 1 << 6;
    /// The bits that say how the payload is compressed.
    pub(crate) const COMPRESSION: i16 = 0x07;

    /// The attributes in `bits`; `None` if they name an unknown codec. Bits without a meaning are kept.
    pub fn from_bits(bits: i16) -> Option<Self> {
        let compression = Compression::from_code((bits & Self::COMPRESSION) as u8)?;
        Some(Self { bits, compression })
    }

    /// Attributes of a plain batch of data.
    pub fn new(compression: Compression, timestamp_type: TimestampType) -> Self {
        let time = match timestamp_type {
            TimestampType::CreateTime => 0,
            TimestampType::LogAppendTime => Self::TIMESTAMP_TYPE,
        };
        Self {
            bits: i16::from(compression.code()) | time,
            compression,
        }
    }

    /// With the transactional bit set.
    pub fn transactional(self) -> Self {
        Self {
            bits: self.bits | Self::TRANSACTIONAL,
            ..self
        }
    }

    /// With the control bit set.
    pub fn control(self) -> Self {
        Self {
            bits: self.bits | Self::CONTROL,
            ..self
        }
    }

    /// The bits as they are written.
    pub fn bits(self) -> i16 {
        self.bits
    }

    /// How the payload is compressed.
    pub fn compression(self) -> Compression {
        self.compression
    }

    /// Which clock set the timestamps.
    pub fn timestamp_type(self) -> TimestampType {
        if self.bits & Self::TIMESTAMP_TYPE == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch was written in a transaction (or marks the end of one).
    pub fn is_transactional(self) -> bool {
        self.bits & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch holds a control record instead of data.
    pub fn is_control(self) -> bool {
        self.bits & Self::CONTROL != 0
    }

    /// Whether the base timestamp is the time from which the cleaner may remove the batch's tombstones.
    pub fn has_delete_horizon(self) -> bool {
        self.bits & Self::DELETE_HORIZON != 0
    }
}

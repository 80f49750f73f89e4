//! Durations and sizes as people write them.

/// A duration with its unit: `5s`, `1h 30m`.
pub(super) mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*duration))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map_err(|error| {
            D::Error::custom(format!("{text:?} is no duration such as 5s or 1m: {error}"))
        })
    }
}

/// A number of bytes: `512MiB`, or a plain number.
pub(super) mod bytes {
    use std::fmt;

    use bytesize::ByteSize;
    use serde::{
        Deserializer, Serializer,
        de::{Error, Visitor},
    };

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &u64,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&exact(*bytes))
    }

    /// In the largest unit that loses nothing.
    fn exact(bytes: u64) -> String {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let fitting = units
            .into_iter()
            .find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
        match fitting {
            Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
            None => format!("{bytes}B"),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<u64, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = u64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 512MiB")
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<u64, E> {
                Ok(bytes)
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
                u64::try_from(bytes).map_err(|_| E::custom(format!("{bytes} bytes is negative")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
                text.parse::<ByteSize>()
                    .map(|size| size.0)
                    .map_err(|error| {
                        E::custom(format!("{text:?} is no size such as 512MiB: {error}"))
                    })
            }
        }

        deserializer.deserialize_any(Bytes)
    }
}

//! Durations and sizes in settings, as people write them: for `#[serde(with = "…")]`.

/// A duration with its unit: `5s`, `1h 30m`.
pub mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes it as it reads best; nothing is lost.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*duration))
    }

    /// Reads one; a number without a unit is none.
    ///
    /// # Errors
    /// What is read is no duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map_err(|error| {
            D::Error::custom(format!("{text:?} is no duration such as 5s or 1m: {error}"))
        })
    }
}

/// A number of bytes: `512MiB`, or a plain number.
pub mod bytes {
    use std::fmt;

    use bytesize::ByteSize;
    use serde::{
        Deserializer, Serializer,
        de::{Error, Visitor},
    };

    /// Writes it in the largest unit that loses nothing.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&exact(*bytes))
    }

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

    /// Reads one.
    ///
    /// # Errors
    /// What is read is no size.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Settings {
        #[serde(with = "super::duration")]
        wait: Duration,
        #[serde(with = "super::bytes")]
        size: u64,
    }

    #[test]
    fn what_is_written_reads_back_exactly() {
        let sizes = [
            0,
            1,
            1_023,
            1 << 10,
            (1 << 20) + 1,
            512 << 20,
            3 << 30,
            u64::MAX,
        ];
        for (n, size) in sizes.into_iter().enumerate() {
            let settings = Settings {
                wait: Duration::from_millis(90_061 * n as u64),
                size,
            };
            let text = serde_json::to_string(&settings).expect("serializable");
            let read: Settings = serde_json::from_str(&text).expect("readable");
            assert_eq!(read, settings, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_or_size_is_named() {
        for (text, named) in [
            (r#"{"wait": "3 parsecs", "size": 1}"#, "3 parsecs"),
            (r#"{"wait": "1s", "size": "many"}"#, "many"),
            (r#"{"wait": "1s", "size": -1}"#, "negative"),
        ] {
            let fault = serde_json::from_str::<Settings>(text).expect_err(text);
            assert!(fault.to_string().contains(named), "{fault}");
        }
    }
}

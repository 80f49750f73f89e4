//! Values of the metadata store as bytes: written and read here and nowhere else.
//!
//! A value that cannot be read is an error that names its key, never a default: absent is not
//! corrupt.

use prost::Message;

use crate::{
    assignment::{Assignment, Ownership},
    fault::{FieldFault, summary},
    line_record::{LineRecord, ProducerRecord},
    subscription_record::SubscriptionRecord,
    v1,
};

/// A stored value that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stored value {key} cannot be read: {reason}")]
pub struct Unreadable {
    /// Its key.
    pub key: String,
    /// What is wrong with it.
    pub reason: String,
}

/// A checked value with its stored form.
pub trait Stored: Sized {
    /// The message it is stored as.
    type Message: Message + Default;

    /// The message that stands for this value.
    fn to_message(&self) -> Self::Message;

    /// Checks a message.
    ///
    /// # Errors
    /// Every fault of the message.
    fn from_message(message: &Self::Message) -> Result<Self, Vec<FieldFault>>;

    /// The bytes to store; the same for equal values.
    fn encode(&self) -> Vec<u8> {
        self.to_message().encode_to_vec()
    }

    /// Reads the bytes found at `key`.
    ///
    /// # Errors
    /// [`Unreadable`] with the key and every fault.
    fn decode(key: &str, bytes: &[u8]) -> Result<Self, Unreadable> {
        let message: Self::Message = message(key, bytes)?;
        Self::from_message(&message).map_err(|faults| Unreadable {
            key: key.to_owned(),
            reason: summary(&faults),
        })
    }
}

/// Reads a plain message (one without a checked form: `Leader`, `WorkerLive`, …) found at `key`.
///
/// # Errors
/// [`Unreadable`] with the key.
pub fn message<M: Message + Default>(key: &str, bytes: &[u8]) -> Result<M, Unreadable> {
    M::decode(bytes).map_err(|error| Unreadable {
        key: key.to_owned(),
        reason: error.to_string(),
    })
}

/// Empty text means absent.
pub(crate) fn present(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

macro_rules! stored {
    ($($value:ty => $message:ty),* $(,)?) => {$(
        impl Stored for $value {
            type Message = $message;

            fn to_message(&self) -> Self::Message {
                Self::Message::from(self)
            }

            fn from_message(message: &Self::Message) -> Result<Self, Vec<FieldFault>> {
                Self::try_from(message)
            }
        }
    )*};
}

stored! {
    kreplicator_model::spec::Cluster => v1::Cluster,
    kreplicator_model::spec::Link => v1::Link,
    SubscriptionRecord => v1::SubscriptionRecord,
    kreplicator_model::resolve::TopicRecord => v1::TopicRecord,
    Assignment => v1::AssignmentChunk,
    Ownership => v1::OwnedChunk,
    LineRecord => v1::LineRecord,
    ProducerRecord => v1::ProducerRecord,
}

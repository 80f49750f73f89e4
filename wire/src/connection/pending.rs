//! Answers that are on the way.

use std::{fmt, marker::PhantomData, sync::Arc};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::Shared;
use crate::{call::Call, error::Error};

/// A request that was written and is not answered yet.
#[must_use = "the answer tells whether it was done"]
pub struct Pending<C> {
    shared: Arc<Shared>,
    version: i16,
    answered: oneshot::Receiver<Result<Bytes, Error>>,
    call: PhantomData<fn() -> C>,
}

impl<C: Call> Pending<C> {
    pub(super) fn new(
        shared: Arc<Shared>,
        version: i16,
        answered: oneshot::Receiver<Result<Bytes, Error>>,
    ) -> Self {
        Self {
            shared,
            version,
            answered,
            call: PhantomData,
        }
    }

    /// Waits for the answer. Answers of one connection come in the order of submission.
    ///
    /// # Errors
    /// As [`Connection::send`](super::Connection::send).
    pub async fn answer(self) -> Result<C::Answer, Error> {
        let body = match self.answered.await {
            Ok(body) => body?,
            Err(_dropped) => return Err(self.shared.fault()),
        };
        match C::decode(body, self.version) {
            Ok(answer) => {
                self.shared.keep_silent(C::throttle(&answer));
                Ok(answer)
            }
            Err(cause) => {
                let fault = Error::Malformed {
                    broker: Arc::clone(&self.shared.broker),
                    api: C::NAME,
                    cause,
                };
                // Who garbles one answer is not trusted with the next.
                self.shared.end(|_| fault.clone());
                Err(fault)
            }
        }
    }

    /// The version that the request was written in.
    #[must_use]
    pub fn version(&self) -> i16 {
        self.version
    }
}

impl<C> fmt::Debug for Pending<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("broker", &self.shared.broker)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

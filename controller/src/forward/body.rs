//! Bodies on their way through: one that can be taken back, one that can be cut off.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use kreplicator_proto::status::Refusal;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, body::Body};

#[derive(Debug)]
struct Purse {
    body: Option<Body>,
    touched: bool,
}

/// A request body that its [`Loan`] can take back as long as nobody has read from it.
#[derive(Debug)]
pub(super) struct Lent(Arc<Mutex<Purse>>);

/// The claim on a [`Lent`] body.
#[derive(Debug)]
pub(super) struct Loan(Arc<Mutex<Purse>>);

impl Lent {
    pub(super) fn new(body: Body) -> (Self, Loan) {
        let purse = Arc::new(Mutex::new(Purse {
            body: Some(body),
            touched: false,
        }));
        (Self(Arc::clone(&purse)), Loan(purse))
    }
}

impl Loan {
    /// The body, unless some of it may have been sent.
    pub(super) fn take_back(self) -> Option<Body> {
        let mut purse = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if purse.touched {
            return None;
        }
        purse.body.take()
    }
}

impl http_body::Body for Lent {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut purse = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        purse.touched = true;
        match &mut purse.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let purse = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        purse.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let purse = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &purse.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// A response body that ends with UNAVAILABLE when the token fires, and when what it comes from
/// breaks: the caller gets a status, not a broken stream.
pub(super) struct Cuttable {
    body: Body,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    ended: bool,
}

impl Cuttable {
    pub(super) fn new(body: Body, cut: CancellationToken) -> Self {
        Self {
            body,
            cut: Box::pin(cut.cancelled_owned()),
            ended: false,
        }
    }
}

impl http_body::Body for Cuttable {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Err(broken))) => {
                self.ended = true;
                return Poll::Ready(Some(last_word(Refusal::Unavailable(format!(
                    "the connection to the leader broke: {}; repeat the call, with the same request id",
                    broken.message()
                )))));
            }
            Poll::Ready(frame) => {
                self.ended = frame.is_none();
                return Poll::Ready(frame);
            }
            Poll::Pending => {}
        }
        if self.cut.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.ended = true;
        Poll::Ready(Some(last_word(super::shutting_down())))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The frame that ends a body with a status.
fn last_word(refusal: Refusal) -> Result<Frame<Bytes>, Status> {
    let status = Status::from(refusal);
    let mut trailers = http::HeaderMap::new();
    status.add_header(&mut trailers)?;
    Ok(Frame::trailers(trailers))
}

impl fmt::Debug for Cuttable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuttable")
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http_body::Body as _;

    use super::*;

    /// Never gives anything, never ends.
    struct Silent;

    impl http_body::Body for Silent {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_body_can_be_taken_back_only_untouched() {
        let (lent, loan) = Lent::new(Body::new(Silent));
        assert!(!lent.is_end_stream());
        drop(lent);
        assert!(loan.take_back().is_some());

        let (mut lent, loan) = Lent::new(Body::new(Silent));
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut lent).poll_frame(cx).is_pending()));
        assert!(polled.await);
        assert!(loan.take_back().is_none());
    }

    #[tokio::test]
    async fn a_cut_body_ends_with_a_status() {
        let cut = CancellationToken::new();
        let mut body = Cuttable::new(Body::new(Silent), cut.clone());
        let pending = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending()));
        assert!(pending.await);
        cut.cancel();
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let frame = frame.expect("a last frame").expect("no error");
        let trailers = frame.trailers_ref().expect("trailers");
        assert_eq!(trailers["grpc-status"], "14");
        assert!(body.is_end_stream());
        let after = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(after.is_none());
    }
}

//! Futures driven by hand.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

/// Polls it once.
pub(crate) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls it until it is done; it waits for nothing but the store in memory.
pub(crate) fn finish<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..1_000_000 {
        if let Poll::Ready(done) = poll_once(future.as_mut()) {
            return done;
        }
    }
    panic!("it waits for something else");
}

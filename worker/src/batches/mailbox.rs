//! A queue between two parts of one task that costs next to nothing while it is empty.
//!
//! Most tasks of a worker are quiet most of the time. A channel of Tokio holds room for 32 messages from its
//! first moment on, some kilobytes that are never used there; this queue holds only what waits. Messages
//! are rare: for what flows, take a channel.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// A queue without messages.
pub(super) fn mailbox<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue {
            messages: VecDeque::new(),
            is_sender_gone: false,
            is_receiver_gone: false,
        }),
        news: Notify::new(),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

/// Puts messages in. The queue is closed when it is dropped.
#[derive(Debug)]
pub(super) struct Sender<T>(Arc<Shared<T>>);

/// Takes messages out, in their order.
#[derive(Debug)]
pub(super) struct Receiver<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// Something has changed for the one who receives.
    news: Notify,
}

#[derive(Debug)]
struct Queue<T> {
    messages: VecDeque<T>,
    is_sender_gone: bool,
    is_receiver_gone: bool,
}

impl<T> Sender<T> {
    /// Puts a message in.
    ///
    /// # Errors
    /// The message, when nobody will ever take it out.
    pub(super) fn send(&self, message: T) -> Result<(), T> {
        {
            let mut queue = self.0.lock();
            if queue.is_receiver_gone {
                return Err(message);
            }
            queue.messages.push_back(message);
        }
        self.0.news.notify_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// The next message; None: there is none left and no more come. Nothing is lost when the wait is given
    /// up.
    pub(super) async fn recv(&mut self) -> Option<T> {
        loop {
            {
                let mut queue = self.0.lock();
                if let Some(message) = queue.take() {
                    return Some(message);
                }
                if queue.is_sender_gone {
                    return None;
                }
            }
            // What came since is remembered: there is but one who waits.
            self.0.news.notified().await;
        }
    }

    /// The next message, if there is one now.
    pub(super) fn try_recv(&mut self) -> Option<T> {
        self.0.lock().take()
    }
}

impl<T> Queue<T> {
    fn take(&mut self) -> Option<T> {
        let message = self.messages.pop_front();
        if self.messages.is_empty() {
            self.messages = VecDeque::new();
        }
        message
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.lock().is_sender_gone = true;
        self.0.news.notify_one();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut queue = self.0.lock();
            queue.is_receiver_gone = true;
            std::mem::take(&mut queue.messages)
        };
        // Not under the lock: messages may answer when they are dropped.
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{sync::oneshot, time::timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn messages_come_in_order_and_a_wait_that_is_given_up_loses_none() {
        let (sender, mut receiver) = mailbox();
        let short = Duration::from_millis(1);
        assert!(
            timeout(short, receiver.recv()).await.is_err(),
            "it is empty"
        );
        for number in 0..3 {
            sender.send(number).expect("there is a receiver");
        }
        assert_eq!(receiver.recv().await, Some(0));
        assert_eq!(receiver.try_recv(), Some(1));
        assert_eq!(receiver.recv().await, Some(2));
        assert_eq!(receiver.try_recv(), None);
        assert!(
            timeout(short, receiver.recv()).await.is_err(),
            "it is empty"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_woken_by_a_message_and_by_the_end() {
        let (sender, mut receiver) = mailbox();
        let waiting = tokio::spawn(async move { (receiver.recv().await, receiver.recv().await) });
        tokio::task::yield_now().await;
        sender.send(7).expect("there is a receiver");
        tokio::task::yield_now().await;
        drop(sender);
        let both = timeout(Duration::from_secs(1), waiting).await;
        assert_eq!(both.expect("woken").expect("no panic"), (Some(7), None));
    }

    #[tokio::test]
    async fn what_was_sent_before_the_end_is_still_taken() {
        let (sender, mut receiver) = mailbox();
        sender.send("last").expect("there is a receiver");
        drop(sender);
        assert_eq!(receiver.recv().await, Some("last"));
        assert_eq!(receiver.recv().await, None);
        assert_eq!(receiver.recv().await, None, "asked again");
    }

    #[tokio::test]
    async fn nobody_sends_to_a_receiver_that_is_gone_and_what_it_left_is_dropped() {
        let (sender, receiver) = mailbox();
        let (reply, mut replied) = oneshot::channel::<()>();
        sender.send(reply).expect("there is a receiver");
        drop(receiver);
        assert!(replied.try_recv().is_err(), "the question was dropped");
        let (reply, _replied) = oneshot::channel::<()>();
        assert!(sender.send(reply).is_err());
    }

    #[test]
    fn an_empty_queue_holds_no_room() {
        let (sender, mut receiver) = mailbox();
        sender.send([0_u8; 64]).expect("there is a receiver");
        receiver.try_recv().expect("there is one");
        assert_eq!(receiver.0.lock().messages.capacity(), 0);
    }
}

//! Many who ask one by one, and one who asks for all of them at once: while a question is under way,
//! those that come meanwhile wait and go together into the next. Thousands of tasks that start at the
//! same time so cost a handful of requests.

use std::{collections::BTreeMap, future::Future, pin::Pin};

use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

/// Keys in one question.
const KEYS_MAX: usize = 5_000;

type Asked<K, V> = (K, oneshot::Sender<V>);
type Answers<K, V> = Pin<Box<dyn Future<Output = BTreeMap<K, V>> + Send>>;

/// Puts questions together. Clones are the same; its task ends with the last of them.
#[derive(Debug)]
pub(super) struct Gather<K, V>(mpsc::UnboundedSender<Asked<K, V>>);

impl<K, V> Clone for Gather<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> Gather<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: Clone + Send + 'static,
{
    /// Asks by `ask`, which has to answer within a deadline of its own; a key that it does not answer
    /// is answered by None.
    pub(super) fn new(
        tracker: &TaskTracker,
        ask: impl Fn(Vec<K>) -> Answers<K, V> + Send + 'static,
    ) -> Self {
        let (sender, asked) = mpsc::unbounded_channel();
        tracker.spawn(serve(asked, ask));
        Self(sender)
    }

    /// The answer for one key; None: there was none.
    pub(super) async fn ask(&self, key: K) -> Option<V> {
        let (reply, answer) = oneshot::channel();
        self.0.send((key, reply)).ok()?;
        answer.await.ok()
    }
}

async fn serve<K, V>(
    mut asked: mpsc::UnboundedReceiver<Asked<K, V>>,
    ask: impl Fn(Vec<K>) -> Answers<K, V>,
) where
    K: Ord + Clone,
    V: Clone,
{
    let mut batch = Vec::new();
    while asked.recv_many(&mut batch, KEYS_MAX).await > 0 {
        let mut waiting: BTreeMap<K, Vec<oneshot::Sender<V>>> = BTreeMap::new();
        for (key, reply) in batch.drain(..) {
            waiting.entry(key).or_default().push(reply);
        }
        let mut answers = ask(waiting.keys().cloned().collect()).await;
        for (key, replies) in waiting {
            let Some(answer) = answers.remove(&key) else {
                continue;
            };
            for reply in replies {
                // Whoever asked may have lost interest.
                drop(reply.send(answer.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use futures::future::join_all;
    use tokio::time::{Duration, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_during_a_question_goes_into_the_next_together() {
        let calls = Arc::new(AtomicUsize::new(0));
        let tracker = TaskTracker::new();
        let gather = Gather::new(&tracker, {
            let calls = Arc::clone(&calls);
            move |keys: Vec<u32>| {
                calls.fetch_add(1, Ordering::SeqCst);
                Box::pin(async move {
                    sleep(Duration::from_millis(10)).await;
                    keys.into_iter()
                        .filter(|key| *key != 7)
                        .map(|key| (key, key * 2))
                        .collect()
                })
            }
        });
        let first = gather.ask(1);
        let rest = join_all((0..1_000).map(|key| gather.ask(key)));
        let (first, rest) = tokio::join!(first, rest);
        assert_eq!(first, Some(2));
        assert_eq!(rest[6], Some(12));
        assert_eq!(rest[7], None, "not answered");
        assert_eq!(rest[999], Some(1_998));
        assert!(calls.load(Ordering::SeqCst) <= 2);
    }
}

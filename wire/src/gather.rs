//! Many callers at once make few calls: while one call is under way, what others ask for is collected
//! and goes into the next one together.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{sync::oneshot, task::yield_now};

/// Collects questions by key. One call a key is under way at a time.
pub struct Gather<K, Q, A>(Mutex<BTreeMap<K, Arc<Line<Q, A>>>>);

/// Those who wait for the next call of one key.
struct Line<Q, A> {
    waiting: Mutex<Vec<(Q, oneshot::Sender<A>)>>,
    turn: tokio::sync::Mutex<()>,
}

/// Forgets a key once nobody asks for it any more, also when its callers have given up.
struct Visit<'a, K: Ord + Clone, Q, A> {
    gather: &'a Gather<K, Q, A>,
    key: K,
    line: Arc<Line<Q, A>>,
}

impl<K: Ord + Clone, Q: Clone, A> Gather<K, Q, A> {
    /// Nobody waits.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::default())
    }

    /// Asks one question and waits for its answer. `call` is given all questions that were asked since
    /// the last call began, this one perhaps among them, and gives an answer to each, in order; it
    /// begins after this question was asked. It runs within one of the waiting callers: when that
    /// one is dropped meanwhile, the others ask again.
    pub async fn ask<F>(&self, key: &K, question: Q, mut call: impl FnMut(Vec<Q>) -> F) -> A
    where
        F: Future<Output = Vec<A>>,
    {
        let visit = self.visit(key);
        let line = &visit.line;
        loop {
            let (sender, mut answer) = oneshot::channel();
            line.lock().push((question.clone(), sender));
            let turn = tokio::select! {
                biased;
                answered = &mut answer => match answered {
                    Ok(answer) => return answer,
                    // Whoever carried it has given up.
                    Err(_) => continue,
                },
                turn = line.turn.lock() => turn,
            };
            // Those who were woken together with this one get to ask before the call begins. And a timeout
            // around this one that has passed drops it here, before it carries anybody.
            yield_now().await;
            let mut waiting = std::mem::take(&mut *line.lock());
            waiting.retain(|(_, sender)| !sender.is_closed());
            let (questions, senders): (Vec<Q>, Vec<_>) = waiting.into_iter().unzip();
            if !questions.is_empty() {
                // Thousands may wait here: only who carries the call has the memory for it.
                let answers = Box::pin(call(questions)).await;
                for (sender, answer) in senders.into_iter().zip(answers) {
                    // A caller that has given up needs no answer.
                    drop(sender.send(answer));
                }
            }
            drop(turn);
            if let Ok(answer) = answer.await {
                return answer;
            }
        }
    }

    fn visit(&self, key: &K) -> Visit<'_, K, Q, A> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.entry(key.clone()).or_insert_with(|| {
            Arc::new(Line {
                waiting: Mutex::default(),
                turn: tokio::sync::Mutex::default(),
            })
        });
        Visit {
            gather: self,
            key: key.clone(),
            line: Arc::clone(line),
        }
    }

    #[cfg(test)]
    fn keys(&self) -> usize {
        self.0.lock().expect("no test panics holding it").len()
    }
}

impl<Q, A> Line<Q, A> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Q, oneshot::Sender<A>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone, Q, A> Drop for Visit<'_, K, Q, A> {
    fn drop(&mut self) {
        let lines = &self.gather.0;
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        // The table's and this one.
        if Arc::strong_count(&self.line) == 2 {
            lines.remove(&self.key);
        }
    }
}

impl<K: Ord + Clone, Q: Clone, A> Default for Gather<K, Q, A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, Q, A> fmt::Debug for Gather<K, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use futures::future::join_all;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_questions_go_into_one_call_and_each_gets_its_own_answer() {
        let gather = Gather::new();
        let calls = AtomicUsize::new(0);
        let ask = |n: u64| {
            let (gather, calls) = (&gather, &calls);
            async move {
                let call = |questions: Vec<u64>| async move {
                    calls.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_secs(1)).await;
                    questions.into_iter().map(|n| n * 10).collect()
                };
                gather.ask(&"orders", n, call).await
            }
        };
        let answers = join_all((0..64).map(ask)).await;
        let expected: Vec<u64> = (0..64).map(|n| n * 10).collect();
        assert_eq!(answers, expected);
        assert_eq!(
            calls.load(Ordering::SeqCst),
            1,
            "all began to ask before it"
        );
        assert_eq!(gather.keys(), 0, "nothing is remembered");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_do_not_wait_for_each_other() {
        let gather: Gather<&str, (), ()> = Gather::new();
        let stuck = gather.ask(&"a", (), |_| std::future::pending());
        let quick = gather.ask(
            &"b",
            (),
            |questions| async move { vec![(); questions.len()] },
        );
        tokio::select! {
            () = stuck => panic!("it never ends"),
            done = timeout(Duration::from_secs(1), quick) => done.expect("at once"),
        }
        assert_eq!(gather.keys(), 0, "also after a caller has given up");
    }

    #[tokio::test(start_paused = true)]
    async fn callers_whose_carrier_has_given_up_ask_again() {
        let gather = Gather::new();
        let echo = |questions: Vec<u64>| async move {
            sleep(Duration::from_secs(5)).await;
            questions
        };
        let first = timeout(Duration::from_secs(1), gather.ask(&0, 1, echo));
        let others = join_all((2..5).map(|n| gather.ask(&0, n, echo)));
        // The second call, which carries all others, is given up as well.
        let second = timeout(Duration::from_secs(2), gather.ask(&0, 9, echo));
        let (first, second, others) = tokio::join!(first, second, others);
        assert!(first.is_err() && second.is_err());
        assert_eq!(others, [2, 3, 4]);
        assert_eq!(gather.keys(), 0);
    }
}

//! What a task tells of itself: the driver and the inspection write it, anybody reads it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kreplicator_model::{
    ids::{Offset, UnixMillis},
    spec,
};

use crate::engine::{Delivery, PathSeen, State, Status};

/// The numbers of a status, all of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) checkpoint: Option<Offset>,
    pub(crate) in_flight: u64,
    pub(crate) moved_at: UnixMillis,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) gap_records: u64,
}

/// What an engine promises and how it keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) engine: spec::Engine,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) path: Option<PathSeen>,
}

/// The words of a status; the numbers are the lane's.
#[derive(Debug)]
pub(crate) struct Board(Mutex<Words>);

#[derive(Debug, Clone)]
struct Words {
    state: State,
    since: UnixMillis,
    cause: String,
    retry_at: Option<UnixMillis>,
    /// Trouble that stops nothing by itself: the client goes on trying.
    trouble: Option<Trouble>,
    log_start: Option<Offset>,
    log_end: Option<Offset>,
    at_end_at: Option<UnixMillis>,
}

#[derive(Debug, Clone)]
struct Trouble {
    cause: String,
    since: UnixMillis,
}

impl Board {
    pub(crate) fn new(now: UnixMillis) -> Self {
        Self(Mutex::new(Words {
            state: State::Starting,
            since: now,
            cause: String::new(),
            retry_at: None,
            trouble: None,
            log_start: None,
            log_end: None,
            at_end_at: None,
        }))
    }

    /// The task entered a state.
    pub(crate) fn enter(&self, state: State, now: UnixMillis) {
        let mut words = self.lock();
        if words.state != state {
            words.state = state;
            words.since = now;
        }
        if state != State::Faulted {
            words.cause.clear();
            words.retry_at = None;
        }
    }

    /// The task cannot go on for a while.
    pub(crate) fn fault(&self, cause: &str, retry_at: Option<UnixMillis>, now: UnixMillis) {
        let mut words = self.lock();
        if words.state != State::Faulted {
            words.state = State::Faulted;
            words.since = now;
        }
        cause.clone_into(&mut words.cause);
        words.retry_at = retry_at;
    }

    /// Shows trouble that the clients are busy overcoming, or its end.
    pub(crate) fn trouble(&self, cause: Option<&str>, now: UnixMillis) {
        let mut words = self.lock();
        match (&mut words.trouble, cause) {
            (trouble, None) => *trouble = None,
            (Some(trouble), Some(cause)) => cause.clone_into(&mut trouble.cause),
            (trouble @ None, Some(cause)) => {
                *trouble = Some(Trouble {
                    cause: cause.to_owned(),
                    since: now,
                });
            }
        }
    }

    /// The log's range as just measured; None where it cannot be.
    pub(crate) fn measured(
        &self,
        log: Option<(Offset, Offset)>,
        numbers: &Numbers,
        now: UnixMillis,
    ) {
        let mut words = self.lock();
        words.log_start = log.map(|(start, _)| start);
        words.log_end = log.map(|(_, end)| end);
        if words.log_end.is_some() && numbers.checkpoint >= words.log_end {
            words.at_end_at = Some(now);
        }
    }

    /// Everything together.
    pub(crate) fn status(&self, numbers: &Numbers, promise: Promise) -> Status {
        let words = self.lock().clone();
        let (mut state, mut since, mut cause) = (words.state, words.since, words.cause);
        if let Some(trouble) = words.trouble
            && matches!(state, State::Starting | State::Running)
        {
            state = State::Faulted;
            since = trouble.since;
            cause = trouble.cause;
        }
        let moved_at = numbers.checkpoint.map(|_| numbers.moved_at);
        Status {
            state,
            since,
            cause,
            retry_at: words.retry_at,
            checkpoint: numbers.checkpoint,
            log_start: words.log_start,
            log_end: words.log_end,
            progress_at: moved_at.max(words.at_end_at),
            records_total: numbers.records,
            bytes_total: numbers.bytes,
            gap_records_total: numbers.gap_records,
            in_flight_records: numbers.in_flight,
            engine: promise.engine,
            delivery: promise.delivery,
            path: promise.path,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Promise = Promise {
        engine: spec::Engine::Records,
        delivery: None,
        path: None,
    };

    fn numbers() -> Numbers {
        Numbers {
            checkpoint: Some(Offset(7)),
            in_flight: 2,
            moved_at: UnixMillis(50),
            records: 7,
            bytes: 70,
            gap_records: 0,
        }
    }

    #[test]
    fn trouble_shows_as_a_fault_with_its_own_beginning_and_leaves_no_trace() {
        let board = Board::new(UnixMillis(1));
        board.enter(State::Running, UnixMillis(10));
        board.trouble(Some("cluster east cannot be reached"), UnixMillis(20));
        board.trouble(
            Some("cluster east cannot be reached: refused"),
            UnixMillis(30),
        );
        let status = board.status(&numbers(), PROMISE);
        assert_eq!(
            (status.state, status.since),
            (State::Faulted, UnixMillis(20))
        );
        assert!(status.cause.ends_with("refused"), "{}", status.cause);
        board.trouble(None, UnixMillis(40));
        let status = board.status(&numbers(), PROMISE);
        assert_eq!(
            (status.state, status.since),
            (State::Running, UnixMillis(10))
        );
        assert_eq!(status.cause, "");
    }

    #[test]
    fn a_fault_keeps_its_beginning_over_retries_that_fail() {
        let board = Board::new(UnixMillis(1));
        board.fault("too large", Some(UnixMillis(15)), UnixMillis(10));
        board.fault("too large", Some(UnixMillis(40)), UnixMillis(20));
        let status = board.status(&numbers(), PROMISE);
        assert_eq!(status.since, UnixMillis(10));
        assert_eq!(status.retry_at, Some(UnixMillis(40)));
        board.enter(State::Running, UnixMillis(50));
        assert_eq!(board.status(&numbers(), PROMISE).cause, "");
    }

    #[test]
    fn c116_what_cannot_be_measured_is_shown_as_such_and_progress_at_the_end_is_progress() {
        let board = Board::new(UnixMillis(1));
        board.measured(Some((Offset(0), Offset(7))), &numbers(), UnixMillis(90));
        let status = board.status(&numbers(), PROMISE);
        assert_eq!(status.log_end, Some(Offset(7)));
        assert_eq!(status.progress_at, Some(UnixMillis(90)));
        board.measured(None, &numbers(), UnixMillis(95));
        let status = board.status(&numbers(), PROMISE);
        assert_eq!((status.log_start, status.log_end), (None, None));
        assert_eq!(status.progress_at, Some(UnixMillis(90)));
    }
}

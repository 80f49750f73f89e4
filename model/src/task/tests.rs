use proptest::prelude::*;

use super::*;

const S: fn(u64) -> Duration = Duration::from_secs;

/// A machine with its clock and everything it has asked for.
struct Rig {
    machine: Machine,
    now: Duration,
}

impl Rig {
    fn new() -> Self {
        Self {
            machine: Machine::new(Settings::default()),
            now: S(100),
        }
    }

    fn running() -> Self {
        let mut rig = Self::new();
        rig.takes(Input::Start, &[Action::OpenReader]);
        rig.takes(Input::Started, &[]);
        rig
    }

    fn step(&mut self, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        self.machine.step(self.now, input, &mut actions);
        actions
    }

    #[track_caller]
    fn takes(&mut self, input: Input, expected: &[Action]) {
        assert_eq!(self.step(input), expected);
    }

    fn attempts(&self) -> Option<u32> {
        match self.machine.state() {
            State::Starting { attempts }
            | State::Running { attempts, .. }
            | State::Faulted { attempts, .. } => Some(*attempts),
            State::Idle | State::Draining { .. } | State::Stopped { .. } => None,
        }
    }
}

fn fault(kind: FaultKind) -> Input {
    Input::Fault {
        cause: "target refused the record".to_owned(),
        kind,
        random: 1.0,
    }
}

#[test]
fn c041_a_planned_stop_pauses_drains_saves_and_releases() {
    let mut rig = Rig::running();
    rig.takes(Input::Progress, &[]);
    rig.takes(Input::Stop, &[Action::PauseReader]);
    rig.takes(
        Input::Drained,
        &[
            Action::CloseReader,
            Action::CommitCheckpoint,
            Action::Release,
        ],
    );
    assert_eq!(rig.machine.state(), &State::Stopped { clean: true });
}

#[test]
fn c046_a_task_that_does_not_drain_is_killed_at_its_deadline() {
    let killed = [Action::Kill, Action::CommitCheckpoint, Action::Release];
    let mut rig = Rig::running();
    rig.takes(Input::Stop, &[Action::PauseReader]);
    let deadline = rig.machine.next_tick().expect("a deadline");
    rig.now = deadline - Duration::from_millis(1);
    rig.takes(Input::Tick, &[]);
    rig.now = deadline;
    rig.takes(Input::Tick, &killed);
    assert_eq!(rig.machine.state(), &State::Stopped { clean: false });

    let mut rig = Rig::running();
    rig.takes(Input::Stop, &[Action::PauseReader]);
    rig.takes(Input::DeadlinePassed, &killed);
}

#[test]
fn c037_a_fenced_task_saves_nothing_and_releases_nothing() {
    let mut rig = Rig::running();
    rig.takes(Input::FenceLost, &[Action::Kill]);
    assert_eq!(rig.machine.state(), &State::Stopped { clean: false });
    rig.takes(Input::Drained, &[]);

    let mut rig = Rig::running();
    rig.takes(Input::Stop, &[Action::PauseReader]);
    rig.takes(Input::FenceLost, &[Action::Kill]);
}

#[test]
fn c032_a_fault_saves_what_is_acknowledged_before_it_starts_again() {
    let mut rig = Rig::running();
    rig.takes(
        fault(FaultKind::Retryable),
        &[Action::CloseReader, Action::CommitCheckpoint],
    );
    let retry_at = rig.machine.next_tick().expect("a retry");
    assert_eq!(retry_at, rig.now + Duration::from_millis(200));
    rig.takes(Input::Tick, &[]);
    rig.now = retry_at;
    rig.takes(Input::Tick, &[Action::OpenReader]);
    assert_eq!(rig.attempts(), Some(1));
}

#[test]
fn attempts_add_up_until_progress_is_steady() {
    let mut rig = Rig::running();
    for attempt in 1..=3 {
        rig.step(fault(FaultKind::Retryable));
        assert_eq!(rig.attempts(), Some(attempt));
        rig.now = rig.machine.next_tick().expect("a retry");
        rig.takes(Input::Tick, &[Action::OpenReader]);
        rig.takes(Input::Started, &[]);
        rig.takes(Input::Progress, &[]);
    }
    assert_eq!(
        rig.attempts(),
        Some(3),
        "a moment of progress is not steady"
    );
    rig.now += S(30);
    rig.takes(Input::Progress, &[]);
    assert_eq!(rig.attempts(), Some(0));
}

#[test]
fn a_terminal_fault_waits_for_somebody() {
    let mut rig = Rig::running();
    rig.step(fault(FaultKind::Terminal));
    assert_eq!(rig.machine.next_tick(), None);
    rig.now += S(3600);
    rig.takes(Input::Tick, &[]);
    rig.takes(Input::Start, &[Action::OpenReader]);
}

#[test]
fn a_faulted_task_tells_cause_and_time() {
    let mut rig = Rig::running();
    rig.now = S(250);
    rig.step(fault(FaultKind::Retryable));
    let State::Faulted { cause, since, .. } = rig.machine.state() else {
        panic!("faulted, not {}", rig.machine.state());
    };
    assert_eq!(cause, "target refused the record");
    assert_eq!(*since, S(250));
    rig.takes(Input::Stop, &[Action::Release]);
    assert_eq!(rig.machine.state(), &State::Stopped { clean: false });
}

#[test]
fn a_fault_while_draining_ends_the_task() {
    let mut rig = Rig::running();
    rig.takes(Input::Stop, &[Action::PauseReader]);
    rig.takes(
        fault(FaultKind::Retryable),
        &[
            Action::CloseReader,
            Action::CommitCheckpoint,
            Action::Release,
        ],
    );
    assert_eq!(rig.machine.state(), &State::Stopped { clean: false });
}

#[test]
fn a_task_may_be_stopped_before_it_runs() {
    let mut rig = Rig::new();
    rig.takes(Input::Stop, &[Action::Release]);
    assert!(rig.machine.is_stopped());

    let mut rig = Rig::new();
    rig.takes(Input::Start, &[Action::OpenReader]);
    rig.takes(Input::Stop, &[Action::CloseReader, Action::Release]);
    rig.takes(Input::Started, &[]);
    assert_eq!(rig.machine.state(), &State::Stopped { clean: true });
}

fn inputs() -> impl Strategy<Value = Vec<(u64, Input)>> {
    let kind = prop_oneof![Just(FaultKind::Retryable), Just(FaultKind::Terminal)];
    let input = prop_oneof![
        Just(Input::Start),
        Just(Input::Started),
        Just(Input::Progress),
        kind.prop_map(fault),
        Just(Input::Stop),
        Just(Input::Drained),
        Just(Input::DeadlinePassed),
        Just(Input::FenceLost),
        Just(Input::Tick),
    ];
    proptest::collection::vec((0_u64..40_000, input), 0..60)
}

/// What the actions did to the world outside.
#[derive(Debug, Default)]
struct World {
    is_open: bool,
    is_reading: bool,
    is_released: bool,
}

impl World {
    fn apply(&mut self, action: Action) {
        assert!(!self.is_released, "{action:?} after the task was released");
        match action {
            Action::OpenReader => {
                assert!(!self.is_open, "opened twice");
                (self.is_open, self.is_reading) = (true, true);
            }
            Action::PauseReader => {
                assert!(self.is_reading, "paused while not reading");
                self.is_reading = false;
            }
            Action::CloseReader | Action::Kill => (self.is_open, self.is_reading) = (false, false),
            Action::CommitCheckpoint => {
                assert!(!self.is_open, "more may be acknowledged after the commit");
            }
            Action::Release => {
                assert!(!self.is_open, "released while it may still send");
                self.is_released = true;
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_actions_make_sense(inputs in inputs()) {
        let mut machine = Machine::new(Settings::default());
        let mut world = World::default();
        let mut now = Duration::ZERO;
        let mut actions = Vec::new();
        let mut is_fenced = false;
        for (wait, input) in inputs {
            now += Duration::from_millis(wait);
            is_fenced |= input == Input::FenceLost;
            let was_stopped = machine.is_stopped();
            machine.step(now, input, &mut actions);
            prop_assert!(!was_stopped || actions.is_empty(), "a stopped task acts");
            actions.drain(..).for_each(|action| world.apply(action));
            let runs = matches!(machine.state(), State::Running { .. } | State::Starting { .. });
            prop_assert_eq!(world.is_reading, runs);
            if machine.is_stopped() {
                prop_assert!(!world.is_open);
                prop_assert!(world.is_released || is_fenced, "stopped, never released");
            }
        }
    }

    #[test]
    fn a_task_that_is_told_to_stop_stops_in_time(inputs in inputs()) {
        let mut machine = Machine::new(Settings::default());
        let mut now = Duration::ZERO;
        for (wait, input) in inputs {
            now += Duration::from_millis(wait);
            machine.step(now, input, &mut Vec::new());
        }
        machine.step(now, Input::Stop, &mut Vec::new());
        if let Some(deadline) = machine.next_tick() {
            prop_assert!(deadline <= now + Settings::default().drain_timeout);
            machine.step(deadline, Input::Tick, &mut Vec::new());
        }
        prop_assert!(machine.is_stopped());
    }
}

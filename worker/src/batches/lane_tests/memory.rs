//! What a task costs in which nothing happens: there may be thousands of them.

use super::*;
use crate::batches::life::Life;

#[test]
fn a_quiet_lane_holds_no_room_for_batches_and_goes_on_as_before() {
    let rig = Rig::running(RigMade::default());
    rig.fetch(&[batch(0, 3), batch(3, 2)]);
    let room = || {
        let state = rig.lane.lock();
        let flow = state.flow.as_ref().expect("open");
        (flow.line.capacity(), flow.held.capacity())
    };
    rig.lane.tick();
    assert!(room().1 > 0, "what is on its way is held");
    ack_all(&rig);
    rig.lane.tick();
    assert_eq!(room(), (0, 0));
    rig.fetch(&[batch(5, 1)]);
    assert_eq!(records(&rig.sent()), [vec![5]]);
}

#[test]
fn what_a_start_needs_is_not_kept_while_the_task_runs() {
    fn size<T, F: Future>(_: impl FnOnce(T) -> F) -> usize {
        size_of::<F>()
    }
    let bytes = size(Life::run);
    assert!(bytes <= 3 << 10, "a running task takes {bytes} bytes");
}

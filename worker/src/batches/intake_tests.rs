use super::*;

#[test]
fn nothing_comes_of_nothing() {
    let mut intake = Intake::new(Offset(5), 0, TargetLimits::default(), None);
    let mut taken = Taken::default();
    intake
        .take(Bytes::new(), Vec::new(), &mut taken)
        .expect("nothing is wrong with nothing");
    assert!(taken.ready.is_empty());
    assert_eq!(intake.position(), Offset(5));
}

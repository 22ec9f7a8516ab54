use super::*;

#[test]
fn the_status_line_tells_what_there_is() {
    let counts = Counts { starting: 0, live: 1, dying: 0, quarantined: 0, limit: 7, ..Counts::default() };
    assert_eq!(status(&counts, false, false), "serving 1 session of at most 7");
    let counts = Counts { starting: 1, live: 2, dying: 3, quarantined: 4, limit: 70, ..Counts::default() };
    assert_eq!(
        status(&counts, false, false),
        "serving 10 sessions of at most 70 (1 starting, 3 closing, 4 quarantined)"
    );
    assert!(status(&counts, true, false).starts_with("admits no more: 10 sessions left ("));
    assert!(status(&counts, true, true).starts_with("ending: 10 sessions left ("));
}

#[test]
fn an_extension_outlasts_several_missed_ones() {
    assert!(EXTENSION >= 3 * EXTEND_EVERY);
    assert_eq!(micros(EXTENSION), 20_000_000);
}

/// A registry that hangs is asked one beat after the last feed, and the watchdog kills two beats after it: its silence
/// is told of well before that, whatever the limit.
#[test]
fn a_registry_that_hangs_is_told_of_before_the_watchdog_kills() {
    for limit in [1, 2, 10, 30, 300].map(Duration::from_secs) {
        let manager = Manager::new(Some(limit));
        let beat = manager.beat.expect("there is a watchdog");
        assert!(beat + manager.patience() <= limit * 3 / 4, "{limit:?}");
    }
    assert_eq!(Manager::new(Some(Duration::from_secs(30))).patience(), PATIENCE);
    assert_eq!(Manager::new(None).patience(), PATIENCE);
}

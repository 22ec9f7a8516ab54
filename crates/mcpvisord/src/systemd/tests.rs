use super::*;

#[test]
fn the_status_line_tells_what_there_is() {
    let counts = Counts { starting: 0, live: 1, dying: 0, quarantined: 0, limit: 7 };
    assert_eq!(status(&counts, false, false), "serving 1 session of at most 7");
    let counts = Counts { starting: 1, live: 2, dying: 3, quarantined: 4, limit: 70 };
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

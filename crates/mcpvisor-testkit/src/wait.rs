//! Waiting on a condition with a budget, in place of sleeping and hoping.
use std::time::{Duration, Instant};

/// Asks again and again until the answer is `Some`, or until the budget is used up.
pub fn until<T>(budget: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if start.elapsed() >= budget {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Waits for a condition.
///
/// # Panics
/// When the budget is used up; `what` completes "waited in vain for".
#[track_caller]
pub fn eventually(what: &str, budget: Duration, mut holds: impl FnMut() -> bool) {
    assert!(
        until(budget, || holds().then_some(())).is_some(),
        "waited in vain for {what} ({} ms)",
        budget.as_millis()
    );
}

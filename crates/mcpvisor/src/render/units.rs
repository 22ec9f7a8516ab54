//! Quantities as people read them.

/// `12.3 ms`, `4.56 s`, `2 m 5 s`.
pub(crate) fn millis(millis: f64) -> String {
    if millis < 1_000.0 {
        let digits = if millis < 10.0 { 2 } else { 1 };
        return format!("{millis:.digits$} ms");
    }
    let seconds = millis / 1_000.0;
    if seconds < 60.0 { format!("{seconds:.2} s") } else { span(seconds) }
}

/// `5 s`, `2 m 5 s`, `3 h 4 m`, `2 d 3 h`.
pub(crate) fn span(seconds: f64) -> String {
    // A span that no machine lives to see is cut, and so is a negative one.
    let whole = seconds.round().clamp(0.0, 1e12) as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3_600 => format!("{} m {} s", whole / 60, whole % 60),
        3_600..86_400 => format!("{} h {} m", whole / 3_600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3_600 % 24),
    }
}

/// `512 B`, `66.8 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB"].iter();
    let mut unit = units.next().expect("the list is not empty");
    while value >= 1_024.0 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1_024.0, next);
    }
    if *unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// The plural where there is not just one.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_readable() {
        assert_eq!([0.5, 12.34, 999.0, 4_560.0].map(millis), ["0.50 ms", "12.3 ms", "999.0 ms", "4.56 s"]);
        assert_eq!([59.0, 125.0, 11_040.0, 183_600.0].map(span), ["59 s", "2 m 5 s", "3 h 4 m", "2 d 3 h"]);
        assert_eq!([12, 70_000_000, u64::MAX].map(bytes), ["12 B", "66.8 MiB", "17179869184.0 GiB"]);
        assert_eq!(count(1, "tool", "tools") + &count(0, "tool", "tools"), "1 tool0 tools");
    }
}

//! Durations and sizes as people write them.
use std::time::Duration;

/// The longest duration that a configuration may name: a year.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// `500ms`, `30s`, `5m`, `4h`, `7d`. The error names the form.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let form = || {
        format!(
            "`{text}` is not a duration: write a whole number and a unit, such as 500ms, 30s, 5m, 4h or 7d"
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(form()),
    };
    if number.is_empty() {
        return Err(form());
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(milliseconds))
        .map(Duration::from_millis)
        .filter(|span| *span <= LONGEST)
        .ok_or_else(|| format!("`{text}` is too long: the longest duration is 366d"))
}

/// `4096`, `64K`, `64M`, `1G`, `1T`, in powers of 1024. The error names the form.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let form = || {
        format!(
            "`{text}` is not a size: write a whole number of bytes, or one with K, M, G or T, such as 64M"
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(form()),
    };
    if number.is_empty() {
        return Err(form());
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("4h"), Ok(Duration::from_secs(14_400)));
        for wrong in ["", "5", "s", "-5s", "1.5s", "5 s", "5S", "5s ", "99999999999999999999s", "400d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("64M"), Ok(64 << 20));
        assert_eq!(size("1G"), Ok(1 << 30));
        assert_eq!(size("17"), Ok(17));
        for wrong in ["", "M", "64MB", "64m", "-1", "1.5G", "99999999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}

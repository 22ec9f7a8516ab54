//! The keys that a configuration may have, section by section. The documentation is held against this table.

/// A kind of section.
#[derive(Debug)]
pub(crate) struct Kind {
    /// As the documentation heads it.
    pub(crate) heading: &'static str,
    pub(crate) keys: &'static [&'static str],
}

pub(crate) const ROOT: Kind =
    Kind { heading: "The file", keys: &["daemon", "timeouts", "profiles", "hooks"] };

pub(crate) const DAEMON: Kind = Kind {
    heading: "[daemon]",
    keys: &[
        "max_sessions",
        "max_sessions_per_user",
        "max_sessions_per_tenant",
        "reserved_for_administrators",
        "max_processes",
        "max_processes_per_session",
        "max_queued_per_user",
        "when_full",
        "evict_after",
        "max_line",
        "max_input",
        "max_input_per_user",
        "containment",
        "tombstones",
        "tombstone_age",
        "events",
        "event_bytes",
        "breaker",
        "breaker_failures",
        "breaker_period",
        "breaker_wait",
        "request_ids",
        "request_id_age",
        "allow_commands",
        "socket_mode",
        "log_level",
    ],
};

pub(crate) const TIMEOUTS: Kind = Kind {
    heading: "[timeouts]",
    keys: &[
        "start",
        "drain",
        "stdin_grace",
        "term_grace",
        "kill_wait",
        "queue_timeout",
        "call_timeout",
        "call_timeout_max",
        "approval_timeout",
        "idle",
        "pin",
    ],
};

pub(crate) const PROFILE: Kind = Kind {
    heading: "[profiles.PROFILE]",
    keys: &["max_sessions", "timeouts", "prefix", "max_in_flight", "hold", "servers"],
};

pub(crate) const SERVER: Kind = Kind {
    heading: "[profiles.PROFILE.servers.SERVER]",
    keys: &[
        "command",
        "args",
        "env",
        "cwd",
        "mode",
        "scope",
        "linger",
        "socket",
        "era",
        "required",
        "significant",
        "replace",
        "restart",
        "restart_intensity",
        "restart_period",
        "health_interval",
        "health_timeout",
        "health_misses",
        "max_in_flight",
        "max_queued",
        "stop_command",
        "stop_command_timeout",
        "timeouts",
        "limits",
    ],
};

pub(crate) const LIMITS: Kind =
    Kind { heading: "[profiles.PROFILE.servers.SERVER.limits]", keys: &["memory", "processes"] };

pub(crate) const HOOK: Kind =
    Kind { heading: "[[hooks]]", keys: &["name", "on", "command", "args", "env", "timeout"] };

/// All of them.
pub(crate) const ALL: [&Kind; 7] = [&ROOT, &DAEMON, &TIMEOUTS, &PROFILE, &SERVER, &LIMITS, &HOOK];

/// What to say of a key that is not one of the section's.
pub(crate) fn advice(kind: &Kind, wrong: &str) -> String {
    if let Some(near) = nearest(wrong, kind.keys) {
        return format!("did you mean `{near}`?");
    }
    let at_home = ALL.iter().filter(|other| other.heading != kind.heading);
    for other in at_home {
        if other.keys.contains(&wrong) {
            return format!("`{wrong}` belongs into {}", other.heading);
        }
    }
    format!("the keys here are {}", kind.keys.join(", "))
}

/// The nearest of some words, if it is near enough to be meant.
pub(crate) fn nearest(wrong: &str, words: &[&'static str]) -> Option<&'static str> {
    let wrong: Vec<char> = wrong.chars().take(64).flat_map(char::to_lowercase).collect();
    let patience = (wrong.len() / 3).clamp(1, 3);
    words
        .iter()
        .map(|word| (distance(&wrong, &word.chars().collect::<Vec<_>>()), *word))
        .filter(|(steps, _)| *steps <= patience)
        .min()
        .map(|(_, word)| word)
}

/// Levenshtein's distance, with a swap of neighbours as one step.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut steps = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                steps = steps.min(rows[i - 2][j - 2] + 1);
            }
            row.push(steps);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        assert_eq!(nearest("max_session", DAEMON.keys), Some("max_sessions"));
        assert_eq!(nearest("tombstnoes", DAEMON.keys), Some("tombstones"));
        assert_eq!(nearest("Drain", TIMEOUTS.keys), Some("drain"));
        assert_eq!(nearest("colour", DAEMON.keys), None);
        assert_eq!(nearest("", DAEMON.keys), None);
    }

    #[test]
    fn a_key_of_another_section_is_sent_home() {
        assert_eq!(advice(&ROOT, "max_sessions"), "`max_sessions` belongs into [daemon]");
        assert_eq!(
            advice(&SERVER, "memory"),
            "`memory` belongs into [profiles.PROFILE.servers.SERVER.limits]"
        );
    }
}

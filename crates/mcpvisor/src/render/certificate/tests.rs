use super::*;
use serde_json::json;

fn report(value: serde_json::Value) -> CloseReport {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_certificate_tells_each_process_and_the_proof() {
    let text = certificate(
        &report(json!({
            "key": "alice-1", "generation": 3, "outcome": "closed", "proof": "cgroup", "reason": "idle",
            "drained": {"finished": 2, "cancelled": 1}, "duration_ms": 12.3, "acknowledged_after_us": 120,
            "servers": [{"name": "files", "stage": "sigkill", "exit": {"signal": "KILL"}, "duration_ms": 11.8,
                "processes": [
                    {"pid": 4711, "command": "node \u{1b}[2J", "ended_by": "stdin", "exit": {"code": 0}, "escaped": false},
                    {"pid": 4712, "command": "helper", "ended_by": "sigkill", "exit": null, "escaped": true}],
                "peak_memory_bytes": 70_000_000, "cpu_ms": 310}],
            "remaining": []
        })),
        Style::PLAIN,
    );
    assert_eq!(
        text,
        r"alice-1@3 closed in 12.3 ms: nothing is left, by proof of its empty control groups
  why: nobody used it; calls in flight: 2 finished, 1 cancelled; known 0.12 ms after the last exit
  files: ended by the kill, signal KILL, 11.8 ms, at most 66.8 MiB of memory, 310 ms of CPU
    PID   ENDED BY  EXIT    ESCAPED  COMMAND
    4711  stdin     code 0  no       node \x1b[2J
    4712  sigkill   -       yes      helper
"
    );
}

#[test]
fn what_is_not_proven_is_not_claimed() {
    let text = certificate(
        &report(json!({
            "key": "a", "generation": 1, "outcome": "closed", "proof": "none", "reason": "requested",
            "drained": null, "duration_ms": 1.0, "servers": [], "remaining": []
        })),
        Style::PLAIN,
    );
    assert_eq!(text, "a@1 closed in 1.00 ms: nothing was found of it, but that is not proven\n");
}

#[test]
fn a_quarantine_lists_what_lives() {
    let text = certificate(
        &report(json!({
            "key": "a", "generation": 1, "outcome": "quarantined", "proof": "none", "reason": "requested",
            "drained": null, "duration_ms": 5000.0, "servers": [], "remaining": [{"pid": 9, "command": "stuck"}]
        })),
        Style::PLAIN,
    );
    assert!(
        text.contains("quarantined in 5.00 s")
            && text.contains("still alive:\n    PID  COMMAND\n    9    stuck\n"),
        "{text}"
    );
}

#[test]
fn a_failed_start_tells_the_end_of_stderr_escaped() {
    let mut failed = CloseReport::without_end("a".parse().unwrap(), Some(1), CloseOutcome::Closed);
    failed.failure = Some(StartFailure {
        waited_for: None,
        server: "main".parse().unwrap(),
        reason: "exited".to_owned(),
        message: "it ended before it was ready".to_owned(),
        exit: Some(Exit::Code(3)),
        stderr_tail: "one\ntwo\u{7}".to_owned(),
        frames: Vec::new(),
    });
    let text = certificate(&failed, Style::PLAIN);
    assert!(
        text.contains(
            "  server main failed: it ended before it was ready (code 3)\n    | one\n    | two\\x07\n"
        ),
        "{text}"
    );
}

/// G28: nothing is said to be gone that was only left; servers of one name are told apart, and their users as they were then.
#[test]
fn g28_what_was_only_detached_is_told_so() {
    let left = |host: &str, users: u64| {
        json!({"name": "sh", "stage": null, "detached": true, "scope": "daemon", "host": host, "users": users, "exit": null,
               "duration_ms": 0.0, "processes": [], "peak_memory_bytes": null, "cpu_ms": null})
    };
    let (old, new) = ("daemon::p::sh::0000000000000001", "daemon::p::sh::0000000000000002");
    let text = certificate(
        &report(json!({
            "key": "a", "generation": 1, "outcome": "closed", "proof": null, "reason": "requested",
            "drained": null, "duration_ms": 1.0, "servers": [left(old, 1), left(new, 0)], "remaining": []
        })),
        Style::PLAIN,
    );
    assert_eq!(
        text,
        format!(
            "a@1 closed in 1.00 ms: detached; no process was its own, and nothing was ended\n  \
             sh: detached; sessions share it, as {old}, and another one used it then\n  \
             sh: detached; sessions share it, as {new}, and no other used it then\n"
        )
    );
    let removed =
        json!({"key": "a", "generation": 1, "state": "ready", "proof": null, "server": left(old, 2)});
    let text = removed_server(&serde_json::from_value(removed).unwrap(), Style::PLAIN);
    assert_eq!(
        text,
        format!(
            "a/sh removed: detached; no process was its own, and nothing was ended\n  \
             sh: detached; sessions share it, as {old}, and 2 others used it then\n"
        )
    );
}

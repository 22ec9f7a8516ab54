use super::*;
use serde_json::json;

fn example() -> Session {
    serde_json::from_value(json!({
        "key": "alice-1", "generation": 3, "state": "starting", "owner": {"uid": 1000}, "tenant": null,
        "labels": {"a": "x\u{1b}[m"}, "parent": null, "created_at": "2026-01-02T03:04:05.678Z", "lease": "none",
        "attached": 1, "in_flight": 0, "containment": "cgroup",
        "servers": [{"name": "files", "state": "starting", "mode": "shared", "pid": 4711, "restarts": 0,
            "era": null, "protocol": null, "tools": null, "in_flight": 0, "last_error": "no\nway",
            "waits_for": {"what": "handshake", "since_ms": 1500, "left_ms": 28500}}]
    }))
    .unwrap()
}

#[test]
fn a_session_is_told_in_full_and_without_control_characters() {
    let text = session(&example(), Style::PLAIN);
    assert!(text.starts_with("alice-1@3 starting\n"), "{text}");
    for part in [
        "label: a=x\\x1b[m",
        "files   starting  shared  4711  -",
        "files waits for handshake since 2 s, 29 s left",
        "files: last error: no\\x0away",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_servers_last_frames_and_last_words_are_told() {
    let frame = |method: &str| {
        json!({"at": "2026-01-02T03:04:05.678Z", "direction": "to_server", "kind": "request", "method": method, "id": 7,
            "bytes": 70, "latency_ms": null})
    };
    let mut told = serde_json::to_value(example()).unwrap();
    let server = &mut told["servers"][0];
    server["stderr_dropped"] = json!(1);
    server["last_failure"] = json!({"server": "files", "reason": "exited", "message": "m", "exit": {"code": 7},
        "stderr_tail": "last\u{1b} words", "frames": [frame("before")]});
    let shown =
        |told: &serde_json::Value| session(&serde_json::from_value(told.clone()).unwrap(), Style::PLAIN);
    let text = shown(&told);
    assert!(text.contains("    | last\\x1b words\n") && !text.contains("before"), "{text}");
    assert!(text.contains("files: 1 line of its stderr made room"), "{text}");
    told["servers"][0]["frames"] = json!([frame("now\u{7}")]);
    let text = shown(&told);
    assert!(
        text.contains("files: last frames\n") && text.contains("now\\x07") && !text.contains("before"),
        "{text}"
    );
    // Of a session that has ended those of the failure are left.
    told["servers"][0]["frames"] = json!([]);
    assert!(shown(&told).contains("before"));
    told["servers"][0]["last_failure"] = json!(null);
    assert!(shown(&told).contains("files: no frames\n"));
}

#[test]
fn a_list_names_owners_only_where_asked() {
    assert!(!sessions(&[example()], false, Style::PLAIN).contains("UID"));
    assert!(sessions(&[example()], true, Style::PLAIN).contains("UID   KEY"));
    assert_eq!(sessions(&[], false, Style::PLAIN), "");
}

#[test]
fn processes_stand_below_their_parents() {
    let process = |pid: u32, ppid: u32, server: &str| -> Process {
        serde_json::from_value(json!({"pid": pid, "ppid": ppid, "session": "a", "server": server,
            "command": format!("c{pid}"), "memory_bytes": null, "cpu_ms": null, "escaped": false}))
        .unwrap()
    };
    // 7 names itself as its parent, and 8 and 9 each other, which only a listing of several instants tells.
    let all =
        [process(3, 2, "x"), process(5, 1, "y"), process(2, 1, "x"), process(4, 2, "x"), process(7, 7, "x")];
    let tree: Vec<_> = in_tree(&all).into_iter().map(|(depth, process)| (depth, process.pid)).collect();
    assert_eq!(tree, [(0, 2), (1, 3), (1, 4), (0, 7), (0, 5)]);
    let circle = [process(8, 9, "x"), process(9, 8, "x")];
    assert_eq!(in_tree(&circle).len(), 2);
}

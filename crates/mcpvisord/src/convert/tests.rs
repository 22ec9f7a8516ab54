use super::*;
use mcpvisor_control::ErrorKind;
use mcpvisor_lifecycle::session::{CloseReason, SessionState};
use mcpvisor_lifecycle::{Generation, ServerName, SessionId, SessionKey, Uid};
use mcpvisor_process::{Exit, ProcessRecord, Rung};
use mcpvisor_supervisor::{
    Certificate, Failure, Frame, FrameKind, Outcome, Proof, ServerCertificate, StartFailure, ToolView,
};
use serde_json::{json, value::RawValue};

#[test]
fn the_certificate_has_its_shape() {
    let certificate = Certificate {
        key: SessionKey::new("alice-1").unwrap(),
        generation: Generation(3),
        outcome: Outcome::Closed,
        state: SessionState::Closed,
        proof: Some(Proof::Cgroup),
        reason: CloseReason::Requested,
        drained: Some(mcpvisor_supervisor::Drained { finished: 2, cancelled: 1 }),
        duration: Duration::from_micros(12_300),
        servers: vec![ServerCertificate {
            name: ServerName::new("files").unwrap(),
            stage: mcpvisor_lifecycle::server::Stage::Stdin,
            exit: Some(Exit::Code(0)),
            duration: Duration::from_micros(11_800),
            processes: vec![ProcessRecord {
                pid: 4711,
                command: "node x".into(),
                ended_by: Some(Rung::Sigkill),
                exit: Some(Exit::Signal(9)),
                escaped: true,
            }],
            peak_memory_bytes: Some(70_000_000),
            cpu: Some(Duration::from_millis(310)),
            stop_command: None,
            detached: None,
        }],
        remaining: vec![(1, "x".into())],
        acknowledged_after: Some(Duration::from_micros(42)),
        failure: None,
    };
    assert_eq!(
        serde_json::to_value(close_report(&certificate)).unwrap(),
        json!({"key":"alice-1","generation":3,"outcome":"closed","proof":"cgroup","reason":"requested",
            "drained":{"finished":2,"cancelled":1},"duration_ms":12.3,
            "servers":[{"name":"files","stage":"stdin","exit":{"code":0},"duration_ms":11.8,
                "processes":[{"pid":4711,"command":"node x","ended_by":"sigkill","exit":{"signal":"KILL"},"escaped":true}],
                "peak_memory_bytes":70_000_000,"cpu_ms":310}],
            "remaining":[{"pid":1,"command":"x"}],"acknowledged_after_us":42,"failure":null})
    );
}

#[test]
fn a_failed_start_names_server_reason_and_stderr() {
    let session = SessionId { uid: Uid(1), generation: Generation(7) };
    let failure = StartFailure {
        waited_for: None,
        server: ServerName::new("main").unwrap(),
        cause: "not_found",
        message: "nope: no such program in PATH".into(),
        exit: None,
        stderr_tail: "tail".into(),
        frames: [].into(),
    };
    let key = SessionKey::new("k").unwrap();
    let error =
        error(Failure::StartFailed { session, timeout: false, failure: Some(Box::new(failure)) }, Some(&key));
    assert_eq!(error.kind(), ErrorKind::StartFailed);
    assert_eq!(error.message, "server main: nope: no such program in PATH");
    assert_eq!(
        serde_json::to_value(&error.data).unwrap(),
        json!({"kind":"start_failed","key":"k","generation":7,"server":"main","reason":"not_found","exit":null,
            "stderr_tail":"tail"})
    );
}

#[test]
fn a_servers_own_error_is_passed_on_as_it_came() {
    let raw = RawValue::from_string(r#"{"code":-32602,"message":"bad","data":[1]}"#.into()).unwrap();
    let error = error(Failure::ServerError(raw), None);
    assert_eq!(error.kind(), ErrorKind::ServerError);
    assert_eq!(error.detail("error"), Some(&json!({"code":-32602,"message":"bad","data":[1]})));
}

#[test]
fn a_tool_keeps_what_its_server_tells() {
    let raw = r#"{"name":"echo","server":"forged","title":"E","inputSchema":{"type":"object"},"annotations":{"x":1}}"#;
    let view = ToolView {
        name: "files_echo".into(),
        server: ServerName::new("files").unwrap(),
        raw: RawValue::from_string(raw.to_owned()).unwrap().into(),
    };
    assert_eq!(
        serde_json::to_value(tool(&view)).unwrap(),
        json!({"name":"files_echo","server":"files","title":"E","description":null,
            "inputSchema":{"type":"object"},"annotations":{"x":1}})
    );
}

#[test]
fn a_dead_servers_last_frames_are_told() {
    let frame = |id: Option<&str>, latency: Option<Duration>| Frame {
        at: SystemTime::UNIX_EPOCH,
        to_server: latency.is_none(),
        kind: if latency.is_none() { FrameKind::Request } else { FrameKind::Response },
        method: Some("tools/call".into()),
        id: id.map(str::to_owned),
        bytes: 70,
        latency,
    };
    let long = format!("\"{}", "x".repeat(29));
    let frames = [
        frame(Some("7"), None),
        frame(Some("\"a\""), Some(Duration::from_micros(1_500))),
        frame(Some(&long), None),
        frame(None, None),
    ];
    let server = ServerName::new("main").unwrap();
    let exited = Failure::ServerExited {
        server,
        exit: Some(Exit::Code(1)),
        stderr_tail: String::new(),
        frames: frames.into(),
    };
    let told = error(exited, None).detail("frames").cloned().unwrap();
    assert_eq!(
        told[1],
        json!({"at":"1970-01-01T00:00:00.000Z","direction":"from_server","kind":"response","method":"tools/call",
            "id":"a","bytes":70,"latency_ms":1.5})
    );
    assert_eq!((&told[0]["id"], &told[0]["direction"]), (&json!(7), &json!("to_server")));
    assert_eq!((&told[2]["id"], &told[3]["id"]), (&json!(format!("{}…", "x".repeat(29))), &json!(null)));
}

#[test]
fn times_are_rfc_3339_with_milliseconds() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_323_045_678);
    assert_eq!(timestamp(at), "2026-01-02T03:04:05.678Z");
}

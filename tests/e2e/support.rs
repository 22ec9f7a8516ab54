//! What several promises need: the misbehaving servers, requests, certificates.
use mcpvisor_testkit::{Containment, Daemon, Scene, procfs, workspace_root};
use serde_json::{Value, json};

/// The path of one of the misbehaving servers.
pub(crate) fn case(name: &str) -> String {
    let path = workspace_root().join("tests/cases").join(format!("{name}.py"));
    assert!(path.is_file(), "{} is missing", path.display());
    path.to_string_lossy().into_owned()
}

/// The bundled polite server as a command.
pub(crate) fn polite() -> Vec<String> {
    let client = mcpvisor_testkit::binary("mcpvisor").to_string_lossy().into_owned();
    vec![client, "demo-server".to_owned(), "polite".to_owned()]
}

/// A server of python as a command.
pub(crate) fn python(case_name: &str) -> Vec<String> {
    vec!["python3".to_owned(), case(case_name)]
}

/// The parameters of `session/open` for one server with the scene's environment and more variables.
pub(crate) fn open_params(scene: &Scene, key: &str, command: &[String], more: &[(&str, &str)]) -> Value {
    let mut environment: Vec<String> = Vec::new();
    for (name, value) in scene.environment() {
        environment.push(format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
    }
    environment.extend(more.iter().map(|(name, value)| format!("{name}={value}")));
    json!({
        "key": key,
        "servers": [{"name": "main", "command": command}],
        "environment": environment,
        "cwd": scene.dir().to_string_lossy(),
    })
}

/// The process of the first server of a session.
#[track_caller]
pub(crate) fn main_pid(session: &Value) -> u32 {
    let pid = session["servers"][0]["pid"].as_u64().unwrap_or_else(|| panic!("no process: {session}"));
    u32::try_from(pid).expect("process numbers are small")
}

/// What the error object of the control protocol calls itself.
pub(crate) fn kind(error: &Value) -> &str {
    error["data"]["kind"].as_str().unwrap_or("(no kind)")
}

/// The processes of a certificate, over all servers.
pub(crate) fn processes(certificate: &Value) -> Vec<Value> {
    let servers = certificate["servers"].as_array().expect("a certificate lists servers");
    servers.iter().flat_map(|server| server["processes"].as_array().cloned().unwrap_or_default()).collect()
}

/// The record of one process in a certificate.
#[track_caller]
pub(crate) fn record(certificate: &Value, pid: u32) -> Value {
    let all = processes(certificate);
    let found = all.iter().find(|process| process["pid"] == json!(pid)).cloned();
    found.unwrap_or_else(|| panic!("process {pid} is not in the certificate {certificate:#}"))
}

/// Asserts what every good certificate says, and that it is true: nothing of it exists at this moment.
#[track_caller]
pub(crate) fn assert_closed(certificate: &Value, containment: Containment) {
    assert_eq!(certificate["outcome"], "closed", "{certificate:#}");
    assert_eq!(certificate["proof"], containment.to_string(), "{certificate:#}");
    assert_eq!(certificate["remaining"], json!([]), "{certificate:#}");
    for process in processes(certificate) {
        assert!(process["ended_by"].is_string() && process["command"].is_string(), "{process:#}");
        let pid =
            process["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process has a number");
        let command = procfs::command(pid);
        assert!(
            !procfs::exists(pid) || command.contains("mcpvisor"),
            "{pid} ({command}) is still there: {certificate:#}"
        );
    }
}

/// Opens a session with the client and returns it.
#[track_caller]
pub(crate) fn open(
    daemon: &Daemon,
    scene: &Scene,
    key: &str,
    command: &[String],
    env: &[(&str, &str)],
) -> Value {
    let mut invocation = daemon.command(scene, &["open", key, "--"]).args(command);
    for (name, value) in env {
        invocation = invocation.env(name, value);
    }
    invocation.output().ok()
}

/// Closes a session with the client and returns its certificate.
#[track_caller]
pub(crate) fn close(daemon: &Daemon, key: &str) -> Value {
    daemon.cli(&["close", key]).ok()["results"][0].clone()
}

/// How many sessions the daemon counts.
#[track_caller]
pub(crate) fn used(daemon: &Daemon) -> u64 {
    daemon.status()["sessions"]["used"].as_u64().expect("status counts sessions")
}

/// Makes two tests of one play: on cgroups and on keepers. The play gets the scene and the containment.
macro_rules! on_both {
    ($($(#[$meta:meta])* $name:ident = $play:expr;)*) => {
        $(
            $(#[$meta])*
            mod $name {
                use super::*;

                #[test]
                fn cgroup() {
                    $crate::support::play_on(mcpvisor_testkit::Containment::Cgroup, $play);
                }

                #[test]
                fn keeper() {
                    $crate::support::play_on(mcpvisor_testkit::Containment::Keeper, $play);
                }
            }
        )*
    };
}
pub(crate) use on_both;

/// Plays a scene on one containment, where this machine has it.
pub(crate) fn play_on(
    containment: Containment,
    play: impl FnOnce(&std::sync::Arc<Scene>, Containment) + Send + 'static,
) {
    mcpvisor_testkit::scene(move |scene| {
        if containment.is_possible(scene) {
            play(scene, containment);
        }
    });
}

use super::*;
use crate::wire::Descriptors;
use mcpvisor_control::params::{Descriptor, Direct, ServerDefinition};
use mcpvisor_control::{ServerName, Text};
use serde_json::json;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

const PROFILES: &str = r#"
[timeouts]
start = "7s"
[profiles.coding.timeouts]
drain = "9s"
[profiles.coding.servers.files]
command = "npx"
args = ["-y", "${arg:root}"]
env = { TOKEN = "${arg:token:-none}" }
cwd = "/"
"#;

fn open(value: serde_json::Value) -> SessionOpen {
    serde_json::from_value(value).unwrap()
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn rights() -> Rights {
    Rights { daemon: me(), instance: "0123456789abcdef".into(), allow_commands: vec![], private: false }
}

async fn resolve(value: serde_json::Value) -> Result<Resolved, ErrorObject> {
    let config = Config::parse("test", PROFILES).unwrap();
    servers(&config, &rights(), &Peer::pretend(me()), Uid(me()), &open(value)).await
}

fn texts(list: &[CString]) -> Vec<&str> {
    list.iter().map(|text| text.to_str().unwrap()).collect()
}

#[tokio::test]
async fn commands_of_the_clients_own_are_as_the_client_is() {
    let resolved = resolve(json!({
        "servers": [{"name":"a","command":["prog","x","ü"],"env":{"A":"new","MCPVISOR_X":"1"},"cwd":"sub",
            "start_ms":5,"restart":"temporary","limits":{"processes":3}}],
        "environment": ["A=old","B=1","MCPVISOR_SCOPE=forged","C=x=y","=D=odd"],
        "cwd": "/base", "umask": 63, "nice": 3, "ignored_signals": [1], "drain_ms": 17,
        "resource_limits": [{"resource":7,"soft":100,"hard":null}],
    }))
    .await
    .unwrap();
    assert_eq!(resolved.drain, Duration::from_millis(17));
    let spec = &resolved.servers[0];
    assert_eq!(texts(&spec.args), ["prog", "x", "ü"]);
    assert_eq!(texts(&spec.env), ["B=1", "C=x=y", "=D=odd", "A=new"]);
    assert_eq!(spec.cwd.as_deref(), Some(Path::new("/base/sub")));
    assert_eq!((spec.umask, spec.nice), (Some(0o77), Some(3)));
    assert_eq!(spec.limits.len(), 1);
    assert_eq!((spec.limits[0].soft, spec.limits[0].hard), (100, u64::MAX));
    assert_eq!(spec.start, Duration::from_millis(5));
    assert_eq!(spec.stdin_grace, Duration::from_secs(2));
    assert_eq!(spec.pids_max, Some(3));
    assert!(!spec.no_new_privs && spec.credentials.is_none() && spec.required);
}

#[tokio::test]
async fn a_profile_is_expanded_and_its_environment_is_clean() {
    let resolved =
        resolve(json!({"profile":"coding","args":{"root":"/r r"},"environment":["EVIL=1"]})).await.unwrap();
    assert_eq!(resolved.drain, Duration::from_secs(9));
    let spec = &resolved.servers[0];
    assert_eq!(texts(&spec.args), ["npx", "-y", "/r r"]);
    let env = texts(&spec.env);
    assert!(env.contains(&"TOKEN=none"), "{env:?}");
    assert!(env.iter().any(|entry| entry.starts_with("PATH=")));
    assert!(env.iter().all(|entry| !entry.starts_with("EVIL") && !entry.starts_with("CARGO")), "{env:?}");
    assert_eq!(spec.start, Duration::from_secs(7));
    assert!(spec.no_new_privs);
}

#[tokio::test]
async fn what_can_not_be_resolved_is_refused_with_its_reason() {
    for (value, kind, text) in [
        (json!({}), ErrorKind::InvalidRequest, "needs a server"),
        (json!({"profile":"x"}), ErrorKind::InvalidRequest, "no profile `x`"),
        (json!({"profile":"coding"}), ErrorKind::InvalidRequest, "--arg root=VALUE"),
        (json!({"profile":"coding","args":{"rot":"/"}}), ErrorKind::InvalidRequest, "no argument `rot`"),
        (json!({"profile":"coding","args":{"root":"a\u{0}b"}}), ErrorKind::InvalidRequest, "NUL"),
        (json!({"args":{"a":"b"},"servers":[]}), ErrorKind::InvalidRequest, "arguments are for a profile"),
        (json!({"servers":[{"name":"a","command":[]}]}), ErrorKind::InvalidRequest, "no command"),
        (json!({"servers":[{"name":"a","command":[""]}]}), ErrorKind::InvalidRequest, "no command"),
        (
            json!({"servers":[{"name":"a","command":["x"]},{"name":"a","command":["y"]}]}),
            ErrorKind::InvalidRequest,
            "two servers have the name a",
        ),
        (
            json!({"mode":"exclusive","direct":{"descriptors":[]},"servers":[{"name":"a","command":["x"]}]}),
            ErrorKind::InvalidRequest,
            "can't be exclusive",
        ),
        (json!({"umask":512,"servers":[{"name":"a","command":["x"]}]}), ErrorKind::InvalidRequest, "umask"),
        (json!({"nice":20,"servers":[{"name":"a","command":["x"]}]}), ErrorKind::InvalidRequest, "nice"),
        (
            json!({"ignored_signals":[0],"servers":[{"name":"a","command":["x"]}]}),
            ErrorKind::InvalidRequest,
            "signal",
        ),
        (
            json!({"cwd":"rel","servers":[{"name":"a","command":["x"]}]}),
            ErrorKind::InvalidRequest,
            "absolute",
        ),
        (
            json!({"environment":["X"],"servers":[{"name":"a","command":["x"]}]}),
            ErrorKind::InvalidRequest,
            "NAME=VALUE",
        ),
    ] {
        let error = resolve(value.clone()).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), kind, "{value}: {error}");
        assert!(format!("{error} {:?}", error.detail("help")).contains(text), "{value}: {error}");
    }
}

/// A root daemon that starts something as another user is no way to limits or a priority that the user can't have.
#[test]
fn foreign_commands_get_no_more_than_their_client_has() {
    let foreign = Peer::pretend(4_000_001);
    let credentials = mcpvisor_process::Credentials { uid: foreign.uid, gid: 1, groups: vec![] };
    let bounds = own::Bounds::of(&foreign, Some(&credentials));
    let wanted = open(json!({"nice":-20,"resource_limits":[{"resource":7,"soft":null,"hard":null}],
        "servers":[{"name":"a","command":["x"]}],"cwd":"/"}));
    let spec =
        own::spec(&Config::default(), &wanted, &wanted.servers[0], Some(credentials), &bounds).unwrap();
    assert_eq!(spec.nice, Some(0));
    let hard = foreign.hard_limits().unwrap();
    assert_eq!(spec.limits.len(), hard.len(), "none is left to the daemon's own");
    for limit in &spec.limits {
        let (_, most) = hard.iter().find(|(resource, _)| *resource == limit.resource).unwrap();
        assert!(limit.hard <= most.unwrap_or(u64::MAX) && limit.soft <= limit.hard);
    }
}

fn direct(names: &[Descriptor]) -> SessionOpen {
    SessionOpen {
        servers: vec![ServerDefinition::new(ServerName::new("a").unwrap(), vec![Text::new("x").unwrap()])],
        direct: Some(Direct { descriptors: names.to_vec() }),
        ..SessionOpen::default()
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    (reader.into(), writer.into())
}

fn file(path: &str) -> OwnedFd {
    std::fs::File::open(path).unwrap().into()
}

#[test]
fn direct_streams_are_checked() {
    use Descriptor::{Cwd, Stderr, Stdin, Stdout};
    let all = |list| Descriptors { list, lost: false };
    let (stdin, _a) = pipe();
    let (_b, stdout) = pipe();
    let (_c, stderr) = pipe();
    let anew = streams::reopened(&stderr).unwrap();
    let nonblocking =
        |fd: &OwnedFd| rustix::fs::fcntl_getfl(fd).unwrap().contains(rustix::fs::OFlags::NONBLOCK);
    assert!(nonblocking(&anew), "whatever the client made of it");
    assert!(!nonblocking(&stderr), "the client's own is not touched");
    let good = streams(&direct(&[Cwd, Stdin, Stdout, Stderr]), all(vec![file("/"), stdin, stdout, stderr]));
    assert!(good.unwrap().is_some());
    for (open, list, text) in [
        (direct(&[Stdin, Stdout]), vec![], "2 descriptors are named, and 0 came"),
        (direct(&[Stdin]), vec![pipe().0], "must be among"),
        (direct(&[Stdin, Stdin]), vec![pipe().0, pipe().0], "named twice"),
        (direct(&[Stdin, Stdout]), vec![file("/dev/null"), pipe().1], "can't be watched"),
        (direct(&[Stdin, Stdout, Cwd]), vec![pipe().0, pipe().1, file("/dev/null")], "not a directory"),
        (
            direct(&[Stdin, Stdout, Stderr]),
            vec![pipe().0, pipe().1, file("/dev/null")],
            "write end of a pipe",
        ),
        (SessionOpen { profile: Some("p".into()), ..direct(&[Stdin]) }, vec![pipe().0], "exactly one server"),
    ] {
        let error = streams(&open, all(list)).unwrap_err();
        assert!(error.message.contains(text), "{error}");
    }
    let lost = streams(&direct(&[Stdin, Stdout]), Descriptors { list: vec![], lost: true }).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Overloaded);
    assert!(streams(&SessionOpen::default(), all(vec![pipe().0])).unwrap().is_none());
}

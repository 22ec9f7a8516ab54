//! Launches that fail, each with its cause, and without a trace.
use crate::harness::Named;
use crate::world::{World, program, sh};
use mcpvisor_process::{ContainmentKind, Cwd, LaunchErrorKind, LaunchSpec};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

pub(crate) const TESTS: &[Named] = &[
    ("what_can_not_be_executed", not_executable),
    ("directories_that_can_not_be_entered", directories),
    ("a_scope_that_is_in_use", in_use),
];

fn executable(name: &str, bytes: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mcpvisor-{}-{name}", std::process::id()));
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn not_executable(kind: ContainmentKind) {
    use LaunchErrorKind::{NotExecutable, NotFound};
    let bad_interpreter = executable("bad", b"#!/no/such/interpreter -x\n");
    let bad_format = executable(
        "format",
        b"\x7fELF\x02\x01\x01\0\0\0 and then nonsense that is no program at all......................",
    );
    let plain = executable("plain", b"");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let world = World::start(kind);
    let path = |path: &PathBuf| path.to_str().unwrap().to_owned();
    for (name, expected, text) in [
        ("no-such-program".to_owned(), NotFound, "no such program in PATH (/usr/local/bin:/usr/bin:/bin)"),
        ("/no/such/program".to_owned(), NotFound, "/no/such/program: no such program"),
        ("/usr".to_owned(), NotExecutable, "is a directory"),
        (path(&plain), NotExecutable, "chmod +x"),
        (path(&bad_interpreter), NotFound, "its interpreter /no/such/interpreter is not there"),
        (path(&bad_format), NotExecutable, "not a program of this machine"),
    ] {
        let launching = world.begin(program(&name, &[]));
        let error = launching.outcome().unwrap_err();
        assert_eq!(error.kind, expected, "{error}");
        assert!(error.message.contains(text), "{error}");
        assert!(launching.facts.try_recv().is_err());
        // Nothing is held of it.
        assert_eq!(world.report(&launching.scope).processes, []);
        if let Some(cgroup) = world.cgroup() {
            assert!(!cgroup.join(format!("s-{}/v-0-1", launching.scope.session)).exists());
        }
    }
    for file in [bad_interpreter, bad_format, plain] {
        fs::remove_file(file).unwrap();
    }
    world.end();
}

fn directories(kind: ContainmentKind) {
    let world = World::start(kind);
    for (dir, text) in [("/no/such", "no such directory"), ("/etc/passwd", "/etc/passwd: not a directory")] {
        let error =
            world.begin(LaunchSpec { cwd: Cwd::Path(dir.into()), ..sh("true") }).outcome().unwrap_err();
        assert_eq!(error.kind, LaunchErrorKind::Directory, "{error}");
        assert!(error.message.contains(text), "{error}");
    }
    if crate::world::is_root() {
        let dir = std::env::temp_dir().join(format!("mcpvisor-closed-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        let credentials = Some(mcpvisor_process::Credentials { uid: 65534, gid: 65534, groups: Vec::new() });
        let spec = LaunchSpec { cwd: Cwd::Path(dir.clone()), credentials, ..sh("true") };
        let error = world.begin(spec).outcome().unwrap_err();
        assert_eq!(error.kind, LaunchErrorKind::Directory, "{error}");
        fs::remove_dir(dir).unwrap();
    }
    world.end();
}

fn in_use(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("exec sleep 1000"));
    let error = world.begin_in(server.scope.clone(), sh("true")).outcome().unwrap_err();
    assert!(error.message.contains("in use"), "{error}");
    world.containment.kill(&server.scope);
    server.empty();
    // One that is empty is replaced, though it was not released.
    let again = world.begin_in(server.scope.clone(), sh("true")).ready().unwrap();
    again.empty();
    world.end();
}

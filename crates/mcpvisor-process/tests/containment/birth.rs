//! What a child is born with.
use crate::harness::Named;
use crate::world::{World, is_root, program, record, sh, status};
use mcpvisor_process::{
    ContainmentKind, Credentials, Cwd, Exit, LaunchSpec, ResourceLimit, Rung, ScopeFact, Stdio,
};
use std::fs::File;
use std::io::{Read as _, Write as _};

pub(crate) const TESTS: &[Named] = &[
    ("exit_statuses", exit_statuses),
    ("streams_are_pipes", streams_are_pipes),
    ("descriptors_that_are_given", descriptors_that_are_given),
    ("the_environment_is_what_was_asked_for_and_the_marker", environment),
    ("no_descriptor_but_three", no_descriptor_but_three),
    ("signals_are_reset_but_for_the_ignored_ones", signals),
    ("a_session_of_its_own_and_death_with_its_parent", session),
    ("umask_limits_nice_and_directory", attributes),
    ("another_user", another_user),
    ("a_file_without_format_is_a_shell_script", shell_script),
    ("exit_in_the_middle_of_the_launch", exit_at_once),
];

fn exit_statuses(kind: ContainmentKind) {
    let world = World::start(kind);
    for (script, expected) in [
        ("exit 3", Exit::Code(3)),
        ("exit 0", Exit::Code(0)),
        ("kill -9 $$", Exit::Signal(9)),
        ("kill -40 $$", Exit::Signal(40)),
    ] {
        let server = world.launch(sh(script));
        let pid = server.launched.pid;
        assert!(matches!(server.fact(), ScopeFact::MainExited { exit } if exit == expected), "{script}");
        let ScopeFact::Empty { report } = server.fact() else { panic!("the second fact is the end") };
        let main = record(&report, pid);
        assert_eq!((main.exit, main.ended_by, main.escaped), (Some(expected), Some(Rung::Itself), false));
        assert!(main.command.starts_with("/bin/sh -c"), "{}", main.command);
        assert!(report.proven && report.remaining.is_empty() && report.cpu.is_some());
        world.containment.release(&server.scope);
    }
    world.end();
}

fn streams_are_pipes(kind: ContainmentKind) {
    let world = World::start(kind);
    let mut server = world.launch(sh("echo trouble >&2; exec cat"));
    let mut stdin = File::from(server.launched.stdin.take().unwrap());
    stdin.write_all(b"there and back\n").unwrap();
    drop(stdin);
    assert_eq!(server.read_all(), "there and back\n");
    let mut errors = Vec::new();
    crate::world::read_to_end(&server.launched.stderr, &mut errors);
    assert_eq!(errors, b"trouble\n");
    assert_eq!(record(&server.empty(), server.launched.pid).exit, Some(Exit::Code(0)));
    world.end();
}

fn descriptors_that_are_given(kind: ContainmentKind) {
    let world = World::start(kind);
    let (stdin, mut ours) = std::io::pipe().unwrap();
    let (mut answers, stdout) = std::io::pipe().unwrap();
    let spec =
        LaunchSpec { stdio: Stdio::Given { stdin: stdin.into(), stdout: stdout.into() }, ..sh("exec cat") };
    let server = world.launch(spec);
    assert!(server.launched.stdin.is_none() && server.launched.stdout.is_none());
    ours.write_all(b"directly").unwrap();
    drop(ours);
    // The end of file comes only if nobody else, neither daemon nor keeper, has kept a copy.
    let mut text = String::new();
    answers.read_to_string(&mut text).unwrap();
    assert_eq!(text, "directly");
    server.empty();
    world.end();
}

fn environment(kind: ContainmentKind) {
    let world = World::start(kind);
    let mut spec = program("env", &[]);
    spec.env.push(c"A=1".to_owned());
    spec.env.push(c"MCPVISOR_SCOPE=of/some/other".to_owned());
    spec.env.push(c"UMLAUT=\xff\xfe".to_owned());
    let server = world.launch(spec);
    let mut bytes = Vec::new();
    crate::world::read_to_end(server.launched.stdout.as_ref().unwrap(), &mut bytes);
    let mut lines: Vec<&[u8]> = bytes.trim_ascii_end().split(|b| *b == b'\n').collect();
    lines.sort_unstable();
    let scope = &server.scope;
    let marker = format!("MCPVISOR_SCOPE={}/{}/{}", world.instance, scope.session, scope.leaf);
    let expected: [&[u8]; 4] =
        [b"A=1", marker.as_bytes(), b"PATH=/usr/local/bin:/usr/bin:/bin", b"UMLAUT=\xff\xfe"];
    assert_eq!(lines, expected);
    server.empty();
    world.end();
}

fn no_descriptor_but_three(kind: ContainmentKind) {
    // One that is inheritable, as a careless library would leave it.
    let leak = File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    let world = World::start(kind);
    let server = world.launch(sh("for fd in /proc/$$/fd/*; do echo ${fd##*/}; done"));
    // The shell itself opens the folder for a moment.
    let listed = server.read_all();
    assert!(listed.starts_with("0\n1\n2\n") && listed.lines().count() <= 4, "{listed}");
    assert!(listed.lines().skip(3).all(|fd| fd == "3"), "{listed}");
    server.empty();
    let server = world.launch(sh("read line < /proc/self/stat; for fd in 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$fd ] && echo $fd; done; echo done"));
    assert_eq!(server.read_all(), "done\n");
    server.empty();
    world.end();
}

fn signals(kind: ContainmentKind) {
    let world = World::start(kind);
    let ignored_signals = vec![libc::SIGHUP, libc::SIGUSR1];
    let server = world.launch(LaunchSpec { ignored_signals, ..program("cat", &["/proc/self/status"]) });
    let text = server.read_all();
    assert_eq!(status(&text, "SigBlk"), "0000000000000000");
    assert_eq!(status(&text, "SigCgt"), "0000000000000000");
    // HUP is 1, USR1 is 10; SIGPIPE, which every Rust program ignores, is not among them.
    assert_eq!(status(&text, "SigIgn"), "0000000000000201");
    server.empty();
    world.end();
}

fn session(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("read -r line < /proc/self/stat; echo \"$line\"; sleep 1000"));
    let line = server.read_until("\n");
    let fields: Vec<&str> = line[line.rfind(')').unwrap() + 2..].split(' ').collect();
    let pid = server.launched.pid.to_string();
    assert_eq!((fields[2], fields[3]), (pid.as_str(), pid.as_str()), "process group and session");
    assert_eq!(fields[4], "0", "no terminal");
    world.containment.kill(&server.scope);
    let report = server.empty();
    assert_eq!(record(&report, server.launched.pid).exit, Some(Exit::Signal(9)));
    world.end();
}

fn attributes(kind: ContainmentKind) {
    let world = World::start(kind);
    let spec = LaunchSpec {
        umask: Some(0o027),
        limits: vec![ResourceLimit { resource: libc::RLIMIT_NOFILE, soft: 123, hard: 456 }],
        nice: Some(7),
        cwd: Cwd::Path("/usr".into()),
        ..sh("umask; ulimit -Sn; ulimit -Hn; nice; pwd")
    };
    let server = world.launch(spec);
    assert_eq!(server.read_all(), "0027\n123\n456\n7\n/usr\n");
    server.empty();
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let dir = rustix::fs::open("/etc", flags, rustix::fs::Mode::empty()).unwrap();
    let server = world.launch(LaunchSpec { cwd: Cwd::Fd(dir), ..sh("pwd") });
    assert_eq!(server.read_all(), "/etc\n");
    server.empty();
    let server = world.launch(LaunchSpec { cwd: Cwd::Path("/usr".into()), ..program("bin/env", &["pwd"]) });
    assert_eq!(server.read_all(), "/usr\n", "a relative program counts from the server's directory");
    server.empty();
    world.end();
}

fn another_user(kind: ContainmentKind) {
    if !is_root() {
        println!("not tried: needs root");
        return;
    }
    let world = World::start(kind);
    let credentials = Some(Credentials { uid: 65534, gid: 65533, groups: vec![65532] });
    let spec = LaunchSpec { credentials, no_new_privs: true, ..program("cat", &["/proc/self/status"]) };
    let server = world.launch(spec);
    let text = server.read_all();
    assert_eq!(status(&text, "Uid"), "65534\t65534\t65534\t65534");
    assert_eq!(status(&text, "Gid"), "65533\t65533\t65533\t65533");
    assert_eq!(status(&text, "Groups"), "65532");
    assert_eq!(status(&text, "NoNewPrivs"), "1");
    server.empty();
    world.end();
}

fn shell_script(kind: ContainmentKind) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::temp_dir().join(format!("mcpvisor-script-{}", std::process::id()));
    std::fs::write(&path, "echo script $1\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let world = World::start(kind);
    let server = world.launch(program(path.to_str().unwrap(), &["one"]));
    assert_eq!(server.read_all(), "script one\n");
    server.empty();
    std::fs::remove_file(path).unwrap();
    world.end();
}

/// A program that is gone before its launch is told loses neither its exit nor its end.
fn exit_at_once(kind: ContainmentKind) {
    let world = World::start(kind);
    let times = if kind == ContainmentKind::Cgroup { 500 } else { 100 };
    let mut begun = Vec::new();
    for _ in 0..times {
        begun.push(world.begin(program("true", &[])));
        if begun.len() == 20 {
            for launching in begun.drain(..) {
                let server = launching.ready().unwrap();
                assert!(matches!(server.fact(), ScopeFact::MainExited { exit: Exit::Code(0) }));
                assert!(matches!(server.fact(), ScopeFact::Empty { .. }));
                world.containment.release(&server.scope);
                world.containment.release_session(server.scope.session.clone());
            }
        }
    }
    world.end();
}

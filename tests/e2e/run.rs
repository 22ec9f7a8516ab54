//! `mcpvisor run` is a drop-in: status, environment, streams are those of the server started directly; and its end, by any
//! signal, is the end of the session.
use crate::support::{case, polite, python};
use mcpvisor_testkit::{
    Containment, Daemon, Invocation, Output, SOON, Scene, Setup, Signal, Stdio, ends_within, eventually,
    procfs, scene, shell_status,
};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where the session lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In a daemon that runs.
    Daemon(Containment),
    /// In a private one.
    Private,
}

/// A way to run something, and the daemon that it needs.
struct Place<'a> {
    scene: &'a Arc<Scene>,
    daemon: Option<Daemon>,
}

impl<'a> Place<'a> {
    fn new(scene: &'a Arc<Scene>, way: Way) -> Option<Self> {
        let daemon = match way {
            Way::Daemon(containment) if !containment.is_possible(scene) => return None,
            Way::Daemon(containment) => Some(Daemon::start(scene, &Setup::on(containment))),
            Way::Private => None,
        };
        Some(Self { scene, daemon })
    }

    fn run(&self, options: &[&str], command: &[&str]) -> Invocation<'a> {
        let start = match &self.daemon {
            Some(daemon) => vec!["--socket".to_owned(), daemon.socket().to_string_lossy().into_owned()],
            None => vec!["--private".to_owned()],
        };
        let start: Vec<&str> = start.iter().map(String::as_str).collect();
        self.scene.mcpvisor(&start).arg("run").args(options).arg("--").args(command)
    }

    fn finish(self) {
        if let Some(daemon) = self.daemon {
            daemon.finish();
        }
    }
}

/// Three tests of one play: in a daemon on cgroups, in one on keepers, and in a private one.
macro_rules! in_every_place {
    ($($(#[$meta:meta])* $name:ident = $play:expr;)*) => {
        $(
            $(#[$meta])*
            mod $name {
                use super::*;

                fn play(way: Way) {
                    scene(move |scene| {
                        if let Some(place) = Place::new(scene, way) {
                            let play: fn(&Arc<Scene>, &Place<'_>) = $play;
                            play(scene, &place);
                            place.finish();
                        }
                    });
                }

                #[test]
                fn cgroup() {
                    play(Way::Daemon(Containment::Cgroup));
                }

                #[test]
                fn keeper() {
                    play(Way::Daemon(Containment::Keeper));
                }

                #[test]
                fn private() {
                    play(Way::Private);
                }
            }
        )*
    };
}

/// The status of a shell's script, with standard streams that are pipes held open by the test.
#[track_caller]
fn status_of(place: &Place<'_>, script: &str) -> i32 {
    let mut server = Stdio::start(place.run(&[], &["sh", "-c", script]));
    shell_status(server.wait(SOON))
}

/// What the probe tells, in this invocation.
#[track_caller]
fn probe(invocation: Invocation<'_>) -> Value {
    let mut server = Stdio::start(invocation);
    server.initialize();
    let answer = server.call_tool("probe", &json!({}));
    server.close_stdin();
    assert_eq!(shell_status(server.wait(SOON)), 0);
    let text = answer["result"]["content"][0]["text"].as_str().expect("the probe tells text");
    serde_json::from_str(text).expect("the probe tells JSON")
}

/// What may differ is taken out.
fn without_identity(mut told: Value) -> Value {
    for name in ["pid", "ppid", "pgid", "sid", "cgroup"] {
        told[name] = Value::Null;
    }
    if let Some(env) = told["env"].as_array_mut() {
        env.retain(|name| name != "MCPVISOR_SCOPE");
    }
    // A direct child of the test also has what the test itself has inherited.
    if let Some(fds) = told["fds"].as_object_mut() {
        fds.retain(|number, _| ["0", "1", "2"].contains(&number.as_str()));
        for target in fds.values_mut() {
            *target = json!(target.as_str().and_then(|target| target.split(':').next()));
        }
    }
    told
}

/// Plays a small conversation from a file, a terminal or `/dev/null`, and returns what came out.
fn conversation() -> String {
    let lines = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": mcpvisor_testkit::handshake()}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"message": "héllo"}}}),
    ];
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn says_hello(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).lines().any(|line| line.contains("\"id\":2") && line.contains("héllo"))
}

in_every_place! {
    /// The server's own status, 128 + N for a signal, and what `env` and `timeout` say where nothing could be run.
    statuses = |scene, place| {
        assert_eq!(status_of(place, "exit 0"), 0);
        assert_eq!(status_of(place, "exit 7"), 7);
        assert_eq!(status_of(place, "kill -TERM $$"), 128 + 15);
        assert_eq!(status_of(place, "kill -SEGV $$"), 128 + 11);
        let fails = |options: &[&str], command: &[&str]| -> Output { place.run(options, command).output() };
        let missing = fails(&[], &["no-such-program-here"]);
        assert_eq!(missing.status, 127, "{missing:?}");
        assert!(missing.stderr.contains("no-such-program-here") && missing.stdout.is_empty(), "{missing:?}");
        let plain = scene.path("plain");
        std::fs::write(&plain, "text\n").expect("a file in the scene's folder");
        assert_eq!(fails(&[], &[&plain.to_string_lossy()]).status, 126);
        assert_eq!(fails(&[], &[&scene.dir().to_string_lossy()]).status, 126);
        let nowhere = fails(&["--cwd", "/no/such/folder"], &["true"]);
        assert_eq!(nowhere.status, 125, "{nowhere:?}");
        assert!(nowhere.stderr.contains("/no/such/folder"), "{nowhere:?}");
        // A program that is found through PATH, one beside us, and a script without an interpreter line.
        let script = scene.path("script");
        std::fs::write(&script, "exit 9\n").expect("a file in the scene's folder");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        // With an open stdin: end of file first would be 0.
        let mut server = Stdio::start(place.run(&[], &["./script"]));
        assert_eq!(shell_status(server.wait(SOON)), 9);
    };

    /// End of file first is 0, whatever the server then does.
    status_at_end_of_file = |scene, place| {
        for name in ["01-ignore-eof", "02-ignore-sigterm", "30-slow-exit"] {
            let mut server = Stdio::start(place.run(&[], &["python3", &case(name)]).env("BUG_DELAY", "0.1"));
            server.initialize();
            server.close_stdin();
            assert_eq!(shell_status(server.wait(SOON)), 0, "{name}");
            for (role, pid) in scene.noted() {
                assert!(!procfs::exists(pid), "{role} {pid} of {name} outlives run");
            }
        }
    };

    /// Environment, directory, umask, limits, nice value, ignored signals, descriptors: as directly.
    the_server_gets_what_the_shim_has = |scene, place| {
        let folder = scene.path("some where");
        std::fs::create_dir(&folder).expect("a folder in the scene's folder");
        let case = case("29-probe");
        let plain = |invocation: Invocation<'_>| without_identity(probe(invocation));
        assert_eq!(plain(scene.command("python3").arg(&case)), plain(place.run(&[], &["python3", &case])));
        let odd = |invocation: Invocation<'_>| {
            let invocation = invocation.env("ODD", "a b").env("EMPTY", "").cwd(scene.path("some where"));
            // A descriptor that is open in the shim is not for the server, as clients set CLOEXEC.
            plain(invocation.prelude("umask 027; ulimit -n 333; ulimit -c 0; trap '' HUP USR1; renice -n 5 $$ >/dev/null"))
        };
        let direct = odd(scene.command("python3").arg(&case));
        assert_eq!((&direct["umask"], &direct["nofile"][0], &direct["nice"]), (&json!("0o27"), &json!(333), &json!(5)));
        assert_eq!(direct, odd(place.run(&[], &["python3", &case])));
        // `--env` and `--cwd` are the options for what a client's configuration can't say.
        let told = probe(place.run(&["--env", "MORE=1", "--cwd", &folder.to_string_lossy()], &["python3", &case]));
        assert!(told["env"].as_array().is_some_and(|env| env.contains(&json!("MORE"))), "{told:#}");
        let folder = folder.canonicalize().expect("it is there");
        assert_eq!(told["cwd"], folder.to_string_lossy().as_ref());
        assert_eq!((&told["pid"], &told["pid"]), (&told["pgid"], &told["sid"]), "a session of its own");
        // Ours are not passed on, but for the one.
        let told = probe(place.run(&[], &["python3", &case]).env("MCPVISOR_SECRET", "x"));
        let env = told["env"].to_string();
        assert!(env.contains("MCPVISOR_SCOPE") && !env.contains("MCPVISOR_SECRET"), "{env}");
    };

    /// stderr is copied, to its last byte, and its flood blocks nobody.
    stderr_is_copied = |scene, place| {
        let script = "echo one >&2; echo two >&2; printf three >&2; exit 3";
        let mut server = Stdio::start(place.run(&[], &["sh", "-c", script]));
        assert_eq!(shell_status(server.wait(SOON)), 3);
        assert_eq!(server.stderr_to_its_end(), "one\ntwo\nthree");
        let _ = scene;
        // Nobody reads our stderr: the server goes on all the same.
        let mut server = Stdio::start(place.run(&[], &["python3", &case("12-stderr-flood")]).env("BUG_BYTES", "3000000").streams(
            std::process::Stdio::piped(),
            std::process::Stdio::piped(),
            full_pipe().into(),
        ));
        server.initialize();
        server.close_stdin();
        assert_eq!(shell_status(server.wait(SOON)), 0);
    };

    /// Input that was written before the hang-up is read by a server that starts slowly, and all of the answer arrives.
    piped_input_is_not_lost = |scene, place| {
        let script = "sleep 0.5; cat; head -c 300000 /dev/zero | tr '\\0' x";
        let output = place.run(&[], &["sh", "-c", script]).input(vec![b'i'; 50_000]).output();
        assert_eq!((output.status, output.stdout.len()), (0, 350_000), "{}", output.stderr);
        let _ = scene;
    };

    /// A file, /dev/null and a terminal as standard streams.
    other_streams = |scene, place| {
        let (input, output) = (scene.path("in"), scene.path("out"));
        std::fs::write(&input, conversation()).expect("a file in the scene's folder");
        let open = |path: &Path| std::fs::File::open(path).expect("it is there");
        let create = |path: &Path| std::fs::File::create(path).expect("a file in the scene's folder");
        let server = polite();
        let server: Vec<&str> = server.iter().map(String::as_str).collect();
        let mut shim = place.run(&[], &server).streams(open(&input).into(), create(&output).into(), std::process::Stdio::null()).spawn();
        assert_eq!(shell_status(shim.wait(SOON)), 0);
        assert!(says_hello(&std::fs::read(&output).expect("it is there")), "the answer is in the file");
        // A pipe on one side only.
        let told = place.run(&[], &server).streams(open(&input).into(), std::process::Stdio::piped(), std::process::Stdio::piped()).output();
        assert!(told.status == 0 && says_hello(&told.stdout), "{told:?}");
        // /dev/null is at its end at once.
        let told = place.run(&[], &server).output();
        assert_eq!((told.status, told.stdout.len()), (0, 0), "{told:?}");
        terminal(scene, place);
    };

    /// SIGTERM: the shim leaves at once, the teardown goes on without it.
    the_shim_is_terminated = |scene, place| {
        for (signal, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1)] {
            let mut server = Stdio::start(place.run(&[], &["python3", &case("03-double-fork-daemon")]));
            server.initialize();
            server.process().signal(signal);
            let status = server.process().wait_within(Duration::from_secs(2)).expect("it leaves at once");
            assert!(status.signal() == Some(number) || status.code() == Some(128 + number), "{status:?}");
            assert_all_gone(scene);
        }
    };

    /// SIGKILL in the middle of a call: the session ends all the same.
    the_shim_is_killed = |scene, place| {
        for name in ["02-ignore-sigterm", "03-double-fork-daemon", "04-sh-wrapper", "16-ignore-cancel"] {
            let mut server = Stdio::start(place.run(&[], &["python3", &case(name)]));
            server.initialize();
            server.request("tools/call", json!({"name": "echo", "arguments": {"text": "x"}}));
            server.process().signal(Signal::KILL);
            server.wait(SOON);
            assert_all_gone(scene);
        }
    };

    /// A stopped shim does not hold up the end of its session: the daemon sees the hang-up itself.
    the_shim_is_stopped = |scene, place| {
        if place.daemon.is_some() {
            let mut server = Stdio::start(place.run(&[], &["python3", &case("01-ignore-eof")]));
            server.initialize();
            server.process().signal(Signal::STOP);
            server.close_stdin();
            assert_all_gone(scene);
            server.process().signal(Signal::CONT);
            assert_eq!(shell_status(server.wait(SOON)), 0);
        }
    };
}

/// Everything that was noted ends soon.
#[track_caller]
fn assert_all_gone(scene: &Scene) {
    for (role, pid) in scene.noted() {
        assert!(ends_within(pid, SOON), "{role} {pid} is left");
    }
}

/// The write end of a pipe that is full, and that nobody reads.
fn full_pipe() -> std::process::ChildStdin {
    let mut reader = std::process::Command::new("sleep")
        .arg("300")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("sleep");
    let pipe = reader.stdin.take().expect("a pipe");
    // The reader lives for as long as the pipe is wanted: until the test's thread has ended.
    FULL.with_borrow_mut(|all| all.push(Reader(reader)));
    pipe
}

struct Reader(std::process::Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

thread_local! {
    static FULL: std::cell::RefCell<Vec<Reader>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Plays the conversation at a terminal, which python makes for us.
#[track_caller]
fn terminal(scene: &Scene, place: &Place<'_>) {
    let script = r#"
import os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
import termios
mode = termios.tcgetattr(fd); mode[3] &= ~termios.ECHO; termios.tcsetattr(fd, termios.TCSANOW, mode)
os.write(fd, open(sys.argv[1], 'rb').read())
seen, end = b'', time.time() + 15
while b'"id":2' not in seen and time.time() < end:
    if select.select([fd], [], [], 0.2)[0]:
        seen += os.read(fd, 65536)
os.write(fd, b'\x04')
while time.time() < end:
    try:
        if select.select([fd], [], [], 0.2)[0] and not os.read(fd, 65536):
            break
    except OSError:
        break
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;
    let server = polite();
    let words: Vec<&str> = server.iter().map(String::as_str).collect();
    let shim = place.run(&[], &words).words();
    let input = scene.path("in");
    let output = scene.command("python3").args(["-c", script]).arg(input).args(shim).output();
    assert_eq!(output.status, 0, "{output:?}");
    assert!(says_hello(&output.stdout), "{output:?}");
}

/// A connected pair of sockets for stdin and stdout, as Node's clients make.
#[test]
fn sockets_as_streams() {
    scene(|scene| {
        let daemon = Daemon::start(scene, &Setup::new());
        let script = r"
import socket, subprocess, sys
ours, theirs = socket.socketpair()
back, their_back = socket.socketpair()
child = subprocess.Popen(sys.argv[2:], stdin=theirs, stdout=their_back)
theirs.close(); their_back.close()
ours.sendall(open(sys.argv[1], 'rb').read())
ours.shutdown(socket.SHUT_WR)
data = b''
while True:
    part = back.recv(65536)
    if not part: break
    data += part
sys.stdout.buffer.write(data)
sys.exit(child.wait())
";
        let input = scene.path("in");
        std::fs::write(&input, conversation()).expect("a file in the scene's folder");
        let server = polite();
        let words: Vec<&str> = server.iter().map(String::as_str).collect();
        let shim = daemon.run(scene, &words).words();
        let output = scene.command("python3").args(["-c", script]).arg(input).args(shim).output();
        assert!(output.status == 0 && says_hello(&output.stdout), "{output:?}");
        daemon.finish();
    });
}

/// Where no daemon answers, `run` starts a private one, which ends with it.
#[test]
fn without_a_daemon_run_has_one_of_its_own() {
    scene(|scene| {
        let server = polite();
        let words: Vec<&str> = server.iter().map(String::as_str).collect();
        let mut server = Stdio::start(scene.mcpvisor(&["run", "--"]).args(words));
        server.initialize();
        let answer = server.call_tool("echo", &json!({"message": "hello"}));
        assert_eq!(answer["result"]["content"][0]["text"], "hello");
        server.close_stdin();
        assert_eq!(shell_status(server.wait(SOON)), 0);
    });
}

/// The daemon is killed under a shim: nothing remains, and the shim says 125.
#[test]
fn g36_the_daemon_of_a_shim_is_killed() {
    scene(|scene| {
        let mut daemon = Daemon::start(scene, &Setup::new());
        let mut server = Stdio::start(daemon.run(scene, &["python3", &case("02-ignore-sigterm")]));
        server.initialize();
        daemon.process().signal(Signal::KILL);
        daemon.process().wait(SOON);
        assert_eq!(shell_status(server.wait(SOON)), 125);
        assert!(!server.stderr_to_its_end().is_empty(), "the shim says why");
        assert_all_gone(scene);
        let _ = std::fs::remove_file(daemon.socket());
        scene.sweep_cgroups();
    });
}

/// A direct session is listed; what it can't have is null, and what it can't do is `unsupported`.
#[test]
fn a_direct_session_says_what_it_cannot_do() {
    scene(|scene| {
        let daemon = Daemon::start(scene, &Setup::new());
        let mut server = Stdio::start(
            scene
                .mcpvisor(&[
                    "--socket",
                    &daemon.socket().to_string_lossy(),
                    "run",
                    "--key",
                    "direct",
                    "--name",
                    "probe",
                    "--",
                ])
                .args(python("29-probe")),
        );
        server.initialize();
        let session = daemon.cli(&["show", "direct"]).ok();
        assert_eq!(session["state"], "ready", "{session:#}");
        let told = &session["servers"][0];
        assert_eq!((&told["name"], &told["mode"]), (&json!("probe"), &json!("direct")), "{session:#}");
        assert!(
            told["tools"].is_null() && told["era"].is_null() && told["in_flight"].is_null(),
            "{session:#}"
        );
        for args in [&["tools", "direct"][..], &["call", "direct", "probe"]] {
            let error = daemon.cli(args).fails(1);
            assert_eq!(error["kind"], "unsupported", "{args:?}: {error:#}");
        }
        // A close that the daemon begins goes straight to SIGTERM.
        let certificate = crate::support::close(&daemon, "direct");
        assert_eq!(certificate["servers"][0]["stage"], "sigterm", "{certificate:#}");
        assert_eq!(shell_status(server.wait(SOON)), 128 + 15, "the server's own status");
        daemon.finish();
    });
}

/// Two shims at once: each ends its own server and no other.
#[test]
fn g28_each_shim_ends_its_own_server() {
    scene(|scene| {
        let daemon = Daemon::start(scene, &Setup::new());
        let command = ["python3", &case("01-ignore-eof")];
        let mut one = Stdio::start(daemon.run(scene, &command));
        let mut two = Stdio::start(daemon.run(scene, &command));
        one.initialize();
        two.initialize();
        let pids: Vec<u32> = scene.noted().into_iter().map(|(_, pid)| pid).collect();
        assert_eq!(pids.len(), 2);
        one.close_stdin();
        one.wait(SOON);
        eventually("the end of one", SOON, || pids.iter().filter(|pid| procfs::is_alive(**pid)).count() == 1);
        assert_eq!(two.call_tool("echo", &json!({"text": "alive"}))["result"]["content"][0]["text"], "alive");
        two.close_stdin();
        two.wait(SOON);
        daemon.finish();
    });
}

/// A shim learns how its server ended, however little the daemon remembers of ended sessions.
#[test]
fn a_shim_is_told_though_nothing_is_remembered() {
    scene(|scene| {
        for containment in [Containment::Cgroup, Containment::Keeper] {
            if !containment.is_possible(scene) {
                continue;
            }
            let daemon = Daemon::start(scene, &Setup::on(containment).quick().daemon("tombstones = 0"));
            let socket = daemon.socket().to_string_lossy().into_owned();
            for options in [&[][..], &["--relay"][..]] {
                for status in [0, 7, 8, 9, 10] {
                    let script = format!("exit {status}");
                    let words = ["--socket", &socket];
                    let run =
                        scene.mcpvisor(&words).arg("run").args(options).args(["--", "sh", "-c", &script]);
                    // With an open stdin: end of file first would be 0.
                    let mut server = Stdio::start(run);
                    assert_eq!(shell_status(server.wait(SOON)), status, "{options:?}");
                }
            }
            daemon.finish();
        }
    });
}

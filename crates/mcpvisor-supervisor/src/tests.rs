//! Losing any actor in any state: what runs is torn down, who asked is answered with the truth, the daemon goes on.
mod stop_command;

use crate::api::*;
use crate::record::lock;
use crate::registry_actor::RegistryMsg;
use crate::session_actor::SessionMsg;
use crate::supervisor::Supervisor;
use mcpvisor_lifecycle::registry::{CloseOptions, Goal, IfClosing, IfOpen, RegistryConfig, Target, Urgency};
use mcpvisor_lifecycle::server::{Mode, Restart};
use mcpvisor_lifecycle::session::{CloseReason, SessionState};
use mcpvisor_lifecycle::{Generation, KeyRef, ServerName, SessionKey, Uid};
use mcpvisor_process::{Containment, InstanceId, Options, Threads};
use std::ffi::CString;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A server that speaks MCP and whose tool never answers.
const MCP: &str = r#"
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "0"}}
    elif m.get("method") == "tools/list":
        r = {"tools": [{"name": "hang", "inputSchema": {"type": "object"}}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"#;

/// Ignores end of file and SIGTERM, and has a helper in a session of its own that does too.
const STUBBORN: &str = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 300' & while :; do sleep 1; done";

/// Each test is another user: keys and scopes of one process's tests don't meet.
static NEXT_UID: AtomicU32 = AtomicU32::new(50_000);

/// One reaper in a process at a time: the tests take turns.
fn containment() -> (MutexGuard<'static, ()>, Threads, Containment) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = lock(&TURN);
    let instance =
        InstanceId(format!("{:016x}", 0xabcd_0000_0000_u64 + u64::from(std::process::id())).into());
    let options =
        Options { instance, containment: None, private: false, keeper_command: Vec::new(), state: None };
    let (threads, containment) = mcpvisor_process::start(options).unwrap();
    (turn, threads, containment)
}

struct World {
    supervisor: Supervisor,
    uid: Uid,
}

impl World {
    fn target(&self, generation: Option<Generation>) -> Target {
        Target { key: self.key(), generation }
    }

    fn key(&self) -> KeyRef {
        KeyRef { uid: self.uid, key: SessionKey::new("k").unwrap() }
    }

    fn request(&self, mode: Mode, args: &[&str]) -> OpenRequest {
        let words = args.iter().map(|word| CString::new(*word).unwrap());
        let server = ServerSpec {
            scope: crate::api::Scope::Session,
            name: server_name(),
            program: CString::new(args[0]).unwrap(),
            args: words.collect(),
            env: [CString::new("PATH=/usr/local/bin:/usr/bin:/bin").unwrap()].into(),
            cwd: None,
            umask: None,
            limits: Vec::new(),
            nice: None,
            ignored_signals: Vec::new(),
            credentials: None,
            no_new_privs: false,
            memory_max: None,
            pids_max: None,
            max_in_flight: None,
            calls: Default::default(),
            era: crate::EraChoice::Auto,
            mode,
            required: true,
            significant: false,
            breaker: false,
            restart: Restart::Temporary,
            restart_intensity: 5,
            restart_period: Duration::from_secs(60),
            health: None,
            start: Duration::from_secs(20),
            stdin_grace: Duration::from_millis(100),
            term_grace: Duration::from_secs(20),
            stop_command: None,
            kill_wait: Duration::from_secs(5),
            max_line: 1 << 20,
        };
        OpenRequest {
            policy: Default::default(),
            key: self.key(),
            tenant: None,
            profile: None,
            administrator: false,
            queue: None,
            position: None,
            parent: None,
            labels: Default::default(),
            servers: vec![server],
            origin: None,
            drain: Duration::from_secs(20),
            prefix: crate::Prefix::default(),
            direct: None,
            if_closing: IfClosing::Wait,
            if_open: IfOpen::Join,
            wait: true,
            deadline: None,
            lease: "none".to_owned(),
            holder: None,
            limits: Default::default(),
            secret: None,
        }
    }

    fn pids(&self) -> Vec<u32> {
        marked(self.uid)
    }
}

fn server_name() -> ServerName {
    ServerName::new("main").unwrap()
}

/// The processes that carry the marker of this user's sessions, looked for from outside.
fn marked(uid: Uid) -> Vec<u32> {
    let marker = format!("/{}-", uid.0);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut variables = environ.split(|byte| *byte == 0);
        if variables.any(|text| {
            let text = String::from_utf8_lossy(text);
            text.strip_prefix("MCPVISOR_SCOPE=")
                .is_some_and(|scope| scope.contains(&marker) || scope.contains(&marker.replace('/', "/s-")))
        }) {
            found.push(pid);
        }
    }
    found
}

fn run<F: Future<Output = ()>>(body: impl FnOnce(World) -> F) {
    let (_turn, threads, containment) = containment();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = RegistryConfig {
            max_sessions: 100,
            max_sessions_per_user: 100,
            max_sessions_per_tenant: 100,
            tombstones: 100,
            tombstone_age: Duration::from_secs(600),
            breaker: mcpvisor_lifecycle::BreakerConfig::default(),
            ..RegistryConfig::default()
        };
        let supervisor = Supervisor::start(
            SupervisorConfig {
                registry: config,
                kill_wait: Duration::from_secs(5),
                events: crate::EventLimits { events: 4096, bytes: 1 << 20 },
                user: Uid(0),
            },
            containment,
        )
        .await
        .unwrap();
        let uid = Uid(NEXT_UID.fetch_add(1, Ordering::Relaxed) + (std::process::id() % 1000) * 100);
        let done = tokio::time::timeout(Duration::from_secs(60), body(World { supervisor, uid })).await;
        assert!(done.is_ok(), "the test hangs");
        assert_eq!(marked(uid), Vec::<u32>::new(), "processes are left");
    });
    drop(runtime);
    threads.end();
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(10), "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn options() -> CloseOptions {
    CloseOptions { drain: None, now: false }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Registry,
    Session,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Panic,
    Kill,
}

/// Makes an actor of the world's one session end.
fn lose(world: &World, who: Who, how: How) {
    let core = world.supervisor.core();
    let record = core.records().into_iter().rev().find(|record| record.key == world.key());
    let session = record.and_then(|record| record.live().actor.clone());
    match (who, how) {
        (Who::Registry, How::Panic) => core.send(RegistryMsg::Panic),
        (Who::Registry, How::Kill) => core.registry.borrow().as_ref().unwrap().get_cell().kill(),
        (Who::Session, How::Panic) => session.unwrap().send_message(SessionMsg::Panic).unwrap(),
        (Who::Session, How::Kill) => session.unwrap().get_cell().kill(),
        (Who::Server, How::Panic) => {
            session.unwrap().send_message(SessionMsg::PanicServer(mcpvisor_lifecycle::Place(0))).unwrap();
        }
        (Who::Server, How::Kill) => {
            for child in session.unwrap().get_cell().get_children() {
                child.kill();
            }
        }
    }
}

const ALL: [(Who, How); 6] = [
    (Who::Registry, How::Panic),
    (Who::Registry, How::Kill),
    (Who::Session, How::Panic),
    (Who::Session, How::Kill),
    (Who::Server, How::Panic),
    (Who::Server, How::Kill),
];

/// After any loss the key opens again, and that session is served and closed like any other.
async fn works_again(world: &World) {
    let opened = world.supervisor.open(world.request(Mode::Shared, &["python3", "-c", MCP])).await.unwrap();
    assert!(opened.created);
    assert_eq!(world.supervisor.tools(world.target(None)).await.unwrap().tools.len(), 1);
    let certificate = world.supervisor.close(world.target(None), options(), true, None).await.unwrap();
    assert_eq!((certificate.outcome, certificate.reason), (Outcome::Closed, CloseReason::Requested));
    assert_ne!(certificate.proof, Some(Proof::None));
}

#[test]
fn a_session_opens_and_closes_with_proof() {
    run(|world| async move {
        works_again(&world).await;
        works_again(&world).await;
    });
}

#[test]
fn g12_an_actor_lost_while_ready_leaves_nothing_and_closers_get_the_truth() {
    for (who, how) in ALL {
        run(|world| async move {
            let opened =
                world.supervisor.open(world.request(Mode::Exclusive, &["sh", "-c", STUBBORN])).await.unwrap();
            until("the helper runs", || world.pids().len() >= 2).await;
            lose(&world, who, how);
            let target = world.target(Some(opened.session.generation));
            let waited = world.supervisor.wait(target, Goal::Closed, None).await.unwrap();
            assert!(waited.reached, "{who:?} {how:?}");
            assert_eq!(world.pids(), Vec::<u32>::new(), "{who:?} {how:?}: said closed of what is alive");
            let certificate = waited.certificate.unwrap();
            assert_eq!(certificate.reason, CloseReason::Internal, "{who:?} {how:?}");
            assert_eq!(certificate.state, SessionState::Failed);
            assert!(certificate.servers[0].processes.len() >= 2, "{who:?} {how:?}: {certificate:?}");
            works_again(&world).await;
        });
    }
}

#[test]
fn g12_g13_an_actor_lost_while_stopping_leaves_nothing_and_the_closer_is_answered_after_it() {
    for (who, how) in ALL {
        run(|world| async move {
            world.supervisor.open(world.request(Mode::Exclusive, &["sh", "-c", STUBBORN])).await.unwrap();
            until("the helper runs", || world.pids().len() >= 2).await;
            let close = world.supervisor.close(world.target(None), options(), true, None);
            let second = world.supervisor.close(world.target(None), options(), true, None);
            let lose_it = async {
                let stopping = || {
                    let core = world.supervisor.core();
                    let record = core.records().into_iter().rev().find(|record| record.key == world.key());
                    record.is_some_and(|record| record.live().state == SessionState::Stopping)
                };
                until("it is stopping", stopping).await;
                lose(&world, who, how);
            };
            let (first, second, ()) = tokio::join!(close, second, lose_it);
            assert_eq!(world.pids(), Vec::<u32>::new(), "{who:?} {how:?}: said closed of what is alive");
            let (first, second) = (first.unwrap(), second.unwrap());
            assert_eq!(first.outcome, Outcome::Closed, "{who:?} {how:?}");
            assert_eq!(first.generation, second.generation);
            works_again(&world).await;
        });
    }
}

#[test]
fn g22_an_actor_lost_while_starting_fails_the_open_and_leaves_nothing() {
    for (who, how) in ALL {
        run(|world| async move {
            let open = world.supervisor.open(world.request(Mode::Shared, &["sh", "-c", STUBBORN]));
            let lose_it = async {
                until("the helper runs", || world.pids().len() >= 2).await;
                lose(&world, who, how);
            };
            let (opened, ()) = tokio::join!(open, lose_it);
            assert!(opened.is_err(), "{who:?} {how:?}: {opened:?}");
            // Its key is blocked until nothing is left of it, whatever the opener was told meanwhile (G1).
            works_again(&world).await;
        });
    }
}

/// G35: what a shutdown began outlasts the registry that it was told to. Without that (a successor that is not told again) the second
/// registry admitted the open, and the shutdown never finished.
#[test]
fn g35_a_registry_lost_in_a_shutdown_is_followed_by_one_that_admits_nothing_and_finishes() {
    for how in [How::Panic, How::Kill] {
        run(|world| async move {
            world.supervisor.open(world.request(Mode::Exclusive, &["sh", "-c", STUBBORN])).await.unwrap();
            until("the helper runs", || world.pids().len() >= 2).await;
            let registry = || world.supervisor.core().registry.borrow().as_ref().map(|actor| actor.get_id());
            let first = registry();
            world.supervisor.shutdown(Urgency::Drain);
            lose(&world, Who::Registry, how);
            until("another registry takes over", || registry() != first).await;
            let opened = world.supervisor.open(world.request(Mode::Exclusive, &["sleep", "300"])).await;
            assert!(matches!(opened, Err(Failure::Draining)), "{how:?}: {opened:?}");
            assert_eq!(world.supervisor.finished().await, 0, "{how:?}");
            assert_eq!(world.pids(), Vec::<u32>::new(), "{how:?}: finished with something alive");
        });
    }
}

/// Has every server's pipes fail to be taken over.
pub(crate) static NO_TAKE_OVER: AtomicBool = AtomicBool::new(false);

/// G4, G23: a server that runs and can't be spoken to is killed, and its launch has failed when nothing of it is left. As long as that was told
/// as the end of its output, which means nothing before a launch is answered, the open waited for the whole time of a start, and then the
/// key was quarantined for ever, with nothing behind it.
#[test]
fn g23_a_server_that_cannot_be_taken_over_is_ended_and_its_key_is_free() {
    run(|world| async move {
        NO_TAKE_OVER.store(true, Ordering::Relaxed);
        let open = world.supervisor.open(world.request(Mode::Exclusive, &["sh", "-c", STUBBORN]));
        let opened = tokio::time::timeout(Duration::from_secs(5), open).await;
        NO_TAKE_OVER.store(false, Ordering::Relaxed);
        assert!(matches!(opened, Ok(Err(Failure::StartFailed { .. }))), "{opened:?}");
        assert_eq!(world.pids(), Vec::<u32>::new(), "its open failed before it was gone");
        works_again(&world).await;
    });
}

#[test]
fn g11_an_actor_lost_while_draining_answers_the_call_once_and_leaves_nothing() {
    for (who, how) in ALL {
        run(|world| async move {
            world.supervisor.open(world.request(Mode::Shared, &["python3", "-c", MCP])).await.unwrap();
            let (_waits, gone) = tokio::sync::watch::channel(None);
            let call = crate::Call {
                requester: crate::Requester::new(2, None, gone),
                server: None,
                tool: "hang".to_owned(),
                arguments: None,
                progress: None,
            };
            let call = world.supervisor.call(world.target(None), call);
            let close = world.supervisor.close(world.target(None), options(), true, None);
            let close = async {
                let in_flight = || {
                    let core = world.supervisor.core();
                    let record = core.records().into_iter().rev().find(|record| record.key == world.key());
                    record.is_some_and(|record| {
                        record.servers()[0]
                            .live()
                            .connection
                            .as_ref()
                            .is_some_and(|of| of.stats().in_flight > 0)
                    })
                };
                until("the call is in flight", in_flight).await;
                close.await
            };
            let lose_it = async {
                let draining = || {
                    let core = world.supervisor.core();
                    let record = core.records().into_iter().rev().find(|record| record.key == world.key());
                    record.is_some_and(|record| record.live().state == SessionState::Draining)
                };
                until("it is draining", draining).await;
                lose(&world, who, how);
            };
            let (called, closed, ()) = tokio::join!(call, close, lose_it);
            assert!(called.is_err(), "{who:?} {how:?}: {called:?}");
            assert_eq!(closed.unwrap().outcome, Outcome::Closed, "{who:?} {how:?}");
            assert_eq!(world.pids(), Vec::<u32>::new(), "{who:?} {how:?}: said closed of what is alive");
            works_again(&world).await;
        });
    }
}

//! Measures launch and teardown: `cargo run --release -p mcpvisor-process --example cycle [CYCLES] [cgroup|keeper]`.
//!
//! Prints, as medians and 90th percentiles: the launch (from the call to its answer), the teardown of a server that is killed (from
//! the call to the end), of one with an escapee, and how soon the end is told after the server has exited by itself; and how long
//! many servers take.
#![expect(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use mcpvisor_process::{
    Containment, ContainmentKind, Cwd, InstanceId, LaunchSpec, Launched, Options, ScopeFact, ScopeId, Stdio,
    guardian_main, keeper_main, start,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// This many servers are started and killed together at the end.
const TOGETHER: usize = 200;

struct Server {
    scope: ScopeId,
    launched: Launched,
    took: Duration,
    end: Receiver<Instant>,
}

fn launch(containment: &Containment, number: usize, words: &[&str]) -> Server {
    let c = |text: &str| CString::new(text).unwrap();
    let spec = LaunchSpec {
        program: c(words[0]),
        args: words.iter().copied().map(c).collect(),
        env: vec![c("PATH=/usr/bin:/bin")],
        cwd: Cwd::Inherit,
        stdio: Stdio::Piped,
        umask: None,
        limits: Vec::new(),
        nice: None,
        ignored_signals: Vec::new(),
        credentials: None,
        no_new_privs: false,
        memory_max: None,
        pids_max: None,
        note: None,
        deadline: Duration::from_secs(10),
    };
    let scope = ScopeId { session: Arc::from(format!("0-{number}")), leaf: Arc::from("0-1") };
    let (fact, end) = channel();
    let observer = move |f| {
        if matches!(f, ScopeFact::Empty { .. }) {
            fact.send(Instant::now()).unwrap();
        }
    };
    let (told, answer) = channel();
    let begin = Instant::now();
    containment.launch(scope.clone(), spec, Arc::new(observer), Box::new(move |r| told.send(r).unwrap()));
    let launched = answer.recv().unwrap().unwrap();
    Server { scope, launched, took: begin.elapsed(), end }
}

fn wait_for_line(server: &Server) {
    let stdout = server.launched.stdout.as_ref().unwrap();
    poll(&mut [PollFd::new(stdout, PollFlags::IN)], None).unwrap();
}

fn print(what: &str, mut all: Vec<Duration>) {
    all.sort();
    let at = |part: usize| all[all.len() * part / 100];
    println!("{what:<44} median {:>9.1?}   90% {:>9.1?}", at(50), at(90));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "keeper") && arguments.len() == 1 {
        keeper_main();
    }
    if let [word, cgroup] = arguments.as_slice()
        && word == "guardian"
    {
        guardian_main(cgroup.as_ref());
    }
    let cycles: usize = arguments.first().map_or(500, |n| n.parse().unwrap());
    let kind = match arguments.get(1).map(String::as_str) {
        Some("keeper") => ContainmentKind::Keeper,
        _ => ContainmentKind::Cgroup,
    };
    let (threads, containment) = start(Options {
        instance: InstanceId(Arc::from(format!("cycle-{}", std::process::id()))),
        containment: Some(kind),
        private: false,
        keeper_command: vec!["/proc/self/exe".into(), "keeper".into()],
        state: None,
    })
    .unwrap();
    let (mut launches, mut kills, mut escapes, mut acknowledgements) = (vec![], vec![], vec![], vec![]);
    for number in 0..cycles {
        let server = launch(&containment, number * 3, &["cat"]);
        launches.push(server.took);
        let begin = Instant::now();
        containment.kill(&server.scope);
        kills.push(server.end.recv().unwrap() - begin);

        let escapee = "(setsid sleep 1000 &); echo up; exec cat";
        let server = launch(&containment, number * 3 + 1, &["sh", "-c", escapee]);
        wait_for_line(&server);
        let begin = Instant::now();
        containment.kill(&server.scope);
        escapes.push(server.end.recv().unwrap() - begin);

        let server = launch(&containment, number * 3 + 2, &["cat"]);
        let pid = Pid::from_raw(server.launched.pid.cast_signed()).unwrap();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let watcher = std::thread::spawn(move || {
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
            Instant::now()
        });
        drop(server.launched.stdin);
        let exited = watcher.join().unwrap();
        acknowledgements.push(server.end.recv().unwrap().saturating_duration_since(exited));
        for scope in 0..3 {
            let session: Arc<str> = Arc::from(format!("0-{}", number * 3 + scope));
            containment.release(&ScopeId { session: session.clone(), leaf: Arc::from("0-1") });
            containment.release_session(session);
        }
    }
    let begin = Instant::now();
    let first = cycles * 3;
    let together: Vec<Server> =
        (first..first + TOGETHER).map(|number| launch(&containment, number, &["cat"])).collect();
    let launched = begin.elapsed();
    let begin = Instant::now();
    for server in &together {
        containment.kill(&server.scope);
    }
    for server in &together {
        server.end.recv().unwrap();
    }
    let killed = begin.elapsed();
    println!("{TOGETHER} servers, one after the other: launched in {launched:.1?}, killed in {killed:.1?}");
    println!("{cycles} cycles, {kind:?}");
    print("launch", launches);
    print("kill to end, one process", kills);
    print("kill to end, with an escapee", escapes);
    print("exit seen elsewhere to end", acknowledgements);
    threads.end();
}

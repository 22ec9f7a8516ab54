//! How soon the end is told.
use crate::harness::Named;
use crate::world::{World, sh};
use mcpvisor_process::{ContainmentKind, ScopeFact};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Named] = &[("the_end_is_told_within_half_a_millisecond", latency)];

/// Measured against a second observer of the same process: a thread that polls a pidfd of its own. The two wake up in any order.
fn latency(kind: ContainmentKind) {
    let world = World::start(kind);
    let mut delays = Vec::new();
    for _ in 0..100 {
        let server = world.launch(sh("echo up; exec cat"));
        server.read_until("up");
        let pid = Pid::from_raw(server.launched.pid.cast_signed()).unwrap();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let watcher = std::thread::spawn(move || {
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
            Instant::now()
        });
        drop(server.launched.stdin);
        let exited = watcher.join().unwrap();
        let told = loop {
            if let (at, ScopeFact::Empty { .. }) = server.facts.recv_timeout(crate::world::BUDGET).unwrap() {
                break at;
            }
        };
        delays.push(told.saturating_duration_since(exited));
    }
    delays.sort();
    println!("{kind:?}: from exit to end: median {:?}, 90% {:?}", delays[50], delays[90]);
    // The promise is for a quiet machine; others use this one too.
    let bound =
        if kind == ContainmentKind::Cgroup { Duration::from_micros(500) } else { Duration::from_millis(5) };
    assert!(delays[50] <= bound, "{delays:?}");
    world.end();
}

use super::*;
use crate::version::EraChoice;
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const LIMITS: CallLimits = CallLimits {
    max_in_flight: 2,
    max_queued: 4,
    max_queued_bytes: 1 << 20,
    queue_timeout: Duration::from_secs(10),
    call_timeout: Some(Duration::from_secs(60)),
    call_timeout_max: Duration::from_secs(100),
};

/// A server that is spoken to, and the time.
pub(super) struct World {
    pub(super) peer: Peer<u32>,
    now: Instant,
}

impl World {
    fn new(limits: CallLimits) -> Self {
        Self::with_bug(limits, None)
    }

    #[expect(clippy::disallowed_methods, reason = "some moment to count from")]
    pub(super) fn with_bug(limits: CallLimits, bug: Option<TurnsBug>) -> Self {
        let mut peer = Peer::default();
        peer.limit_calls(limits);
        peer.turns.bug = bug;
        peer.begin(EraChoice::Legacy);
        let result = json!({"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}});
        let line = json!({"jsonrpc":"2.0","id":"mcpvisor-1","result":result}).to_string();
        let line: &'static [u8] = Box::leak(line.into_boxed_str()).as_bytes();
        peer.handle_line(line);
        Self { peer, now: Instant::now() }
    }

    fn after(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// A call named by its token.
    fn call_with(&mut self, caller: u64, token: u32, room: bool) -> (RequestNumber, Turn) {
        let sent = self.peer.call_tool(token, "t", None).unwrap();
        let (now, number) = (self.now, sent.number);
        (number, self.peer.take_turn(|| now, Caller(caller), "tools/call", sent, || room))
    }

    pub(super) fn call(&mut self, caller: u64, token: u32) -> (RequestNumber, Turn) {
        self.call_with(caller, token, true)
    }

    /// The tokens of those whose turn comes now.
    fn begun(&mut self) -> Vec<u32> {
        let now = self.now;
        std::iter::from_fn(|| {
            let number = begins(self.peer.next_turn(|| now, |_| true, |_| true, || true))?;
            self.peer.waiter(number).copied()
        })
        .collect()
    }

    fn overdue(&mut self) -> Vec<(u32, Late)> {
        self.peer.overdue(self.now).into_iter().map(|overdue| (overdue.token, overdue.why)).collect()
    }
}

fn begins(due: Option<Due<u32>>) -> Option<RequestNumber> {
    due.map(|due| match due {
        Due::Begins(started) => started.number,
        Due::Unwanted(token) => panic!("nobody wants {token}"),
    })
}

fn in_flight(turn: &Turn) -> bool {
    matches!(turn, Turn::Now(_))
}

#[test]
fn below_the_limit_a_call_is_written_at_once_and_beyond_it_waits() {
    let mut world = World::new(LIMITS);
    let (first, turn) = world.call(1, 1);
    assert!(in_flight(&turn));
    assert!(in_flight(&world.call(1, 2).1));
    assert_eq!(world.call(1, 3).1, Turn::Waits);
    assert_eq!((world.peer.running(), world.peer.queued()), (2, 1));
    assert_eq!(world.begun(), [0; 0]);
    world.peer.withdraw(first);
    assert_eq!((world.peer.take_freed(), world.peer.take_freed()), (1, 0));
    assert_eq!(world.begun(), [3]);
    assert_eq!((world.peer.running(), world.peer.queued()), (2, 0));
}

/// The order in which calls of three clients get their turns, one after the other.
pub(super) fn order_of_turns(bug: Option<TurnsBug>) -> Vec<u32> {
    let mut world = World::with_bug(CallLimits { max_in_flight: 1, max_queued: 10, ..LIMITS }, bug);
    let (mut running, _) = world.call(1, 0);
    for (caller, token) in [(1, 1), (1, 2), (1, 3), (2, 21), (3, 31), (2, 22)] {
        assert_eq!(world.call(caller, token).1, Turn::Waits);
    }
    let mut order = Vec::new();
    while world.peer.queued() > 0 {
        world.peer.withdraw(running);
        let now = world.now;
        running = begins(world.peer.next_turn(|| now, |_| true, |_| true, || true)).unwrap();
        order.push(*world.peer.waiter(running).unwrap());
    }
    order
}

#[test]
fn clients_take_turns_and_of_one_the_oldest_is_first() {
    assert_eq!(order_of_turns(None), [1, 21, 31, 2, 22, 3]);
}

/// G31: of several calls that are given up at one moment, and taken out one by one, none is written with the room that another makes;
/// those behind them have it. Without the look at who is wanted, 2 begins.
#[test]
fn g31_the_room_of_a_call_that_is_given_up_is_for_one_that_is_not() {
    let mut world = World::new(CallLimits { max_in_flight: 1, max_queued: 10, ..LIMITS });
    let (first, _) = world.call(1, 1);
    for (caller, token) in [(1, 2), (2, 3), (1, 4), (2, 5)] {
        assert_eq!(world.call(caller, token).1, Turn::Waits);
    }
    let wanted = |token: &u32| *token >= 4;
    let now = world.now;
    assert_eq!(world.peer.next_turn(|| now, wanted, |_| true, || true), None, "there is no room");
    world.peer.withdraw(first);
    assert_eq!(world.peer.next_turn(|| now, wanted, |_| true, || true), Some(Due::Unwanted(2)));
    let number = begins(world.peer.next_turn(|| now, wanted, |_| true, || true)).unwrap();
    assert_eq!(world.peer.waiter(number), Some(&4));
    assert_eq!((world.peer.running(), world.peer.queued(), world.peer.take_freed()), (1, 2, 1));
    world.peer.withdraw(number);
    assert_eq!(world.peer.next_turn(|| now, wanted, |_| true, || true), Some(Due::Unwanted(3)));
    assert_eq!(world.begun(), [5]);
}

/// Nobody passes those who wait, also where there is room for a moment.
#[test]
fn a_new_call_stands_behind_those_that_wait() {
    let mut world = World::new(LIMITS);
    assert_eq!(world.call_with(1, 1, false).1, Turn::Waits, "the session has no room");
    assert_eq!(world.call(1, 2).1, Turn::Waits);
    assert_eq!(world.begun(), [1, 2]);
}

#[test]
fn what_is_too_much_is_refused_with_how_much_there_is() {
    let mut world = World::new(LIMITS);
    for token in 0..6 {
        world.call(1, token);
    }
    let (number, turn) = world.call(2, 7);
    assert_eq!(turn, Turn::Full(Load { used: 4, limit: 4, in_flight: 2 }));
    assert!(world.peer.waiter(number).is_none());
    assert_eq!(world.peer.in_flight(), 6);
    // By their bytes, too; one that waits alone may be of any size.
    let mut world = World::new(CallLimits { max_in_flight: 1, max_queued_bytes: 10, ..LIMITS });
    world.call(1, 1);
    assert_eq!(world.call(1, 2).1, Turn::Waits);
    assert!(matches!(world.call(1, 3).1, Turn::Full(Load { used: 1, .. })));
}

/// G31: a call that is given up while it waits leaves at once, and was never written.
#[test]
fn g31_a_cancelled_call_leaves_the_queue_at_once() {
    let mut world = World::new(LIMITS);
    world.call(1, 1);
    world.call(1, 2);
    let (third, _) = world.call(1, 3);
    let (fourth, _) = world.call(1, 4);
    assert!(world.peer.is_waiting(third) && !world.peer.is_waiting(RequestNumber(2)));
    assert_eq!(world.peer.withdraw(third), Some(3));
    assert_eq!((world.peer.queued(), world.peer.take_freed()), (1, 0));
    assert!(world.peer.is_waiting(fourth));
    // An answer without an id can't mean a call that was never written.
    world.peer.withdraw(RequestNumber(2));
    let line: &'static [u8] = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#;
    assert_eq!(world.peer.handle_line(line).len(), 1);
    assert_eq!((world.peer.running(), world.peer.queued()), (0, 1));
}

#[test]
fn what_waits_too_long_is_given_up() {
    let mut world = World::new(LIMITS);
    for token in 1..=3 {
        world.call(1, token);
    }
    world.after(4);
    world.call(2, 4);
    assert_eq!(world.peer.next_timeout(), Some(world.now + Duration::from_secs(6)));
    world.after(5);
    assert_eq!(world.overdue().len(), 0);
    world.after(1);
    let load = Load { used: 2, limit: 4, in_flight: 2 };
    assert_eq!(world.overdue(), [(3, Late::Queued { load, after: LIMITS.queue_timeout })]);
    assert_eq!(world.peer.queued(), 1);
    assert_eq!(world.peer.next_timeout(), Some(world.now + Duration::from_secs(4)));
}

#[test]
fn a_server_has_its_time_from_the_writing_on() {
    let mut world = World::new(CallLimits { max_in_flight: 1, queue_timeout: Duration::MAX, ..LIMITS });
    let (first, _) = world.call(1, 1);
    world.call(1, 2);
    world.after(50);
    world.peer.withdraw(first);
    assert_eq!(world.begun(), [2]);
    world.after(59);
    assert_eq!(world.overdue().len(), 0);
    world.after(1);
    let late = world.overdue();
    let [(2, Late::Unanswered { overrun, line })] = late.as_slice() else { panic!("{late:?}") };
    assert_eq!(*overrun, Overrun { key: "call_timeout", after: Duration::from_secs(60) });
    let line = String::from_utf8(line.clone()).unwrap();
    assert!(line.contains("notifications/cancelled") && line.contains("call_timeout"), "{line}");
    assert_eq!((world.peer.running(), world.peer.take_freed(), world.peer.next_timeout()), (0, 2, None));
}

#[test]
fn progress_holds_the_time_off_up_to_the_most() {
    let mut world = World::new(LIMITS);
    let (number, _) = world.call(1, 1);
    let progress = |world: &mut World| {
        let now = world.now;
        world.peer.progressed(number, || now);
    };
    world.after(30);
    progress(&mut world);
    world.after(50);
    assert_eq!(world.overdue().len(), 0, "80 s, and 50 s since it was last heard of");
    progress(&mut world);
    world.after(19);
    assert_eq!(world.overdue().len(), 0);
    world.after(1);
    let late = world.overdue();
    let [(1, Late::Unanswered { overrun, .. })] = late.as_slice() else { panic!("{late:?}") };
    assert_eq!(*overrun, Overrun { key: "call_timeout_max", after: Duration::from_secs(100) });
}

/// G19: what waits at a close hears why, and nothing waits after it.
#[test]
fn g19_what_waits_at_a_close_is_given_back() {
    let mut world = World::new(LIMITS);
    for token in 1..=4 {
        world.call(token.into(), token);
    }
    assert_eq!(world.peer.stop_waiting(), [3, 4]);
    assert_eq!(world.call(1, 5).1, Turn::Closed);
    assert_eq!((world.peer.running(), world.peer.queued()), (2, 0));
    world.peer.withdraw(RequestNumber(2));
    // It was admitted before the close: where there is room it goes on.
    assert!(in_flight(&world.call(1, 6).1));
}

#[test]
fn what_is_no_call_takes_no_turn() {
    for free in ["ping", "tools/list", "subscriptions/listen", "tasks/cancel", "logging/setLevel"] {
        assert!(!is_call(free), "{free}");
    }
    for call in ["tools/call", "prompts/get", "resources/read", "completion/complete", "x/unknown"] {
        assert!(is_call(call), "{call}");
    }
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Call {
        caller: u64,
        room: bool,
    },
    /// One that is pending: by a cancel, or by its answer.
    End(usize),
    Pump {
        room: usize,
    },
    Progress(usize),
    Pass(u64),
    StopWaiting,
    Dies,
    /// One that waits is not wanted any more, and is not taken out yet.
    Desert(usize),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3u64, prop::bool::weighted(0.8)).prop_map(|(caller, room)| Step::Call { caller, room }),
        5 => (0..8usize).prop_map(Step::End),
        5 => (0..4usize).prop_map(|room| Step::Pump { room }),
        1 => (0..8usize).prop_map(Step::Progress),
        2 => (0..8u64).prop_map(Step::Pass),
        1 => Just(Step::Dies),
        2 => (0..8usize).prop_map(Step::Desert),
        1 => prop::bool::weighted(0.1).prop_map(|stop| if stop { Step::StopWaiting } else { Step::Pass(0) }),
    ]
}

/// In whatever order things happen, every call ends once, the limits hold, places are given back as often as they were taken, and those
/// of one client begin in the order in which they came.
pub(super) fn every_order(steps: Vec<Step>, bug: Option<TurnsBug>) -> Result<(), TestCaseError> {
    let mut world = World::with_bug(LIMITS, bug);
    let mut pending: BTreeMap<u32, (RequestNumber, u64)> = BTreeMap::new();
    let (mut waiting, mut begun) = (Vec::<(u64, u32)>::new(), BTreeSet::new());
    let (mut taken, mut freed) = (0, 0);
    let mut deserted = BTreeSet::new();
    for (token, step) in (1u32..).zip(steps) {
        match step {
            Step::Call { caller, room } => {
                let (number, turn) = world.call_with(caller, token, room);
                match turn {
                    Turn::Now(_) => {
                        prop_assert!(waiting.is_empty() && room);
                        taken += 1;
                        begun.insert(token);
                        pending.insert(token, (number, caller));
                    }
                    Turn::Waits => {
                        waiting.push((caller, token));
                        pending.insert(token, (number, caller));
                    }
                    Turn::Full(load) => prop_assert_eq!(load.used, LIMITS.max_queued),
                    Turn::Closed => {}
                }
            }
            Step::End(which) => {
                let Some((token, (number, _))) = pending.iter().nth(which).map(|(a, b)| (*a, *b)) else {
                    continue;
                };
                prop_assert_eq!(world.peer.withdraw(number), Some(token));
                prop_assert_eq!(world.peer.withdraw(number), None);
                pending.remove(&token);
                waiting.retain(|(_, known)| *known != token);
            }
            Step::Pump { room } => {
                let mut left = room;
                let now = world.now;
                let wanted = |token: &u32| !deserted.contains(token);
                while let Some(due) = world.peer.next_turn(|| now, wanted, |_| true, || left > 0) {
                    let started = match due {
                        Due::Begins(started) => started,
                        Due::Unwanted(token) => {
                            prop_assert!(deserted.contains(&token) && pending.remove(&token).is_some());
                            waiting.retain(|(_, known)| *known != token);
                            continue;
                        }
                    };
                    left -= 1;
                    taken += 1;
                    let token = *world.peer.waiter(started.number).unwrap();
                    let caller = pending[&token].1;
                    let first = waiting.iter().position(|(known, _)| *known == caller).unwrap();
                    prop_assert_eq!(waiting.remove(first).1, token, "the oldest of its client");
                    prop_assert!(begun.insert(token), "it began twice");
                    prop_assert!(!deserted.contains(&token), "nobody waits for it");
                }
                prop_assert!(waiting.is_empty() || left == 0 || world.peer.running() == LIMITS.max_in_flight);
            }
            Step::Desert(which) => {
                deserted.extend(waiting.get(which).map(|(_, token)| *token));
            }
            Step::Progress(which) => {
                let now = world.now;
                if let Some((number, _)) = pending.values().nth(which) {
                    world.peer.progressed(*number, || now);
                }
            }
            Step::Pass(seconds) => {
                world.after(seconds);
                for (token, why) in world.overdue() {
                    prop_assert!(pending.remove(&token).is_some());
                    prop_assert_eq!(matches!(why, Late::Queued { .. }), !begun.contains(&token));
                    waiting.retain(|(_, known)| *known != token);
                }
                prop_assert!(world.peer.next_timeout().is_none_or(|at| at > world.now));
            }
            Step::StopWaiting => {
                let given: BTreeSet<u32> = world.peer.stop_waiting().into_iter().collect();
                prop_assert_eq!(&given, &waiting.drain(..).map(|(_, token)| token).collect());
                pending.retain(|token, _| !given.contains(token));
            }
            Step::Dies => {
                let given = world.peer.fail_all();
                prop_assert_eq!(given.len(), pending.len());
                waiting.clear();
                // The next server.
                pending.clear();
                freed += world.peer.take_freed();
                prop_assert_eq!(taken, freed);
                prop_assert_eq!((world.peer.queued(), world.peer.running()), (0, 0));
            }
        }
        freed += world.peer.take_freed();
        prop_assert_eq!(world.peer.queued(), waiting.len());
        prop_assert_eq!(world.peer.running(), taken - freed);
        prop_assert_eq!(world.peer.in_flight(), pending.len());
        prop_assert!(world.peer.running() <= LIMITS.max_in_flight && waiting.len() <= LIMITS.max_queued);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// G11, G31.
    #[test]
    fn g11_g31_every_order_keeps_the_limits(steps in prop::collection::vec(step(), 1..120)) {
        every_order(steps, None)?;
    }
}

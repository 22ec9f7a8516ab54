//! Limits of profiles and processes, reserved slots, the queue, and whose tombstones go.
use super::*;
use crate::session::Ended;
use crate::{ProfileName, Tenant};
use std::time::Duration;

const NOW: Moment = Moment(1_000);
const SECOND: u64 = 1_000_000;

fn config(total: usize) -> RegistryConfig {
    RegistryConfig { max_sessions: total, ..RegistryConfig::default() }
}

/// One open after the other, each of a key of its own, and all that became of them.
struct Opens {
    registry: Registry,
    last: u64,
    started: Vec<(u64, SessionId)>,
    refused: Vec<(u64, Refusal)>,
    positions: BTreeMap<u64, usize>,
}

fn ask(uid: u32, tenant: &str) -> Open {
    Open {
        request: RequestId(0),
        key: KeyRef { uid: Uid(uid), key: SessionKey::new("k").unwrap() },
        tenant: Tenant::new(tenant).ok(),
        parent: None,
        quota: Quota { processes: 1, ..Quota::default() },
        queue: Some(Moment(60 * SECOND)),
        definition: 7,
        if_closing: IfClosing::Wait,
        if_open: IfOpen::Join,
        direct: false,
        wait: true,
        deadline: None,
        specs: Vec::new(),
    }
}

impl Opens {
    fn new(config: RegistryConfig) -> Self {
        let registry = Registry::new(config);
        let (started, refused) = (Vec::new(), Vec::new());
        Self { registry, last: 0, started, refused, positions: BTreeMap::new() }
    }

    fn step(&mut self, now: Moment, event: RegistryEvent) {
        for effect in self.registry.step(now, event) {
            match effect {
                RegistryEffect::Start { session, request, .. } => {
                    self.positions.remove(&request.0);
                    self.started.push((request.0, session));
                }
                RegistryEffect::Reply { request, result: Err(mut refusal) } => {
                    self.positions.remove(&request.0);
                    // When to try again is another file's matter.
                    if let Refusal::CapacityExhausted { retry_after, .. } = &mut refusal {
                        *retry_after = Duration::ZERO;
                    }
                    self.refused.push((request.0, refusal));
                }
                RegistryEffect::Queued { request, position } => {
                    self.positions.insert(request.0, position);
                }
                _ => {}
            }
        }
        let counts = self.registry.counts();
        let used = counts.starting + counts.live + counts.dying + counts.quarantined;
        assert_eq!(used, self.registry.sessions(None).len(), "G6");
    }

    fn open(&mut self, open: Open) -> u64 {
        self.last += 1;
        let key =
            if open.key.key.as_str() == "k" { format!("k{}", self.last) } else { open.key.key.to_string() };
        let key = KeyRef { uid: open.key.uid, key: SessionKey::new(&key).unwrap() };
        let open = Open { request: RequestId(self.last), key, ..open };
        self.step(NOW, RegistryEvent::Open(open));
        self.last
    }

    /// The session that an open began ends.
    fn end(&mut self, request: u64) {
        let session = self.started.iter().find(|(other, _)| *other == request).expect("it was started").1;
        self.step(NOW, RegistryEvent::SessionEnded { session, ended: Ended::Closed });
    }

    fn order(&self) -> Vec<u64> {
        self.started.iter().map(|(request, _)| *request).collect()
    }
}

/// G6: a flood of one tenant, or of one user with many tenants, holds nobody else off for longer than a turn.
#[test]
fn g6_a_flood_in_the_queue_starves_nobody() {
    let mut opens = Opens::new(config(1));
    let first = opens.open(ask(1, "flood"));
    let flood: Vec<u64> = (0..40).map(|_| opens.open(ask(1, "flood"))).collect();
    let made_up: Vec<u64> = (0..40).map(|at| opens.open(ask(1, &format!("t{at}")))).collect();
    let quiet = opens.open(ask(1, "quiet"));
    let stranger = opens.open(ask(2, "any"));
    assert_eq!(opens.positions[&flood[0]], 1, "who came first is first");
    assert_eq!(opens.positions[&stranger], 2, "another user's turn is next");
    // In order of arrival the stranger would come behind 81 others.
    opens.end(first);
    opens.end(flood[0]);
    assert_eq!(opens.order(), [first, flood[0], stranger]);
    // Within the user the tenants take turns: the quiet one comes once each of the others has had one.
    opens.end(stranger);
    for _ in 0..41 {
        let (last, _) = *opens.started.last().expect("one is there");
        opens.end(last);
    }
    let order = opens.order();
    let before = order.iter().take_while(|request| **request != quiet).count();
    assert_eq!(before, 2 + 1 + made_up.len(), "{order:?}");
    assert_eq!(order.iter().filter(|request| flood.contains(request)).count(), 2, "the flood had two turns");
}

/// G6: the queue is asked in the step that frees a slot, and never takes one that is promised to a parked reopen.
#[test]
fn g6_a_parked_open_comes_before_the_queue() {
    let mut opens = Opens::new(config(1));
    let key = |text: &str| KeyRef { uid: Uid(1), key: SessionKey::new(text).unwrap() };
    let first = opens.open(Open { key: key("a"), ..ask(1, "t") });
    let queued = opens.open(ask(2, "t"));
    let close = RegistryEvent::Close {
        request: RequestId(900),
        target: Target { key: key("a"), generation: None },
        options: CloseOptions::default(),
        wait: false,
        deadline: None,
    };
    opens.step(NOW, close);
    let parked = opens.open(Open { key: key("a"), ..ask(1, "t") });
    opens.end(first);
    assert_eq!(opens.order(), [first, parked]);
    opens.end(parked);
    assert_eq!(opens.order(), [first, parked, queued]);
    assert_eq!(opens.registry.queued(None), []);
}

/// G6: a parked reopen that finds its own tenant full waits on in the queue, for the rest of its time, and so do those parked with it.
#[test]
fn g6_a_parked_open_that_finds_no_room_goes_on_in_the_queue() {
    let mut opens = Opens::new(RegistryConfig { max_sessions_per_tenant: 1, ..config(9) });
    let key = |text: &str| KeyRef { uid: Uid(1), key: SessionKey::new(text).unwrap() };
    let first = opens.open(Open { key: key("a"), ..ask(1, "t") });
    let other = opens.open(ask(1, "u"));
    let close = RegistryEvent::Close {
        request: RequestId(900),
        target: Target { key: key("a"), generation: None },
        options: CloseOptions::default(),
        wait: false,
        deadline: None,
    };
    opens.step(NOW, close);
    let parked = Open { key: key("a"), ..ask(1, "u") };
    let one = opens.open(parked.clone());
    let short = opens.open(Open { queue: Some(Moment(9 * SECOND)), ..parked.clone() });
    let unwilling = opens.open(Open { queue: None, ..parked.clone() });
    let two = opens.open(parked);
    opens.end(first);
    let full = |used| capacity::full(CapacityScope::Tenant, used, 1);
    assert_eq!(opens.refused.pop(), Some((unwilling, full(1))));
    assert_eq!(opens.positions, BTreeMap::from([(one, 1), (short, 2), (two, 3)]));
    opens.step(Moment(9 * SECOND), RegistryEvent::Timeout);
    assert_eq!(opens.refused.pop(), Some((short, full(1))));
    opens.end(other);
    assert_eq!(opens.order(), [first, other, one], "the last one joins");
    assert_eq!(opens.registry.queued(None), []);
    assert!(
        opens.refused.iter().all(|(request, _)| [first, other].contains(request)),
        "they were never ready"
    );
}

/// G34: an open that waits, for the key or a slot, ends with the process that was to hold its lease; one that was admitted is closed.
#[test]
fn g34_a_holder_that_ends_takes_its_open_along() {
    let mut opens = Opens::new(config(1));
    let key = |text: &str| KeyRef { uid: Uid(1), key: SessionKey::new(text).unwrap() };
    let first = opens.open(Open { key: key("a"), ..ask(1, "t") });
    let queued = opens.open(ask(2, "t"));
    let gone = |request| RegistryEvent::HolderEnded { request: RequestId(request) };
    opens.step(NOW, gone(queued));
    assert_eq!(opens.refused.pop(), Some((queued, Refusal::HolderEnded)));
    opens.step(NOW, gone(first));
    assert_eq!(opens.registry.current(&key("a")).map(|(_, phase)| phase), Some(Phase::Dying));
    let parked = opens.open(Open { key: key("a"), ..ask(1, "t") });
    opens.step(NOW, gone(parked));
    assert_eq!(opens.refused.pop(), Some((parked, Refusal::HolderEnded)));
    opens.end(first);
    assert_eq!(opens.order(), [first], "nothing is admitted any more");
}

/// The queue ends for each by its own time, its deadline, its cancel, and for all by the fence; its bound is each user's own.
#[test]
fn g19_the_queue_is_settled() {
    let mut opens = Opens::new(RegistryConfig { max_queued_per_user: 3, ..config(1) });
    opens.open(ask(1, "t"));
    let (late, impatient) = (ask(1, "t"), Open { deadline: Some(Moment(5 * SECOND)), ..ask(1, "t") });
    let late = opens.open(Open { queue: Some(Moment(9 * SECOND)), ..late });
    let impatient = opens.open(impatient);
    let cancelled = opens.open(ask(1, "u"));
    let much = opens.open(ask(1, "v"));
    let full = |scope, used, limit| capacity::full(scope, used, limit);
    assert_eq!(opens.refused, [(much, full(CapacityScope::Queue, 3, 3))]);
    let unwilling = opens.open(Open { queue: None, ..ask(2, "t") });
    let other = opens.open(ask(2, "t"));
    assert_eq!(opens.refused.pop(), Some((unwilling, full(CapacityScope::Total, 1, 1))));
    assert_eq!(opens.positions, BTreeMap::from([(late, 1), (other, 2), (cancelled, 3), (impatient, 4)]));
    opens.step(NOW, RegistryEvent::Cancel { request: RequestId(cancelled) });
    assert_eq!(opens.positions[&impatient], 3);
    assert_eq!(opens.registry.next_timeout(), Some(Moment(5 * SECOND)));
    opens.step(Moment(5 * SECOND), RegistryEvent::Timeout);
    assert_eq!(opens.refused.pop(), Some((impatient, Refusal::DeadlineExceeded { session: None })));
    opens.step(Moment(9 * SECOND), RegistryEvent::Timeout);
    assert_eq!(opens.refused.pop(), Some((late, full(CapacityScope::Total, 1, 1))));
    opens.step(Moment(9 * SECOND), RegistryEvent::Shutdown { urgency: Urgency::Drain });
    assert_eq!(opens.refused.pop(), Some((other, Refusal::Draining)));
    assert_eq!(opens.registry.queued(None).len(), 0);
}

/// An open that waits is looked at again at each step: once its key is open it joins, whoever has its turn.
#[test]
fn g2_an_open_in_the_queue_joins() {
    let mut opens = Opens::new(config(1));
    let key = KeyRef { uid: Uid(1), key: SessionKey::new("same").unwrap() };
    let first = opens.open(ask(2, "t"));
    let [one, two, other] =
        [7, 7, 8].map(|definition| opens.open(Open { key: key.clone(), definition, ..ask(1, "t") }));
    opens.end(first);
    assert_eq!(opens.order(), [first, one], "one start for both");
    assert!(
        matches!(opens.refused.pop(), Some((request, Refusal::SessionExists { .. })) if request == other)
    );
    assert_eq!((opens.registry.queued(None).len(), opens.registry.waiting_requests()), (0, 2));
    let session = opens.started[1].1;
    let told = opens.registry.step(NOW, RegistryEvent::SessionReady { session });
    assert!(told.iter().any(
        |effect| matches!(effect, RegistryEffect::Reply { request, result: Ok(_) } if request.0 == two)
    ));
}

/// G6: limits of a profile are of all users together; one user's own limit holds nobody else in the queue off.
#[test]
fn g6_profiles_and_users_have_limits_of_their_own() {
    let profile = ProfileName::new("coding").unwrap();
    let limits = BTreeMap::from([(profile.clone(), 2)]);
    let mut opens = Opens::new(RegistryConfig {
        max_sessions_per_profile: limits,
        max_sessions_per_user: 2,
        ..config(9)
    });
    let of =
        |uid| Open { quota: Quota { profile: Some(profile.clone()), ..ask(1, "t").quota }, ..ask(uid, "t") };
    let [first, second] = [1, 2].map(|uid| opens.open(of(uid)));
    let refused = opens.open(Open { queue: None, ..of(3) });
    let full = capacity::full(CapacityScope::Profile, 2, 2);
    assert_eq!(opens.refused, [(refused, full)]);
    let waits = opens.open(of(3));
    let plain = [1, 1, 3].map(|uid| opens.open(ask(uid, "t")));
    assert_eq!(opens.order(), [first, second, plain[0], plain[2]], "others are not held off");
    opens.end(second);
    assert_eq!(opens.order().last(), Some(&waits));
    opens.end(first);
    assert_eq!(opens.order().last(), Some(&plain[1]));
}

/// G6: the next one that needs several processes gets them, however many small ones come after it.
#[test]
fn g6_processes_are_kept_for_the_next_one() {
    let mut opens =
        Opens::new(RegistryConfig { max_processes: 4, max_processes_per_session: 4, ..config(99) });
    let of = |uid, processes| Open { quota: Quota { processes, ..Quota::default() }, ..ask(uid, "t") };
    let huge = opens.open(of(1, 5));
    let scope = CapacityScope::SessionProcesses;
    assert_eq!(opens.refused, [(huge, capacity::full(scope, 5, 4))], "it never fits");
    let small: Vec<u64> = (0..3).map(|_| opens.open(of(1, 1))).collect();
    let big = opens.open(of(2, 3));
    let later = opens.open(Open { queue: None, ..of(3, 1) });
    let promised = capacity::full(CapacityScope::Processes, 3, 4);
    assert_eq!(opens.refused.pop(), Some((later, promised)), "one is free, and promised");
    opens.end(small[0]);
    assert_eq!(opens.order(), small);
    opens.end(small[1]);
    assert_eq!(opens.order().last(), Some(&big));
    // What is promised to nobody any more is free again.
    let waits = opens.open(of(2, 4));
    opens.step(NOW, RegistryEvent::Cancel { request: RequestId(waits) });
    opens.end(big);
    let after = opens.open(Open { queue: None, ..of(3, 3) });
    assert_eq!(opens.order().last(), Some(&after));
}

/// Reserved slots are filled by administrators first, and by nobody else.
#[test]
fn g6_some_slots_are_reserved_for_administrators() {
    let mut opens = Opens::new(RegistryConfig { reserved_for_administrators: 2, ..config(4) });
    let admin =
        || Open { quota: Quota { administrator: true, ..Quota::default() }, queue: None, ..ask(0, "t") };
    let user = || Open { queue: None, ..ask(1, "t") };
    let begun: Vec<u64> = [admin(), user(), user()].into_iter().map(|open| opens.open(open)).collect();
    let refused = opens.open(user());
    let full = capacity::full(CapacityScope::Total, 2, 2);
    assert_eq!(opens.refused, [(refused, full)]);
    let second = opens.open(admin());
    assert_eq!(opens.order().len(), 4);
    let third = opens.open(admin());
    let full = capacity::full(CapacityScope::Total, 4, 4);
    assert_eq!(opens.refused.pop(), Some((third, full)));
    opens.end(begun[1]);
    assert_eq!(opens.order().len(), 4);
    opens.end(second);
    opens.open(user());
    assert_eq!(opens.order().len(), 5);
}

/// G20: who closes many sessions is forgotten himself, and nobody else.
#[test]
fn g20_a_flood_of_ends_pushes_out_its_owners_own() {
    let mut opens = Opens::new(RegistryConfig { tombstones: 4, ..config(9) });
    let quiet = opens.open(ask(2, "t"));
    opens.end(quiet);
    for _ in 0..20 {
        let flood = opens.open(ask(1, "t"));
        opens.end(flood);
    }
    let session = |uid, generation| SessionId { uid: Uid(uid), generation: Generation(generation) };
    let remembered = |uid, generation, key: u64| {
        let key = KeyRef { uid: Uid(uid), key: SessionKey::new(&format!("k{key}")).unwrap() };
        opens.registry.find(&Target { key, generation: Some(Generation(generation)) })
    };
    assert_eq!(remembered(2, 1, quiet), Some(session(2, 1)));
    let left = (1..=20).filter(|generation| remembered(1, *generation, generation + 1).is_some());
    assert_eq!(left.collect::<Vec<_>>(), [18, 19, 20]);
    let due = opens.registry.next_timeout().expect("a tombstone has its age");
    assert_eq!(due, NOW.after(Duration::from_secs(3600)));
    let forgotten = opens.registry.step(due, RegistryEvent::Timeout);
    assert_eq!(forgotten.len(), 4, "{forgotten:?}");
    assert_eq!(opens.registry.next_timeout(), None);
}

/// Each one that waits is told of once when it leaves, with a slot or without, whatever makes it leave.
#[test]
fn g38_each_leaves_the_queue_once() {
    let left = |effects: Vec<RegistryEffect>| -> Vec<(u64, bool)> {
        let of = |effect| match effect {
            RegistryEffect::LeftQueue { request, admitted } => Some((request.0, admitted)),
            _ => None,
        };
        effects.into_iter().filter_map(of).collect()
    };
    let mut opens = Opens::new(config(1));
    let first = opens.open(ask(1, "t"));
    let waits: Vec<u64> = (0..4).map(|_| opens.open(ask(1, "t"))).collect();
    assert_eq!(opens.positions.len(), 4);
    let mut step = |now, event| left(opens.registry.step(now, event));
    assert_eq!(step(NOW, RegistryEvent::Cancel { request: RequestId(waits[0]) }), [(waits[0], false)]);
    assert_eq!(step(NOW, RegistryEvent::HolderEnded { request: RequestId(waits[1]) }), [(waits[1], false)]);
    let session = SessionId { uid: Uid(1), generation: Generation(first) };
    let ended = RegistryEvent::SessionEnded { session, ended: Ended::Closed };
    assert_eq!(step(NOW, ended), [(waits[2], true)]);
    assert_eq!(step(Moment(60 * SECOND), RegistryEvent::Timeout), [(waits[3], false)]);
    assert_eq!(step(Moment(60 * SECOND), RegistryEvent::Fence), []);
}

//! Long random histories: whatever happens, what must hold always holds.
use super::Seed;
use super::checks;
use super::process::{Handshake, IMMORTAL, Launch, POLITE, Program, STUBBORN};
use super::script::{
    Act, asked, cancel, close, close_at, exactly, key, open, open_or_fail, retry_kill, target, wait_closed,
};
use super::world::{Choice, World};
use mcpvisor_lifecycle::registry::{Goal, IfOpen, Open, RegistryEvent, Urgency};
use mcpvisor_lifecycle::session::CloseReason;
use mcpvisor_lifecycle::{Generation, Moment, RequestId, SessionId, Tenant, Uid};
use std::collections::BTreeSet;
use std::time::Duration;

/// xorshift64*: small, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        let index = self.below(u64::try_from(all.len()).expect("lists are short"));
        all[usize::try_from(index).expect("an index of a short list")]
    }
}

const PROGRAMS: [Program; 7] = [
    POLITE,
    STUBBORN,
    IMMORTAL,
    Program { launch: Launch::Hangs, ..POLITE },
    Program { launch: Launch::HangsForGood, ..POLITE },
    Program { handshake: Handshake::Fails, ..STUBBORN },
    Program { handshake: Handshake::Hangs, ..POLITE },
];

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// The one of them whose sessions are direct.
const DIRECT: &str = "d";

fn some_open(random: &mut Random, request: u64, now: Moment) -> Open {
    let text = random.pick(&KEYS);
    Open {
        tenant: random.pick(&[None, Some("t"), Some("u")]).and_then(|tenant| Tenant::new(tenant).ok()),
        definition: 7 + random.below(8) / 7,
        parent: random.pick(&[None, None, None, Some("a"), Some("b")]).map(|text| key(text).key),
        wait: random.below(4) > 0,
        if_open: random.pick(&[IfOpen::Join, IfOpen::Join, IfOpen::Fail]),
        deadline: random.pick(&[None, None, Some(0), Some(4)]).map(|s| Moment(now.0 + s * 1_000_000)),
        specs: Vec::new(),
        ..asked(request, text)
    }
}

/// One thing that a client, an operator or fate may do.
fn some_act(random: &mut Random, request: u64, now: Moment) -> Act {
    let text = random.pick(&KEYS);
    match random.below(32) {
        0..=6 => Act::Send(RegistryEvent::Open(some_open(random, request, now))),
        7 => open_or_fail(request, text),
        8..=11 => close(request, text),
        12 => close_at(request, exactly(text, 1 + random.below(20))),
        13..=16 => cancel(1 + random.below(request)),
        17 => wait_closed(request, target(text)),
        18 => Act::Send(RegistryEvent::Wait {
            request: RequestId(request),
            target: target(text),
            goal: Goal::Ready,
            deadline: Some(Moment(now.0 + 3_000_000)),
        }),
        19 => retry_kill(request, text),
        20 => Act::Let(text, random.below(2) == 0),
        21 if random.below(2) == 0 => Act::HangUp(DIRECT),
        21 => Act::Exit(text, random.below(2) == 0),
        22 => Act::Free(text),
        23 => Act::Call(text, request),
        24 => Act::Finish(request.saturating_sub(random.below(9))),
        25 => Act::LoseSession(text),
        26 => Act::LoseServer(text),
        27 => {
            let generation = Generation(1 + random.below(20));
            let session = SessionId { uid: Uid(1000), generation };
            let reason = random.pick(&[CloseReason::LeaseEnded, CloseReason::Ttl]);
            Act::Send(RegistryEvent::CloseWanted { session, reason })
        }
        29 | 30 => match random.below(5) {
            0 => Act::Add(text, request, random.pick(&["one", "new"]), random.pick(&PROGRAMS)),
            1 => Act::Replace(text, request, "one", random.pick(&PROGRAMS)),
            2 => Act::Remove(text, request, random.pick(&["one", "two", "new"])),
            3 => Act::Restart(text, request, random.pick(&["one", "two", "new"])),
            _ => Act::CancelChange(text, request.saturating_sub(random.below(6))),
        },
        28 if random.below(12) == 0 => {
            let urgency = random.pick(&[Urgency::Drain, Urgency::Hurry, Urgency::Kill]);
            Act::Send(RegistryEvent::Shutdown { urgency })
        }
        _ => open(request, text),
    }
}

/// The outcomes of one history.
pub(crate) fn history(seed: u64, steps: u64, bug: Seed) -> Result<BTreeSet<String>, String> {
    let mut random = Random::new(seed);
    let mut world = World::new(3, vec![], bug).with_dawdling_clients();
    if random.below(2) == 0 {
        world = world.with_restarts();
    }
    for text in KEYS {
        world = world.with(text, &[random.pick(&PROGRAMS), POLITE][..1 + (seed % 2) as usize]);
    }
    world = world.with_direct(DIRECT, random.pick(&PROGRAMS));
    if seed.is_multiple_of(3) {
        world = world.with_idle(Duration::from_secs(5), Duration::from_secs(60));
    }
    if seed % 6 == 1 {
        world = world.with_parking(Duration::from_secs(5));
    }
    let mut request = 0;
    for _ in 0..steps {
        world.early = u8::from(random.below(20) == 0);
        let choices = world.choices();
        if choices.is_empty() || random.below(4) == 0 {
            request += 1;
            let act = some_act(&mut random, request, world.now);
            world.act(act)?;
            checks::always(&world)?;
        } else {
            world.step(random.pick(&choices))?;
        }
    }
    world.early = 0;
    rest(&mut world)?;
    let told = world.replies.values();
    let words = told.map(|reply| match reply {
        Ok(answer) => format!("{answer:?}"),
        Err(refusal) => format!("{refusal:?}"),
    });
    Ok(words.map(|text| text.split(' ').next().unwrap_or_default().to_owned()).collect())
}

/// Lets everything go that hangs, closes everything, and waits for the end.
fn rest(world: &mut World) -> Result<(), String> {
    let run = |world: &mut World| {
        // Letters first, then time: no act is left.
        while let Some(choice) = world.choices().first().copied() {
            world.step(choice)?;
        }
        Ok::<(), String>(())
    };
    run(world)?;
    checks::gates(world)?;
    for text in KEYS {
        for round in 0..3 {
            for act in [Act::Let(text, false), Act::Free(text)] {
                world.act(act)?;
            }
            let request = 1_000_000 + 10 * world.sent.len() as u64 + round;
            world.act(close(request, text))?;
            run(world)?;
        }
        if let Some(held) = world.registry.current(&key(text)) {
            return Err(format!("{text} is never free: {held:?}"));
        }
    }
    match world.choices().first() {
        Some(Choice::Time) | None => checks::at_rest(world),
        Some(choice) => Err(format!("{choice:?} is left")),
    }
}

/// One answer per request, never more sessions than the limit, one generation per key, no closed before the end.
#[test]
fn random_histories_keep_every_invariant() {
    let mut outcomes = BTreeSet::new();
    for seed in 1..=400 {
        match history(seed, 250, None) {
            Ok(told) => outcomes.extend(told),
            Err(wrong) => panic!("history {seed}: {wrong}"),
        }
    }
    for expected in [
        "Opened",
        "Closed",
        "Quarantined",
        "Reached",
        "NotYet",
        "Draining",
        "SessionExists",
        "SessionClosing",
        "SessionClosed",
        "SessionFailed",
        "StartFailed",
        "CapacityExhausted",
        "NotFound",
        "NotQuarantined",
        "DeadlineExceeded",
    ] {
        assert!(outcomes.contains(expected), "no history comes to {expected}: {outcomes:?}");
    }
}

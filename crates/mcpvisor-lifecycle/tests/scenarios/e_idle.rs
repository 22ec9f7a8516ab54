//! E.1: being idle, and what comes while that is decided.
use super::Seed;
use super::explore::{Outcomes, assert_told_apart, explore, summary};
use super::script::{Act, close, open, open_below};
use super::world::World;
use mcpvisor_lifecycle::server::ServerReport;
use mcpvisor_lifecycle::session::{
    Activity, CloseReason, IdleLimit, Limits, OnIdle, SessionEffect, SessionEvent,
};
use mcpvisor_lifecycle::session::{Session, SessionConfig, SessionServer, SessionState};
use mcpvisor_lifecycle::{Moment, ServerName};
use std::time::Duration;

const IDLE: Duration = Duration::from_secs(100);
const PIN: Duration = Duration::from_secs(1_000);

/// One open session, and clients that come at any time: whenever they may, and whenever a timer fires.
fn idling(clients: Vec<Vec<Act>>, limit: usize, seed: Seed) -> Result<World, String> {
    let mut world = World::new(limit, vec![], seed).with_idle(IDLE, PIN);
    world.act(open(1, "a"))?;
    settle_awake(&mut world);
    world.clients = clients.into_iter().map(Into::into).collect();
    Ok(world.with_dawdling_clients().with_early_timers(1))
}

/// Until nothing is left to do but to wait for the timer.
fn settle_awake(world: &mut World) {
    while let Some(choice) =
        world.choices().into_iter().find(|choice| !matches!(choice, super::world::Choice::Time))
    {
        world.step(choice).expect("nothing is wrong with an open");
    }
}

/// E.1: a call that arrives at any moment of the decision.
pub(crate) fn call_at_the_decision(seed: Seed) -> Result<Outcomes, String> {
    let world = idling(vec![vec![Act::Call("a", 1), Act::Finish(1)]], 1, seed)?;
    explore(&world, &|world| {
        if !world.registry.sessions(None).is_empty() {
            return Err("G33: a session that nobody uses stays".to_owned());
        }
        Ok(world.calls.get(&1).copied().unwrap_or("unsent").to_owned())
    })
}

/// G32: the call wins, and is answered, or is refused; the session ends by itself in the end.
#[test]
fn g32_e1_a_call_at_the_decision_wins_or_is_refused() {
    let outcomes = call_at_the_decision(None).unwrap();
    for told in ["result", "refused", "error"] {
        assert!(outcomes.contains_key(told), "{outcomes:?}");
    }
}

/// The same with an open of the key, which joins the session.
pub(crate) fn open_at_the_decision(seed: Seed) -> Result<Outcomes, String> {
    let world = idling(vec![vec![open(2, "a"), Act::Await(2)]], 1, seed)?;
    explore(&world, &|world| Ok(format!("{} {}", summary(world, &[2]), world.sessions.len())))
}

/// G32: an open that is answered with a session has it for a whole idle time; one that comes too late gets a new one.
#[test]
fn g32_e1_an_open_at_the_decision_joins_or_opens_anew() {
    let outcomes = open_at_the_decision(None).unwrap();
    assert!(outcomes.contains_key("Opened 1") && outcomes.contains_key("Opened 2"), "{outcomes:?}");
}

/// G13, G32: a close at any moment of the decision, and a session below: that one is not idle before its children are gone.
#[test]
fn g13_g32_a_close_and_a_child_at_the_decision() {
    let clients = vec![vec![open_below(2, "b", "a")], vec![close(3, "a")]];
    let outcomes = explore(&idling(clients, 2, None).unwrap(), &|world| Ok(summary(world, &[2, 3]))).unwrap();
    assert_told_apart(&outcomes, 2);
}

/// A live session of one server whose idle timer runs.
fn live() -> Session {
    let name = ServerName::new("a").expect("a name");
    let servers = vec![SessionServer { name, required: true, significant: false }];
    let config = SessionConfig { servers, drain: Duration::ZERO, direct: false };
    let limits = Limits { ttl: None, idle: Some(IdleLimit { idle: IDLE, pin: PIN, then: OnIdle::Close }) };
    let mut session = Session::new(config).with_limits(limits);
    let _ = session.step(Moment(0), SessionEvent::Begin);
    assert_eq!(session.next_timeout(), None, "what starts is not idle");
    let _ = session.step(
        Moment(0),
        SessionEvent::Server { server: mcpvisor_lifecycle::Place(0), report: ServerReport::Ready },
    );
    session
}

/// G32, G33: one timer, armed anew at what a look has found: a busy session is looked at when it is quiet, or at its pin limit.
#[test]
fn g33_the_timer_runs_to_what_the_look_has_found() {
    let at = |seconds: u64| Moment(seconds * 1_000_000);
    let activity = |last, busy| SessionEvent::Activity(Activity { last: at(last), busy });
    let mut session = live();
    assert_eq!(session.next_timeout(), Some(at(100)));
    assert_eq!(session.step(at(100), SessionEvent::Timeout), [SessionEffect::LookAtActivity]);
    assert_eq!(session.next_timeout(), None, "the answer comes before anything else");
    assert_eq!(session.step(at(100), activity(70, false)), []);
    assert_eq!(session.next_timeout(), Some(at(170)), "since the last call");
    let _ = session.step(at(170), SessionEvent::Timeout);
    assert_eq!(session.step(at(170), activity(160, true)), []);
    assert_eq!(session.next_timeout(), Some(at(1_160)), "a call holds it off, for the pin limit");
    assert_eq!(session.step(at(300), SessionEvent::Quiet), [SessionEffect::LookAtActivity]);
    let _ = session.step(at(300), activity(300, false));
    assert_eq!(session.next_timeout(), Some(at(400)));
    let _ = session.step(at(400), SessionEvent::Timeout);
    assert_eq!(session.step(at(400), activity(300, false)), [SessionEffect::ClaimIdle]);
    assert_eq!((session.next_timeout(), session.state()), (None, SessionState::Ready));
    for nothing in [SessionEvent::Timeout, SessionEvent::Quiet, activity(0, false)] {
        assert_eq!(session.step(at(401), nothing), []);
    }
    assert_eq!(session.step(at(402), SessionEvent::StayOpen), []);
    assert_eq!(session.next_timeout(), Some(at(502)), "exactly one timer, whatever became of the claim");
    assert_eq!(session.step(at(403), SessionEvent::StayOpen), []);
    assert_eq!(session.next_timeout(), Some(at(502)));
}

/// G32: what is busy beyond its pin limit is closed all the same; a close ends the timer.
#[test]
fn g32_the_pin_limit_is_the_longest_and_a_close_ends_the_timer() {
    let mut session = live();
    let at = Moment(1_000_000_000);
    let _ = session.step(at, SessionEvent::Timeout);
    let busy = Activity { last: Moment(0), busy: true };
    assert_eq!(session.step(at, SessionEvent::Activity(busy)), [SessionEffect::ClaimIdle]);
    let close = SessionEvent::Close { reason: CloseReason::Idle, options: Default::default() };
    let _ = session.step(at, close);
    assert_eq!(session.step(at, SessionEvent::StayOpen), []);
    assert_eq!(session.next_timeout(), None);
    let short = IdleLimit { idle: IDLE, pin: Duration::ZERO, then: OnIdle::Close };
    assert_eq!(short.due(busy), Moment(100_000_000), "a pin limit below the idle limit hurries nothing");
}

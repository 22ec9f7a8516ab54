//! Lost actors, whose last words may be late.
use super::*;
use crate::registry::CloseOptions;
use crate::server::Failure;
use crate::{RequestId, ServerName};
use std::time::Duration;

const NOW: Moment = Moment(1_000);

fn name(text: &str) -> ServerName {
    ServerName::new(text).unwrap()
}

fn place(text: &str) -> Place {
    Place(if text == "a" { 0 } else { 1 })
}

fn session() -> Session {
    let servers =
        ["a", "b"].map(|text| SessionServer { name: name(text), required: true, significant: false });
    let config = SessionConfig { servers: servers.to_vec(), drain: Duration::ZERO, direct: false };
    let mut session = Session::new(config);
    let _ = session.step(NOW, SessionEvent::Begin);
    session
}

fn report(text: &str, report: ServerReport) -> SessionEvent {
    SessionEvent::Server { server: place(text), report }
}

/// G17, G22: what a lost actor said before it was lost publishes nothing.
#[test]
fn g17_the_late_words_of_a_lost_actor_publish_nothing() {
    let mut session = session();
    let _ = session.step(NOW, report("b", ServerReport::Ready));
    let effects = session.step(NOW, SessionEvent::ServerLost { server: place("a") });
    assert!(effects.contains(&SessionEffect::WantClose { reason: CloseReason::Internal }));
    let before = session.clone();
    for late in [ServerReport::Ready, ServerReport::Restarting, ServerReport::Ending] {
        assert_eq!(session.step(NOW, report("a", late)), [], "{late:?}");
    }
    assert_eq!(session, before);
}

/// G29: a server that made room is neither started again nor replaced while what was put in its place is there, which failed and can't be
/// killed; once that is gone it starts. Found by the model.
#[test]
fn g29_what_made_room_does_not_run_beside_what_could_not_be_killed() {
    let mut session = session();
    let _ = session.step(NOW, report("a", ServerReport::Ready));
    let _ = session.step(NOW, report("b", ServerReport::Ready));
    let of = |request| (RequestId(request), name("b"));
    let (request, name) = of(1);
    let _ = session.step(NOW, SessionEvent::Yield { request, name });
    let _ = session.step(NOW, SessionEvent::ServerDrained { server: place("b") });
    let _ = session.step(NOW, report("b", ServerReport::Stopped));
    let replace = |request| {
        let (request, name) = of(request);
        let server = SessionServer { name, required: false, significant: false };
        SessionEvent::Add { request, server, replace: true }
    };
    let restart = |request| {
        let (request, name) = of(request);
        SessionEvent::Restart { request, name, drain: None }
    };
    let new = Place(2);
    let _ = session.step(NOW, replace(2));
    let _ = session.step(NOW, SessionEvent::Server { server: new, report: ServerReport::Quarantined });
    let blocked = |request| SessionEffect::Reply {
        request: RequestId(request),
        result: Err(ChangeRefusal::Quarantined { server: new }),
    };
    assert_eq!(session.step(NOW, restart(3)), [blocked(3)]);
    assert_eq!(session.step(NOW, replace(4)), [blocked(4)]);
    let _ = session.step(NOW, SessionEvent::Server { server: new, report: ServerReport::Stopped });
    assert_eq!(session.step(NOW, restart(5)), [SessionEffect::StartServer { server: place("b") }]);
}

/// G34: the time to live counts from the admission, is over once, and wants the one close that there is.
#[test]
fn g34_a_time_to_live_wants_a_close_once() {
    let ttl = Duration::from_secs(9);
    let server = SessionServer { name: name("a"), required: true, significant: false };
    let config = SessionConfig { servers: vec![server], drain: Duration::ZERO, direct: false };
    for ready in [false, true] {
        let mut session =
            Session::new(config.clone()).with_limits(Limits { ttl: Some(ttl), ..Limits::default() });
        assert_eq!(session.next_timeout(), None, "it has not begun");
        let _ = session.step(NOW, SessionEvent::Begin);
        if ready {
            let _ = session.step(Moment(2_000), report("a", ServerReport::Ready));
        }
        let due = NOW.after(ttl);
        assert_eq!(session.next_timeout(), Some(due));
        assert_eq!(session.step(Moment(due.0 - 1), SessionEvent::Timeout), []);
        let wanted = [SessionEffect::WantClose { reason: CloseReason::Ttl }];
        assert_eq!(session.step(due, SessionEvent::Timeout), wanted);
        assert_eq!(session.next_timeout(), None);
        assert_eq!(session.step(due, SessionEvent::Timeout), []);
        // Someone else's close came first: it keeps its reason.
        let close = SessionEvent::Close { reason: CloseReason::Requested, options: CloseOptions::default() };
        let _ = session.step(due, close);
        let effects = session.step(due, report("a", ServerReport::Stopped));
        assert!(
            matches!(effects.last(), Some(SessionEffect::End { reason: CloseReason::Requested, .. })),
            "{effects:?}"
        );
    }
}

/// G4: the outcome of reaping a server that was lost after the quarantine is told again.
#[test]
fn g4_a_server_lost_in_quarantine_is_reaped_and_told_again() {
    let mut session = session();
    let close = SessionEvent::Close { reason: CloseReason::Requested, options: CloseOptions::default() };
    let _ = session.step(NOW, close);
    let _ = session.step(NOW, report("b", ServerReport::Stopped));
    let effects = session.step(NOW, report("a", ServerReport::Quarantined));
    assert!(effects.contains(&SessionEffect::ReportQuarantined));
    let reap = [SessionEffect::ReapServer { server: place("a") }];
    assert_eq!(session.step(NOW, SessionEvent::ServerLost { server: place("a") }), reap);
    let effects = session.step(NOW, report("a", ServerReport::Quarantined));
    assert_eq!(effects, [SessionEffect::ReportQuarantined]);
    assert_eq!(session.step(NOW, SessionEvent::RetryKill), reap, "there is no actor to tell");
    let effects = session.step(NOW, report("a", ServerReport::Stopped));
    let (ended, reason) = (Ended::Closed, CloseReason::Requested);
    assert_eq!(effects, [SessionEffect::Changed(SessionState::Closed), SessionEffect::End { ended, reason }]);
    assert_eq!(session.step(NOW, report("a", ServerReport::Stopped)), [], "and nothing after the end");
}

/// G16: the drain ends when its budget is over, and not by a timer that comes early.
#[test]
fn g16_a_timer_that_comes_early_ends_no_drain() {
    let mut session = session();
    for name in ["a", "b"] {
        let _ = session.step(NOW, report(name, ServerReport::Ready));
    }
    let drain = Some(Duration::from_micros(10));
    let options = CloseOptions { drain, now: false };
    let _ = session.step(NOW, SessionEvent::Close { reason: CloseReason::Requested, options });
    let due = NOW.after(Duration::from_micros(10));
    assert_eq!(session.next_timeout(), Some(due));
    assert_eq!(session.step(Moment(due.0 - 1), SessionEvent::Timeout), []);
    let stops = |effects: &[SessionEffect]| {
        effects.iter().filter(|effect| matches!(effect, SessionEffect::StopServer { .. })).count()
    };
    assert_eq!(stops(&session.step(due, SessionEvent::Timeout)), 2);
}

/// A session of `a` and `b` that is being parked.
fn parking() -> Session {
    let limit = IdleLimit { idle: Duration::from_secs(1), pin: Duration::from_secs(9), then: OnIdle::Park };
    let mut session = session().with_limits(Limits { idle: Some(limit), ..Limits::default() });
    for text in ["a", "b"] {
        let _ = session.step(NOW, report(text, ServerReport::Ready));
    }
    let idle = session.next_timeout().expect("it may be idle");
    let activity = Activity { last: NOW, busy: false };
    for event in
        [SessionEvent::Timeout, SessionEvent::Activity(activity), SessionEvent::GateParked { parked: true }]
    {
        let _ = session.step(idle, event);
    }
    assert_eq!(session.fine_state(), "parking");
    session
}

fn parked() -> Session {
    let mut session = parking();
    for text in ["a", "b"] {
        let _ = session.step(NOW, report(text, ServerReport::Stopped));
    }
    assert_eq!(session.fine_state(), "parked");
    session
}

fn restart(request: u64, text: &str) -> SessionEvent {
    SessionEvent::Restart { request: RequestId(request), name: name(text), drain: None }
}

fn restarted(request: u64, text: &str) -> SessionEffect {
    SessionEffect::Reply {
        request: RequestId(request),
        result: Ok(Changed::Restarted { server: place(text) }),
    }
}

/// A restart of a server that is parked is its start, with all others: each is started once. It was woken first, and then ended and started again.
#[test]
fn a_restart_of_a_parked_session_is_one_start() {
    let mut session = parked();
    let starts = ["a", "b"].map(|text| SessionEffect::StartServer { server: place(text) });
    assert_eq!(session.step(NOW, restart(1, "a")), starts);
    // Whoever comes meanwhile joins, and finds what is ready already.
    assert_eq!(session.step(NOW, restart(2, "a")), []);
    assert_eq!(session.step(NOW, report("a", ServerReport::Ready)), [restarted(1, "a"), restarted(2, "a")]);
    assert_eq!(session.step(NOW, restart(3, "a")), [restarted(3, "a")]);
    assert_eq!(session.step(NOW, report("b", ServerReport::Ready)), [SessionEffect::OpenGate]);
    // One that does not start is told so, and so is who waits when the session ends.
    let mut session = parked();
    let _ = session.step(NOW, restart(1, "a"));
    let _ = session.step(NOW, restart(2, "b"));
    let failed = session.step(NOW, report("a", ServerReport::Failed(Failure::Exited)));
    let refused = Err(ChangeRefusal::Failed { server: place("a") });
    assert!(failed.contains(&SessionEffect::Reply { request: RequestId(1), result: refused }), "{failed:?}");
    let close = SessionEvent::Close { reason: CloseReason::ServersFailed, options: CloseOptions::default() };
    let closed = session.step(NOW, close);
    let refused = Err(ChangeRefusal::Closed);
    assert!(closed.contains(&SessionEffect::Reply { request: RequestId(2), result: refused }), "{closed:?}");
}

/// The same while it is being parked: nobody is lost, and nothing is started before all are gone.
#[test]
fn a_restart_while_a_session_is_being_parked_waits_for_its_end() {
    let mut session = parking();
    assert_eq!(session.step(NOW, report("a", ServerReport::Stopped)), []);
    assert_eq!(session.step(NOW, restart(1, "a")), []);
    let starts = ["a", "b"].map(|text| SessionEffect::StartServer { server: place(text) });
    assert_eq!(session.step(NOW, report("b", ServerReport::Stopped)), starts);
    assert_eq!(session.step(NOW, report("a", ServerReport::Ready)), [restarted(1, "a")]);
}

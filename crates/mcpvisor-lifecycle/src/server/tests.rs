//! Restarts over a long time, and orders of facts, which the tables do not reach.
mod command;

use super::*;
use std::time::Duration;

fn idle(mode: Mode) -> Server {
    Server::new(ServerConfig {
        mode,
        start: Duration::from_secs(30),
        stdin_grace: Duration::from_secs(2),
        term_grace: Duration::from_secs(3),
        stop_command: None,
        kill_wait: Duration::from_secs(5),
        restart: Restart::Permanent,
        restart_intensity: 5,
        restart_period: Duration::from_secs(60),
        backoff: Duration::from_secs(1),
        longest_backoff: Duration::from_secs(100),
        health: None,
        seed: 7,
    })
}

fn server() -> Server {
    let mut server = idle(Mode::Exclusive);
    let _ = server.step(Moment(0), ServerEvent::Start);
    let _ = server.step(Moment(0), ServerEvent::Launched { incarnation: Incarnation(1) });
    server
}

/// The server runs for so long from `now`, ends, and is started again: when that is, and how long it waited.
fn run(server: &mut Server, now: Moment, uptime: Duration, told: bool) -> (Moment, Duration) {
    let incarnation = server.incarnation().unwrap();
    let end = now.after(uptime);
    if told {
        let _ = server.step(end, ServerEvent::MainExited { incarnation, normal: false, hung_up: false });
    }
    let _ = server.step(end, ServerEvent::ScopeEmpty { incarnation });
    assert_eq!(server.state(), ServerState::Backoff);
    let again = server.next_timeout().unwrap();
    let next = Incarnation(incarnation.0 + 1);
    assert_eq!(server.step(again, ServerEvent::Timeout), [ServerEffect::Launch { incarnation: next }]);
    let _ = server.step(again, ServerEvent::Launched { incarnation: next });
    (again, again.since(end))
}

/// G29: being ready resets nothing; running for the whole period does, whether or not the exit was told first.
#[test]
fn g29_only_a_sustained_uptime_begins_the_backoff_anew() {
    let second = Duration::from_secs(1);
    for told in [true, false] {
        let (mut server, mut now) = (server(), Moment(0));
        for longest in [1, 2, 4] {
            let (again, wait) = run(&mut server, now, second, told);
            now = again;
            assert!(second * longest / 2 <= wait && wait <= second * longest, "{wait:?} of {longest} s");
        }
        let (now, wait) = run(&mut server, now, Duration::from_secs(59), told);
        assert!(wait >= second * 4, "an uptime below the period resets nothing: {wait:?}");
        let (_, wait) = run(&mut server, now, Duration::from_secs(60), told);
        assert!(wait <= second, "{wait:?}");
        assert_eq!(server.restarts(), 5);
    }
}

/// G29: a server that dies at once is started six times with the defaults, and has then failed.
#[test]
fn g29_a_server_that_dies_at_once_is_started_six_times() {
    let (mut server, mut now) = (server(), Moment(0));
    for _ in 0..5 {
        (now, _) = run(&mut server, now, Duration::ZERO, true);
    }
    let incarnation = server.incarnation().unwrap();
    assert_eq!(incarnation, Incarnation(6));
    let _ = server.step(now, ServerEvent::MainExited { incarnation, normal: false, hung_up: false });
    let effects = server.step(now, ServerEvent::ScopeEmpty { incarnation });
    let failed = ServerReport::Failed(Failure::RestartLimit);
    assert_eq!(effects, [ServerEffect::Release { incarnation }, ServerEffect::Report(failed)]);
}

/// A change of the era is no restart and no failure, has the rest of the start's time, and comes once in a start.
#[test]
fn the_other_era_is_tried_once_in_the_time_of_the_start() {
    let second = |number: u64| Moment(number * 1_000_000);
    let mut server = idle(Mode::Shared);
    let _ = server.step(second(0), ServerEvent::Start);
    let fail = |server: &mut Server, at: u64| {
        let incarnation = server.incarnation().unwrap();
        for event in [
            ServerEvent::Launched { incarnation },
            ServerEvent::OtherEra { incarnation },
            ServerEvent::HandshakeFailed { incarnation },
        ] {
            let _ = server.step(second(at), event);
        }
        server.step(second(at + 1), ServerEvent::ScopeEmpty { incarnation })
    };
    let (first, next) = (Incarnation(1), Incarnation(2));
    let again = [ServerEffect::Release { incarnation: first }, ServerEffect::Launch { incarnation: next }];
    assert_eq!(fail(&mut server, 2), again);
    assert!(server.changed_era() && server.restarts() == 0 && server.state() == ServerState::Starting);
    assert_eq!(server.next_timeout(), Some(second(30)), "the start's own time");
    let failed = ServerEffect::Report(ServerReport::Failed(Failure::Handshake));
    assert_eq!(fail(&mut server, 5).last(), Some(&failed), "once in a start");
    // One that was ready in the other era has no restart to its name; when it is started again, it may change once more.
    let mut server = idle(Mode::Shared);
    let _ = server.step(second(0), ServerEvent::Start);
    let _ = fail(&mut server, 2);
    for event in
        [ServerEvent::Launched { incarnation: next }, ServerEvent::HandshakeDone { incarnation: next }]
    {
        let _ = server.step(second(3), event);
    }
    let _ = server.step(second(4), ServerEvent::ScopeEmpty { incarnation: next });
    assert_eq!((server.state(), server.restarts()), (ServerState::Backoff, 0));
    let due = server.next_timeout().unwrap();
    let _ = server.step(due, ServerEvent::Timeout);
    assert!(!server.changed_era() && server.restarts() == 1);
    let effects = fail(&mut server, 7);
    assert_eq!(effects.last(), Some(&ServerEffect::Launch { incarnation: Incarnation(4) }));
    assert_eq!(server.restarts(), 1);
}

/// G34: of two ends at about the same time the client's counts as the first, also before the launch is answered, and the main
/// process then ended after its input; an exit that is told before any hang-up is the server's own.
#[test]
fn g34_the_clients_end_counts_as_the_first() {
    let incarnation = Incarnation(1);
    let exited = |hung_up| ServerEvent::MainExited { incarnation, normal: false, hung_up };
    let launched = ServerEvent::Launched { incarnation };
    let ended = (ServerReport::Ended, Stage::Stdin);
    let failed = (ServerReport::Failed(Failure::Exited), Stage::Itself);
    for (events, (report, stage)) in [
        (vec![launched, exited(true)], ended),
        (vec![exited(true), launched], ended),
        (vec![exited(false), ServerEvent::InputEnded { incarnation }, launched], ended),
        (vec![launched, exited(false), ServerEvent::InputEnded { incarnation }], failed),
        (vec![launched, exited(false)], failed),
    ] {
        let mut server = idle(Mode::Direct);
        let _ = server.step(Moment(0), ServerEvent::Start);
        for event in &events {
            let _ = server.step(Moment(1), *event);
        }
        let effects = server.step(Moment(2), ServerEvent::ScopeEmpty { incarnation });
        assert_eq!(effects.last(), Some(&ServerEffect::Report(report)), "{events:?}");
        assert_eq!(server.stage(), stage, "{events:?}");
    }
    // Nobody's end but a direct server's client's counts.
    let mut server = server();
    let _ = server.step(Moment(1), exited(true));
    let effects = server.step(Moment(2), ServerEvent::ScopeEmpty { incarnation });
    assert_eq!(effects.last(), Some(&ServerEffect::Report(ServerReport::Restarting)));
}

/// G29: an exclusive server that has had its client is not started again, however it ends; one that has not had one is.
#[test]
fn g29_an_exclusive_server_ends_with_its_conversation() {
    let incarnation = Incarnation(1);
    let came = ServerEvent::ClientCame { incarnation };
    let exited = |normal| ServerEvent::MainExited { incarnation, normal, hung_up: false };
    let output_ended = ServerEvent::OutputEnded { incarnation };
    let failed = |failure| ServerReport::Failed(failure);
    for (events, report) in [
        (vec![came, exited(false)], failed(Failure::Exited)),
        // It is told at the latest when nothing is left.
        (vec![exited(false), came], failed(Failure::Exited)),
        (vec![came], failed(Failure::Exited)),
        (vec![came, exited(true)], ServerReport::Ended),
        (vec![came, output_ended, ServerEvent::Timeout, exited(true)], failed(Failure::OutputEnded)),
        (vec![came, ServerEvent::InputEnded { incarnation }, exited(false)], ServerReport::Ended),
        (vec![exited(false)], ServerReport::Restarting),
        (vec![output_ended, ServerEvent::Timeout, exited(true)], ServerReport::Restarting),
    ] {
        let mut server = server();
        let mut now = Moment(1);
        for event in &events {
            if *event == ServerEvent::Timeout {
                now = server.next_timeout().unwrap();
            }
            let _ = server.step(now, *event);
        }
        let effects = server.step(now, ServerEvent::ScopeEmpty { incarnation });
        assert_eq!(effects.last(), Some(&ServerEffect::Report(report)), "{events:?}");
    }
    // Of the client of an incarnation that was not one, the next knows nothing.
    let (mut server, mut now) = (server(), Moment(0));
    for told in [true, false] {
        (now, _) = run(&mut server, now, Duration::ZERO, told);
    }
    let late = ServerEvent::ClientCame { incarnation };
    assert_eq!(server.step(now, late), []);
    let (_, _) = run(&mut server, now, Duration::ZERO, true);
    // A shared server has many, and a direct one is never restarted anyway.
    let mut shared = idle(Mode::Shared);
    let done = ServerEvent::HandshakeDone { incarnation };
    for event in [ServerEvent::Start, ServerEvent::Launched { incarnation }, done, came, exited(false)] {
        let _ = shared.step(Moment(0), event);
    }
    let effects = shared.step(Moment(0), ServerEvent::ScopeEmpty { incarnation });
    assert_eq!(effects.last(), Some(&ServerEffect::Report(ServerReport::Restarting)));
}

/// Where the exit of the main process is not told before the emptiness of its scope, the rung of the ladder then is its stage.
#[test]
fn a_scope_that_is_empty_first_tells_the_stage() {
    let (mut server, incarnation) = (server(), Incarnation(1));
    let _ = server.step(Moment(0), ServerEvent::Stop { term_first: true });
    assert_eq!(server.stage(), Stage::Sigterm);
    let _ = server.step(Moment(0), ServerEvent::ScopeEmpty { incarnation });
    assert_eq!((server.state(), server.stage()), (ServerState::Stopped, Stage::Sigterm));
}

/// G23: a start that can't be cleaned up tells why it failed while it is stuck; a stop is no failure.
#[test]
fn g23_a_start_that_is_stuck_tells_why_it_failed() {
    let incarnation = Incarnation(1);
    let stuck = |first: ServerEvent| {
        let mut server = idle(Mode::Shared);
        let mut now = Moment(0);
        for event in [ServerEvent::Start, ServerEvent::Launched { incarnation }, first] {
            let _ = server.step(now, event);
        }
        while server.fine_state() != "stuck" {
            now = server.next_timeout().expect("each rung has a budget");
            let _ = server.step(now, ServerEvent::Timeout);
        }
        server.ends_for()
    };
    assert_eq!(stuck(ServerEvent::HandshakeFailed { incarnation }), Some(Failure::Handshake));
    assert_eq!(stuck(ServerEvent::Timeout), Some(Failure::StartTimeout));
    let exited = ServerEvent::MainExited { incarnation, normal: false, hung_up: false };
    assert_eq!(stuck(exited), Some(Failure::Exited));
    assert_eq!(stuck(ServerEvent::Stop { term_first: false }), None);
    assert_eq!(idle(Mode::Shared).ends_for(), None);
}

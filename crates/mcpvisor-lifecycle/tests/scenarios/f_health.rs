//! Servers that say nothing: those that are busy, those that are idle, and those that are deaf.
use super::Seed;
use mcpvisor_lifecycle::server::{
    Health, Mode, Restart, Server, ServerConfig, ServerEffect, ServerEvent, ServerReport, ServerState,
};
use mcpvisor_lifecycle::{Incarnation, Moment};
use std::time::Duration;

const HEALTH: Health =
    Health { interval: Duration::from_secs(60), timeout: Duration::from_secs(5), misses: 2 };
const FIRST: Incarnation = Incarnation(1);

/// What the server does in each of the times between two looks: says something, has a call in flight, neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    Speaks,
    Works,
    Nothing,
}

fn server(seed: Seed) -> Server {
    let server = Server::new(ServerConfig {
        mode: Mode::Shared,
        start: Duration::from_secs(30),
        stdin_grace: Duration::from_secs(2),
        term_grace: Duration::from_secs(3),
        stop_command: None,
        kill_wait: Duration::from_secs(5),
        restart: Restart::Transient,
        restart_intensity: 5,
        restart_period: Duration::from_secs(60),
        backoff: Duration::from_secs(1),
        longest_backoff: Duration::from_secs(100),
        health: Some(HEALTH),
        seed: 7,
    });
    #[cfg(feature = "seeded-bugs")]
    let server = match super::checks::bug(seed) {
        Some(bug) => server.with_bug(bug),
        None => server,
    };
    let _ = seed;
    server
}

/// Plays it, look by look; how often it was asked, and whether it was taken for sick at the end.
fn play(seed: Seed, script: &[Does]) -> (usize, bool) {
    let (mut server, mut asked, mut now) = (server(seed), 0, Moment(0));
    let incarnation = FIRST;
    for event in [
        ServerEvent::Start,
        ServerEvent::Launched { incarnation },
        ServerEvent::HandshakeDone { incarnation },
    ] {
        let _ = server.step(now, event);
    }
    for does in script {
        now = server.next_timeout().expect("it is looked after");
        let (heard, busy) = (*does == Does::Speaks, *does == Does::Works);
        let _ = server.step(now, ServerEvent::Looked { incarnation, heard, busy });
        let effects = server.step(now, ServerEvent::Timeout);
        asked += effects.iter().filter(|effect| matches!(effect, ServerEffect::AskHealth { .. })).count();
        if server.state() != ServerState::Ready {
            assert!(effects.contains(&ServerEffect::Terminate { incarnation }), "{effects:?}");
            let effects = server.step(now, ServerEvent::ScopeEmpty { incarnation });
            let again = ServerEffect::Report(ServerReport::Restarting);
            assert_eq!(effects.last(), Some(&again), "by its policy");
            return (asked, true);
        }
    }
    (asked, false)
}

/// Every script of so many looks.
fn scripts(length: usize) -> Vec<Vec<Does>> {
    (0..length).fold(vec![vec![]], |all, _| {
        let each = [Does::Speaks, Does::Works, Does::Nothing];
        all.iter().flat_map(|one| each.map(|does| [&one[..], &[does]].concat())).collect()
    })
}

/// A server is sick if, and only if, it was silent and idle for one interval and then for as many answers as it may miss.
pub(crate) fn busy_is_never_sick(seed: Seed) -> Result<(), String> {
    for script in scripts(7) {
        let most = usize::try_from(HEALTH.misses).unwrap_or(usize::MAX) + 1;
        let deaf = script.windows(most).any(|looks| looks.iter().all(|does| *does == Does::Nothing));
        let (asked, sick) = play(seed, &script);
        if sick != deaf {
            return Err(format!("G29: {script:?}: taken for sick: {sick}"));
        }
        if !script.contains(&Does::Nothing) && asked > 0 {
            return Err(format!("G29: {script:?}: asked {asked} times though it was never idle"));
        }
    }
    Ok(())
}

/// G29: a deaf server is restarted, one that is busy or speaks is never even asked.
#[test]
fn g29_a_deaf_server_is_restarted_and_a_busy_one_is_not() {
    assert_eq!(busy_is_never_sick(None), Ok(()));
    assert_eq!(play(None, &[Does::Nothing; 3]), (2, true));
    assert_eq!(
        play(None, &[Does::Nothing, Does::Nothing, Does::Works]),
        (2, false),
        "a call came in between"
    );
}

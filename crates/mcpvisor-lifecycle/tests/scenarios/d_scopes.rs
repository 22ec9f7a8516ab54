//! D.4: a server that sessions share outlives each of them, and none of them gets one that is being ended.
use super::Seed;
use super::explore::{Outcomes, explore};
use super::script::{Act, shutdown};
use super::world::World;
use mcpvisor_lifecycle::registry::Answer;
use mcpvisor_lifecycle::server::{Mode, Restart, Server, ServerConfig, ServerEvent};
use mcpvisor_lifecycle::{Incarnation, Moment, RequestId};
use std::time::Duration;

const LINGER: Duration = Duration::from_secs(30);
const HOST: &str = "daemon::p::s::0";

/// Sessions that use the server one after the other or together: whenever they may, and whenever a timer fires.
pub(crate) fn users(also: Vec<Act>, seed: Seed) -> Result<Outcomes, String> {
    let user = |number| vec![Act::Hold(HOST, number), Act::Await(number), Act::Finish(number)];
    let clients = vec![user(1), user(2), also];
    let world = World::new(2, clients, seed).with_idle(LINGER, Duration::from_secs(1_000_000));
    explore(&world.with_dawdling_clients().with_early_timers(1), &|world| {
        if !world.registry.sessions(None).is_empty() {
            return Err("G28: a server that nobody uses stays".to_owned());
        }
        let told = |number| match world.replies.get(&RequestId(number)) {
            Some(Ok(Answer::Opened { session, .. })) => session.generation.0.to_string(),
            Some(_) => "refused".to_owned(),
            None => "unanswered".to_owned(),
        };
        let ends = [1, 2].map(|number| world.calls.get(&number).copied().unwrap_or("none"));
        Ok(format!("{} {} {}", told(1), told(2), ends.join(" ")))
    })
}

/// D.4, G28: whoever comes while it is used, or lingers, shares it, and whoever comes later has it anew; no use of it is cut.
#[test]
fn g28_d4_a_shared_server_is_ended_after_its_last_user() {
    let outcomes = users(Vec::new(), None).unwrap();
    for told in ["1 1 result result", "1 2 result result", "2 1 result result"] {
        assert!(outcomes.contains_key(told), "{outcomes:?}");
    }
    // Its start may run out of time.
    let served = outcomes.keys().filter(|told| !told.contains("refused"));
    assert_eq!(served.count(), 3, "{outcomes:?}");
}

/// G35: a shutdown ends it, whoever uses it, and refuses who comes after.
#[test]
fn g35_d4_a_shutdown_ends_a_shared_server() {
    let outcomes = users(vec![shutdown()], None).unwrap();
    assert!(outcomes.contains_key("refused refused none none"), "{outcomes:?}");
    assert!(outcomes.keys().any(|told| told.starts_with("1 1")), "{outcomes:?}");
}

/// The server of a session that follows one which is given up where its process is: while that is started again, and while it is used.
pub(crate) fn given_up(seed: Seed) -> Result<(), String> {
    let unused = |number| vec![ServerEvent::LaunchFailed { incarnation: Incarnation(number) }];
    let used = |number| {
        let incarnation = Incarnation(number);
        vec![
            ServerEvent::Launched { incarnation },
            ServerEvent::HandshakeDone { incarnation },
            ServerEvent::GivenUp { incarnation },
            ServerEvent::ScopeEmpty { incarnation },
        ]
    };
    follow(seed, unused(6))?;
    follow(seed, used(6))
}

fn follow(seed: Seed, end: Vec<ServerEvent>) -> Result<(), String> {
    let machine = Server::new(ServerConfig {
        mode: Mode::Shared,
        start: Duration::from_secs(30),
        stdin_grace: Duration::from_secs(2),
        term_grace: Duration::from_secs(3),
        stop_command: None,
        kill_wait: Duration::from_secs(5),
        restart: Restart::Followed,
        restart_intensity: 1,
        restart_period: Duration::from_secs(600),
        backoff: Duration::from_secs(1),
        longest_backoff: Duration::from_secs(1),
        health: None,
        seed: 7,
    });
    #[cfg(feature = "seeded-bugs")]
    let machine = match super::checks::bug(seed) {
        Some(bug) => machine.with_bug(bug),
        None => machine,
    };
    let _ = seed;
    let (mut machine, mut now) = (machine, Moment(1));
    let mut tell = |machine: &mut Server, event| {
        now = machine.next_timeout().filter(|_| event == ServerEvent::Timeout).unwrap_or(now);
        let _ = machine.step(now, event);
    };
    tell(&mut machine, ServerEvent::Start);
    // It is started again more often than its own limit says: that is its host's.
    for number in 1..=5 {
        let incarnation = Incarnation(number);
        tell(&mut machine, ServerEvent::Launched { incarnation });
        tell(&mut machine, ServerEvent::HandshakeDone { incarnation });
        tell(&mut machine, ServerEvent::ScopeEmpty { incarnation });
        if machine.fine_state() != "backoff" {
            return Err(format!("G28: its host starts it again, and it is {}", machine.fine_state()));
        }
        tell(&mut machine, ServerEvent::Timeout);
    }
    end.into_iter().for_each(|event| tell(&mut machine, event));
    match machine.fine_state() {
        "failed" => Ok(()),
        state => Err(format!("G29: its host has given it up, and it is in {state}")),
    }
}

/// G29: the restart policy is the host's: followed as often as that starts it, and no longer.
#[test]
fn g29_a_shared_server_is_followed_until_it_is_given_up() {
    given_up(None).unwrap();
}

//! The server's tables.
use super::parse::{Table, Words, cells, items, words};
use super::server_setup::{COMMAND, EVENTS, Variant, config, variants};
use mcpvisor_lifecycle::Moment;
use mcpvisor_lifecycle::registry::Urgency;
use mcpvisor_lifecycle::server::{Mode, OUTPUT_GRACE, Restart, Server, ServerEvent};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

const CAUSES: [&str; 8] = [
    "not launched",
    "exited",
    "exited 0",
    "output ended",
    "handshake failed",
    "start timeout",
    "sick",
    "abnormal",
];

/// The policy table: which row applies, and that each does once.
struct Policy {
    rows: Vec<(usize, Words, String, String)>,
    used: RefCell<BTreeSet<usize>>,
}

impl Policy {
    fn read() -> Self {
        let rows = cells("policy")
            .into_iter()
            .map(|(line, row)| (line, items(&row[0]).into_iter().collect(), row[1].clone(), row[2].clone()))
            .collect();
        Self { rows, used: RefCell::default() }
    }

    fn apply(&self, holds: &Words) -> (String, String) {
        let applying: Vec<_> = self.rows.iter().filter(|row| row.1.is_subset(holds)).collect();
        let [(line, _, next, report)] = applying.as_slice() else {
            panic!("{} rows of the policy apply to {holds:?}", applying.len());
        };
        self.used.borrow_mut().insert(*line);
        (next.clone(), report.clone())
    }
}

/// Puts what the policy says in the place of `by policy`.
fn resolve(policy: &Policy, next: &str, effects: &[String], holds: &Words) -> (String, Vec<String>) {
    let Some(given) = next.strip_prefix("by policy") else {
        return (next.to_owned(), effects.to_vec());
    };
    let mut holds = holds.clone();
    let given = items(given.trim_start_matches(':'));
    if !given.is_empty() {
        holds.retain(|word| !CAUSES.contains(&word.as_str()));
        holds.insert("abnormal".to_owned());
    }
    if given.iter().any(|word| word == "ready before") {
        holds.remove("never ready");
    }
    holds.extend(given);
    let (next, report) = policy.apply(&holds);
    let effects = effects.iter().map(|name| if name == "by policy" { report.clone() } else { name.clone() });
    (next, effects.collect())
}

#[test]
fn the_servers_table_is_what_the_server_does() {
    let (table, policy) = (Table::read("server"), Policy::read());
    let variants = variants();
    for variant in variants {
        let state = variant.server.fine_state();
        for event in EVENTS {
            let (after, effects) = variant.step(event);
            let case = format!("{state}, {event}, {:?}", variant.holds);
            let (line, next, expected) = match table.row(state, event, &variant.holds) {
                None => (0, state.to_owned(), Vec::new()),
                Some(row) => {
                    let (next, effects) = resolve(&policy, &row.next, &row.effects, &variant.holds);
                    (row.line, next, effects)
                }
            };
            assert_eq!(effects, expected, "effects of {case} (line {line})");
            assert_eq!(after.server.fine_state(), next, "next state of {case} (line {line})");
        }
    }
    table.assert_all_used();
    let unused: Vec<_> =
        policy.rows.iter().filter(|row| !policy.used.borrow().contains(&row.0)).map(|row| row.0).collect();
    assert!(unused.is_empty(), "lines of the policy that nothing reaches: {unused:?}");
}

/// G3: a fact of another incarnation changes nothing, in any state.
#[test]
fn g3_facts_of_another_incarnation_change_nothing() {
    for variant in variants() {
        let Some(current) = variant.server.incarnation() else { continue };
        for other in [current.0 - 1, current.0 + 1].map(mcpvisor_lifecycle::Incarnation) {
            for event in [
                ServerEvent::Launched { incarnation: other },
                ServerEvent::LaunchFailed { incarnation: other },
                ServerEvent::OtherEra { incarnation: other },
                ServerEvent::HandshakeDone { incarnation: other },
                ServerEvent::HandshakeFailed { incarnation: other },
                ServerEvent::MainExited { incarnation: other, normal: true, hung_up: false },
                ServerEvent::OutputEnded { incarnation: other },
                ServerEvent::ClientCame { incarnation: other },
                ServerEvent::GivenUp { incarnation: other },
                ServerEvent::InputEnded { incarnation: other },
                ServerEvent::Looked { incarnation: other, heard: true, busy: false },
                ServerEvent::ScopeEmpty { incarnation: other },
                ServerEvent::CommandEnded { incarnation: other },
            ] {
                let mut server = variant.server.clone();
                assert_eq!(server.step(variant.now, event), []);
                assert_eq!(server, variant.server);
            }
        }
    }
}

/// A timer that fires early, or twice, changes nothing.
#[test]
fn a_timeout_before_its_time_changes_nothing() {
    for variant in variants() {
        let mut server = variant.server.clone();
        let early = variant.server.next_timeout().map_or(variant.now, |until| Moment(until.0 - 1));
        assert_eq!(server.step(early, ServerEvent::Timeout), []);
        assert_eq!(server, variant.server);
    }
}

fn budget(name: &str) -> Option<Duration> {
    let config = config(Mode::Shared, Restart::Permanent, 1);
    match name {
        "none" => None,
        "start" => Some(config.start),
        "output grace" => Some(OUTPUT_GRACE),
        "stdin_grace" => Some(config.stdin_grace),
        "term_grace" => Some(config.term_grace),
        "stop_command" => Some(COMMAND),
        "kill_wait" => Some(config.kill_wait),
        other => panic!("no timer is named {other}"),
    }
}

/// The one way to each state that is just entered.
fn just_entered(state: &str) -> Variant {
    let meanwhile = |variant: &Variant| state == "command" && !variant.holds.contains("unkilled");
    let entered = |variant: &Variant| variant.server.fine_state() == state && !meanwhile(variant);
    let fresh =
        |variant: &Variant| variant.server.waits_for().is_none_or(|(_, since, _)| since == variant.now);
    variants()
        .iter()
        .find(|variant| entered(variant) && fresh(variant))
        .expect("every state is reached")
        .clone()
}

#[test]
fn the_servers_states_are_told_as_the_table_says() {
    let rows = cells("server states");
    let documented: BTreeSet<String> = rows.iter().map(|(_, row)| row[0].clone()).collect();
    let reached: BTreeSet<String> =
        variants().iter().map(|variant| variant.server.fine_state().to_owned()).collect();
    assert_eq!(documented, reached);
    for (line, row) in rows {
        let variant = just_entered(&row[0]);
        assert_eq!(format!("{:?}", variant.server.state()), row[1], "line {line}");
        let waits = variant.server.waits_for();
        assert_eq!(waits.map_or("—", |(what, _, _)| what), row[3], "line {line}");
        let timer = variant.server.next_timeout();
        match row[2].as_str() {
            "backoff" => {
                let drawn = timer.expect("a backoff ends").since(variant.now);
                assert!(Duration::from_millis(100) <= drawn && drawn <= Duration::from_millis(200));
            }
            "start, since the launch" => {
                let (launched, _) = variant.step("Start");
                let left = timer.expect("a start ends").since(launched.now);
                assert!(
                    left < budget("start").expect("it is a timer"),
                    "line {line}: the launch's time counts"
                );
            }
            name => assert_eq!(timer, budget(name).map(|budget| variant.now.after(budget)), "line {line}"),
        }
    }
}

/// G16: each rung has the whole of its budget, and goes only to the next.
#[test]
fn g16_the_ladder_is_as_the_table_says() {
    for (line, row) in cells("ladder") {
        let variant = just_entered(&row[0]);
        assert_eq!(format!("{:?}", stage(&variant)), row[4], "line {line}");
        let timer = variant.server.next_timeout();
        assert_eq!(timer, budget(&row[2]).map(|budget| variant.now.after(budget)), "line {line}");
        let (after, _) = variant.step("Timeout");
        let next = if row[3] == "—" { row[0].as_str() } else { row[3].as_str() };
        assert_eq!(after.server.fine_state(), next, "line {line}");
        let begins = items(&row[1]);
        for other in variants().iter().filter(|other| other.holds.contains("shared")) {
            let (after, effects) = other.step("Timeout");
            if after.server.fine_state() == row[0] && other.server.fine_state() != row[0] {
                assert!(effects.ends_with(&begins), "line {line}: {effects:?}");
            }
        }
    }
}

/// The stage of a main process that lives.
fn stage(variant: &Variant) -> mcpvisor_lifecycle::server::Stage {
    variant.server.stage()
}

/// The stage stays that of the main process, whatever the rest of its tree needs.
#[test]
fn the_stage_is_the_rung_in_which_the_main_process_ended() {
    let mut server = Server::new(config(Mode::Shared, Restart::Permanent, 1));
    let launched = mcpvisor_lifecycle::Incarnation(1);
    let _ = server.step(Moment(0), ServerEvent::Start);
    let _ = server.step(Moment(1), ServerEvent::Launched { incarnation: launched });
    let _ = server.step(Moment(2), ServerEvent::HandshakeDone { incarnation: launched });
    let _ = server.step(Moment(3), ServerEvent::Stop { term_first: false });
    let _ = server
        .step(Moment(4), ServerEvent::MainExited { incarnation: launched, normal: true, hung_up: false });
    let _ = server.step(Moment(5), ServerEvent::Urge { urgency: Urgency::Kill });
    assert_eq!(format!("{:?}", server.stage()), "Stdin");
    assert_eq!(words(&[server.fine_state()]), words(&["kill"]));
}

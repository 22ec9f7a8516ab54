//! Negative controls: each guard is taken out, and a test that holds it must fail.
//!
//! Nothing in the tree is changed: the guards are taken out by a feature and, in the daemon, by a variable of the environment. So this may
//! be run again, and stopped, at any time.
use crate::run::{cargo, run};
use std::process::{Command, Stdio};

/// The guarantees of which each must have a control in the machines.
const IN_THE_MACHINES: [&str; 12] =
    ["G1", "G6", "G7", "G11", "G12", "G13", "G14", "G20", "G22", "G32", "G35", "G41"];

/// And in the whole daemon: what is taken out, and the end-to-end test that must fail then. Without a bug it must pass.
const IN_THE_DAEMON: [(&str, &str); 15] = [
    ("G1ReopenDoesNotWait", "lifecycle::g1_a_reopen_waits_or_is_refused::cgroup"),
    (
        "G6SlotReturnedEarly",
        "lifecycle::g6_the_slot_of_a_cancelled_start_is_taken_until_it_is_reaped::cgroup",
    ),
    (
        "G7CancelFreesAtOnce",
        "lifecycle::g6_the_slot_of_a_cancelled_start_is_taken_until_it_is_reaped::cgroup",
    ),
    ("G11GateStaysOpen", "guards::g11_nothing_is_admitted_once_draining::cgroup"),
    ("G12EndIsToldAtMainExit", "cases_open::g12_double_fork::cgroup"),
    ("G13JoinedCloseIsAnsweredEarly", "lifecycle::g13_g14_closers_are_killed::cgroup"),
    ("G14CancelHurries", "lifecycle::g13_g14_closers_are_killed::cgroup"),
    ("G20WaitSaysClosedEarly", "lifecycle::g20_wait_has_three_answers::cgroup"),
    ("G21ParentDoesNotWait", "trees::g21_c6_a_tree_is_closed_from_its_leaves::cgroup"),
    ("G22ReadyAfterClose", "guards::g22_a_session_that_is_ready_after_its_close"),
    ("G6EvictedSlotIsTakenAtOnce", "capacity::g6_an_eviction_makes_room::cgroup"),
    ("G32EvictionDoesNotLook", "capacity::g32_evictions_race_calls::cgroup"),
    ("G41RevocationLosesAgainstAClose", "tokens::g41_b5_a_detach_that_loses::cgroup"),
    ("G41TokenOutlivesItsGeneration", "tokens::g41_a_token_is_of_one_generation::cgroup"),
    ("G35ShutdownSkipsStarting", "signals::g35_sigterm_ends_every_session::cgroup"),
];

/// Names the bug of a daemon; see the crate of the daemon.
const VARIABLE: &str = "MCPVISOR_SEEDED_BUG";

struct Row {
    guard: String,
    test: String,
    /// What is wrong with this control, if anything.
    wrong: Option<String>,
}

/// Takes one guard after the other out, shows that a test fails each time, and prints a table of them.
///
/// # Errors
/// Where one is not noticed, or a test fails with every guard in place.
pub(crate) fn all() -> Result<(), String> {
    let mut rows = in_the_machines()?;
    run(cargo(&["build", "--package", "mcpvisor", "--package", "mcpvisord"]))?;
    let seeded =
        ["build", "--package", "mcpvisord", "--features", "seeded-bugs", "--bin", "mcpvisord-seeded"];
    run(cargo(&seeded))?;
    run(cargo(&["test", "--package", "mcpvisor-tests", "--test", "e2e", "--no-run"]))?;
    for (bug, test) in IN_THE_DAEMON {
        rows.push(in_the_daemon(bug, test)?);
        eprintln!("xtask: {bug}: {}", rows.last().and_then(|row| row.wrong.as_deref()).unwrap_or("noticed"));
    }
    println!("{:<10} {:<32} {:<8} test", "guarantee", "guard taken out", "failed");
    for row in &rows {
        let verdict = row.wrong.as_deref().map_or("as it must", |wrong| wrong);
        println!("{:<10} {:<32} {verdict:<8} {}", guarantee(&row.guard), row.guard, row.test);
    }
    for wanted in IN_THE_MACHINES {
        if !rows.iter().any(|row| guarantee(&row.guard) == wanted && !row.test.starts_with("e2e ")) {
            return Err(format!("{wanted} has no control in the machines"));
        }
    }
    let bad: Vec<&str> =
        rows.iter().filter(|row| row.wrong.is_some()).map(|row| row.guard.as_str()).collect();
    if bad.is_empty() { Ok(()) } else { Err(format!("not as it must be: {}", bad.join(", "))) }
}

/// `G12` of `G12EndIsToldAtMainExit`.
fn guarantee(guard: &str) -> &str {
    let end = guard.char_indices().skip(1).find(|(_, letter)| !letter.is_ascii_digit());
    &guard[..end.map_or(guard.len(), |(index, _)| index)]
}

/// Where the machines' controls are listed, line by line as `name: Bug,`; the words of cargo that run them; and what stands before their
/// names there.
const MACHINES: [(&str, &[&str], &str); 3] = [
    (
        "crates/mcpvisor-lifecycle/tests/scenarios/controls.rs",
        &["--package", "mcpvisor-lifecycle", "--features", "seeded-bugs", "--test", "scenarios"],
        "controls::",
    ),
    ("crates/mcpvisor-model/tests/bugs.rs", &["--package", "mcpvisor-model", "--test", "bugs"], ""),
    (
        "crates/mcpvisor-mcp/src/peer/turns/controls.rs",
        &["--package", "mcpvisor-mcp", "--lib"],
        "peer::turns::controls::",
    ),
];

/// Scenarios and the model: each control of theirs passes where what it plays holds with the guard, and fails without, for the right
/// reason.
fn in_the_machines() -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (file, words, module) in MACHINES {
        let path = crate::root().join(file);
        let source =
            std::fs::read_to_string(&path).map_err(|error| format!("failed to read {file}: {error}"))?;
        let mut test = cargo(&["test"]);
        test.args(words).args(["--", module]);
        let told = output(test)?;
        let before = rows.len();
        for line in source.lines().map(str::trim) {
            let listed = line.strip_suffix(',').and_then(|line| line.split_once(": "));
            let Some((name, bug)) = listed.filter(|(name, bug)| is_listed(name, bug)) else { continue };
            let passed = format!("test {module}{name} ... ok");
            rows.push(Row {
                guard: bug.to_owned(),
                test: format!("{} {module}{name}", words[1].trim_start_matches("mcpvisor-")),
                wrong: (!told.text.lines().any(|line| line == passed)).then(|| "was not noticed".to_owned()),
            });
        }
        if rows.len() == before {
            return Err(format!("no control was found in {file}"));
        }
        if !told.good && rows.iter().all(|row| row.wrong.is_none()) {
            return Err(format!("the machines' controls fail:\n{}", told.text));
        }
    }
    Ok(rows)
}

/// A function's name, and a bug's.
fn is_listed(name: &str, bug: &str) -> bool {
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word(name)
        && is_word(bug)
        && bug.starts_with('G')
        && bug[1..].starts_with(|c: char| c.is_ascii_digit())
}

fn in_the_daemon(bug: &str, test: &str) -> Result<Row, String> {
    let play = |bug: &str| {
        let words = ["test", "--quiet", "--package", "mcpvisor-tests", "--test", "e2e", "--"];
        let mut command = cargo(&words);
        command.args(["--exact", test, "--include-ignored"]).env(VARIABLE, bug);
        output(command)
    };
    let (sound, broken) = (play("none")?, play(bug)?);
    let wrong = if !sound.text.contains("1 passed") {
        Some(format!("fails with the guard, too:\n{}", sound.text))
    } else if broken.good {
        Some("was not noticed".to_owned())
    } else if broken.text.contains("1 failed") {
        None
    } else {
        Some(format!("did not run:\n{}", broken.text))
    };
    Ok(Row { guard: bug.to_owned(), test: format!("e2e {test}"), wrong })
}

struct Said {
    good: bool,
    text: String,
}

/// Runs a command to its end and keeps what it says.
fn output(mut command: Command) -> Result<Said, String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("failed to start {command:?}: {error}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(Said { good: output.status.success(), text })
}

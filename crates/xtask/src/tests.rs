//! Running the tests.
use crate::run::{Closing, Runner, cargo, is_there, run};
use crate::{real, run as running, systemd, tools};
use std::process::Command;

/// How many end-to-end tests run at once under `cargo test`: most of their time they wait for graces.
const AT_ONCE: &str = "--test-threads=6";

/// The model of the lifecycle is tested by itself: it needs a feature of the machines, which the daemon that is tested does not have.
const WITHOUT: [&str; 2] = ["--exclude", MODEL];
const MODEL: &str = "mcpvisor-model";

/// Builds everything, installs the real servers and clients, runs every test, and says at last how it went. More words go to
/// the runner.
///
/// # Errors
/// Where anything fails.
pub(crate) fn all(more: &[String]) -> Result<(), String> {
    let prepared = build()?;
    let mut closing = Closing::default();
    let mut good = true;
    if is_there(cargo(&["nextest", "--version"])) {
        let mut nextest = cargo(&["nextest", "run", "--workspace", WITHOUT[0], WITHOUT[1]]);
        prepared.tell(&mut nextest);
        nextest.args(more);
        good &= running::tests(nextest, Runner::Nextest, &mut closing)?;
        if more.is_empty() {
            let model = cargo(&["nextest", "run", "--package", MODEL]);
            good &= running::tests(model, Runner::Nextest, &mut closing)?;
        }
        good &= running::tests(
            cargo(&["test", "--workspace", WITHOUT[0], WITHOUT[1], "--doc"]),
            Runner::Cargo,
            &mut closing,
        )?;
    } else {
        // Without nextest: first everything but the end-to-end tests, then these, many at once.
        let mut rest = cargo(&[
            "test",
            "--workspace",
            WITHOUT[0],
            WITHOUT[1],
            "--exclude",
            "mcpvisor-tests",
            "--no-fail-fast",
        ]);
        rest.args(more);
        good &= running::tests(rest, Runner::Cargo, &mut closing)?;
        if more.is_empty() {
            let model = cargo(&["test", "--package", MODEL, "--no-fail-fast"]);
            good &= running::tests(model, Runner::Cargo, &mut closing)?;
        }
        let mut tests = cargo(&["test", "--workspace", WITHOUT[0], WITHOUT[1], "--test", "e2e"]);
        prepared.tell(&mut tests);
        tests.args(more).args(["--", AT_ONCE]);
        good &= running::tests(tests, Runner::Cargo, &mut closing)?;
    }
    conclude(good, &closing.lines)
}

/// The end-to-end tests whose names contain one of the words.
///
/// # Errors
/// Where anything fails.
pub(crate) fn end_to_end(filters: &[String]) -> Result<(), String> {
    let prepared = build()?;
    let mut closing = Closing::default();
    let mut tests = cargo(&["test", "--workspace", WITHOUT[0], WITHOUT[1], "--test", "e2e", "--", AT_ONCE]);
    prepared.tell(&mut tests);
    tests.args(filters);
    let good = running::tests(tests, Runner::Cargo, &mut closing)?;
    conclude(good, &closing.lines)
}

/// What was prepared for the tests.
struct Prepared {
    /// The root file systems are there.
    systemd: bool,
}

impl Prepared {
    /// Tests that can be run must not be left out.
    fn tell(&self, tests: &mut Command) {
        if self.systemd {
            tests.env("MCPVISOR_TEST_SYSTEMD", "require");
        }
    }
}

/// The programs that the end-to-end tests drive, and what they drive them against and in.
fn build() -> Result<Prepared, String> {
    tools::strace()?;
    // Packages come over the network, and need the processor little: all at once.
    let installing = std::thread::spawn(real::install);
    let making = std::thread::spawn(systemd::root_file_systems);
    // First the daemon with the gates, so that the other programs are left as they are without.
    run(cargo(&[
        "build",
        "--workspace",
        WITHOUT[0],
        WITHOUT[1],
        "--features=mcpvisord/failpoints,mcpvisord/seeded-bugs",
        "--bin=mcpvisord-failpoints",
    ]))?;
    run(cargo(&["build", "--workspace", WITHOUT[0], WITHOUT[1]]))?;
    installing.join().map_err(|_| "the installation of the real servers and clients broke".to_owned())??;
    let systemd = making.join().map_err(|_| "the making of the root file systems broke".to_owned())??;
    Ok(Prepared { systemd })
}

/// Says how the runners ended, last of all.
fn conclude(good: bool, closing: &[String]) -> Result<(), String> {
    println!("\nxtask: what the test runner said at its ends");
    for line in closing {
        println!("  {line}");
    }
    let total = |word: &str| -> u64 {
        let count = |line: &String| {
            let words: Vec<&str> = line.split([' ', ';', ',']).filter(|word| !word.is_empty()).collect();
            words
                .windows(2)
                .find(|pair| pair[1] == word)
                .and_then(|pair| pair[0].parse::<u64>().ok())
                .unwrap_or(0)
        };
        closing
            .iter()
            .filter(|line| line.starts_with("test result:") || line.starts_with("Summary ["))
            .map(count)
            .sum()
    };
    println!("xtask: {} passed, {} failed, {} ignored", total("passed"), total("failed"), total("ignored"));
    if good { Ok(()) } else { Err("tests failed".to_owned()) }
}

/// Many cycles of open and close, on both containments, one after the other.
///
/// # Errors
/// Where something grows.
pub(crate) fn soak(words: &[String]) -> Result<(), String> {
    let cycles = words.first().map_or("5000", String::as_str);
    cycles.parse::<u32>().map_err(|_| format!("{cycles} is no number of cycles"))?;
    let counting = "--features=mcpvisord/count-allocations";
    run(cargo(&["build", "--workspace", WITHOUT[0], WITHOUT[1], counting]))?;
    let mut tests = cargo(&[
        "test",
        "--workspace",
        WITHOUT[0],
        WITHOUT[1],
        counting,
        "--test",
        "e2e",
        "--",
        "many::g37",
        "--test-threads=1",
        "--nocapture",
    ]);
    tests.env("MCPVISOR_CYCLES", cycles);
    run(tests)
}

/// Many random histories on the real daemon: three quarters on cgroups, the rest on keepers.
///
/// # Errors
/// Where an answer was wrong, or anything was left.
pub(crate) fn histories(words: &[String]) -> Result<(), String> {
    long("histories::", "MCPVISOR_HISTORIES", "10000", words)
}

/// Kills the daemon at many places of its code and as many random moments.
///
/// # Errors
/// Where anything outlived it, a certificate was false, or the next daemon did not serve.
pub(crate) fn kill_sweep(words: &[String]) -> Result<(), String> {
    long("killed::", "MCPVISOR_KILLS", "1000", words)
}

/// Real clients with real servers: every one with every one on every way, where the suite has each pair of these once.
///
/// # Errors
/// Where two do not understand each other that should, or anything is left.
pub(crate) fn clients() -> Result<(), String> {
    real::install()?;
    run(cargo(&["build", "--package", "mcpvisor", "--package", "mcpvisord"]))?;
    let mut tests =
        cargo(&["test", "--package", "mcpvisor-tests", "--test", "e2e", "--", "clients::", AT_ONCE]);
    tests.env("MCPVISOR_CLIENTS", "all");
    run(tests)
}

/// The tests of a module, with a number of their own, and a seed where one is named.
fn long(module: &str, variable: &str, usual: &str, words: &[String]) -> Result<(), String> {
    let count = words.first().map_or(usual, String::as_str);
    count.parse::<u32>().map_err(|_| format!("{count} is no number"))?;
    tools::strace()?;
    run(cargo(&["build", "--package", "mcpvisor", "--package", "mcpvisord"]))?;
    let mut tests =
        cargo(&["test", "--package", "mcpvisor-tests", "--test", "e2e", "--", module, "--nocapture"]);
    tests.env(variable, count);
    if let Some(seed) = words.get(1) {
        seed.parse::<u64>().map_err(|_| format!("{seed} is no seed"))?;
        tests.env("MCPVISOR_SEED", seed);
    }
    run(tests)
}

/// Walks through all configurations of the lifecycle's model, the large ones too, and looks for every bug that is put into the machines.
/// Words name one configuration, or something else that is told without words: `cargo xtask model help`.
///
/// # Errors
/// Where a property is broken, a witness or a bug is missed.
pub(crate) fn model(words: &[String]) -> Result<(), String> {
    let mut walk = cargo(&["run", "--quiet", "--package", MODEL, "--"]);
    walk.args(words);
    run(walk)
}

/// What `.ci/run` asks for before the tests.
///
/// # Errors
/// Where anything is not as it should be.
pub(crate) fn lint() -> Result<(), String> {
    run(cargo(&["fmt", "--all", "--check"]))?;
    run(cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]))?;
    if is_there(cargo(&["deny", "--version"])) {
        run(cargo(&["deny", "--locked", "check", "bans", "licenses", "sources"]))?;
    } else {
        eprintln!(
            "xtask: cargo-deny is not there; the test of the workspace's rules looks at the dependencies"
        );
    }
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"]);
    doc.env("RUSTDOCFLAGS", "--deny warnings");
    run(doc)
}

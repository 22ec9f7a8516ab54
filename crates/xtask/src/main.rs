//! The project's own commands: `cargo xtask COMMAND`. See CONTRIBUTING.md.
mod controls;
mod dist;
mod fuzz;
mod real;
mod run;
mod systemd;
mod tests;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [ARGUMENTS…]   builds everything, installs the real servers and clients, runs every test
cargo xtask e2e [FILTER…]       the end-to-end tests only
cargo xtask real                installs the real servers and clients into the target folder
cargo xtask rootfs              makes the root file systems that the tests of the systemd units boot
cargo xtask soak [CYCLES]       opens and closes a session 5,000 times on each containment, and looks for growth
cargo xtask histories [N SEED]  plays 10,000 random histories on the real daemon, and has the pure machine judge them
cargo xtask kill-sweep [N SEED] kills the daemon at 1,000 places of its code and at 1,000 random moments
cargo xtask clients             real clients with real servers on every way to them
cargo xtask fuzz [EXECUTIONS]   searches, a hundred million times, for bytes that break a property of the MCP machines
cargo xtask negative-controls   shows that tests fail when a guard is taken out, of the machines and of the whole daemon
cargo xtask model [WORDS]       walks through all states of the lifecycle's model, five million and more
cargo xtask dist                the programs as they are handed out, linked statically: target/dist
cargo xtask lint                format, clippy, documentation, dependencies";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) =
        words.split_first().map_or(("help", &[][..]), |(first, rest)| (first.as_str(), rest));
    let done = match command {
        "test" => tests::all(rest),
        "e2e" => tests::end_to_end(rest),
        "real" => real::install(),
        "rootfs" => systemd::root_file_systems().map(drop),
        "soak" => tests::soak(rest),
        "histories" => tests::histories(rest),
        "kill-sweep" => tests::kill_sweep(rest),
        "clients" => tests::clients(),
        "fuzz" => fuzz::all(rest),
        "negative-controls" => controls::all(),
        "model" => tests::model(rest),
        "dist" => dist::build(),
        "lint" => tests::lint(),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(format!("there is no command {other}\n\n{HELP}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("xtask lies in the workspace")
}

/// The target folder, as cargo finds it.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |dir| root().join(PathBuf::from(dir)))
}

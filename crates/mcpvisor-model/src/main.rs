//! Walks through the configurations, all or those that are named, and tells what was met. See `docs/model.md`.
use mcpvisor_lifecycle::seeded::Bug;
use mcpvisor_model::{Config, Violation, Witness, check, configs, find, wander};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
mcpvisor-model                      all configurations, and then all bugs
mcpvisor-model NAME                 one configuration
mcpvisor-model bugs                 each bug, in the configuration that finds it
mcpvisor-model bug BUG              the same for one, with the history that finds it
mcpvisor-model history SEED [BUG]   the random history of a seed
mcpvisor-model histories COUNT      the random histories of the seeds from 1 to COUNT";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let good = match words[..] {
        [] => walk(&configs::all()) & bugs(),
        ["bugs"] => bugs(),
        ["bug", name] => bug(name),
        ["history", seed] => history(seed, None),
        ["history", seed, name] => history(seed, named(name)),
        ["histories", count] => histories(count),
        [name] => match configs::named(name) {
            Some(config) => walk(&[config]),
            None => help(),
        },
        _ => help(),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn help() -> bool {
    eprintln!("{HELP}\n\nconfigurations:");
    for config in configs::all() {
        eprintln!("  {:<26}{}", config.name, config.about);
    }
    false
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn tell(violation: &Violation) {
    println!("BROKEN: {}: {}", violation.wrong.property.name(), violation.wrong.what);
    for line in &violation.story {
        println!("  {line}");
    }
}

/// Walks through them, and says whether nothing is broken and everything was seen.
fn walk(all: &[Config]) -> bool {
    let (mut states, mut good, mut seen) = (0, true, BTreeSet::new());
    let begun = Instant::now();
    for config in all {
        let since = Instant::now();
        let outcome = check(config, threads());
        let took = since.elapsed().as_secs_f64();
        println!("{:>10} states, depth {:>2}, {took:>6.1} s  {}", outcome.states, outcome.depth, config.name);
        states += outcome.states;
        seen.extend(outcome.reached.iter().copied());
        if let Some(violation) = &outcome.violation {
            tell(violation);
            good = false;
        }
        let missed: Vec<_> =
            config.expects.iter().filter(|witness| !outcome.reached.contains(witness)).collect();
        if !missed.is_empty() || outcome.states < config.states {
            println!("NOT REACHED: {missed:?}, {} states", config.states);
            good = false;
        }
    }
    println!("{states:>10} states in {:.0} s", begun.elapsed().as_secs_f64());
    if all.len() > 1 {
        let unseen: Vec<_> = Witness::ALL.iter().filter(|witness| !seen.contains(witness)).collect();
        println!("{} of {} witnesses reached; not: {unseen:?}", seen.len(), Witness::ALL.len());
    }
    good
}

fn found(bug: Bug) -> Option<(Violation, usize)> {
    let (config, property) = configs::finder(bug)?;
    let (violation, states) = find(&config, bug, property);
    violation.map(|violation| (violation, states))
}

fn bugs() -> bool {
    let mut good = true;
    for bug in Bug::ALL {
        let Some((config, property)) = configs::finder(bug) else {
            println!("{bug:?}: not played here");
            continue;
        };
        match found(bug) {
            Some((violation, states)) => {
                println!(
                    "{bug:?}: {} ({}; {states} states of {})",
                    violation.wrong.what,
                    property.name(),
                    config.name
                );
            }
            None => {
                println!("MISSED: {bug:?} in {}", config.name);
                good = false;
            }
        }
    }
    good
}

fn named(name: &str) -> Option<Bug> {
    Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
}

fn bug(name: &str) -> bool {
    let Some(bug) = named(name) else { return help() };
    match found(bug) {
        Some((violation, _)) => {
            tell(&violation);
            true
        }
        None => {
            println!("{name} is not found");
            false
        }
    }
}

fn history(seed: &str, bug: Option<Bug>) -> bool {
    let Ok(seed) = seed.parse::<u64>() else { return help() };
    let history = wander(&configs::wide(seed), bug, seed);
    println!("{} steps, {:?}", history.steps, history.reached);
    history.violation.as_ref().map(tell).is_none()
}

fn histories(count: &str) -> bool {
    let Ok(count) = count.parse::<u64>() else { return help() };
    let (mut steps, mut seen, begun) = (0, BTreeSet::new(), Instant::now());
    for seed in 1..=count {
        let history = wander(&configs::wide(seed), None, seed);
        steps += history.steps;
        seen.extend(history.reached);
        if let Some(violation) = history.violation {
            println!("seed {seed}");
            tell(&violation);
            return false;
        }
    }
    let unseen: Vec<_> = Witness::ALL.iter().filter(|witness| !seen.contains(witness)).collect();
    println!(
        "{count} histories, {steps} steps, {:.0} s; not reached: {unseen:?}",
        begun.elapsed().as_secs_f64()
    );
    true
}

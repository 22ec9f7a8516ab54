//! Real processes in real scopes, each test with cgroups and with keepers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod asking;
mod birth;
mod cgroups;
mod descriptors;
mod ending;
mod failures;
mod guarding;
mod hanging;
mod harness;
mod holders;
mod keepers;
mod latency;
mod leftovers;
mod trees;
mod world;

use harness::Test;
use mcpvisor_process::ContainmentKind;

fn main() {
    let mut arguments = std::env::args();
    match (arguments.nth(1).as_deref(), arguments.next()) {
        (Some("keeper"), None) => mcpvisor_process::keeper_main(),
        (Some("guardian"), Some(cgroup)) => mcpvisor_process::guardian_main(cgroup.as_ref()),
        (Some("role"), Some(role)) => world::play(&role),
        _ => harness::run(&tests()),
    }
}

fn tests() -> Vec<Test> {
    let mut all = Vec::new();
    for part in [
        birth::TESTS,
        ending::TESTS,
        trees::TESTS,
        failures::TESTS,
        descriptors::TESTS,
        asking::TESTS,
        holders::TESTS,
        hanging::TESTS,
        latency::TESTS,
        leftovers::TESTS,
    ] {
        for (name, test) in part {
            all.push(Test::new("cgroup", name, ContainmentKind::Cgroup, *test));
            all.push(Test::new("keeper", name, ContainmentKind::Keeper, *test));
        }
    }
    for (name, test) in cgroups::TESTS.iter().chain(guarding::TESTS) {
        all.push(Test::new("cgroup", name, ContainmentKind::Cgroup, *test));
    }
    for (name, test) in keepers::TESTS {
        all.push(Test::new("keeper", name, ContainmentKind::Keeper, *test));
    }
    all
}

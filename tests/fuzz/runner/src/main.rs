//! Feeds one target, named by MCPVISOR_FUZZ_TARGET, with what libFuzzer makes up.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mcpvisor_fuzz::TARGETS;
use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::var("MCPVISOR_FUZZ_TARGET").expect("MCPVISOR_FUZZ_TARGET names a target");
    TARGETS.iter().find(|(name, _)| *name == wanted).unwrap_or_else(|| panic!("there is no target {wanted}")).1
});

fuzz_target!(|input: &[u8]| TARGET(input));

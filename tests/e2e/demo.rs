//! The main job on an embedded default: one command, and nothing is left.
use mcpvisor_testkit::{Scene, procfs, scene};
use serde_json::Value;

/// Every number after a `pid`, anywhere in the document.
fn pids(value: &Value, found: &mut Vec<u32>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_u64().and_then(|pid| u32::try_from(pid).ok()) {
                    Some(pid) if name == "pid" => found.push(pid),
                    _ => pids(field, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| pids(value, found)),
        _ => {}
    }
}

fn demonstrates(scene: &Scene, containment: &[&str]) {
    let output = scene.mcpvisor(&["demo"]).args(containment).output();
    assert_eq!(output.status, 0, "{output:?}");
    let told = output.text();
    assert!(told.contains("polite") && told.contains("stubborn"), "{told}");
    assert!(told.contains("KILL") || told.contains("sigkill"), "the stubborn one is killed: {told}");
    let leaks = scene.leaks(mcpvisor_testkit::SOON);
    assert!(leaks.is_empty(), "{leaks:?}");

    let output = scene.mcpvisor(&["--json", "demo"]).args(containment).output();
    let document = output.ok();
    let mut seen = Vec::new();
    pids(&document, &mut seen);
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() >= 3, "two servers and a helper at least: {document:#}");
    for pid in seen {
        assert!(!procfs::is_alive(pid) || !procfs::command(pid).contains("demo-server"), "{pid} is left");
    }
    assert!(document.to_string().contains("\"outcome\":\"closed\""), "{document:#}");
}

#[test]
fn the_demonstration() {
    scene(|scene| demonstrates(scene, &[]));
}

#[test]
fn the_demonstration_on_keepers() {
    scene(|scene| demonstrates(scene, &["--containment", "keeper"]));
}

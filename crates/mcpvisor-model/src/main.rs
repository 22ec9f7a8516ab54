//! Walks through all configurations. See `docs/model.md`.
use mcpvisor_lifecycle::seeded::Bug;
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut total = 0;
    let bugs: Vec<Bug> = Bug::ALL
        .into_iter()
        .filter(|b| words.contains(&format!("{b:?}")) || words.contains(&"bugs".to_owned()))
        .collect();
    for config in mcpvisor_model::configs::all() {
        if words.iter().any(|w| mcpvisor_model::configs::named(w).is_some())
            && !words.contains(&config.name.to_owned())
        {
            continue;
        }
        let mut runs: Vec<Option<Bug>> = bugs.iter().copied().map(Some).collect();
        if runs.is_empty() {
            runs.push(None);
        }
        for bug in runs {
            let start = std::time::Instant::now();
            let outcome = mcpvisor_model::check(&config, bug, 2);
            total += outcome.states;
            println!(
                "{} {bug:?}: {} states, depth {}, {:?} {:?}",
                config.name,
                outcome.states,
                outcome.depth,
                start.elapsed(),
                outcome.violation.as_ref().map(|v| v.wrong)
            );
            if bug.is_none() {
                println!("   {:?}", outcome.reached);
                if let Some(violation) = outcome.violation {
                    println!("{:?}\n{}", violation.wrong, violation.story.join("\n"));
                }
            }
        }
    }
    println!("{total}");
}

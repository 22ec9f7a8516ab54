fn main() {
    for config in mcpvisor_model::configs::all() {
        let start = std::time::Instant::now();
        let outcome = mcpvisor_model::check(&config, None, 2);
        println!(
            "{}: {} states, depth {}, {:?}",
            config.name,
            outcome.states,
            outcome.depth,
            start.elapsed()
        );
        println!("{:?}", outcome.reached);
        if let Some(violation) = outcome.violation {
            println!("{:?}\n{}", violation.wrong, violation.story.join("\n"));
        }
    }
}

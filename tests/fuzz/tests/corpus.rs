//! What the fuzzer has found to be interesting, replayed.
use mcpvisor_fuzz::TARGETS;
use std::path::Path;

/// G43: no input of the corpus breaks a property; and there is a corpus for each target.
#[test]
fn g43_the_corpus_is_replayed() {
    for (name, run) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut inputs = 0;
        for entry in
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            let path = entry.expect("an entry").path();
            let input = std::fs::read(&path).expect("a file");
            inputs += 1;
            if std::panic::catch_unwind(|| run(&input)).is_err() {
                panic!("{} breaks {name}", path.display());
            }
        }
        assert!(inputs >= 20, "{name} has {inputs} inputs");
    }
}

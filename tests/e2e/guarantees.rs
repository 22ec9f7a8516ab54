//! The list of promises for users names its tests, and those tests exist.
use mcpvisor_testkit::workspace_root;
use std::fs;
use std::path::Path;

/// Where the tests of the document's names lie.
const PLACES: &[(&str, &str)] = &[
    ("e2e", "tests/e2e"),
    ("lifecycle", "crates/mcpvisor-lifecycle"),
    ("mcp", "crates/mcpvisor-mcp"),
    ("process", "crates/mcpvisor-process"),
    ("control", "crates/mcpvisor-control"),
    ("supervisor", "crates/mcpvisor-supervisor"),
    ("mcpvisord", "crates/mcpvisord"),
    ("mcpvisor", "crates/mcpvisor"),
    ("testkit", "crates/mcpvisor-testkit"),
    ("fuzz", "tests/fuzz"),
];

const LAST: usize = 43;

/// All source text below a folder.
fn source(dir: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(dir).expect("a folder of the workspace").flatten() {
        let path = entry.path();
        if path.is_dir() {
            text.push_str(&source(&path));
        } else if path.extension().is_some_and(|found| found == "rs") {
            text.push_str(&fs::read_to_string(path).expect("a source file is text"));
        }
    }
    text
}

/// The promises: number, and the paragraph about it.
fn promises() -> Vec<(usize, String)> {
    let text =
        fs::read_to_string(workspace_root().join("docs/guarantees.md")).expect("docs/guarantees.md is there");
    let mut all: Vec<(usize, String)> = Vec::new();
    for line in text.lines() {
        let number = line
            .strip_prefix("- **G")
            .and_then(|rest| rest.split_once("**"))
            .and_then(|(n, _)| n.parse().ok());
        match (number, all.last_mut()) {
            (Some(number), _) => all.push((number, line.to_owned())),
            (None, Some((_, paragraph))) if line.starts_with("  ") => {
                paragraph.push('\n');
                paragraph.push_str(line.trim());
            }
            _ => {}
        }
    }
    all
}

#[test]
fn every_promise_is_listed_with_its_tests() {
    let promises = promises();
    let numbers: Vec<usize> = promises.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=LAST).collect::<Vec<_>>());
    for (number, text) in promises {
        let told = text.lines().any(|line| line.starts_with("Tests: `") || line.starts_with("Not yet: "));
        assert!(told, "G{number} names neither tests nor why there are none");
    }
}

#[test]
fn the_named_tests_exist() {
    let sources: Vec<(&str, String)> =
        PLACES.iter().map(|(name, dir)| (*name, source(&workspace_root().join(dir)))).collect();
    let mut count = 0;
    for (number, text) in promises() {
        for line in text.lines().filter(|line| line.starts_with("Tests: ")) {
            for name in line.split('`').skip(1).step_by(2) {
                let (place, rest) =
                    name.split_once("::").unwrap_or_else(|| panic!("G{number}: {name} has no crate"));
                let function = rest.rsplit("::").next().expect("a path has a last part");
                let source = sources.iter().find(|(known, _)| *known == place);
                let (_, source) = source.unwrap_or_else(|| panic!("G{number}: {place} is no place of tests"));
                // A row of `on_both!` is a test, too: `name = closure or function;`; and one of a table: `("name", function)`.
                let rows = [format!("{function} = "), format!("(\"{function}\", ")];
                let is_row = |line: &str| rows.iter().any(|row| line.trim_start().starts_with(row.as_str()));
                let is_there = source.contains(&format!("fn {function}(")) || source.lines().any(is_row);
                assert!(is_there, "G{number}: there is no test {name}");
                count += 1;
            }
        }
    }
    assert!(count > 40, "only {count} tests are named");
}

//! The list of promises for users names its tests, the list of scenarios does, and those tests exist.
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

/// Looks a name up that a page gives.
struct Sources(Vec<(&'static str, String)>);

impl Sources {
    fn read() -> Self {
        Self(PLACES.iter().map(|(name, dir)| (*name, source(&workspace_root().join(dir)))).collect())
    }

    #[track_caller]
    fn assert_there(&self, of: &str, name: &str) {
        let (place, rest) = name.split_once("::").unwrap_or_else(|| panic!("{of}: {name} has no crate"));
        let function = rest.rsplit("::").next().expect("a path has a last part");
        let source = self.0.iter().find(|(known, _)| *known == place);
        let (_, source) = source.unwrap_or_else(|| panic!("{of}: {place} is no place of tests"));
        // A row of `on_both!` is a test, too: `name = closure or function;`; and one of a table: `("name", function)`.
        let rows = [format!("{function} = "), format!("(\"{function}\", ")];
        let is_row = |line: &str| rows.iter().any(|row| line.trim_start().starts_with(row.as_str()));
        let is_there = source.contains(&format!("fn {function}(")) || source.lines().any(is_row);
        assert!(is_there, "{of}: there is no test {name}");
    }
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_named_tests_exist() {
    let sources = Sources::read();
    let mut count = 0;
    for (number, text) in promises() {
        for name in text.lines().filter(|line| line.starts_with("Tests: ")).flat_map(quoted) {
            sources.assert_there(&format!("G{number}"), name);
            count += 1;
        }
    }
    assert!(count > 40, "only {count} tests are named");
}

/// How many scenarios there are of each kind.
const SCENARIOS: [(char, usize); 5] = [('A', 7), ('B', 8), ('C', 6), ('D', 5), ('E', 4)];

/// The rows of docs/scenarios.md: number, words, tests against the machines, tests against the daemon.
fn scenarios() -> Vec<[String; 4]> {
    let text = fs::read_to_string(workspace_root().join("docs/scenarios.md"));
    let text = text.expect("docs/scenarios.md is there");
    let row = |line: &str| {
        let cells: Vec<String> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        <[String; 4]>::try_from(cells).ok().filter(|[number, ..]| number.contains('.'))
    };
    text.lines().filter(|line| line.starts_with('|')).filter_map(row).collect()
}

#[test]
fn every_scenario_is_held_against_the_machines_and_the_daemon() {
    let (rows, sources) = (scenarios(), Sources::read());
    let all = SCENARIOS.iter().flat_map(|(kind, last)| (1..=*last).map(move |n| format!("{kind}.{n}")));
    assert_eq!(rows.iter().map(|[number, ..]| number.clone()).collect::<Vec<_>>(), all.collect::<Vec<_>>());
    for [number, words, machines, daemon] in &rows {
        assert!(words.len() > 20, "{number} says nothing");
        for (cell, of_daemon) in [(machines, false), (daemon, true)] {
            let names: Vec<&str> = quoted(cell).collect();
            assert!(!names.is_empty() || cell.starts_with("Not yet: "), "{number} names no test: {cell}");
            for name in names {
                sources.assert_there(number, name);
                // Those of the process layer are of real processes, too.
                let real = name.starts_with("e2e::") || name.starts_with("process::");
                assert_eq!(real, of_daemon, "{number}: {name} stands in the wrong column");
            }
        }
    }
}

/// F: each misbehaving server is met by `open`, `call` and `close`, and by `run`, or its file says why not.
#[test]
fn every_misbehaving_server_is_met() {
    let read = |path: &str| fs::read_to_string(workspace_root().join(path)).expect("a source file is text");
    let page = read("docs/scenarios.md");
    let (opened, run) = (read("tests/e2e/cases_open.rs"), read("tests/e2e/cases_run.rs"));
    let mut count = 0;
    for file in fs::read_dir(workspace_root().join("tests/cases")).expect("a folder").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some(case) = name.strip_suffix(".py") else { continue };
        let told = page.contains(&format!("`{case}`"));
        assert!(opened.contains(case) || told, "{case} is not opened");
        assert!(run.contains(case) || told, "{case} is not run");
        count += 1;
    }
    assert!(count > 20, "only {count} cases");
}

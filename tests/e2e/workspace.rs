//! The workspace's own rules: who may depend on whom, what is banned where, under which licences.
use mcpvisor_testkit::workspace_root;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who may depend on whom. A crate that is not listed here does not belong to the workspace.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("mcpvisor-lifecycle", &[]),
    ("mcpvisor-mcp", &[]),
    ("mcpvisor-process", &["mcpvisor-failpoints"]),
    ("mcpvisor-control", &[]),
    (
        "mcpvisor-supervisor",
        &["mcpvisor-lifecycle", "mcpvisor-mcp", "mcpvisor-process", "mcpvisor-failpoints"],
    ),
    (
        "mcpvisord",
        &[
            "mcpvisor-supervisor",
            "mcpvisor-control",
            "mcpvisor-lifecycle",
            "mcpvisor-process",
            "mcpvisor-failpoints",
        ],
    ),
    ("mcpvisor", &["mcpvisor-control", "mcpvisord"]),
    // Gates for tests, empty without its feature.
    ("mcpvisor-failpoints", &[]),
    // Nothing but tests depends on the testkit.
    ("mcpvisor-testkit", &[]),
    ("mcpvisor-model", &["mcpvisor-lifecycle"]),
    ("mcpvisor-tests", &["mcpvisor-testkit", "mcpvisor-lifecycle"]),
    ("mcpvisor-bench", &[]),
    // Its runner is a workspace of its own.
    ("mcpvisor-fuzz", &["mcpvisor-mcp"]),
    ("xtask", &[]),
];

/// What a crate must never reach, by however many steps.
const NEVER: &[(&str, &[&str])] = &[
    (
        "mcpvisor-lifecycle",
        &["tokio", "ractor", "nix", "rustix", "libc", "serde", "serde_json", "getrandom", "jiff"],
    ),
    ("mcpvisor-mcp", &["tokio", "ractor", "nix", "rustix", "libc"]),
    ("mcpvisor-process", &["ractor", "tokio"]),
    ("mcpvisor-control", &["ractor", "nix", "mcpvisor-lifecycle"]),
];

/// Licences that may be in what we ship, as far as a package offers one of them as a choice.
const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "Unicode-3.0",
    "Zlib",
    "BSD-3-Clause",
    "Unlicense",
];

/// Crates of which two versions at once would be a fault, and not only a waste.
const ONLY_ONCE: &[&str] =
    &["tokio", "ractor", "serde", "serde_json", "rustix", "nix", "libc", "tracing", "signal-hook", "bytes"];

const MOST_PACKAGES: usize = 171;

/// What nothing but the model checker needs comes on top: it is never shipped, nor built for any other test.
const MOST_FOR_THE_MODEL: usize = 25;

struct Workspace {
    metadata: Value,
}

impl Workspace {
    fn read() -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["metadata", "--format-version", "1", "--locked"]).current_dir(workspace_root());
        let output = command.output().expect("cargo can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { metadata: serde_json::from_slice(&output.stdout).expect("cargo tells JSON") }
    }

    fn packages(&self) -> &[Value] {
        self.metadata["packages"].as_array().expect("packages")
    }

    fn members(&self) -> impl Iterator<Item = &Value> {
        let ids = self.metadata["workspace_members"].as_array().expect("members");
        self.packages().iter().filter(move |package| ids.contains(&package["id"]))
    }

    /// Every package that the member reaches over normal and build dependencies.
    fn reached_by(&self, member: &str) -> BTreeSet<String> {
        let name_of =
            |id: &Value| self.packages().iter().find(|p| p["id"] == *id).map(|p| name(p).to_owned());
        self.ids_reached_by(member, false).iter().filter_map(name_of).collect()
    }

    /// The same by id, perhaps over the dependencies of tests as well.
    fn ids_reached_by(&self, member: &str, with_tests: bool) -> Vec<Value> {
        let nodes = self.metadata["resolve"]["nodes"].as_array().expect("nodes");
        let start = self.members().find(|package| package["name"] == member).expect("a member");
        let (mut seen, mut next) = (Vec::new(), vec![&start["id"]]);
        while let Some(id) = next.pop() {
            let node = nodes.iter().find(|node| &node["id"] == id).expect("every package is resolved");
            for dependency in node["deps"].as_array().expect("dependencies") {
                let kinds = dependency["dep_kinds"].as_array().expect("kinds");
                let counts = with_tests || kinds.iter().any(|kind| kind["kind"] != "dev");
                if counts && !seen.contains(&dependency["pkg"]) {
                    seen.push(dependency["pkg"].clone());
                    next.push(&dependency["pkg"]);
                }
            }
        }
        seen
    }
}

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("a package has a name")
}

/// The files of a kind below a folder, without what is built.
fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a folder of the workspace").flatten() {
        let path = entry.path();
        if path.is_dir() && !["target", ".git", "node_modules"].iter().any(|skipped| path.ends_with(skipped))
        {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

fn rust_files() -> Vec<(String, String)> {
    let root = workspace_root();
    let mut all = Vec::new();
    for path in files(&root.join("crates"), "rs").into_iter().chain(files(&root.join("tests"), "rs")) {
        let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
        all.push((name, fs::read_to_string(path).expect("a source file is text")));
    }
    all
}

#[test]
fn crates_depend_only_on_whom_they_may() {
    let workspace = Workspace::read();
    let ours: BTreeSet<&str> = workspace.members().map(name).collect();
    let known: BTreeSet<&str> = MAY_DEPEND_ON.iter().map(|(name, _)| *name).collect();
    assert_eq!(ours, known, "the members of the workspace");
    for package in workspace.members() {
        let allowed = MAY_DEPEND_ON
            .iter()
            .find(|(known, _)| *known == name(package))
            .map_or(&[][..], |(_, allowed)| allowed);
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = name(dependency);
            let for_tests = dependency["kind"] == "dev" && on == "mcpvisor-testkit";
            assert!(
                !ours.contains(on) || allowed.contains(&on) || for_tests,
                "{} depends on {on}",
                name(package)
            );
        }
    }
}

#[test]
fn crates_never_reach_what_would_spoil_them() {
    let workspace = Workspace::read();
    for (member, never) in NEVER {
        let reached = workspace.reached_by(member);
        for forbidden in *never {
            assert!(!reached.contains(*forbidden), "{member} reaches {forbidden}");
        }
    }
    assert!(workspace.reached_by("mcpvisor-lifecycle").is_empty(), "the pure machines need nothing but std");
    for package in workspace.members().filter(|package| name(package) != "mcpvisor-supervisor") {
        let direct =
            package["dependencies"].as_array().expect("dependencies").iter().any(|on| name(on) == "ractor");
        assert!(!direct, "{} names ractor; only the supervisor may", name(package));
    }
}

#[test]
fn dependencies_are_few_single_and_free() {
    let workspace = Workspace::read();
    let packages = workspace.packages();
    let others = workspace.members().filter(|package| name(package) != "mcpvisor-model");
    let needed: Vec<Value> =
        others.flat_map(|package| workspace.ids_reached_by(name(package), true)).collect();
    let model = workspace.ids_reached_by("mcpvisor-model", true);
    let for_the_model = model.iter().filter(|id| !needed.contains(id)).count();
    assert!(for_the_model <= MOST_FOR_THE_MODEL, "{for_the_model} packages for the model checker");
    let rest = packages.len() - for_the_model;
    assert!(rest <= MOST_PACKAGES, "{rest} packages");
    for single in ONLY_ONCE {
        let versions: Vec<&Value> =
            packages.iter().filter(|p| name(p) == *single).map(|p| &p["version"]).collect();
        assert!(versions.len() <= 1, "{single} is there {} times: {versions:?}", versions.len());
    }
    for package in packages {
        let licence = package["license"].as_str().unwrap_or_default().replace('/', " OR ");
        // Every part that is joined by AND must offer one that we take.
        let free = licence.split(" AND ").all(|part| {
            part.trim_matches(['(', ')']).split(" OR ").any(|choice| LICENCES.contains(&choice.trim()))
        });
        assert!(free, "{}: {licence:?}", name(package));
        let source = package["source"].as_str().unwrap_or("registry+");
        assert!(source.starts_with("registry+"), "{} comes from {source}", name(package));
    }
}

#[test]
fn members_take_the_common_rules() {
    let workspace = Workspace::read();
    for package in workspace.members() {
        let manifest = package["manifest_path"].as_str().expect("a path");
        let text = fs::read_to_string(manifest).expect("a manifest is text");
        assert!(text.contains("[lints]\nworkspace = true"), "{manifest} does not take the workspace's lints");
        assert_eq!(package["publish"], serde_json::json!([]), "{manifest} could be published by accident");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = name(dependency);
            let inherited = text.contains(&format!("{on}.workspace = true"))
                || text.contains(&format!("{on} = {{ workspace = true"));
            assert!(inherited, "{manifest} gives {on} a version of its own");
        }
    }
}

/// What is banned in which crate by its clippy.toml.
const BANS: &[(&str, &[&str])] = &[
    (
        "mcpvisor-lifecycle",
        &[
            "std::time::Instant::now",
            "std::time::SystemTime::now",
            "std::thread::spawn",
            "std::process::Command::new",
            "std::collections::HashMap",
        ],
    ),
    (
        "mcpvisor-mcp",
        &[
            "std::time::Instant::now",
            "std::time::SystemTime::now",
            "std::thread::spawn",
            "std::process::Command::new",
        ],
    ),
    ("mcpvisor-control", &["std::process::Command::new", "rustix::process::kill_process"]),
    (
        "mcpvisor-supervisor",
        &[
            "std::process::Command::new",
            "nix::sys::signal::kill",
            "nix::sys::wait::waitpid",
            "rustix::process::kill_process",
            "std::thread::sleep",
        ],
    ),
    ("mcpvisord", &["std::process::Command::new", "rustix::process::kill_process", "std::thread::sleep"]),
    ("mcpvisor", &["std::process::Command::new", "rustix::process::kill_process", "std::thread::sleep"]),
];

#[test]
fn calls_are_banned_with_reasons() {
    for (member, bans) in BANS {
        let path = workspace_root().join("crates").join(member).join("clippy.toml");
        let text = fs::read_to_string(&path).unwrap_or_else(|_| panic!("{} is missing", path.display()));
        // A crate's own file hides that of the workspace, whose rules it must repeat.
        assert!(text.contains("allow-unwrap-in-tests = true"), "{}", path.display());
        for ban in *bans {
            let line = text.lines().find(|line| line.contains(&format!("path = \"{ban}\"")));
            let line = line.unwrap_or_else(|| panic!("{member} does not ban {ban}"));
            assert!(line.contains("reason = \""), "{member} bans {ban} without a reason");
        }
    }
}

#[test]
fn unsafe_code_is_in_one_place() {
    for (name, text) in rust_files() {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let found = code.filter(|line| line.contains("unsafe ") || line.contains("unsafe{")).count();
        let allowed = name.starts_with("crates/mcpvisor-process/src/sys");
        assert!(allowed || found == 0 || name.ends_with("e2e/workspace.rs"), "{name} has unsafe code");
    }
}

#[test]
fn files_have_one_idea() {
    for (name, text) in rust_files() {
        assert!(!name.ends_with("/mod.rs"), "{name}: modules are named after their idea");
        let is_test = name.starts_with("tests/") || name.contains("/tests/") || name.ends_with("tests.rs");
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]\nmod tests {")).count();
        assert!(is_test || lines <= 600, "{name} has {lines} lines");
        if !name.ends_with("e2e/workspace.rs") {
            for banned in ["#[allow(", "#![allow(", "todo!(", "unimplemented!(", "TODO", "FIXME"] {
                assert!(!text.contains(banned), "{name} has {banned}");
            }
        }
    }
}

/// What is said about the product must not speak of where it was made.
#[test]
fn texts_are_for_readers_of_the_repository() {
    let root = workspace_root();
    let mut texts = rust_files();
    for (dir, extension) in [
        ("docs", "md"),
        ("tests", "py"),
        ("tests", "mjs"),
        ("tests", "json"),
        ("crates", "toml"),
        ("configs", "toml"),
    ] {
        for path in files(&root.join(dir), extension) {
            let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
            texts.push((name, fs::read_to_string(path).expect("text")));
        }
    }
    for (name, text) in texts {
        let host = ["registry.", "npmjs.", "org"].concat();
        let (work, shared) = (["/wo", "rk/"].concat(), ["../sha", "red"].concat());
        for banned in [host, work, shared, ["/tmp/", "target"].concat()] {
            assert!(!text.contains(&banned), "{name} names {banned}");
        }
    }
}

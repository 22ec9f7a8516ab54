//! A small harness: the arguments of the standard one, as far as cargo and nextest use them, and a process for each test.
use mcpvisor_process::ContainmentKind;
use std::process::{Command, exit};
use std::sync::Mutex;

pub(crate) type TestFn = fn(ContainmentKind);
/// A test's name and body.
pub(crate) type Named = (&'static str, TestFn);

pub(crate) struct Test {
    name: String,
    kind: ContainmentKind,
    body: TestFn,
}

impl Test {
    pub(crate) fn new(group: &str, name: &str, kind: ContainmentKind, body: TestFn) -> Self {
        Self { name: format!("{group}::{name}"), kind, body }
    }
}

pub(crate) fn run(tests: &[Test]) -> ! {
    let (mut filter, mut exact, mut list, mut ignored) = (None, false, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--exact" => exact = true,
            "--list" => list = true,
            "--ignored" => ignored = true,
            "--format" | "--test-threads" | "--skip" | "--color" => drop(arguments.next()),
            flag if flag.starts_with('-') => {}
            name => filter = Some(name.to_owned()),
        }
    }
    let wanted = |test: &&Test| match &filter {
        Some(filter) if exact => test.name == *filter,
        Some(filter) => test.name.contains(filter.as_str()),
        None => true,
    };
    let chosen: Vec<&Test> = tests.iter().filter(|_| !ignored).filter(wanted).collect();
    if list {
        for test in chosen {
            println!("{}: test", test.name);
        }
        exit(0);
    }
    if let (true, [test]) = (exact, chosen.as_slice()) {
        // The panic of a failing test ends the process with 101.
        (test.body)(test.kind);
        exit(0);
    }
    each_in_a_process(&chosen)
}

#[expect(clippy::disallowed_methods, reason = "this process starts no containment")]
fn each_in_a_process(tests: &[&Test]) -> ! {
    let queue = Mutex::new(tests.iter());
    let failed = Mutex::new(Vec::new());
    println!("\nrunning {} tests", tests.len());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(test) = queue.lock().unwrap().next() else { return };
                    let me = std::env::current_exe().unwrap();
                    let output =
                        Command::new(me).args(["--exact", &test.name, "--nocapture"]).output().unwrap();
                    if output.status.success() {
                        println!("test {} ... ok", test.name);
                    } else {
                        let text = [output.stdout, output.stderr].concat();
                        println!("test {} ... FAILED\n{}", test.name, String::from_utf8_lossy(&text));
                        failed.lock().unwrap().push(test.name.clone());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {} passed; {} failed\n", tests.len() - failed.len(), failed.len());
    exit(i32::from(!failed.is_empty()) * 101)
}

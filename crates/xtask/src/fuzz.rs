//! The long search for inputs that break a property of `tests/fuzz`.
use crate::run::{cargo, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The targets, and how many in a hundred of the executions each gets: the small ones are run through faster.
const TARGETS: [(&str, u64); 5] =
    [("framing", 35), ("envelope", 40), ("negotiation", 14), ("relay", 5), ("shared", 6)];
const EXECUTIONS: u64 = 100_000_000;
/// Names inputs that once broke something.
const BROKE: &str = "broke-";
/// The coverage that libFuzzer goes by; these are options of LLVM that a stable compiler passes on.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";
/// An input that takes longer is a hang, in seconds; one for which more is held, or taken at once, is a leak, in MiB.
const LIMITS: [&str; 4] = ["-timeout=10", "-rss_limit_mb=2048", "-malloc_limit_mb=256", "-max_len=4096"];

/// Runs every target, two at a time, with a hundred million executions together or as many as are named; then makes the corpus
/// anew of what was found to be interesting.
///
/// # Errors
/// Where an input breaks a property; it is left in the target folder, and named.
pub(crate) fn all(words: &[String]) -> Result<(), String> {
    let executions = match words {
        [] => EXECUTIONS,
        [number] => number.parse().map_err(|error| format!("{number} is no number: {error}"))?,
        _ => return Err("fuzz takes the number of executions alone".to_owned()),
    };
    let fuzzer = build()?;
    let mut waiting = TARGETS.iter();
    loop {
        let pair: Vec<_> = waiting.by_ref().take(2).collect();
        if pair.is_empty() {
            break;
        }
        let searches = pair.into_iter().map(|(target, share)| {
            let (fuzzer, runs) = (fuzzer.clone(), executions / 100 * share);
            std::thread::spawn(move || search(&fuzzer, target, runs))
        });
        let searches: Vec<_> = searches.collect();
        for search in searches {
            search.join().map_err(|_| "a search broke".to_owned())??;
        }
    }
    for (target, _) in TARGETS {
        merge(&fuzzer, target)?;
    }
    Ok(())
}

fn build() -> Result<PathBuf, String> {
    let triple = triple()?;
    let target = crate::target().join("fuzz");
    let manifest = crate::root().join("tests/fuzz/runner/Cargo.toml");
    let mut build = cargo(&["build", "--release", "--target", &triple]);
    // With a target of its own the build scripts are not instrumented.
    build.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(&target).env("RUSTFLAGS", COVERAGE);
    run(build)?;
    Ok(target.join(triple).join("release/mcpvisor-fuzz-runner"))
}

/// What this machine's compiler compiles for.
fn triple() -> Result<String, String> {
    let told = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc: {error}"))?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not tell its host".to_owned())
}

fn corpus(target: &str) -> PathBuf {
    crate::root().join("tests/fuzz/corpus").join(target)
}

/// Where the search keeps what it finds.
fn found(target: &str) -> Result<PathBuf, String> {
    let folder = crate::target().join("fuzz/found").join(target);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

fn libfuzzer(fuzzer: &Path, target: &str) -> Command {
    let mut command = Command::new(fuzzer);
    command.env("MCPVISOR_FUZZ_TARGET", target).args(LIMITS);
    command
}

fn search(fuzzer: &Path, target: &str, runs: u64) -> Result<(), String> {
    let found = found(target)?;
    let log = crate::target().join("fuzz").join(format!("{target}.log"));
    let written = std::fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut command = libfuzzer(fuzzer, target);
    command
        .arg(format!("-runs={runs}"))
        .arg(format!("-dict={}", crate::root().join("tests/fuzz/words.dict").display()))
        .arg(format!("-artifact_prefix={}/broken-{target}-", crate::target().join("fuzz").display()))
        .arg("-print_final_stats=1")
        .args([&found, &corpus(target)])
        .stdout(Stdio::null())
        .stderr(written);
    let began = std::time::Instant::now();
    run(command).map_err(|error| format!("{error}\nsee {}", log.display()))?;
    println!("{target}: {runs} executions in {} s, nothing broke", began.elapsed().as_secs());
    Ok(())
}

/// Makes the corpus the fewest inputs that reach all code which any input that is known reaches; those that once broke something stay.
fn merge(fuzzer: &Path, target: &str) -> Result<(), String> {
    let fewest = crate::target().join("fuzz/fewest").join(target);
    let failed = |error: std::io::Error| format!("the corpus of {target}: {error}");
    if fewest.exists() {
        std::fs::remove_dir_all(&fewest).map_err(failed)?;
    }
    std::fs::create_dir_all(&fewest).map_err(failed)?;
    let corpus = corpus(target);
    let mut command = libfuzzer(fuzzer, target);
    command.args(["-set_cover_merge=1", "-use_counters=0"]).args([&fewest, &corpus, &found(target)?]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    run(command)?;
    for entry in std::fs::read_dir(&corpus).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(BROKE)) {
            std::fs::remove_file(path).map_err(failed)?;
        }
    }
    for entry in std::fs::read_dir(&fewest).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        std::fs::copy(entry.path(), corpus.join(entry.file_name())).map_err(failed)?;
    }
    Ok(())
}

//! The file systems that the tests of the units boot: a small Debian for each systemd that is supported, kept below the target
//! folder. They are made by mmdebstrap, which takes root and Debian's packages; where a machine has neither, these tests are left out.
use crate::run::{is_there, run};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Debian 12 has systemd 252, Debian 13 has 257.
const SUITES: [&str; 2] = ["bookworm", "trixie"];

/// Makes those that are not there yet. False, and a word on stderr, where this machine can't.
///
/// # Errors
/// Where it could, and something fails.
pub(crate) fn root_file_systems() -> Result<bool, String> {
    if let Some(missing) = missing() {
        eprintln!("xtask: the tests that boot systemd are left out: {missing}");
        return Ok(false);
    }
    let folder = crate::target().join("systemd");
    fs::create_dir_all(&folder).map_err(|error| format!("failed to make {}: {error}", folder.display()))?;
    let script = crate::root().join("tests/systemd/make-rootfs.sh");
    for suite in SUITES {
        make(&script, &folder, suite)?;
    }
    Ok(true)
}

/// What there is to make it with; the reason where that is nothing.
fn missing() -> Option<&'static str> {
    let works = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words);
        is_there(command)
    };
    if !works("sh", &["-c", "test \"$(id -u)\" = 0"]) {
        return Some("they take root, for namespaces and cgroups");
    }
    if !works("apt-get", &["--version"]) {
        return Some(
            "they take a machine with Debian's packages (apt-get), for a root file system with systemd",
        );
    }
    if !works("findmnt", &["-t", "cgroup2"]) {
        return Some("they take a machine with a cgroup file system of version 2");
    }
    None
}

/// The tarball of one suite. The script that it was made by is kept beside it, as the stamp that it is done.
fn make(script: &Path, folder: &Path, suite: &str) -> Result<(), String> {
    let wanted = fs::read(script).map_err(|error| format!("failed to read {}: {error}", script.display()))?;
    let (tarball, stamp) = (folder.join(format!("{suite}.tar.zst")), folder.join(format!("{suite}.stamp")));
    if tarball.is_file() && fs::read(&stamp).is_ok_and(|done| done == wanted) {
        return Ok(());
    }
    if !is_there(version_of("mmdebstrap")) {
        install()?;
    }
    let _ = fs::remove_file(&tarball);
    let mut command = Command::new("bash");
    command.arg(script).arg(suite).arg(&tarball);
    run(command)?;
    fs::write(&stamp, wanted).map_err(|error| format!("failed to write {}: {error}", stamp.display()))
}

fn version_of(program: &str) -> Command {
    let mut command = Command::new(program);
    command.arg("--version");
    command
}

/// mmdebstrap, and what unpacks what it makes.
fn install() -> Result<(), String> {
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-o", "DPkg::Lock::Timeout=120"]).args(words);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let packages = ["install", "--yes", "--no-install-recommends", "mmdebstrap", "zstd"];
    // The lists of packages may be old or not there.
    run(apt(&packages)).or_else(|_| run(apt(&["update"])).and_then(|()| run(apt(&packages)))).map_err(|error| {
        format!("{error}; the tests that boot systemd need mmdebstrap: install it, or take apt-get out of PATH to leave them out")
    })
}

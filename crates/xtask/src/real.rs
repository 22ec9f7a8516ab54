//! The real servers and clients that tests run against, installed below the target folder at the versions that tests/real pins.
use crate::run::{cargo, run};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Installs what is not there yet.
///
/// # Errors
/// Where a package manager is missing or fails.
pub(crate) fn install() -> Result<(), String> {
    let target = crate::target().join("real");
    fs::create_dir_all(&target).map_err(|error| format!("failed to make {}: {error}", target.display()))?;
    let pins = crate::root().join("tests/real");
    npm(&pins, &target)?;
    python(&pins, &target)?;
    rmcp(&pins, &target)
}

/// Does something once for the present content of a file: the content itself is kept as the stamp that it was done.
fn once(pin: &Path, stamp: &Path, install: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let wanted = fs::read(pin).map_err(|error| format!("failed to read {}: {error}", pin.display()))?;
    if fs::read(stamp).is_ok_and(|done| done == wanted) {
        return Ok(());
    }
    install()?;
    fs::write(stamp, wanted).map_err(|error| format!("failed to write {}: {error}", stamp.display()))
}

fn npm(pins: &Path, target: &Path) -> Result<(), String> {
    once(&pins.join("package-lock.json"), &target.join("npm.stamp"), || {
        for name in ["package.json", "package-lock.json"] {
            fs::copy(pins.join(name), target.join(name))
                .map_err(|error| format!("failed to copy {name}: {error}"))?;
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(target);
        run(npm)
    })
}

fn python(pins: &Path, target: &Path) -> Result<(), String> {
    let pin = pins.join("requirements.txt");
    once(&pin, &target.join("venv.stamp"), || {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear"]).arg(target.join("venv"));
        run(venv)?;
        let mut pip = Command::new(target.join("venv/bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&pin);
        run(pip)
    })
}

/// Cargo itself knows what is to be built again.
fn rmcp(pins: &Path, target: &Path) -> Result<(), String> {
    let mut build = cargo(&["build", "--quiet", "--locked", "--manifest-path"]);
    build.arg(pins.join("rmcp-client/Cargo.toml")).arg("--target-dir").arg(target.join("rmcp-client"));
    run(build)
}

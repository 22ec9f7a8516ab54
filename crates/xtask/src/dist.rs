//! The programs as they are handed out.
use crate::run::{cargo, run};
use std::fs;

const PROGRAMS: [&str; 2] = ["mcpvisor", "mcpvisord"];

/// What is linked statically and lies at a fixed place needs no loader, no relocations, and no pages of its own for their results: `run`, which
/// a client starts for each server, spends half of its time on these. The libraries are built as for any release, so that what the compiler
/// runs (build scripts, procedural macros) is not touched.
const FLAGS: [&str; 4] = ["-C", "target-feature=+crt-static", "-C", "relocation-model=static"];

/// Builds them, and puts them into `dist` in the target folder.
///
/// # Errors
/// Where anything fails.
pub(crate) fn build() -> Result<(), String> {
    let (release, dist) = (crate::target().join("release"), crate::target().join("dist"));
    fs::create_dir_all(&dist).map_err(|error| format!("failed to make {}: {error}", dist.display()))?;
    for program in PROGRAMS {
        let mut build = cargo(&["rustc", "--release", "--package", program, "--bin", program, "--"]);
        build.args(FLAGS);
        run(build)?;
        let (from, to) = (release.join(program), dist.join(program));
        fs::copy(&from, &to).map_err(|error| format!("failed to copy {}: {error}", from.display()))?;
        println!("{}", to.display());
    }
    Ok(())
}

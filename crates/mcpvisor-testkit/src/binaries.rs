//! Where the built programs are.
use std::path::{Path, PathBuf};

/// The root of the workspace that this crate was built in.
#[must_use]
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the crate lies in the workspace")
}

/// The folder that holds `debug/` and `release/`: found from the test's own executable, so that it is right for every
/// `CARGO_TARGET_DIR`.
///
/// # Panics
/// When the executable does not lie in a target folder.
#[must_use]
pub fn target_dir() -> PathBuf {
    profile_dir().parent().expect("a profile's folder lies in the target folder").to_owned()
}

/// `target/debug`, for instance: the folder above `deps`.
fn profile_dir() -> PathBuf {
    let mut dir = std::env::current_exe().expect("a process knows its executable");
    dir.pop();
    if dir.ends_with("deps") {
        dir.pop();
    }
    dir
}

/// The path of one of the workspace's programs: in `MCPVISOR_BIN_DIR`, else where cargo puts it.
///
/// # Panics
/// When it is not there; the message says how to build it.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let dir = std::env::var_os("MCPVISOR_BIN_DIR").map_or_else(profile_dir, PathBuf::from);
    let path = dir.join(name);
    assert!(
        path.is_file(),
        "{} is missing: build it first (`cargo build --workspace`; `cargo xtask test` builds all of them), or name the folder of the programs in MCPVISOR_BIN_DIR",
        path.display()
    );
    path
}

//! Containment without cgroups: a keeper process is a server's parent and child subreaper, so that every descendant, setsid'd
//! and double-forked ones too, comes back to it. That it has no child left (ECHILD) is the proof that nothing is left.
mod protocol;
mod run;
mod tree;

pub(crate) use protocol::{Connection, FromKeeper, Launch, ToKeeper};
pub use run::keeper_main;
pub(crate) use tree::kill_below;

use crate::launch::MARKER;
use crate::procfs;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt as _;

/// A keeper's own environment. The marker tells which scope a process is in that was born and has not executed its program.
pub(crate) fn environment(marker: &str) -> Vec<CString> {
    plain_environment().into_iter().chain(CString::new(format!("{MARKER}={marker}")).ok()).collect()
}

/// Whether a process with a marker is a keeper, as far as its command and environment tell. May hang: see `procfs`.
pub(crate) fn is_keeper(pid: u32) -> bool {
    let is_own = |entry: &Vec<u8>| {
        let name = entry.split(|byte| *byte == b'=').next().unwrap_or_default();
        OWN.iter().any(|own| own.as_bytes() == name) || name == MARKER.as_bytes()
    };
    let command = procfs::words(pid, "cmdline");
    command.last().is_some_and(|word| word == b"keeper") && procfs::words(pid, "environ").iter().all(is_own)
}

/// What a helper's environment has of the daemon's.
const OWN: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];

/// The environment of a helper that is in no scope.
pub(crate) fn plain_environment() -> Vec<CString> {
    let own = OWN.into_iter().filter_map(|name| {
        let value = std::env::var_os(name)?.into_vec();
        CString::new([name.as_bytes(), b"=", &value].concat()).ok()
    });
    own.collect()
}

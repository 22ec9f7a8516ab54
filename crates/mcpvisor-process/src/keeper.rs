//! Containment without cgroups: a keeper process is a server's parent and child subreaper, so that every descendant, setsid'd
//! and double-forked ones too, comes back to it. That it has no child left (ECHILD) is the proof that nothing is left.
mod protocol;
mod run;
mod tree;

pub(crate) use protocol::{Connection, FromKeeper, Launch, ToKeeper};
pub use run::keeper_main;

use crate::launch::MARKER;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt as _;

/// A keeper's own environment. The marker tells which scope a process is in that was born and has not executed its program.
pub(crate) fn environment(marker: &str) -> Vec<CString> {
    plain_environment().into_iter().chain(CString::new(format!("{MARKER}={marker}")).ok()).collect()
}

/// The environment of a helper that is in no scope.
pub(crate) fn plain_environment() -> Vec<CString> {
    let own = ["PATH", "LD_LIBRARY_PATH"].into_iter().filter_map(|name| {
        let value = std::env::var_os(name)?.into_vec();
        CString::new([name.as_bytes(), b"=", &value].concat()).ok()
    });
    own.collect()
}

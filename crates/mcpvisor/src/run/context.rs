//! What a server inherits from the program that starts it, as the shim has it: the server is born of the daemon, and
//! must not be able to tell the difference.
use mcpvisor_control::params::ResourceLimit;
use rustix::process::{Resource, getpriority_process, getrlimit};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;

/// Variables of ours begin so; they are not for servers.
const OURS: &[u8] = b"MCPVISOR_";

/// SIGPIPE on Linux, on every architecture.
const SIGPIPE: i32 = 13;

/// What the kernel passes on to a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    /// Of the file mode creation mask, the nine permission bits.
    pub(crate) umask: Option<u32>,
    /// -20 to 19.
    pub(crate) nice: Option<i32>,
    /// The numbers of the signals that are ignored.
    pub(crate) ignored_signals: Vec<i32>,
    pub(crate) limits: Vec<ResourceLimit>,
}

impl Context {
    /// That of this process. Must be called before any signal handler is installed.
    ///
    /// # Errors
    /// Where /proc can't be read.
    pub(crate) fn of_this_process() -> io::Result<Self> {
        // /proc tells the umask without changing it, which umask(2) can't.
        // Some 1,500 bytes, so that one read takes it all.
        let mut status = String::with_capacity(8 << 10);
        File::open("/proc/self/status")?.take(64 << 10).read_to_string(&mut status)?;
        Ok(Self {
            umask: field(&status, "Umask:").and_then(|text| u32::from_str_radix(text, 8).ok()),
            nice: getpriority_process(None).ok(),
            ignored_signals: field(&status, "SigIgn:").map(signals).unwrap_or_default(),
            limits: RESOURCES.iter().map(|resource| limit(*resource)).collect(),
        })
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The signals of a mask as /proc writes it, but for SIGPIPE: the runtime of this program ignores it before `main`,
/// so that the mask no longer tells what the caller did with it; clients leave it at its default.
fn signals(mask: &str) -> Vec<i32> {
    let mask = u64::from_str_radix(mask, 16).unwrap_or(0);
    (1..=64).filter(|signal| mask & (1 << (signal - 1)) != 0 && *signal != SIGPIPE).collect()
}

const RESOURCES: [Resource; 16] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

fn limit(resource: Resource) -> ResourceLimit {
    let limit = getrlimit(resource);
    ResourceLimit { resource: resource as u32, soft: limit.current, hard: limit.maximum }
}

/// The environment for the server: this process's without our own variables, and with those of `--env` in place of
/// what had their names.
pub(crate) fn environment(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    added: &[(OsString, OsString)],
) -> Vec<OsString> {
    let replaced = |name: &OsString| added.iter().any(|(other, _)| other == name);
    let kept = inherited.filter(|(name, _)| !name.as_bytes().starts_with(OURS) && !replaced(name));
    // Of a name that was given twice, the last one holds.
    let last = added
        .iter()
        .enumerate()
        .filter(|(index, (name, _))| added[index + 1..].iter().all(|(later, _)| later != name));
    kept.chain(last.map(|(_, pair)| pair.clone()))
        .map(|(mut variable, value)| {
            variable.push("=");
            variable.push(value);
            variable
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> (OsString, OsString) {
        (name.into(), value.into())
    }

    #[test]
    fn our_own_variables_stay_here_and_given_ones_replace() {
        let inherited = [pair("PATH", "/bin"), pair("MCPVISOR_SOCKET", "/s"), pair("A", "1")];
        let added = [pair("A", "2"), pair("B", ""), pair("A", "3")];
        let environment = environment(inherited.into_iter(), &added);
        assert_eq!(environment, ["PATH=/bin", "B=", "A=3"]);
    }

    #[test]
    fn masks_name_signals() {
        assert_eq!(signals("0000000000001001"), [1]);
        assert_eq!(signals("8000000000010006"), [2, 3, 17, 64]);
        assert!(signals("nonsense").is_empty());
    }

    #[test]
    fn this_process_has_a_context() {
        let context = Context::of_this_process().unwrap();
        assert!(context.umask.is_some_and(|mask| mask <= 0o777));
        assert!(context.nice.is_some());
        assert_eq!(context.limits.len(), 16);
        let resources: std::collections::HashSet<u32> = context.limits.iter().map(|l| l.resource).collect();
        assert_eq!(resources.len(), 16);
    }
}

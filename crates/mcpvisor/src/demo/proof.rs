//! Looks for processes from outside, without asking the daemon.
use std::fs;

/// Processes that were seen alive, each with the moment of its start: a number that was given to another process
/// since is not mistaken for it.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    seen: Vec<(u32, String)>,
}

impl Witness {
    /// Takes note of a process, if it is there.
    pub(crate) fn remember(&mut self, pid: u32) {
        if let Some(started) = started(pid) {
            self.seen.push((pid, started));
        }
    }

    /// How many were noted.
    pub(crate) fn count(&self) -> usize {
        self.seen.len()
    }

    /// Those that exist even now, zombies included.
    pub(crate) fn still_there(&self) -> Vec<u32> {
        let same = |(pid, before): &&(u32, String)| started(*pid).as_ref() == Some(before);
        self.seen.iter().filter(same).map(|(pid, _)| *pid).collect()
    }
}

/// When the process was started, in the kernel's ticks since boot; none where it does not exist.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the name in parentheses, may hold anything; the start is the 22nd.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process to look for")]
    fn sees_a_process_until_it_is_reaped() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut witness = Witness::default();
        witness.remember(child.id());
        witness.remember(u32::MAX);
        assert_eq!(witness.count(), 1);
        assert_eq!(witness.still_there(), [child.id()]);
        child.kill().unwrap();
        assert_eq!(witness.still_there(), [child.id()], "a zombie is still there");
        child.wait().unwrap();
        assert!(witness.still_there().is_empty());
    }

    #[test]
    fn another_process_of_the_same_number_is_a_stranger() {
        let witness = Witness { seen: vec![(std::process::id(), "0".to_owned())] };
        assert!(witness.still_there().is_empty());
    }
}

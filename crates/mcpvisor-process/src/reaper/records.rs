//! What is known of a scope's processes, for its report.
use crate::procfs::shortened;
use crate::{Exit, ProcessRecord, Rung};
use std::collections::HashMap;

/// The records of one scope.
#[derive(Debug, Default)]
pub(super) struct Records {
    list: Vec<Entry>,
    /// The newest record of each pid.
    newest: HashMap<u32, usize>,
    main: u32,
}

#[derive(Debug)]
struct Entry {
    record: ProcessRecord,
    /// The command is a command line, and not only the kernel's name.
    named: bool,
}

/// A server that makes short-lived orphans for weeks must not fill our memory: after so many, records of those that ended by
/// themselves are no longer kept.
const MOST: usize = 1024;

impl Records {
    pub(super) fn start(&mut self, main: u32, command: String) {
        self.main = main;
        self.add(main, shortened(command), true, false);
    }

    fn add(&mut self, pid: u32, command: String, named: bool, escaped: bool) -> Option<&mut Entry> {
        if self.list.len() >= MOST {
            return None;
        }
        self.newest.insert(pid, self.list.len());
        self.list.push(Entry {
            record: ProcessRecord { pid, command, ended_by: None, exit: None, escaped },
            named,
        });
        self.list.last_mut()
    }

    /// The record of a process that lives.
    fn living(&mut self, pid: u32) -> Option<&mut Entry> {
        let index = *self.newest.get(&pid)?;
        self.list.get_mut(index).filter(|entry| entry.record.ended_by.is_none())
    }

    /// It is seen to live. `named`: the command is a whole command line.
    /// True: for the first time.
    pub(super) fn seen(&mut self, pid: u32, pgid: u32, command: &str, named: bool) -> bool {
        let escaped = pgid != self.main;
        match self.living(pid) {
            Some(entry) => {
                entry.record.escaped |= escaped;
                if named {
                    command.clone_into(&mut entry.record.command);
                    entry.named = true;
                }
                false
            }
            None => self.add(pid, command.to_owned(), named, escaped).is_some(),
        }
    }

    /// It was seen to live, and not to end.
    pub(super) fn lives(&self, pid: u32) -> bool {
        let entry = self.newest.get(&pid).and_then(|index| self.list.get(*index));
        entry.is_some_and(|entry| entry.record.ended_by.is_none())
    }

    /// Its command line was read.
    pub(super) fn name(&mut self, pid: u32, command: String) {
        if let Some(entry) = self.living(pid) {
            entry.record.command = command;
            entry.named = true;
        }
    }

    /// Those that live and whose command line is not known.
    pub(super) fn unnamed(&self) -> Vec<u32> {
        let unnamed = self.list.iter().filter(|entry| !entry.named && entry.record.ended_by.is_none());
        unnamed.map(|entry| entry.record.pid).collect()
    }

    /// It has exited; its parent, which may be us, has not reaped it yet.
    pub(super) fn ended(&mut self, pid: u32, rung: Rung) {
        if let Some(entry) = self.living(pid) {
            entry.record.ended_by = Some(rung);
        }
    }

    /// We have reaped it; its name and process group were read before. The name is used where it was never seen to live.
    pub(super) fn reaped(&mut self, pid: u32, exit: Exit, rung: Rung, last: Option<(String, u32)>) {
        let escaped = last.as_ref().is_some_and(|(_, pgid)| *pgid != self.main);
        let known = self.newest.get(&pid).and_then(|index| self.list.get_mut(*index));
        let entry = match known.filter(|entry| entry.record.exit.is_none()) {
            Some(entry) => Some(entry),
            None => self.add(pid, last.map(|(name, _)| name).unwrap_or_default(), false, escaped),
        };
        if let Some(entry) = entry {
            entry.record.escaped |= escaped;
            entry.record.ended_by.get_or_insert(rung);
            entry.record.exit = Some(exit);
        }
    }

    /// Whatever is not among those that live has ended on this rung.
    pub(super) fn retain_living(&mut self, living: impl Fn(u32) -> bool, rung: Rung) {
        for entry in &mut self.list {
            if entry.record.ended_by.is_none() && !living(entry.record.pid) {
                entry.record.ended_by = Some(rung);
            }
        }
    }

    pub(super) fn all(&self) -> Vec<ProcessRecord> {
        self.list.iter().map(|entry| entry.record.clone()).collect()
    }

    /// What a living process is called.
    pub(super) fn command(&self, pid: u32) -> Option<&str> {
        let entry = self.list.get(*self.newest.get(&pid)?)?;
        (entry.named && entry.record.ended_by.is_none()).then_some(entry.record.command.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Records {
        let mut records = Records::default();
        records.start(10, "server --flag".into());
        records
    }

    #[test]
    fn the_rung_in_force_is_kept_and_the_exit_may_come_later() {
        let mut records = records();
        records.seen(11, 11, "helper", false);
        assert_eq!(records.unnamed(), [11]);
        records.name(11, "helper --daemon".into());
        records.ended(11, Rung::Stdin);
        records.reaped(11, Exit::Code(0), Rung::Sigkill, None);
        let all = records.all();
        let helper = &all[1];
        assert_eq!((helper.command.as_str(), helper.escaped), ("helper --daemon", true));
        assert_eq!((helper.ended_by, helper.exit), (Some(Rung::Stdin), Some(Exit::Code(0))));
        assert_eq!(all[0].ended_by, None);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut records = records();
        for exit in [1, 2] {
            records.seen(11, 10, "x", false);
            records.reaped(11, Exit::Code(exit), Rung::Itself, None);
        }
        records.reaped(11, Exit::Code(3), Rung::Itself, Some(("unseen".into(), 12)));
        let exits: Vec<_> = records.all().iter().filter(|r| r.pid == 11).map(|r| r.exit).collect();
        assert_eq!(exits, [1, 2, 3].map(|code| Some(Exit::Code(code))));
        assert!(records.all().pop().unwrap().escaped);
    }

    #[test]
    fn what_is_missing_from_a_look_has_ended_before_it() {
        let mut records = records();
        records.seen(11, 10, "x", true);
        records.retain_living(|pid| pid == 10, Rung::Itself);
        assert_eq!(records.all()[1].ended_by, Some(Rung::Itself));
        assert_eq!(records.all()[1].exit, None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut records = records();
        for pid in 100..100_000 {
            records.reaped(pid, Exit::Code(0), Rung::Itself, Some(("x".into(), 10)));
        }
        assert_eq!(records.all().len(), MOST);
    }
}

//! Questions: reports, processes, scopes; and what ends a scope's record.
use super::scope::{Held, Scope, guarded};
use super::{Reaper, SessionEnd};
use crate::command::{Done, nothing_known};
use crate::launch::Key;
use crate::{Observer, ProcessInfo, Rung, ScopeFact, ScopeId, ScopeReport, ScopeStatus, procfs};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How many of the processes that are left are named in a report.
const TOLD: usize = 256;

impl Reaper {
    pub(super) fn observe(&mut self, id: &ScopeId, observer: Observer) {
        match self.keys.get(id).and_then(|key| self.scopes.get_mut(key)) {
            Some(scope) => {
                scope.observer = observer;
                scope.heir |= scope.launch.is_some() || scope.doomed.is_some();
                scope.tell_levels();
            }
            None => {
                let report = Arc::new(nothing_known());
                guarded("a scope's observer", || observer(ScopeFact::Empty { report }));
            }
        }
    }

    pub(super) fn kill_session(&mut self, session: &str, empty: Done<Vec<(ScopeId, Arc<ScopeReport>)>>) {
        let keys: Vec<Key> = self.of_session(Some(session));
        let mut end = SessionEnd { empty, waits_for: Default::default(), reports: Vec::new() };
        for key in &keys {
            let Some(scope) = self.scopes.get(key) else { continue };
            match &scope.empty {
                Some(report) => end.reports.push((scope.id.clone(), Arc::clone(report))),
                None => drop(end.waits_for.insert(*key)),
            }
        }
        if end.waits_for.is_empty() {
            guarded("a session's end", || (end.empty)(end.reports));
            return;
        }
        self.session_ends.push(end);
        for key in keys {
            self.climb(key, Rung::Sigkill);
        }
    }

    fn of_session(&self, session: Option<&str>) -> Vec<Key> {
        let wanted = |scope: &Scope| session.is_none_or(|session| *scope.id.session == *session);
        self.scopes.iter().filter(|(_, scope)| wanted(scope)).map(|(key, _)| *key).collect()
    }

    pub(super) fn report(&mut self, id: &ScopeId, done: Done<ScopeReport>) {
        let report = match self.keys.get(id).copied() {
            Some(key) => self.report_of(key),
            None => nothing_known(),
        };
        guarded("a report's answer", || done(report));
    }

    fn report_of(&mut self, key: Key) -> ScopeReport {
        let living = self.living(key);
        let Some(scope) = self.scopes.get(&key) else { return nothing_known() };
        if let Some(report) = &scope.empty {
            return ScopeReport::clone(report);
        }
        let name = |pid: u32| {
            let stat = procfs::stat(pid).ok().filter(|stat| !stat.is_dead())?;
            Some((pid, scope.records.command(pid).map_or(stat.name, str::to_owned)))
        };
        let usage = match (&self.tree, &scope.held) {
            (Some(tree), Held::Cgroup { .. }) => tree.usage(&scope.id),
            _ => Default::default(),
        };
        ScopeReport {
            processes: scope.records.all(),
            remaining: living.into_iter().take(TOLD).filter_map(name).collect(),
            peak_memory_bytes: usage.peak_memory_bytes,
            cpu: usage.cpu.or(Some(scope.cpu)),
            last_exit: scope.last_exit,
            proven: scope.proven,
        }
    }

    /// What lives of a scope, as far as that can be told at once.
    fn living(&mut self, key: Key) -> Vec<u32> {
        let Some(scope) = self.scopes.get(&key).filter(|scope| scope.is_alive()) else { return Vec::new() };
        match &scope.held {
            Held::Cgroup { .. } => {
                let mut living = self.strays(key);
                living.extend(self.members(key));
                living
            }
            Held::Keeper(kept) => procfs::descendants(kept.pid),
            Held::Lost { .. } => {
                let records = scope.records.all().into_iter();
                records.filter(|record| record.ended_by.is_none()).map(|record| record.pid).collect()
            }
            // A child that hangs on its way to its program.
            Held::Nothing => scope.launch.iter().filter_map(|launch| launch.cell.pid()).collect(),
        }
    }

    /// The reading is done on another thread: it takes long for many, and may hang for one.
    pub(super) fn processes(&mut self, session: Option<&str>, done: Done<Vec<ProcessInfo>>) {
        let mut found = Vec::new();
        for key in self.of_session(session) {
            let pids = self.living(key);
            let Some(scope) = self.scopes.get(&key) else { continue };
            for pid in pids {
                found.push((
                    scope.id.clone(),
                    scope.main,
                    pid,
                    scope.records.command(pid).map(str::to_owned),
                ));
            }
        }
        let done = Arc::new(std::sync::Mutex::new(Some(done)));
        let answer = Arc::clone(&done);
        let take = |done: &std::sync::Mutex<Option<Done<Vec<ProcessInfo>>>>| {
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
        };
        let started = self.crew.run(move || {
            let all = found
                .into_iter()
                .filter_map(|(scope, main, pid, command)| describe(scope, main, pid, command));
            let all = all.collect();
            if let Some(answer) = take(&answer) {
                answer(all);
            }
        });
        if started.is_err()
            && let Some(done) = take(&done)
        {
            guarded("an answer", || done(Vec::new()));
        }
    }

    pub(super) fn list(&mut self, done: Done<Vec<ScopeStatus>>) {
        let of = |scope: &Scope| ScopeStatus {
            scope: scope.id.clone(),
            main: scope.main.filter(|_| scope.main_exit.is_none()),
            empty: !scope.is_alive(),
        };
        let all = self.scopes.values().map(of).collect();
        guarded("an answer", || done(all));
    }

    pub(super) fn kill_file(&mut self, id: &ScopeId, done: Done<Option<OwnedFd>>) {
        let scope = self.keys.get(id).and_then(|key| self.scopes.get(key));
        let held = scope.filter(|scope| matches!(scope.held, Held::Cgroup { .. }));
        let file = match (&self.tree, held) {
            (Some(tree), Some(scope)) => tree.kill_file(&scope.id).ok(),
            _ => None,
        };
        guarded("an answer", || done(file));
    }

    pub(super) fn release(&mut self, id: &ScopeId) {
        let Some(key) = self.keys.get(id).copied() else { return };
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        scope.released = true;
        if !scope.is_alive() {
            self.forget(key);
        }
    }

    pub(super) fn release_session(&mut self, session: &str) {
        if self.of_session(Some(session)).into_iter().any(|key| self.scopes[&key].is_alive()) {
            return;
        }
        if let Some(notes) = &self.notes
            && let Err(error) = notes.remove(session)
        {
            tracing::warn!(%error, session, "a session's note can't be removed");
        }
        if let Some(tree) = &self.tree
            && let Err(error) = self.parts.reserve.with(|| tree.remove_session(session))
        {
            tracing::warn!(%error, session, "a session's cgroup can't be removed");
        }
    }
}

fn describe(scope: ScopeId, main: Option<u32>, pid: u32, command: Option<String>) -> Option<ProcessInfo> {
    let stat = procfs::stat(pid).ok().filter(|stat| !stat.is_dead())?;
    let command = command.or_else(|| procfs::command(pid)).unwrap_or(stat.name);
    Some(ProcessInfo {
        pid,
        ppid: stat.ppid,
        scope,
        command,
        memory_bytes: stat.memory_bytes,
        cpu: stat.cpu,
        escaped: main != Some(stat.pgid),
    })
}

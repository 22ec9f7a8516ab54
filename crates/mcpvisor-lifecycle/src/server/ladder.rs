//! The end of an incarnation: the rungs, each with a budget of its own, and what comes after (G16).
use super::command::Command;
use super::types::{Failure, Mode, Restart, ServerEffect, ServerReport, Stage};
use super::{Effects, Phase, Server};
use crate::Moment;
use crate::seeded::Bug;
use std::time::Duration;

/// How long the end of the output waits for the exit that mostly explains it. A process that exits closes its stdout
/// first, and the two are told by different threads; without this a clean exit would be ended, and reported, as if
/// the process had lived on.
pub const OUTPUT_GRACE: Duration = Duration::from_millis(250);

/// An incarnation that is being ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ladder {
    pub(super) rung: Rung,
    pub(super) until: Option<Moment>,
    pub(super) intent: Intent,
    /// The launch was answered: a process exists, or existed.
    pub(super) answered: bool,
    /// The scope was told to be empty: before the launch was answered, or while the stop command ran.
    pub(super) empty: bool,
    /// One start more, in the other era, may follow until then.
    pub(super) again: Option<Moment>,
    pub(super) command: Command,
    /// The scope was killed already, while the stop command runs.
    pub(super) killed: bool,
    /// When the ladder began.
    pub(super) began: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Rung {
    /// The output ended; the exit may follow by itself.
    Settling,
    Stdin,
    Term,
    /// The stop command runs.
    Command,
    Kill,
    /// The kill's budget is used up.
    Stuck,
}

/// Why the incarnation is being ended, and so what comes after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Intent {
    /// A stop: nothing comes after.
    Stop,
    /// It was told to start again.
    Restart,
    /// Direct mode: the client is gone, and the server goes with it.
    Client,
    /// It failed or exited by itself: the restart policy decides.
    Unplanned(Cause),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    Exit { normal: bool },
    Failed(Failure),
}

impl Server {
    /// Leaves launching, handshaking or running for the ladder; the caller climbs to its first rung.
    pub(super) fn begin_ladder(&mut self, now: Moment, intent: Intent) {
        let answered = !matches!(self.phase, Phase::Launching { .. });
        if let Phase::Running { since, .. } = self.phase {
            self.history.ran(&self.config, now.since(since));
        }
        if self.early.exited.is_some() && !answered {
            self.main_ended = Some(Stage::Itself);
        }
        let (empty, again, command) = (self.early.empty, self.other_era_until(), self.command());
        self.phase = Phase::Ending(Ladder {
            rung: Rung::Settling,
            until: None,
            intent,
            answered,
            empty,
            again,
            command,
            killed: false,
            began: now,
        });
    }

    /// Goes to a rung, with the whole of its budget.
    pub(super) fn climb(&mut self, now: Moment, rung: Rung, out: &mut Effects) {
        let incarnation = self.number;
        let Phase::Ending(ladder) = &mut self.phase else { return };
        let (budget, effect) = match rung {
            Rung::Settling => (Some(OUTPUT_GRACE), None),
            Rung::Stdin if self.config.mode == Mode::Direct => (Some(self.config.stdin_grace), None),
            Rung::Stdin => (Some(self.config.stdin_grace), Some(ServerEffect::CloseStdin { incarnation })),
            Rung::Term => (Some(self.config.term_grace), Some(ServerEffect::Terminate { incarnation })),
            Rung::Command => (self.config.stop_command, Some(ServerEffect::StopCommand { incarnation })),
            Rung::Kill => (Some(self.config.kill_wait), Some(ServerEffect::Kill { incarnation })),
            Rung::Stuck => (None, Some(ServerEffect::Report(ServerReport::Quarantined))),
        };
        let start = if self.seeded.has(Bug::G16RungsShareABudget) { ladder.began } else { now };
        ladder.rung = rung;
        ladder.until = budget.map(|budget| start.after(budget));
        self.since = now;
        out.extend(effect);
    }

    /// The first rung of a server that is to end though its main process may live: what it was told politely does
    /// not matter any more, so stdin is closed and SIGTERM sent in one.
    pub(super) fn end_by_force(&mut self, now: Moment, out: &mut Effects) {
        if self.config.mode != Mode::Direct {
            out.push(ServerEffect::CloseStdin { incarnation: self.number });
        }
        self.climb(now, Rung::Term, out);
    }

    /// The budget of the rung is used up.
    pub(super) fn rung_expired(&mut self, now: Moment, out: &mut Effects) {
        let Phase::Ending(ladder) = &self.phase else { return };
        match ladder.rung {
            Rung::Settling => self.end_by_force(now, out),
            Rung::Stdin => self.climb(now, Rung::Term, out),
            Rung::Term => self.climb_to_kill(now, out),
            Rung::Command => {
                out.push(ServerEffect::KillCommand { incarnation: self.number });
                self.climb(now, Rung::Kill, out);
            }
            Rung::Kill => self.climb(now, Rung::Stuck, out),
            Rung::Stuck => {}
        }
    }

    /// A stop joins the ladder that runs: nothing is restarted afterwards, and no budget begins anew.
    pub(super) fn stop_ladder(&mut self, now: Moment, term_first: bool, out: &mut Effects) {
        let Phase::Ending(ladder) = &mut self.phase else { return };
        ladder.intent = Intent::Stop;
        match ladder.rung {
            Rung::Settling if term_first || self.config.mode == Mode::Direct => {
                self.climb(now, Rung::Term, out);
            }
            // The wait for an exit is no rung of the stop's.
            Rung::Settling => self.climb(now, Rung::Stdin, out),
            Rung::Stdin if term_first => self.climb(now, Rung::Term, out),
            Rung::Stdin | Rung::Term | Rung::Command | Rung::Kill | Rung::Stuck => {}
        }
    }

    /// A restart joins the ladder that runs, unless that is a stop's. A kill that has left something is tried again.
    pub(super) fn restart_ladder(&mut self, now: Moment, out: &mut Effects) {
        let Phase::Ending(ladder) = &mut self.phase else { return };
        if ladder.intent == Intent::Stop {
            return;
        }
        ladder.intent = Intent::Restart;
        match ladder.rung {
            Rung::Settling => self.climb(now, Rung::Stdin, out),
            Rung::Stuck => self.kill_again(now, out),
            Rung::Stdin | Rung::Term | Rung::Command | Rung::Kill => {}
        }
    }

    /// The main process has exited while its incarnation was being ended.
    pub(super) fn exited_in_ladder(&mut self, now: Moment, normal: bool, out: &mut Effects) {
        let Phase::Ending(ladder) = &mut self.phase else { return };
        if self.main_ended.is_some() {
            return;
        }
        self.main_ended = Some(stage_of(ladder));
        if self.seeded.has(Bug::G12EndIsToldAtMainExit) && ladder.answered {
            let intent = ladder.intent;
            self.over(now, intent, out);
            return;
        }
        match ladder.rung {
            Rung::Settling => {
                // The exit explains the end of the output.
                if let Intent::Unplanned(cause) = &mut ladder.intent {
                    *cause = Cause::Exit { normal };
                }
                self.climb(now, Rung::Term, out);
            }
            // Its children had their polite word with it; they need not wait for their own grace.
            Rung::Stdin => self.climb(now, Rung::Term, out),
            Rung::Term | Rung::Command | Rung::Kill | Rung::Stuck => {}
        }
    }

    /// Nothing of the incarnation is left: release it, and do what its intent says.
    pub(super) fn over(&mut self, now: Moment, intent: Intent, out: &mut Effects) {
        let rung = match &self.phase {
            Phase::Ending(ladder) => stage_of(ladder),
            _ => Stage::Itself,
        };
        self.main_ended.get_or_insert(rung);
        if let Phase::Running { since, .. } = self.phase {
            self.history.ran(&self.config, now.since(since));
        }
        out.push(ServerEffect::Release { incarnation: self.number });
        if let Intent::Unplanned(cause) = intent
            && let Some(until) = self.other_era_until().filter(|until| now < *until)
            && cause != Cause::Failed(Failure::StartTimeout)
        {
            // No failure, and no restart: the start goes on, in what is left of its time.
            self.changed_era = true;
            self.changes = self.changes.saturating_add(1);
            self.launch_until(now, until, out);
            return;
        }
        let (phase, report) = match intent {
            Intent::Restart => return self.relaunch(now, out),
            Intent::Stop => (Phase::Stopped, ServerReport::Stopped),
            Intent::Client => (Phase::Ended, ServerReport::Ended),
            Intent::Unplanned(cause) => self.after_failure(now, cause),
        };
        self.since = now;
        self.phase = phase;
        out.push(ServerEffect::Report(report));
    }

    /// Until when one start more, in the other era, may follow on this incarnation.
    fn other_era_until(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Handshaking { until } => Some(*until).filter(|_| self.other_era),
            Phase::Ending(ladder) => ladder.again,
            _ => None,
        }
    }

    fn after_failure(&mut self, now: Moment, cause: Cause) -> (Phase, ServerReport) {
        let normal = cause == (Cause::Exit { normal: true });
        let again = match self.config.restart {
            Restart::Permanent => true,
            Restart::Transient => !normal,
            Restart::Temporary => false,
            Restart::Followed => {
                let over = self.given_up || cause == Cause::Failed(Failure::Launch);
                !over || self.seeded.has(Bug::G29GivenUpIsFollowed)
            }
        };
        let failure = match cause {
            Cause::Exit { .. } => Failure::Exited,
            Cause::Failed(failure) => failure,
        };
        let failed = |failure| (Phase::Failed(failure), ServerReport::Failed(failure));
        if !self.been_ready {
            return failed(failure);
        }
        if !again || self.had_client || self.config.mode == Mode::Direct {
            return if normal { (Phase::Ended, ServerReport::Ended) } else { failed(failure) };
        }
        match self.history.restart(now, &self.config, self.next_number()) {
            Some(delay) => (Phase::Backoff { until: now.after(delay) }, ServerReport::Restarting),
            None => failed(Failure::RestartLimit),
        }
    }
}

pub(super) fn stage_of(ladder: &Ladder) -> Stage {
    match ladder.rung {
        Rung::Settling => Stage::Itself,
        Rung::Stdin => Stage::Stdin,
        Rung::Command if ladder.killed => Stage::Sigkill,
        Rung::Term | Rung::Command => Stage::Sigterm,
        Rung::Kill | Rung::Stuck => Stage::Sigkill,
    }
}

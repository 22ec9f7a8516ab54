//! The stop command: a program that ends what another daemon started on the server's behalf (a container), which no signal of ours reaches.
//!
//! It runs once for an incarnation that had a process, before the kill, or when the scope is empty already, whichever is first; it has a
//! budget of its own, and an incarnation is not over before it is reaped (G15, G16). How it ends changes nothing else.
use super::ladder::{Intent, Rung, stage_of};
use super::types::ServerEffect;
use super::{Effects, Phase, Server};
use crate::Moment;
use crate::seeded::Bug;

/// How far the stop command of an incarnation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Command {
    Unrun,
    Runs,
    /// Or there is none.
    Done,
}

impl Server {
    /// At the beginning of a ladder.
    pub(super) fn command(&self) -> Command {
        if self.config.stop_command.is_some() { Command::Unrun } else { Command::Done }
    }

    /// Goes to the kill, by way of the stop command.
    pub(super) fn climb_to_kill(&mut self, now: Moment, out: &mut Effects) {
        match &self.phase {
            Phase::Ending(ladder) if ladder.answered && ladder.command == Command::Unrun => {
                self.run_command(now, out);
            }
            _ => self.climb(now, Rung::Kill, out),
        }
    }

    /// Skips to the kill: no stop command is begun any more, and one that runs is cut (G35).
    pub(super) fn skip_to_kill(&mut self, now: Moment, out: &mut Effects) {
        let Phase::Ending(ladder) = &mut self.phase else { return };
        if ladder.command == Command::Unrun {
            ladder.command = Command::Done;
        }
        if !ladder.answered {
            // It is at the kill already; what it waits for is the launch.
            return;
        }
        match ladder.rung {
            Rung::Settling | Rung::Stdin | Rung::Term => self.climb(now, Rung::Kill, out),
            Rung::Command => self.kill_again(now, out),
            Rung::Kill | Rung::Stuck => {}
        }
    }

    fn run_command(&mut self, now: Moment, out: &mut Effects) {
        self.climb(now, Rung::Command, out);
        if let Phase::Ending(ladder) = &mut self.phase {
            ladder.command = Command::Runs;
        }
    }

    /// A stop command that has just begun for what is not to live: the scope is killed without it.
    pub(super) fn kill_meanwhile(&mut self, out: &mut Effects) {
        let Phase::Ending(ladder) = &mut self.phase else { return };
        if ladder.rung == Rung::Command && !ladder.killed && !ladder.empty {
            ladder.killed = true;
            out.push(ServerEffect::Kill { incarnation: self.number });
        }
    }

    /// What a kill has left is killed again, and a stop command that still runs.
    pub(super) fn kill_again(&mut self, now: Moment, out: &mut Effects) {
        if matches!(&self.phase, Phase::Ending(ladder) if ladder.command == Command::Runs) {
            out.push(ServerEffect::KillCommand { incarnation: self.number });
        }
        self.climb(now, Rung::Kill, out);
    }

    /// Nothing of an incarnation that had a process is left in its scope. It is over, unless its stop command is still to be run or reaped.
    pub(super) fn emptied(&mut self, now: Moment, intent: Intent, out: &mut Effects) {
        if self.config.stop_command.is_none() {
            return self.over(now, intent, out);
        }
        if !matches!(self.phase, Phase::Ending(_)) {
            self.begin_ladder(now, intent);
        }
        let Phase::Ending(ladder) = &mut self.phase else { return };
        (ladder.intent, ladder.empty, ladder.answered) = (intent, true, true);
        self.main_ended.get_or_insert(stage_of(ladder));
        match ladder.command {
            Command::Unrun => self.run_command(now, out),
            Command::Runs if self.seeded.has(Bug::G15StopCommandIsLeft) => self.over(now, intent, out),
            Command::Runs => {}
            Command::Done if ladder.rung > Rung::Command && self.seeded.has(Bug::G15StopCommandRunsTwice) => {
                self.run_command(now, out);
            }
            Command::Done => self.over(now, intent, out),
        }
    }

    /// Nothing of the stop command is left.
    pub(super) fn command_ended(&mut self, now: Moment, out: &mut Effects) {
        let Phase::Ending(ladder) = &mut self.phase else { return };
        if ladder.command != Command::Runs {
            return;
        }
        ladder.command = Command::Done;
        let (rung, intent) = (ladder.rung, ladder.intent);
        if ladder.empty {
            self.over(now, intent, out);
        } else if rung == Rung::Command {
            self.climb(now, Rung::Kill, out);
        }
    }
}

//! What a server's processes and streams tell.
use super::command::Command;
use super::ladder::{Cause, Intent, Rung};
use super::types::{Failure, Mode, ServerEffect, ServerReport, Stage};
use super::{Early, Effects, Phase, Server};
use crate::Moment;
use crate::seeded::Bug;

impl Server {
    pub(super) fn launched(&mut self, now: Moment, out: &mut Effects) {
        match &mut self.phase {
            Phase::Launching { until } => {
                let until = *until;
                let early = self.early;
                // What has exited already needs no handshake.
                let done = early.exited.is_some() || early.empty;
                self.since = now;
                self.phase = Phase::Handshaking { until };
                if self.config.mode != Mode::Shared {
                    self.run(now, out);
                } else if !done {
                    out.push(ServerEffect::Handshake { incarnation: self.number });
                }
                self.catch_up(now, early, out);
            }
            // It comes too late: whoever acquired it destroys it, before anyone hears of it (G17).
            Phase::Ending(ladder) if !ladder.answered => {
                if self.seeded.has(Bug::G17LateLaunchIsPublished) {
                    self.run(now, out);
                    return;
                }
                ladder.answered = true;
                let (intent, rung) = (ladder.intent, ladder.rung);
                if ladder.empty {
                    self.emptied(now, intent, out);
                } else if rung == Rung::Stuck && ladder.command == Command::Done {
                    out.push(ServerEffect::Kill { incarnation: self.number });
                } else {
                    self.climb_to_kill(now, out);
                    self.kill_meanwhile(out);
                }
            }
            _ => {}
        }
    }

    /// Takes up what was told before the launch was answered.
    pub(super) fn catch_up(&mut self, now: Moment, early: Early, out: &mut Effects) {
        let client_ended = early.client_gone || early.input_ended;
        if early.empty {
            let normal = early.exited.unwrap_or(false);
            if client_ended {
                out.push(ServerEffect::Report(ServerReport::Ending));
                self.emptied(now, Intent::Client, out);
            } else {
                self.emptied(now, Intent::Unplanned(Cause::Exit { normal }), out);
            }
            return;
        }
        if let Some(normal) = early.exited {
            self.main_exited(now, normal, client_ended, out);
        } else if early.output_ended {
            self.output_ended(now, out);
        }
        if early.input_ended {
            self.input_ended(now, out);
        }
        if early.client_gone {
            self.client_gone(now, out);
        }
    }

    pub(super) fn launch_failed(&mut self, now: Moment, out: &mut Effects) {
        let intent = match &self.phase {
            Phase::Launching { .. } => Intent::Unplanned(Cause::Failed(Failure::Launch)),
            Phase::Ending(ladder) if !ladder.answered => ladder.intent,
            _ => return,
        };
        self.over(now, intent, out);
    }

    /// Of two ends at about the same time the client's counts as the first: else a server that leaves at once when its
    /// client does would have failed, or not, by chance.
    pub(super) fn main_exited(&mut self, now: Moment, normal: bool, hung_up: bool, out: &mut Effects) {
        let direct = self.config.mode == Mode::Direct;
        if hung_up && direct && !self.seeded.has(Bug::G34ExitBeatsHangUp) {
            self.input_ended(now, out);
        }
        match self.phase {
            Phase::Launching { .. } => self.early.exited = self.early.exited.or(Some(normal)),
            Phase::Handshaking { .. } | Phase::Running { .. }
                if self.seeded.has(Bug::G29TreeIsLeftAtExit) =>
            {
                self.over(now, Intent::Unplanned(Cause::Exit { normal }), out);
            }
            Phase::Handshaking { .. } | Phase::Running { .. } => {
                self.begin_ladder(now, Intent::Unplanned(Cause::Exit { normal }));
                self.main_ended = Some(Stage::Itself);
                self.climb(now, Rung::Term, out);
            }
            Phase::Ending(_) => self.exited_in_ladder(now, normal, out),
            _ => {}
        }
    }

    pub(super) fn output_ended(&mut self, now: Moment, out: &mut Effects) {
        match self.phase {
            Phase::Launching { .. } => self.early.output_ended = true,
            Phase::Handshaking { .. } | Phase::Running { .. } => {
                self.begin_ladder(now, Intent::Unplanned(Cause::Failed(Failure::OutputEnded)));
                self.climb(now, Rung::Settling, out);
            }
            _ => {}
        }
    }

    /// The server's one client has ended its stream, and the server goes with it. A shared server has no such client.
    pub(super) fn input_ended(&mut self, now: Moment, out: &mut Effects) {
        if self.config.mode == Mode::Shared {
            return;
        }
        match self.phase {
            // An exclusive server gets its client once it runs.
            Phase::Launching { .. } => self.early.input_ended = self.config.mode == Mode::Direct,
            Phase::Running { .. } => {
                self.begin_ladder(now, Intent::Client);
                out.push(ServerEffect::Report(ServerReport::Ending));
                self.climb(now, Rung::Stdin, out);
            }
            _ => {}
        }
    }

    pub(super) fn client_gone(&mut self, now: Moment, out: &mut Effects) {
        if self.config.mode != Mode::Direct {
            return;
        }
        match &self.phase {
            Phase::Launching { .. } => self.early.client_gone = true,
            Phase::Running { .. } => {
                self.begin_ladder(now, Intent::Client);
                out.push(ServerEffect::Report(ServerReport::Ending));
                self.climb(now, Rung::Term, out);
            }
            Phase::Ending(ladder) if ladder.rung < Rung::Term => self.climb(now, Rung::Term, out),
            _ => {}
        }
    }

    pub(super) fn scope_empty(&mut self, now: Moment, out: &mut Effects) {
        match &mut self.phase {
            Phase::Launching { .. } => self.early.empty = true,
            // Nobody told of the exit, so nobody can say that it was normal.
            Phase::Handshaking { .. } | Phase::Running { .. } => {
                self.emptied(now, Intent::Unplanned(Cause::Exit { normal: false }), out);
            }
            Phase::Ending(ladder) if ladder.answered => {
                let mut intent = ladder.intent;
                if ladder.rung == Rung::Settling
                    && let Intent::Unplanned(cause) = &mut intent
                {
                    *cause = Cause::Exit { normal: false };
                }
                self.emptied(now, intent, out);
            }
            Phase::Ending(ladder) => ladder.empty = true,
            _ => {}
        }
    }
}

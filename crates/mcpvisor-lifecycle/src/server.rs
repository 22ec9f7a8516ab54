//! One server: launch, handshake, the stop ladder with a budget for each rung, restarts.
//!
//! An incarnation is over when its launch has failed, or when its launch was answered and its scope is empty, and in no
//! other case; only then is it released, and only then comes the next one, or the last report. So a restart never
//! leaves an old tree, and a stop is never told before it is true.
mod command;
mod facts;
mod health;
mod ladder;
mod restart;
#[cfg(test)]
mod tests;
mod types;

pub use health::Health;
pub use ladder::OUTPUT_GRACE;
pub use types::{
    Failure, Mode, Restart, ServerConfig, ServerEffect, ServerEvent, ServerReport, ServerState, Stage,
};

use crate::registry::Urgency;
use crate::seeded::{Bug, Seeded};
use crate::{Incarnation, Moment};
use health::Watch;
use ladder::{Cause, Intent, Ladder, Rung, stage_of};
use restart::History;

/// A server's state. See the module.
///
/// - Commands and facts: [`Server::step`].
/// - Output: the effects of a step, and [`Server::next_timeout`].
/// - Getters: all others; none changes anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    config: ServerConfig,
    phase: Phase,
    since: Moment,
    /// The current incarnation; zero before the first.
    number: Incarnation,
    been_ready: bool,
    history: History,
    early: Early,
    /// The rung in force when the main process of this incarnation ended.
    main_ended: Option<Stage>,
    /// An end of this incarnation before it is ready is followed by one start more, in the other era.
    other_era: bool,
    /// This incarnation is that one.
    changed_era: bool,
    /// How many of those there were: they are no restarts.
    changes: u32,
    /// This incarnation, an exclusive one, has or had its client.
    had_client: bool,
    /// Whoever runs this incarnation, a followed one, does not start it again.
    given_up: bool,
    seeded: Seeded,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Launching { until: Moment },
    Handshaking { until: Moment },
    Running { since: Moment, watch: Option<Watch> },
    Ending(Ladder),
    Backoff { until: Moment },
    Stopped,
    Ended,
    Failed(Failure),
}

/// Facts of a process whose launch was not yet answered. They come from another thread than the answer, so they can
/// overtake it; they are kept until then, so that the order does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Early {
    exited: Option<bool>,
    output_ended: bool,
    input_ended: bool,
    client_gone: bool,
    empty: bool,
}

/// The effects of one step, in order.
type Effects = Vec<ServerEffect>;

impl Server {
    /// A server that is not started.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self {
            config,
            phase: Phase::Idle,
            since: Moment::default(),
            number: Incarnation(0),
            been_ready: false,
            history: History::default(),
            early: Early::default(),
            main_ended: None,
            other_era: false,
            changed_era: false,
            changes: 0,
            had_client: false,
            given_up: false,
            seeded: Seeded::default(),
        }
    }

    /// The same with one guard taken out.
    #[cfg(feature = "seeded-bugs")]
    #[must_use]
    pub fn with_bug(mut self, bug: Bug) -> Self {
        self.seeded.bug = Some(bug);
        self
    }

    /// Advances the machine by one event. `now` never goes back from one step to the next.
    #[must_use]
    pub fn step(&mut self, now: Moment, event: ServerEvent) -> Vec<ServerEffect> {
        let mut out = Effects::new();
        let current = |incarnation| incarnation == self.number;
        match event {
            ServerEvent::Start => {
                // After its end: its session was parked, and is not any more.
                if matches!(self.phase, Phase::Stopped | Phase::Ended | Phase::Failed(_)) {
                    self.been_ready = false;
                    self.history = History::default();
                    self.launch(now, &mut out);
                } else if self.phase == Phase::Idle {
                    self.launch(now, &mut out);
                }
            }
            ServerEvent::Stop { term_first } => self.stop(now, term_first, &mut out),
            ServerEvent::Urge { urgency } => self.urge(now, urgency, &mut out),
            ServerEvent::Restart => self.restart(now, &mut out),
            ServerEvent::RetryKill => {
                if matches!(&self.phase, Phase::Ending(ladder) if ladder.rung == Rung::Stuck) {
                    self.kill_again(now, &mut out);
                }
            }
            ServerEvent::Launched { incarnation } if current(incarnation) => {
                self.launched(now, &mut out);
            }
            ServerEvent::LaunchFailed { incarnation } if current(incarnation) => {
                self.launch_failed(now, &mut out);
            }
            ServerEvent::OtherEra { incarnation } if current(incarnation) => {
                let handshakes = matches!(self.phase, Phase::Handshaking { .. });
                self.other_era |= handshakes && !self.changed_era;
            }
            ServerEvent::HandshakeDone { incarnation } if current(incarnation) => {
                if matches!(self.phase, Phase::Handshaking { .. }) {
                    self.run(now, &mut out);
                }
            }
            ServerEvent::HandshakeFailed { incarnation } if current(incarnation) => {
                if matches!(self.phase, Phase::Handshaking { .. }) {
                    self.begin_ladder(now, Intent::Unplanned(Cause::Failed(Failure::Handshake)));
                    self.end_by_force(now, &mut out);
                }
            }
            ServerEvent::MainExited { incarnation, normal, hung_up }
                if current(incarnation) || self.seeded.has(Bug::G3OldExitCounts) =>
            {
                self.main_exited(now, normal, hung_up, &mut out);
            }
            ServerEvent::OutputEnded { incarnation } if current(incarnation) => {
                self.output_ended(now, &mut out);
            }
            ServerEvent::ClientCame { incarnation } if current(incarnation) => {
                self.had_client = self.config.mode == Mode::Exclusive;
            }
            ServerEvent::GivenUp { incarnation } if current(incarnation) => {
                self.given_up = self.config.restart == Restart::Followed;
            }
            ServerEvent::InputEnded { incarnation } if current(incarnation) => {
                self.input_ended(now, &mut out);
            }
            ServerEvent::Looked { incarnation, heard, busy } if current(incarnation) => {
                self.looked(heard, busy);
            }
            ServerEvent::ClientGone => self.client_gone(now, &mut out),
            ServerEvent::ScopeEmpty { incarnation } if current(incarnation) => {
                self.scope_empty(now, &mut out);
            }
            ServerEvent::CommandEnded { incarnation } if current(incarnation) => {
                self.command_ended(now, &mut out);
            }
            ServerEvent::Timeout => self.timeout(now, &mut out),
            // A fact of another incarnation changes nothing (G3).
            ServerEvent::Launched { .. }
            | ServerEvent::LaunchFailed { .. }
            | ServerEvent::OtherEra { .. }
            | ServerEvent::HandshakeDone { .. }
            | ServerEvent::HandshakeFailed { .. }
            | ServerEvent::MainExited { .. }
            | ServerEvent::OutputEnded { .. }
            | ServerEvent::ClientCame { .. }
            | ServerEvent::GivenUp { .. }
            | ServerEvent::InputEnded { .. }
            | ServerEvent::Looked { .. }
            | ServerEvent::CommandEnded { .. }
            | ServerEvent::ScopeEmpty { .. } => {}
        }
        out
    }

    /// When `Timeout` is due: a start, a rung or a backoff has its end, or a server's health is to be looked at.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Launching { until } | Phase::Handshaking { until } | Phase::Backoff { until } => {
                Some(*until)
            }
            Phase::Ending(ladder) => ladder.until,
            Phase::Running { watch, .. } => watch.map(|watch| watch.due),
            Phase::Idle | Phase::Stopped | Phase::Ended | Phase::Failed(_) => None,
        }
    }

    /// The public state.
    #[must_use]
    pub fn state(&self) -> ServerState {
        match &self.phase {
            Phase::Idle | Phase::Launching { .. } | Phase::Handshaking { .. } => ServerState::Starting,
            Phase::Running { .. } => ServerState::Ready,
            Phase::Ending(_) => ServerState::Stopping,
            Phase::Backoff { .. } => ServerState::Backoff,
            Phase::Stopped | Phase::Ended => ServerState::Stopped,
            Phase::Failed(_) => ServerState::Failed,
        }
    }

    /// The state as the tables of `docs/lifecycle.md` name it.
    #[must_use]
    pub fn fine_state(&self) -> &'static str {
        match &self.phase {
            Phase::Idle => "idle",
            Phase::Launching { .. } => "launching",
            Phase::Handshaking { .. } => "handshaking",
            Phase::Running { .. } => "running",
            Phase::Ending(ladder) => match ladder.rung {
                Rung::Settling => "settling",
                Rung::Stdin => "stdin",
                Rung::Term => "term",
                Rung::Command => "command",
                Rung::Kill if ladder.answered => "kill",
                Rung::Kill => "aborting",
                Rung::Stuck => "stuck",
            },
            Phase::Backoff { .. } => "backoff",
            Phase::Stopped => "stopped",
            Phase::Ended => "ended",
            Phase::Failed(_) => "failed",
        }
    }

    /// The incarnation that was launched last; none before the first.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        (self.number.0 > 0).then_some(self.number)
    }

    /// Whether the incarnation is asked in another era than the one before, in the same start.
    #[must_use]
    pub fn changed_era(&self) -> bool {
        self.changed_era
    }

    /// How many launches there were after the first, without those that only changed the era.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.number.0.saturating_sub(1).saturating_sub(self.changes)
    }

    /// The rung in force when the main process ended; while it lives, the one in force now.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match (&self.main_ended, &self.phase) {
            (Some(stage), _) => *stage,
            (None, Phase::Ending(ladder)) => stage_of(ladder),
            (None, _) => Stage::Itself,
        }
    }

    /// Why the incarnation that is being ended has failed; None where it was told to end, and where none is being ended.
    #[must_use]
    pub fn ends_for(&self) -> Option<Failure> {
        match &self.phase {
            Phase::Ending(Ladder { intent: Intent::Unplanned(cause), .. }) => Some(match cause {
                Cause::Exit { .. } => Failure::Exited,
                Cause::Failed(failure) => *failure,
            }),
            _ => None,
        }
    }

    /// What it waits for, since when, how long still; for people.
    #[must_use]
    pub fn waits_for(&self) -> Option<(&'static str, Moment, Option<Moment>)> {
        let what = match self.fine_state() {
            "launching" => "the launch",
            "handshaking" => "the handshake",
            "settling" => "the exit, after the end of its output",
            "stdin" => "the exit, after the end of its input",
            "term" => "the exit, after SIGTERM",
            "command" => "its stop command",
            "kill" => "the last processes, after the kill",
            "aborting" => "the launch to give up",
            "stuck" => "processes that the kill has left",
            "backoff" => "its next start",
            _ => return None,
        };
        Some((what, self.since, self.next_timeout()))
    }

    fn next_number(&self) -> Incarnation {
        Incarnation(self.number.0.saturating_add(1))
    }

    fn launch(&mut self, now: Moment, out: &mut Effects) {
        self.changed_era = false;
        self.launch_until(now, now.after(self.config.start), out);
    }

    fn launch_until(&mut self, now: Moment, until: Moment, out: &mut Effects) {
        self.number = self.next_number();
        self.early = Early::default();
        self.main_ended = None;
        self.had_client = false;
        self.given_up = false;
        self.other_era = false;
        self.since = now;
        self.phase = Phase::Launching { until };
        out.push(ServerEffect::Launch { incarnation: self.number });
    }

    fn run(&mut self, now: Moment, out: &mut Effects) {
        self.been_ready = true;
        self.other_era = false;
        self.since = now;
        self.phase = Phase::Running { since: now, watch: self.watch(now) };
        out.push(ServerEffect::Report(ServerReport::Ready));
    }

    fn stop(&mut self, now: Moment, term_first: bool, out: &mut Effects) {
        match self.phase {
            Phase::Backoff { .. } if self.seeded.has(Bug::G29BackoffBeatsStop) => {}
            Phase::Idle | Phase::Backoff { .. } => {
                self.since = now;
                self.phase = Phase::Stopped;
                out.push(ServerEffect::Report(ServerReport::Stopped));
            }
            Phase::Launching { .. } if self.seeded.has(Bug::G17LateLaunchIsForgotten) => {
                self.phase = Phase::Stopped;
                out.push(ServerEffect::Report(ServerReport::Stopped));
            }
            Phase::Launching { .. } => {
                self.begin_ladder(now, Intent::Stop);
                self.climb(now, Rung::Kill, out);
            }
            Phase::Handshaking { .. } | Phase::Running { .. } => {
                self.begin_ladder(now, Intent::Stop);
                // A direct server's stdin is its client's: there is nothing of ours to close.
                let term = term_first || self.config.mode == Mode::Direct;
                self.climb(now, if term { Rung::Term } else { Rung::Stdin }, out);
            }
            Phase::Ending(_) => self.stop_ladder(now, term_first, out),
            Phase::Stopped | Phase::Ended | Phase::Failed(_) => {}
        }
    }

    /// Whatever it was, it begins anew: its restarts and backoffs are forgotten.
    fn restart(&mut self, now: Moment, out: &mut Effects) {
        if self.config.mode == Mode::Direct {
            return;
        }
        match &self.phase {
            Phase::Idle | Phase::Stopped => {}
            Phase::Launching { .. } => {
                self.begin_ladder(now, Intent::Restart);
                self.climb(now, Rung::Kill, out);
            }
            Phase::Running { .. } if self.seeded.has(Bug::G29RestartLeavesTheTree) => {
                self.relaunch(now, out);
            }
            Phase::Handshaking { .. } | Phase::Running { .. } => {
                self.begin_ladder(now, Intent::Restart);
                self.climb(now, Rung::Stdin, out);
            }
            Phase::Ending(_) => self.restart_ladder(now, out),
            Phase::Backoff { .. } | Phase::Ended | Phase::Failed(_) => self.relaunch(now, out),
        }
    }

    fn relaunch(&mut self, now: Moment, out: &mut Effects) {
        self.history = History::default();
        out.push(ServerEffect::Report(ServerReport::Relaunched));
        self.launch(now, out);
    }

    fn urge(&mut self, now: Moment, urgency: Urgency, out: &mut Effects) {
        if urgency == Urgency::Kill {
            self.skip_to_kill(now, out);
        }
    }

    fn timeout(&mut self, now: Moment, out: &mut Effects) {
        if self.next_timeout().is_none_or(|until| until > now) {
            return;
        }
        let timed_out = Intent::Unplanned(Cause::Failed(Failure::StartTimeout));
        match self.phase {
            Phase::Launching { .. } => {
                self.begin_ladder(now, timed_out);
                self.climb(now, Rung::Kill, out);
            }
            Phase::Handshaking { .. } => {
                self.begin_ladder(now, timed_out);
                self.end_by_force(now, out);
            }
            Phase::Backoff { .. } => self.launch(now, out),
            Phase::Ending(_) => self.rung_expired(now, out),
            Phase::Running { .. } => self.health_due(now, out),
            Phase::Idle | Phase::Stopped | Phase::Ended | Phase::Failed(_) => {}
        }
    }
}

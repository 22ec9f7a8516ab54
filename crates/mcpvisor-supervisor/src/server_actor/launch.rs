//! Starting a server's process, and taking over what was started.
use super::failure::launch_cause;
use super::{Driver, PAST_LINES, ServerMsg};
use crate::api::ServerSpec;
use crate::direct;
use crate::record::SessionRecord;
use crate::recovery;
use crate::relay::{Connection, ConnectionOptions};
use crate::stderr_log::StderrLog;
use mcpvisor_lifecycle::Incarnation;
use mcpvisor_lifecycle::server::{Mode, ServerEvent};
use mcpvisor_process::{Cwd, LaunchError, LaunchErrorKind, LaunchSpec, Launched, Stdio};
use ractor::ActorRef;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Driver {
    pub(super) fn launch(&mut self, myself: &ActorRef<ServerMsg>, incarnation: Incarnation) {
        self.choose_era();
        self.was_ready = false;
        let arguments = &mut self.arguments;
        let (stdio, cwd) = match arguments.direct.as_mut() {
            None => (Stdio::Piped, None),
            Some(streams) if arguments.record.spec.mode == Mode::Exclusive => {
                (Stdio::Piped, streams.cwd.take())
            }
            Some(streams) => match direct::stdio(streams) {
                Ok(stdio) => (stdio, streams.cwd.take()),
                Err(error) => {
                    let error = LaunchError { kind: LaunchErrorKind::Resources, message: error.to_string() };
                    let _ = myself.send_message(ServerMsg::Launched(incarnation, Err(error)));
                    return;
                }
            },
        };
        let spec = launch_spec(&arguments.session, &self.spec, stdio, cwd);
        let scope = self.scope(incarnation);
        let arguments = &self.arguments;
        let Some(_may_launch) = arguments.session.may_launch() else {
            let error =
                LaunchError { kind: LaunchErrorKind::Killed, message: "the session is being reaped".into() };
            let _ = myself.send_message(ServerMsg::Launched(incarnation, Err(error)));
            return;
        };
        {
            let mut live = arguments.record.live();
            live.scope = Some((incarnation, scope.clone()));
            live.empty = false;
            live.held = false;
            live.exit = None;
            live.stopping_since = None;
            live.certificate = None;
            live.stop_command = None;
        }
        let observer = myself.clone();
        let observer = Arc::new(move |fact| {
            let _ = observer.send_message(ServerMsg::Scope(incarnation, fact));
        });
        let answer = myself.clone();
        let done = Box::new(move |result| {
            let _ = answer.send_message(ServerMsg::Launched(incarnation, result));
        });
        arguments.containment.launch(scope, spec, observer, done);
    }

    pub(super) fn launched(
        &mut self,
        myself: &ActorRef<ServerMsg>,
        incarnation: Incarnation,
        result: Result<Launched, LaunchError>,
    ) -> Option<ServerEvent> {
        let result = result.map_err(|error| (launch_cause(error.kind), error.message));
        match result.and_then(|launched| {
            self.take_over(myself, incarnation, launched).map_err(|error| ("internal", error.to_string()))
        }) {
            Ok(()) => Some(ServerEvent::Launched { incarnation }),
            Err((cause, message)) => {
                tracing::debug!(cause, "nothing was launched");
                self.cause = Some((cause, message));
                let runs = {
                    let mut live = self.arguments.record.live();
                    let runs = live.pid.is_some() && !live.empty;
                    live.empty |= !runs;
                    runs
                };
                // What runs all the same (its pipes could not be taken over) is not left. The launch has failed when nothing of it is there.
                if runs {
                    self.unusable = Some(incarnation);
                    self.arguments.containment.kill(&self.scope(incarnation));
                    return None;
                }
                Some(ServerEvent::LaunchFailed { incarnation })
            }
        }
    }

    /// Takes the streams of a server that runs.
    fn take_over(
        &mut self,
        myself: &ActorRef<ServerMsg>,
        incarnation: Incarnation,
        launched: Launched,
    ) -> std::io::Result<()> {
        let record = Arc::clone(&self.arguments.record);
        record.live().pid = Some(launched.pid);
        #[cfg(test)]
        if crate::tests::NO_TAKE_OVER.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(std::io::Error::other("the test wants it so"));
        }
        tracing::debug!(pid = launched.pid, incarnation = incarnation.0, "launched");
        let tee = self.arguments.direct.as_mut().and_then(|streams| streams.stderr.take());
        let stderr = StderrLog::start(launched.stderr, tee)?;
        if let Some(past) = record.stderr.send_replace(Some(stderr)) {
            record.live().past_stderr = past.lines(PAST_LINES);
        }
        if let (Some(stdin), Some(stdout)) = (launched.stdin, launched.stdout) {
            let ended = myself.clone();
            let on_end = Box::new(move || {
                let _ = ended.send_message(ServerMsg::OutputEnded(incarnation));
            });
            if record.spec.mode == Mode::Exclusive {
                self.relay(myself, incarnation, stdin, stdout, on_end)?;
            } else {
                let usual = ConnectionOptions::default();
                let calls = record.spec.call_limits();
                let (max_line, era) = (record.spec.max_line, self.era);
                let options = ConnectionOptions { max_line, era, calls, ..usual };
                let connection = {
                    let slot = self.arguments.session.slot.of(record.index);
                    Connection::start(stdin, stdout, options, slot, record.frames.clone(), on_end)?
                };
                record.live().connection = Some(connection);
            }
        }
        if let Some(streams) = &mut self.arguments.direct {
            let told = myself.clone();
            self.hang_up = direct::watch(streams, record.spec.start, move || {
                let _ = told.send_message(ServerMsg::InputEnded(incarnation));
            })?;
        }
        Ok(())
    }
}

/// What a server's definition means to the process layer.
pub(super) fn launch_spec(
    session: &SessionRecord,
    spec: &ServerSpec,
    stdio: Stdio,
    cwd: Option<OwnedFd>,
) -> LaunchSpec {
    LaunchSpec {
        program: spec.program.clone(),
        args: spec.args.clone(),
        env: spec.env.to_vec(),
        cwd: match (cwd, &spec.cwd) {
            (Some(fd), _) => Cwd::Fd(fd),
            (None, Some(path)) => Cwd::Path(path.clone()),
            (None, None) => Cwd::Inherit,
        },
        stdio,
        umask: spec.umask,
        limits: spec.limits.clone(),
        nice: spec.nice,
        ignored_signals: spec.ignored_signals.clone(),
        credentials: spec.credentials.clone(),
        no_new_privs: spec.no_new_privs,
        memory_max: spec.memory_max,
        pids_max: spec.pids_max,
        note: recovery::note(session),
        deadline: spec.start,
    }
}

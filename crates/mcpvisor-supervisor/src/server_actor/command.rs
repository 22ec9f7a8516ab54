//! The stop command of a server: run once for an incarnation, in a scope of its own, and reaped.
use super::launch::launch_spec;
use super::{Driver, ServerMsg};
use crate::api::{StopCommand, StopCommandEnd};
use crate::program::Program;
use mcpvisor_lifecycle::Incarnation;
use mcpvisor_process::{LaunchSpec, ScopeId, Stdio};
use ractor::ActorRef;
use std::ffi::CString;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// Names the scope of the server that is being stopped, as the end of its `MCPVISOR_SCOPE` does.
const STOPPED: &str = "MCPVISOR_STOPPED";

impl Driver {
    /// Its end is told by `CommandEnded`, whichever it is.
    pub(super) fn run_command(&mut self, myself: &ActorRef<ServerMsg>, incarnation: Incarnation) {
        let scope = self.command_scope(incarnation);
        let spec =
            self.spec.stop_command.as_ref().and_then(|command| self.command_spec(command, incarnation));
        let session = Arc::clone(&self.arguments.session);
        let may_launch = session.may_launch();
        let (Some(spec), Some(_may_launch)) = (spec, may_launch) else {
            // The session is being reaped without its actors: nothing more is begun.
            let _ = myself.send_message(ServerMsg::CommandEnded(incarnation));
            return;
        };
        let (cut, over) = oneshot::channel();
        self.cut_command = Some(cut);
        let record = Arc::clone(&self.arguments.record);
        record.live().command_scope = Some(scope.clone());
        let program = Program::launch(&self.arguments.containment, scope, spec);
        let (answer, span) = (myself.clone(), self.span.clone());
        // A task of its own, and no part of the actor: where that is lost, the command is reaped all the same.
        let run = async move {
            let began = Instant::now();
            let cut = async {
                // Dropped with an actor that is lost: its scope is killed then by whoever reaps that.
                if over.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let ended = program.end(Vec::new(), cut).await;
            let good = ended.is_good();
            let end = StopCommandEnd {
                exit: ended.result.as_ref().ok().copied(),
                killed: ended.cut,
                message: ended.result.as_ref().err().map(|error| error.message.clone()),
                duration: began.elapsed(),
                stderr_tail: ended.stderr_tail,
            };
            {
                let _entered = span.enter();
                let (exit, message, stderr) = (end.exit, end.message.as_deref(), end.stderr_tail.as_str());
                if good {
                    tracing::debug!("the stop command has run");
                } else {
                    tracing::warn!(
                        killed = end.killed,
                        ?exit,
                        message,
                        stderr,
                        "the stop command has failed"
                    );
                }
            }
            {
                let mut live = record.live();
                live.command_scope = None;
                if let Some(report) = &ended.report {
                    live.proven &= report.proven;
                    live.last_exit = live.last_exit.max(Some(report.last_exit));
                }
                if let Some(certificate) = &mut live.certificate {
                    certificate.stop_command = Some(end.clone());
                }
                live.stop_command = Some(end);
            }
            record.command_over.notify_waiters();
            let _ = answer.send_message(ServerMsg::CommandEnded(incarnation));
        };
        tokio::spawn(run);
    }

    pub(super) fn kill_command(&mut self, incarnation: Incarnation) {
        if let Some(cut) = self.cut_command.take() {
            let _ = cut.send(());
        } else {
            self.arguments.containment.kill(&self.command_scope(incarnation));
        }
    }

    fn command_scope(&self, incarnation: Incarnation) -> ScopeId {
        let server = self.scope(incarnation);
        ScopeId { leaf: format!("{}-1", server.leaf).into(), ..server }
    }

    /// As its server is started, but for the words; none where a word holds a NUL, which none does.
    fn command_spec(&self, command: &StopCommand, incarnation: Incarnation) -> Option<LaunchSpec> {
        let mut spec = launch_spec(&self.arguments.session, &self.spec, Stdio::Piped, None);
        spec.program = command.args.first()?.clone();
        spec.args.clone_from(&command.args);
        let server = self.scope(incarnation);
        spec.env.push(CString::new(format!("{STOPPED}={}/{}", server.session, server.leaf)).ok()?);
        spec.deadline = command.timeout;
        Some(spec)
    }
}

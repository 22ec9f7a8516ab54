//! Skeleton until the actors are in.
use crate::api::*;
use mcpvisor_lifecycle::registry::{CloseOptions, Goal, RegistryConfig, Target, Urgency};
use mcpvisor_lifecycle::{ServerName, SessionId, Uid};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Instant;
/// The way to the sessions; cheap to clone. Dropping a future of `open` before it is done cancels the open (unless `wait` is false);
/// dropping any other future only gives up its answer (G14). `caller` is who may see the session: other users' are not found (G40).
#[derive(Clone)]
pub struct Supervisor {/* private */}

impl Supervisor {
    /// Starts the supervision tree on the current tokio runtime.
    pub async fn start(
        config: SupervisorConfig,
        containment: mcpvisor_process::Containment,
    ) -> Result<Self, Failure> {
        let _ = (config, containment);
        Err(Failure::Draining)
    }
    pub async fn open(&self, request: OpenRequest) -> Result<Opened, Failure> {
        let _ = request;
        Err(Failure::Draining)
    }
    pub async fn close(
        &self,
        target: Target,
        options: CloseOptions,
        wait: bool,
        deadline: Option<Instant>,
    ) -> Result<Arc<Certificate>, Failure> {
        let _ = (target, options, wait, deadline);
        Err(Failure::Draining)
    }
    pub async fn wait(
        &self,
        target: Target,
        goal: Goal,
        deadline: Option<Instant>,
    ) -> Result<Waited, Failure> {
        let _ = (target, goal, deadline);
        Err(Failure::Draining)
    }
    pub async fn retry_kill(
        &self,
        target: Target,
        deadline: Option<Instant>,
    ) -> Result<Arc<Certificate>, Failure> {
        let _ = (target, deadline);
        Err(Failure::Draining)
    }
    pub async fn list(&self, of: Option<Uid>) -> Vec<SessionView> {
        let _ = of;
        Vec::new()
    }
    pub async fn show(&self, target: Target) -> Result<SessionView, Failure> {
        let _ = target;
        Err(Failure::Draining)
    }
    pub async fn status(&self) -> Result<StatusView, Failure> {
        Err(Failure::Draining)
    }
    pub async fn processes(
        &self,
        of: Option<Uid>,
        target: Option<Target>,
    ) -> Result<Vec<ProcessView>, Failure> {
        let _ = (of, target);
        Ok(Vec::new())
    }
    pub async fn tools(&self, target: Target) -> Result<Vec<ToolView>, Failure> {
        let _ = target;
        Ok(Vec::new())
    }
    /// One call; dropping the future cancels it at the server.
    pub async fn call(
        &self,
        target: Target,
        server: Option<ServerName>,
        tool: String,
        arguments: Option<Box<RawValue>>,
        deadline: Option<Instant>,
    ) -> Result<Box<RawValue>, Failure> {
        let _ = (target, server, tool, arguments, deadline);
        Err(Failure::Draining)
    }
    /// The last `lines` of stderr; then, with `follow`, what comes, until the session ends.
    pub async fn logs(
        &self,
        target: Target,
        server: Option<ServerName>,
        lines: usize,
        follow: bool,
    ) -> Result<tokio::sync::mpsc::Receiver<LogLine>, Failure> {
        let _ = (target, server, lines, follow);
        Err(Failure::Draining)
    }
    /// A session's lease has ended: its client's connection is gone. Of a direct session: straight to SIGTERM.
    pub fn lease_ended(&self, session: SessionId) {
        let _ = session;
    }
    /// Admits nothing more.
    pub fn fence(&self) {}
    /// Tears everything down; a later call only raises the urgency.
    pub fn shutdown(&self, urgency: Urgency) {
        let _ = urgency;
    }
    /// Resolves when a shutdown is complete: the number of quarantined sessions that are left.
    pub async fn finished(&self) -> usize {
        0
    }
    pub fn reconfigure(&self, config: RegistryConfig) {
        let _ = config;
    }
}

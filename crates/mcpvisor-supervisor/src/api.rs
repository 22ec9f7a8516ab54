//! What the daemon asks of its sessions: requests, views, failures.
mod failure;
mod opened;
mod request;
mod requester;
mod token;
mod view;

pub use failure::{Failure, StartFailure};
pub use opened::{Kept, Opened, Opener};
pub use request::{
    CallTerms, DirectStreams, OpenRequest, Origin, Policy, Scope, ServerSpec, StopCommand, SupervisorConfig,
};
pub use requester::{GivenUp, Requester};
pub use token::{Meant, Secret, Token};
pub use view::{
    ApprovalView, Certificate, Changed, Detached, Down, Drained, Frame, FrameKind, LogLine, Outcome,
    ProcessView, Proof, ServerCertificate, ServerView, SessionView, StatusView, StopCommandEnd, ToolView,
    ToolsView, Waited, Waits,
};

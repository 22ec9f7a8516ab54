//! Calls that are held for a person.
use super::{milliseconds, names};
use mcpvisor_control::{ApprovalId, results};
use mcpvisor_lifecycle::{Generation, HoldNumber};
use mcpvisor_supervisor::ApprovalView;

/// A held call.
pub(crate) fn approval(view: &ApprovalView) -> results::Approval {
    results::Approval {
        id: approval_id((view.generation, view.number)),
        session: names::key(&view.key),
        generation: view.generation.0,
        owner: results::Owner { uid: view.owner.0 },
        server: names::server(&view.server),
        tool: view.tool.clone(),
        arguments: view.arguments.clone(),
        arguments_cut: view.cut,
        age_ms: milliseconds(view.age),
        left_ms: milliseconds(view.left),
    }
}

/// By which it is decided.
pub(super) fn approval_id((generation, number): (Generation, HoldNumber)) -> ApprovalId {
    ApprovalId { generation: generation.0, number: number.0 }
}

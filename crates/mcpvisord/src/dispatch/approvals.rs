//! Calls that are held for a person.
use super::inspect::whose;
use crate::connection::Context;
use crate::convert;
use mcpvisor_control::{ErrorKind, ErrorObject, params, results};
use mcpvisor_lifecycle::{Generation, HoldNumber, SessionId, Verdict};

/// The longest reason, in bytes.
const LONGEST_REASON: usize = 1024;

pub(super) async fn list(
    context: Context,
    params: params::ApprovalList,
) -> Result<results::Approvals, ErrorObject> {
    let of = whose(&context, params.user, params.all_users)?;
    let held = context.daemon.supervisor.approvals(of);
    Ok(results::Approvals { approvals: held.iter().map(convert::approval).collect() })
}

pub(super) async fn decide(
    context: Context,
    params: params::ApprovalDecide,
) -> Result<results::ApprovalDecided, ErrorObject> {
    let rights = context.daemon.rights();
    let uid = rights.owner(&context.peer, params.user)?;
    rights.decide(&context.peer)?;
    if params.reason.as_ref().is_some_and(|reason| reason.len() > LONGEST_REASON) {
        let text = format!("a reason has at most {LONGEST_REASON} bytes");
        return Err(ErrorObject::new(ErrorKind::InvalidRequest, text));
    }
    let id = params.id;
    let session = SessionId { uid, generation: Generation(id.generation) };
    let approve = params.decision == params::Decision::Approve;
    let decided = context.daemon.supervisor.decide(session, HoldNumber(id.number), approve, params.reason);
    let (by_uid, pid) = (context.peer.uid, context.peer.pid);
    decided.map_err(|failure| convert::error(failure, None))?;
    let decision = if approve { Verdict::Approved } else { Verdict::Denied }.as_str();
    tracing::info!(owner = uid.0, approval = %id, decision, uid = by_uid, pid, "a held call was decided");
    Ok(results::ApprovalDecided { id, decision: decision.to_owned() })
}

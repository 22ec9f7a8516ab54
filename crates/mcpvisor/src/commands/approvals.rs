//! `approvals`.
use super::wire::Wire;
use super::{Done, Status, tell, tell_or};
use crate::cli::{ApprovalsArgs, ApprovalsCommand, Globals};
use crate::render::{approvals as render, output};
use mcpvisor_control::ApprovalId;
use mcpvisor_control::params::{ApprovalDecide, ApprovalList, Decision};

pub(crate) fn approvals(args: &ApprovalsArgs, globals: &Globals) -> Done {
    match &args.command {
        None => list(args.all_users, globals),
        Some(ApprovalsCommand::List { all_users }) => list(*all_users, globals),
        Some(ApprovalsCommand::Approve { id }) => decide(*id, Decision::Approve, None, globals),
        Some(ApprovalsCommand::Deny { id, reason }) => decide(*id, Decision::Deny, reason.clone(), globals),
    }
}

fn list(all_users: bool, globals: &Globals) -> Done {
    let doing = "list the held calls";
    let mut wire = Wire::connect(doing, globals)?;
    let answer = wire.call(doing, &ApprovalList { user: globals.user, all_users })?;
    let held = &answer.value.approvals;
    if globals.json {
        output::json(&answer.raw);
    } else if globals.quiet {
        output::text(&held.iter().map(|held| format!("{}\n", held.id)).collect::<String>());
    } else if held.is_empty() {
        output::note("no call is held");
    } else {
        tell(globals, |style| render::approvals(held, all_users, style));
    }
    Ok(Status::Done)
}

fn decide(id: ApprovalId, decision: Decision, reason: Option<String>, globals: &Globals) -> Done {
    let doing = match decision {
        Decision::Approve => format!("approve {id}"),
        Decision::Deny => format!("deny {id}"),
    };
    let mut wire = Wire::connect(&doing, globals)?;
    let answer = wire.call(&doing, &ApprovalDecide { id, decision, reason, user: globals.user })?;
    if globals.json {
        output::json(&answer.raw);
    } else {
        let decision = &answer.value.decision;
        tell_or(globals, decision, |_| format!("{id} {}\n", crate::render::escape::line(decision)));
    }
    Ok(Status::Done)
}

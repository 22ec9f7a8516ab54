//! Calls that are held for a person.
use super::Supervisor;
use crate::api::{ApprovalView, Failure};
use crate::desk::{Refused, ToHold};
use crate::record::SessionRecord;
use mcpvisor_lifecycle::{Decided, HoldNumber, ServerName, SessionId, Uid, Verdict};
use serde_json::value::RawValue;

impl Supervisor {
    /// The held calls of one owner's sessions, or of everybody's, in the order of sessions and age.
    #[must_use]
    pub fn approvals(&self, of: Option<Uid>) -> Vec<ApprovalView> {
        let records = self.core.records();
        let mine = records.iter().filter(|record| of.is_none_or(|uid| record.key.uid == uid));
        let held = mine.flat_map(|record| {
            let view = |held: crate::desk::HeldView| ApprovalView {
                key: record.key.key.clone(),
                owner: record.id.uid,
                generation: record.id.generation,
                number: held.number,
                server: held.server,
                tool: held.tool,
                arguments: held.arguments,
                cut: held.cut,
                age: held.age,
                left: held.left,
            };
            record.desk.list().into_iter().map(view)
        });
        held.collect()
    }

    /// Approves or denies a held call of a session, once; `why` is told to who made it.
    ///
    /// # Errors
    /// `NoApproval`; `DecidedBefore`, which changes nothing.
    pub fn decide(
        &self,
        session: SessionId,
        number: HoldNumber,
        approve: bool,
        why: Option<String>,
    ) -> Result<(), Failure> {
        let record = self.core.record(session).ok_or(Failure::NoApproval)?;
        let verdict = if approve { Verdict::Approved } else { Verdict::Denied };
        match record.desk.decide(number, verdict, why) {
            Decided::Now => Ok(()),
            Decided::Before(first) => Err(Failure::DecidedBefore(first)),
            Decided::Unknown => Err(Failure::NoApproval),
        }
    }

    /// Waits for the approval of a call.
    pub(super) async fn approved(
        &self,
        record: &SessionRecord,
        server: &ServerName,
        tool: &str,
        arguments: Option<&RawValue>,
    ) -> Result<(), Failure> {
        let arguments = arguments.map(RawValue::get);
        let patience = record.policy.approval_timeout;
        let refused = match record
            .desk
            .approval(ToHold { server, there: &|| record.has(server), tool, arguments, patience })
            .await
        {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        let not = |number, waited, why| Failure::NotApproved {
            server: server.clone(),
            tool: tool.to_owned(),
            approval: (record.id.generation, number),
            waited,
            why,
        };
        Err(match refused {
            Refused::Denied(number, why) => not(number, None, why),
            Refused::TimedOut(number, after) => not(number, Some(after), None),
            Refused::ServerGone(why) => {
                Failure::ServerLeft { server: server.clone(), reason: why.into(), asked: false }
            }
            Refused::Closing => Failure::SessionClosing { session: record.id },
            Refused::Full(used) => Failure::TooManyHeld { used },
        })
    }
}

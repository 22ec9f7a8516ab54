//! The calls of a session that are held for a person, each with whoever waits for the decision.
//!
//! What decides is [`mcpvisor_lifecycle::Approvals`], under a lock that is never held across an await. A held call has no place at its
//! server: it takes its turn when it is approved.
use crate::events::{EventKind, Events, Field, Subject};
use crate::record::lock;
use mcpvisor_lifecycle::{Approvals, Decided, Generation, HoldNumber, KeyRef, NotHeld, ServerName, Verdict};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The most of a held call's arguments that is kept to be shown, in bytes.
const SHOWN: usize = 4096;

/// See the module.
#[derive(Default)]
pub(crate) struct Desk {
    state: Mutex<State>,
    tell: Option<Tell>,
}

/// Whose calls they are, and where it is told what becomes of them.
pub(crate) struct Tell {
    pub(crate) events: Events,
    pub(crate) key: KeyRef,
    pub(crate) generation: Generation,
}

#[derive(Default)]
struct State {
    approvals: Approvals,
    held: BTreeMap<HoldNumber, Held>,
}

struct Held {
    server: ServerName,
    tool: String,
    arguments: Option<String>,
    cut: bool,
    since: Instant,
    until: Instant,
    answer: oneshot::Sender<Answer>,
}

/// A verdict, and what the one who gave it says.
type Answer = (Verdict, Option<String>);

/// A call that waits, to be shown.
pub(crate) struct HeldView {
    pub(crate) number: HoldNumber,
    pub(crate) server: ServerName,
    pub(crate) tool: String,
    pub(crate) arguments: Option<String>,
    pub(crate) cut: bool,
    pub(crate) age: Duration,
    pub(crate) left: Duration,
}

/// Why a call was not approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A person said no, and perhaps why.
    Denied(HoldNumber, Option<String>),
    /// Nobody has decided in so long.
    TimedOut(HoldNumber, Duration),
    /// Its server was removed, or has ended for good: what has happened to it, as the end of a sentence.
    ServerGone(String),
    /// The session is being closed.
    Closing,
    /// So many are held already.
    Full(usize),
}

/// A call to be held.
pub(crate) struct ToHold<'a> {
    pub(crate) server: &'a ServerName,
    /// Whether the session has that server, and it has not ended for good. Asked under the desk's lock: who takes a server away lets the desk
    /// know afterwards.
    pub(crate) there: &'a (dyn Fn() -> bool + Sync),
    /// As it was called.
    pub(crate) tool: &'a str,
    /// As they came.
    pub(crate) arguments: Option<&'a str>,
    /// How long a decision may take.
    pub(crate) patience: Duration,
}

/// Withdraws a call whose caller is gone; of one that is decided this changes nothing.
struct Holding<'a> {
    desk: &'a Desk,
    number: HoldNumber,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.desk.decide(self.number, Verdict::Withdrawn, None);
    }
}

impl Desk {
    pub(crate) fn new(tell: Tell) -> Self {
        Self { tell: Some(tell), ..Self::default() }
    }

    fn tell(&self, kind: EventKind, number: HoldNumber, server: &ServerName, more: (&'static str, Field)) {
        let Some(Tell { events, key, generation }) = &self.tell else { return };
        let subject = Subject {
            key: Some(key.key.clone()),
            generation: Some(*generation),
            server: Some(server.clone()),
        };
        let approval = format!("{}.{}", generation.0, number.0);
        events.publish(key.uid, kind, subject, vec![("approval", approval.as_str().into()), more]);
    }

    fn answer(&self, number: HoldNumber, held: Held, verdict: Verdict, why: Option<String>) {
        self.tell(EventKind::ApprovalDecided, number, &held.server, ("decision", verdict.as_str().into()));
        // Whoever waited may be gone just now.
        let _ = held.answer.send((verdict, why));
    }

    /// Waits until the call is approved. Dropping the future withdraws it.
    ///
    /// # Errors
    /// Where it is not.
    pub(crate) async fn approval(&self, call: ToHold<'_>) -> Result<(), Refused> {
        let (answer, mut decided) = oneshot::channel();
        let number = self.hold(&call, answer)?;
        let holding = Holding { desk: self, number };
        let answer = match tokio::time::timeout(call.patience, &mut decided).await {
            Ok(answer) => answer,
            Err(_) => {
                // Unless it was decided just now, which counts.
                self.decide(number, Verdict::TimedOut, None);
                decided.await
            }
        };
        drop(holding);
        match answer {
            Ok((Verdict::Approved, _)) => Ok(()),
            Ok((Verdict::Denied, why)) => Err(Refused::Denied(number, why)),
            Ok((Verdict::TimedOut, _)) => Err(Refused::TimedOut(number, call.patience)),
            Ok((Verdict::ServerGone, why)) => Err(Refused::ServerGone(why.unwrap_or_default())),
            // A sender goes with its answer only.
            Ok((Verdict::Closed | Verdict::Withdrawn, _)) | Err(_) => Err(Refused::Closing),
        }
    }

    fn hold(&self, call: &ToHold<'_>, answer: oneshot::Sender<Answer>) -> Result<HoldNumber, Refused> {
        let mut state = lock(&self.state);
        let number = state.approvals.hold(call.server, (call.there)()).map_err(|why| match why {
            NotHeld::Closed => Refused::Closing,
            NotHeld::ServerGone => Refused::ServerGone("is not there any more".to_owned()),
            NotHeld::Full(used) => Refused::Full(used),
        })?;
        let (since, shown) =
            (Instant::now(), call.arguments.map(|text| &text[..text.floor_char_boundary(SHOWN)]));
        let held = Held {
            server: call.server.clone(),
            tool: call.tool[..call.tool.floor_char_boundary(SHOWN)].to_owned(),
            arguments: shown.map(str::to_owned),
            cut: shown.map(str::len) < call.arguments.map(str::len),
            since,
            until: since.checked_add(call.patience).unwrap_or(since),
            answer,
        };
        self.tell(EventKind::ApprovalHeld, number, &held.server, ("tool", held.tool.as_str().into()));
        state.held.insert(number, held);
        Ok(number)
    }

    /// Decides a held call, if nothing has before.
    pub(crate) fn decide(&self, number: HoldNumber, verdict: Verdict, why: Option<String>) -> Decided {
        let mut state = lock(&self.state);
        let decided = state.approvals.decide(number, verdict);
        if let Some(held) = state.held.remove(&number).filter(|_| decided == Decided::Now) {
            self.answer(number, held, verdict, why);
        }
        decided
    }

    /// The session is being closed: nothing is held any more.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        for number in state.approvals.close() {
            if let Some(held) = state.held.remove(&number) {
                self.answer(number, held, Verdict::Closed, None);
            }
        }
    }

    /// A server was removed, or has ended for good: nothing is held for it any more. `why` is the end of a sentence that begins with it.
    pub(crate) fn server_gone(&self, server: &ServerName, why: &str) {
        let mut state = lock(&self.state);
        for number in state.approvals.server_gone(server) {
            if let Some(held) = state.held.remove(&number) {
                self.answer(number, held, Verdict::ServerGone, Some(why.to_owned()));
            }
        }
    }

    /// How many are held.
    pub(crate) fn held(&self) -> usize {
        lock(&self.state).approvals.held()
    }

    /// Those that are held, oldest first.
    pub(crate) fn list(&self) -> Vec<HeldView> {
        let now = Instant::now();
        let view = |(number, held): (&HoldNumber, &Held)| HeldView {
            number: *number,
            server: held.server.clone(),
            tool: held.tool.clone(),
            arguments: held.arguments.clone(),
            cut: held.cut,
            age: now.saturating_duration_since(held.since),
            left: held.until.saturating_duration_since(now),
        };
        lock(&self.state).held.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests;

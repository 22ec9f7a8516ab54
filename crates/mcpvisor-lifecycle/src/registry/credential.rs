//! The token of a session: who shows it may use this generation of this key, whoever that is, and nothing else (G41).
//!
//! It is there from the step of the admission on, before anything of the session is started, and means the session until the step in
//! which nothing is left of it, or until it is revoked. What it looks like, and whether the one that is shown is the true one, the driver knows.
use super::types::{Phase, Refusal, RegistryEffect};
use super::{Effects, Registry};
use crate::seeded::Bug;
use crate::session::CloseReason;
use crate::{KeyRef, SessionId};

impl Registry {
    /// The session that may be used with the true token of `session`, shown for this key.
    ///
    /// # Errors
    /// [`Refusal::StaleGeneration`] of a session that is remembered as ended; [`Refusal::NotFound`] of one whose token is revoked, and of
    /// everything else.
    pub fn presented(&self, key: &KeyRef, session: SessionId) -> Result<SessionId, Refusal> {
        match self.entries.get(key) {
            Some(entry) if entry.session == session && !entry.revoked => Ok(session),
            Some(entry) if entry.session == session => Err(Refusal::NotFound),
            Some(entry) if self.seeded.has(Bug::G41TokenOutlivesItsGeneration) => Ok(entry.session),
            _ if self.tombs.ended(session, key).is_some() => Err(Refusal::StaleGeneration { session }),
            _ => Err(Refusal::NotFound),
        }
    }

    /// The token is revoked at once; the close is another's where one has begun, and this one joins it.
    pub(super) fn detached(&mut self, session: SessionId, out: &mut Effects) {
        let Some(key) = self.holds(session) else { return };
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let session = entry.session;
        let closing = matches!(entry.phase, Phase::Dying | Phase::Quarantined);
        let lost = closing && self.seeded.has(Bug::G41RevocationLosesAgainstAClose);
        if !lost && !std::mem::replace(&mut entry.revoked, true) {
            out.push(RegistryEffect::Revoke { session });
        }
        if !closing {
            self.close_wanted(session, CloseReason::LeaseEnded, out);
        }
    }
}

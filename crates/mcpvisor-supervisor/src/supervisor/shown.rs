//! Whose session a request means: its owner's, or the one whose token was shown.
use super::Supervisor;
use super::failure::{failure, lost};
use crate::api::{Failure, Meant, Token};
use crate::record::SessionRecord;
use crate::registry_actor::RegistryMsg;
use mcpvisor_lifecycle::KeyRef;
use std::sync::Arc;
use tokio::sync::oneshot;

impl Supervisor {
    /// The session to be used.
    ///
    /// # Errors
    /// `NotFound`, `StaleGeneration`. Whoever shows what is no true token, or one that is revoked, hears `NotFound`, as of what is not there.
    pub(super) async fn meant(&self, meant: &Meant) -> Result<Arc<SessionRecord>, Failure> {
        match &meant.token {
            None => self.resolve(meant.target.clone(), false).await,
            Some(token) => self.presented(&meant.target.key, token).await,
        }
    }

    async fn presented(&self, key: &KeyRef, token: &Token) -> Result<Arc<SessionRecord>, Failure> {
        let named = self.core.record(token.session);
        let named = named.filter(|record| record.has_secret(&token.secret) && record.key == *key);
        let session = named.ok_or(Failure::NotFound)?.id;
        let (answer, reply) = oneshot::channel();
        self.core.send(RegistryMsg::Present { key: key.clone(), session, reply: answer });
        let meant = reply.await.map_err(|_| lost())?.map_err(|refusal| failure(&refusal, None))?;
        self.core.record(meant).ok_or(Failure::NotFound)
    }
}

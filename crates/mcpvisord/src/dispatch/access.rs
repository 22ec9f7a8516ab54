//! By what right a session is used: as its owner's own, or with its token.
use super::target;
use crate::connection::Context;
use crate::convert;
use mcpvisor_control::{ErrorKind, ErrorObject, SessionKey, Token as WireToken};
use mcpvisor_lifecycle::registry::Target;
use mcpvisor_lifecycle::{Generation, KeyRef, SessionId, SessionKey as SessionName, Uid};
use mcpvisor_supervisor::{Failure, Meant, Secret, Token};

/// What an error may tell to someone else than the session's owner: nothing that a server has written to its stderr, or that others said to it.
const FOR_OTHERS: [&str; 18] = [
    "key",
    "generation",
    "server",
    "tool",
    "exit",
    "retry_after_ms",
    "scope",
    "used",
    "limit",
    "in_flight",
    "queue_timeout_ms",
    "timeout",
    "timeout_ms",
    "approval",
    "decision",
    "error",
    "reason",
    "help",
];

/// The session that a request means.
pub(super) struct Access {
    pub(super) meant: Meant,
    /// Who asks is not the owner, and may not see what is the owner's alone.
    other: bool,
}

impl Access {
    /// As the owner, or root for the owner; or with a token, which names the owner and the generation itself.
    pub(super) fn of(
        context: &Context,
        user: Option<u32>,
        key: &SessionKey,
        generation: Option<u64>,
        token: Option<&WireToken>,
    ) -> Result<Self, ErrorObject> {
        let Some(token) = token else {
            let meant = target(context, user, key, generation)?.into();
            return Ok(Self { meant, other: false });
        };
        if user.is_some() {
            let why = "a token names the owner of its session: no user is named with one";
            return Err(ErrorObject::new(ErrorKind::InvalidRequest, why));
        }
        let (uid, of, secret) = token.parts();
        let key = KeyRef { uid: Uid(uid), key: convert::key_name(key) };
        if generation.is_some_and(|named| named != of) {
            return Err(for_a_token(convert::error(Failure::NotFound, Some(&key.key))));
        }
        let session = SessionId { uid: Uid(uid), generation: Generation(of) };
        let target = Target { key, generation: Some(session.generation) };
        let token = Some(Token { session, secret: Secret::new(secret) });
        Ok(Self { meant: Meant { target, token }, other: !context.peer.is_root() && context.peer.uid != uid })
    }

    pub(super) fn key(&self) -> SessionName {
        self.meant.target.key.key.clone()
    }

    /// What the requester is told of a failure.
    pub(super) fn error(&self, failure: Failure) -> ErrorObject {
        let error = convert::error(failure, Some(&self.key()));
        let error = if self.meant.token.is_some() { for_a_token(error) } else { error };
        if self.other { for_others(error) } else { error }
    }
}

/// Whoever shows a token may have no list to look at, and means one generation whether it is named or not.
fn for_a_token(error: ErrorObject) -> ErrorObject {
    let help = match error.kind() {
        ErrorKind::NotFound => {
            "the token is not one of this key, or was revoked; ask whoever opened the session"
        }
        ErrorKind::StaleGeneration => {
            "the token ended with its session; ask whoever opens the next one for its token"
        }
        _ => return error,
    };
    error.with("help", help)
}

fn for_others(mut error: ErrorObject) -> ErrorObject {
    error.data.details.retain(|name, _| FOR_OTHERS.contains(&name.as_str()));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_is_for_whoever_shows_a_token() {
        for failure in [
            Failure::NotFound,
            Failure::StaleGeneration { session: SessionId { uid: Uid(1), generation: Generation(2) } },
        ] {
            let told = for_others(for_a_token(convert::error(failure, None)));
            let help = told.detail("help").and_then(|help| help.as_str()).unwrap();
            assert!(help.contains("token") && !help.contains("mcpvisor list"), "{help}");
        }
    }

    /// G40: a token lets its holder call a server, and not read what that writes for its owner.
    #[test]
    fn g40_stderr_is_the_owners_alone() {
        let error = ErrorObject::new(ErrorKind::ServerExited, "server main exited with 1 before it answered")
            .with("server", "main")
            .with("stderr_tail", "password: hunter2")
            .with("frames", ["tools/call"]);
        let told = serde_json::to_string(&for_others(error)).unwrap();
        assert!(told.contains("main") && !told.contains("hunter2") && !told.contains("frames"), "{told}");
    }
}

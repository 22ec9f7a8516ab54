//! Who may do what.
//!
//! A user's daemon serves that user, and root. Where the configuration lets others connect, they see sessions of their own only, may open
//! profiles, and may run commands of their own only as themselves, where it is allowed.
use crate::peer::{Confined, Peer};
use crate::users;
use mcpvisor_control::{ErrorKind, ErrorObject};
use mcpvisor_lifecycle::Uid;
use mcpvisor_process::{Credentials, Holder, HolderError};

/// What decisions rest on, besides the peer.
#[derive(Debug, Clone)]
pub(crate) struct Rights {
    /// The daemon's own user.
    pub(crate) daemon: u32,
    /// As the daemon's cgroups are named.
    pub(crate) instance: String,
    pub(crate) allow_commands: Vec<u32>,
    /// A private daemon serves the one process that started it, whoever and wherever that is.
    pub(crate) private: bool,
}

fn denied(message: String, help: &str) -> ErrorObject {
    ErrorObject::new(ErrorKind::PermissionDenied, message).with("help", help)
}

impl Rights {
    /// The peer may administer the daemon and see all of it.
    pub(crate) fn is_administrator(&self, peer: &Peer) -> bool {
        peer.is_root() || peer.uid == self.daemon
    }

    /// Refuses everybody else.
    pub(crate) fn administer(&self, peer: &Peer) -> Result<(), ErrorObject> {
        if self.is_administrator(peer) {
            return Ok(());
        }
        Err(denied(
            "only the daemon's own user and root may do this".into(),
            "ask the machine's administrator",
        ))
    }

    /// Whose sessions a request means: the caller's, or those of the user that root names.
    pub(crate) fn owner(&self, peer: &Peer, user: Option<u32>) -> Result<Uid, ErrorObject> {
        match user {
            Some(user) if user != peer.uid && !peer.is_root() => {
                Err(denied("only root may act for another user".into(), "leave --user out"))
            }
            user => Ok(Uid(user.unwrap_or(peer.uid))),
        }
    }

    /// Everyone's sessions, for root alone.
    pub(crate) fn everyone(&self, peer: &Peer) -> Result<(), ErrorObject> {
        if peer.is_root() {
            return Ok(());
        }
        Err(denied("only root may see all users' sessions".into(), "leave the request for all users out"))
    }

    /// Whether the peer may decide on held calls: what runs in a session must not approve its own.
    pub(crate) fn decide(&self, peer: &Peer) -> Result<(), ErrorObject> {
        peer.confined(&self.instance).map_err(|why| {
            let help = "decide from a shell of your own";
            denied(format!("held calls are not decided from here: {why}"), help)
        })
    }

    /// As whom commands of the peer's own run for this owner; None: as the daemon's user.
    pub(crate) fn run_own(&self, peer: &Peer, owner: Uid) -> Result<Option<Credentials>, ErrorObject> {
        if self.private {
            return Ok(None);
        }
        peer.confined(&self.instance).map_err(|why| {
            denied(
                format!("no commands of the client's own are run for it: {why}"),
                "`mcpvisor run` falls back to a private daemon; else use --private, or open a profile",
            )
        })?;
        if owner.0 == self.daemon {
            return Ok(None);
        }
        if self.daemon != 0 {
            let help = "use that user's own daemon, or --private";
            let message =
                format!("this daemon runs as uid {}, and can't run commands as uid {}", self.daemon, owner.0);
            return Err(denied(message, help));
        }
        if !peer.is_root() && !self.allow_commands.contains(&owner.0) {
            return Err(denied(
                format!("this daemon runs no commands of uid {}'s own", owner.0),
                "open a profile, use --private, or have the uid added to allow_commands in [daemon]",
            ));
        }
        credentials(peer, owner).map(Some)
    }

    /// The process whose end is to be a session's: one of the peer's own uid, or any for an administrator.
    pub(crate) fn holder(&self, peer: &Peer, pid: u32) -> Result<Holder, ErrorObject> {
        // In another pid namespace the number means another process.
        match peer.confined(&self.instance) {
            Ok(()) | Err(Confined::InSession) => {}
            Err(_) if self.private => {}
            Err(why) => {
                let message = format!("process {pid} can't hold a lease: {why}");
                return Err(denied(message, "use --lease connection"));
            }
        }
        let holder = Holder::open(pid).map_err(|error| match error {
            HolderError::NotFound(_) => ErrorObject::new(ErrorKind::InvalidRequest, error.to_string())
                .with("help", "a lease pid:N needs a process that lives"),
            HolderError::Failed { .. } => ErrorObject::new(ErrorKind::Internal, error.to_string()),
        })?;
        match holder.uid() {
            Some(uid) if uid == peer.uid || self.is_administrator(peer) => Ok(holder),
            Some(_) => {
                Err(denied(format!("process {pid} is another user's"), "a lease needs a process of your own"))
            }
            None => Err(ErrorObject::new(ErrorKind::InvalidRequest, HolderError::NotFound(pid).to_string())),
        }
    }

    /// As whom servers of a profile run; None: as the daemon's user.
    pub(crate) fn run_profile(&self, peer: &Peer, owner: Uid) -> Result<Option<Credentials>, ErrorObject> {
        if self.daemon != 0 || owner.0 == self.daemon { Ok(None) } else { credentials(peer, owner).map(Some) }
    }
}

/// The user's groups are those of the process that asks, where it is the user's, else those that the machine's files tell.
fn credentials(peer: &Peer, owner: Uid) -> Result<Credentials, ErrorObject> {
    if peer.uid == owner.0
        && let Some(groups) = peer.groups()
    {
        return Ok(Credentials { uid: owner.0, gid: peer.gid, groups });
    }
    match users::user(owner.0) {
        Some(user) => Ok(Credentials { uid: owner.0, gid: user.gid, groups: users::groups(&user) }),
        None => Err(denied(
            format!("uid {} is not in /etc/passwd, so its groups are not known", owner.0),
            "let a process of that user ask itself",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCE: &str = "0123456789abcdef";

    fn rights(daemon: u32, allow: &[u32]) -> Rights {
        Rights { daemon, instance: INSTANCE.into(), allow_commands: allow.to_vec(), private: false }
    }

    fn denied_to(result: Result<Option<Credentials>, ErrorObject>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    /// G34: a lease is held by a living process of the requester's own.
    #[test]
    fn g34_a_process_of_another_user_holds_no_lease() {
        let (me, own) = (rustix::process::getuid().as_raw(), std::process::id());
        let rights = rights(me, &[]);
        let stranger = Peer::pretend(me + 1);
        let kind = |result: Result<Holder, ErrorObject>| result.map_err(|error| error.kind());
        assert_eq!(kind(rights.holder(&stranger, own)).unwrap_err(), ErrorKind::PermissionDenied);
        assert_eq!(rights.holder(&Peer::pretend(me), own).unwrap().pid(), own);
        let gone = i32::MAX as u32;
        assert_eq!(kind(rights.holder(&Peer::pretend(me), gone)).unwrap_err(), ErrorKind::InvalidRequest);
    }

    /// G40: nobody but root acts for another.
    #[test]
    fn g40_a_user_can_not_name_another() {
        let rights = rights(0, &[]);
        let ann = Peer::pretend(1000);
        assert_eq!(rights.owner(&ann, None).unwrap(), Uid(1000));
        assert_eq!(rights.owner(&ann, Some(1000)).unwrap(), Uid(1000));
        assert!(rights.owner(&ann, Some(1001)).is_err());
        assert_eq!(rights.owner(&Peer::pretend(0), Some(1001)).unwrap(), Uid(1001));
        assert!(rights.administer(&ann).is_err());
        assert!(rights.everyone(&ann).is_err());
        assert!(rights.everyone(&Peer::pretend(0)).is_ok());
    }

    #[test]
    fn commands_run_as_their_user_where_that_is_allowed() {
        let ann = Peer::pretend(4_000_001);
        assert!(denied_to(rights(0, &[]).run_own(&ann, Uid(ann.uid))));
        // Allowed, but not known to the machine, and the pretended process is not this user's.
        let told = rights(0, &[ann.uid]).run_own(&ann, Uid(ann.uid)).unwrap_err();
        assert!(told.message.contains("not in /etc/passwd"), "{told}");
        // A daemon of another user's can't become anyone.
        assert!(denied_to(rights(4_000_002, &[ann.uid]).run_own(&ann, Uid(ann.uid))));
        assert_eq!(rights(ann.uid, &[]).run_own(&ann, Uid(ann.uid)).unwrap(), None);
        // Root acts for others, and its commands run as them.
        let root = Peer::pretend(0);
        assert_eq!(rights(ann.uid, &[]).run_own(&root, Uid(ann.uid)).unwrap(), None);
        assert!(denied_to(rights(ann.uid, &[]).run_own(&root, Uid(0))));
        if let Some(user) = users::user(1) {
            let credentials = rights(0, &[]).run_own(&root, Uid(1)).unwrap().unwrap();
            assert_eq!((credentials.uid, credentials.gid), (1, user.gid));
        }
    }

    #[test]
    fn servers_of_a_profile_run_as_the_daemon_or_below_root_as_the_owner() {
        let ann = Peer::pretend(4_000_001);
        assert_eq!(rights(500, &[]).run_profile(&ann, Uid(ann.uid)).unwrap(), None);
        assert_eq!(rights(0, &[]).run_profile(&Peer::pretend(0), Uid(0)).unwrap(), None);
        assert!(rights(0, &[]).run_profile(&ann, Uid(ann.uid)).is_err());
    }
}

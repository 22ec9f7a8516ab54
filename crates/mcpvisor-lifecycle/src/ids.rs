//! The names of things: keys, generations, sessions, servers, requests.
use std::fmt;
use std::sync::Arc;

/// A user of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub u32);

/// The number of a session among those of its owner, in one daemon instance; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// A session: generations are counted per owner, so that numbers tell nothing of other users (G40).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// The owner.
    pub uid: Uid,
    /// The number among the owner's sessions.
    pub generation: Generation,
}

/// The number of a server's process: 1 for the first, one more for each restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

/// A server's place in its session: 0, 1, … for those that the session was opened with, in their order; one that is added later has the
/// next number. Never given twice in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

/// A request that waits for an answer; made up by the driver, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);
        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str { &self.0 }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
    };
}

name!(
    /// A session's key: `[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`.
    SessionKey
);
name!(
    /// A server's name: `[A-Za-z0-9][A-Za-z0-9_-]{0,63}`.
    ServerName
);
name!(
    /// A profile's name: the same form as a server's.
    ProfileName
);
name!(
    /// A quota group below a uid; same form as a key.
    Tenant
);

/// Text that is not the name that it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadName {
    /// What it should be: `session key`, `server name` or `tenant`.
    pub what: &'static str,
    /// The rule as a pattern.
    pub pattern: &'static str,
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} has the form {}", self.what, self.pattern)
    }
}
impl std::error::Error for BadName {}

/// How the keys of sessions begin that have a server which others share.
const SHARED: &str = "daemon::";

const KEY: &str = "[A-Za-z0-9][A-Za-z0-9._:-]{0,127}";
const SERVER: &str = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}";

fn check(text: &str, more: &[u8], longest: usize) -> bool {
    let bytes = text.as_bytes();
    (1..=longest).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || more.contains(b))
}

impl SessionKey {
    /// A key, if the text has a key's form.
    pub fn new(text: &str) -> Result<Self, BadName> {
        if check(text, b"._:-", 128) {
            Ok(Self(text.into()))
        } else {
            Err(BadName { what: "session key", pattern: KEY })
        }
    }

    /// The key of the session that has a server which others share: of one owner, one profile's server, and one definition.
    #[must_use]
    pub fn of_shared(profile: &str, server: &ServerName, definition: u64) -> Self {
        // A profile's name has a server's form; cut, so that the whole is no longer than a key. The definition tells them apart.
        let cut = |name: &str| name.chars().take(48).collect::<String>();
        let (profile, server) = (cut(profile), cut(server.as_str()));
        Self(format!("{SHARED}{profile}::{server}::{definition:016x}").into())
    }

    /// Whether it is such a key. No client opens a session by one.
    #[must_use]
    pub fn is_of_shared(&self) -> bool {
        self.0.starts_with(SHARED)
    }
}
impl Tenant {
    /// A tenant, if the text has a key's form.
    pub fn new(text: &str) -> Result<Self, BadName> {
        if check(text, b"._:-", 128) {
            Ok(Self(text.into()))
        } else {
            Err(BadName { what: "tenant", pattern: KEY })
        }
    }
}
impl ProfileName {
    /// A profile's name, if the text has its form.
    pub fn new(text: &str) -> Result<Self, BadName> {
        if check(text, b"_-", 64) {
            Ok(Self(text.into()))
        } else {
            Err(BadName { what: "profile", pattern: SERVER })
        }
    }
}
impl ServerName {
    /// A server's name, if the text has its form.
    pub fn new(text: &str) -> Result<Self, BadName> {
        if check(text, b"_-", 64) {
            Ok(Self(text.into()))
        } else {
            Err(BadName { what: "server name", pattern: SERVER })
        }
    }
}

/// A key with its owner: keys of different users are different keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRef {
    /// The owner.
    pub uid: Uid,
    /// The owner's name for the session.
    pub key: SessionKey,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_form() {
        let longest = format!("a{}", "b".repeat(127));
        for good in ["a", "Z9", "0", "a.b_c:d-e", &longest] {
            assert!(SessionKey::new(good).is_ok() && Tenant::new(good).is_ok(), "{good}");
        }
        let too_long = format!("{longest}c");
        for bad in ["", "-a", ".a", "_a", ":a", "a/b", "a b", "a\n", "é", "aé", &too_long] {
            assert!(SessionKey::new(bad).is_err() && Tenant::new(bad).is_err(), "{bad}");
        }
        let longest = "s".repeat(64);
        for good in ["a", "9-_", &longest] {
            assert!(ServerName::new(good).is_ok(), "{good}");
        }
        let too_long = "s".repeat(65);
        for bad in ["", "-a", "_a", "a.b", "a:b", &too_long] {
            assert!(ServerName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_key_of_a_shared_server_is_a_key() {
        let longest = ServerName::new(&"s".repeat(64)).unwrap();
        let key = SessionKey::of_shared(&"p".repeat(64), &longest, u64::MAX);
        assert_eq!(SessionKey::new(key.as_str()).as_ref(), Ok(&key));
        assert!(key.is_of_shared() && !SessionKey::new("daemon").unwrap().is_of_shared());
        assert_ne!(key, SessionKey::of_shared(&"p".repeat(64), &longest, 1));
    }

    #[test]
    fn a_bad_name_is_told_with_its_rule() {
        let told = [
            SessionKey::new("a/b").unwrap_err().to_string(),
            Tenant::new("").unwrap_err().to_string(),
            ServerName::new("a.b").unwrap_err().to_string(),
        ];
        assert_eq!(
            told,
            [
                "a session key has the form [A-Za-z0-9][A-Za-z0-9._:-]{0,127}",
                "a tenant has the form [A-Za-z0-9][A-Za-z0-9._:-]{0,127}",
                "a server name has the form [A-Za-z0-9][A-Za-z0-9_-]{0,63}",
            ]
        );
    }
}

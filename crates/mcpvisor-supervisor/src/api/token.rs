//! The token of a session, and what is meant by a request.
use mcpvisor_lifecycle::SessionId;
use mcpvisor_lifecycle::registry::Target;
use std::fmt;
use std::hint::black_box;

/// What nobody can guess of a token. Shown by nothing but [`Secret::bytes`].
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Of random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether both are the same; takes as long whatever differs.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |all, (one, two)| black_box(all | (one ^ two)));
        black_box(differing) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A token as it was shown: the session that it names, and the secret.
#[derive(Debug, Clone)]
pub struct Token {
    /// Which session.
    pub session: SessionId,
    /// What makes it true.
    pub secret: Secret,
}

/// The session that a request means, and by what right.
#[derive(Debug, Clone)]
pub struct Meant {
    /// Which; with a token its key counts.
    pub target: Target,
    /// None: it is the requester's own.
    pub token: Option<Token>,
}

impl From<Target> for Meant {
    fn from(target: Target) -> Self {
        Self { target, token: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g41_a_secret_is_compared_whole_and_shown_by_nothing() {
        let secret = Secret::new([7; 32]);
        assert!(secret.is(&Secret::new([7; 32])));
        for place in 0..32 {
            for bit in 0..8 {
                let mut bytes = [7; 32];
                bytes[place] ^= 1 << bit;
                assert!(!secret.is(&Secret::new(bytes)), "{place} {bit}");
            }
        }
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}

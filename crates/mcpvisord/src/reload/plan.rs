//! What is to be done with each server of a session so that it has what its profile says now.

/// What a session has of a server from its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Has {
    /// The digest of the definition by which it was last brought there.
    pub(super) definition: u64,
    /// It is a member still; else it was removed by hand.
    pub(super) member: bool,
}

/// What is to be done with a server that the profile names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It is what it is to be.
    Keep,
    /// Whoever removed it by hand meant this very definition.
    LeaveAway,
    Add,
    Replace,
}

/// Towards the definition with this digest. What counts is what the session really has, not what the file said before.
pub(super) fn step(has: Option<Has>, wanted: u64) -> Step {
    match has {
        Some(Has { definition, member: true }) if definition == wanted => Step::Keep,
        Some(Has { definition, member: false }) if definition == wanted => Step::LeaveAway,
        Some(Has { member: true, .. }) => Step::Replace,
        Some(Has { member: false, .. }) | None => Step::Add,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_has_decides() {
        let has = |definition, member| Some(Has { definition, member });
        assert_eq!(step(has(1, true), 1), Step::Keep);
        assert_eq!(step(has(1, true), 2), Step::Replace);
        assert_eq!(step(None, 1), Step::Add, "it is new, or its last add failed");
        assert_eq!(step(has(1, false), 1), Step::LeaveAway, "it was removed by hand");
        assert_eq!(step(has(1, false), 2), Step::Add, "it was removed by hand, and is another now");
    }
}

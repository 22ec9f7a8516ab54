//! The protocol's revisions and its two eras.

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// Revisions up to 2025-11-25: a handshake with `initialize`, requests in both directions.
    Legacy,
    /// Revisions from 2026-07-28: no handshake, `_meta` on each request, servers send no requests.
    Modern,
}

/// How the handshake with a server begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EraChoice {
    /// With `initialize`, and with `server/discover` where that is refused as a modern server would.
    #[default]
    Auto,
    /// The other way round: for a server that was modern when it was last negotiated with.
    ModernFirst,
    /// With `initialize` only.
    Legacy,
    /// With `server/discover` only.
    Modern,
}

/// The legacy revisions that are known, oldest first.
pub const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", OFFERED];
/// The modern revisions that are known, oldest first.
pub const MODERN: [&str; 1] = ["2026-07-28"];
/// The revision that `initialize` offers: the newest legacy one.
pub const OFFERED: &str = "2025-11-25";

impl Era {
    /// `legacy` or `modern`, as `show` tells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

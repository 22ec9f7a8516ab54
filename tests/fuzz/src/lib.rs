//! What must hold for any bytes of a server or a client (G11, G42, G43).
//!
//! Each target takes bytes, drives a part of `mcpvisor-mcp` with them, and panics where a property does not hold. `cargo xtask fuzz`
//! searches for such bytes by the hundred million; `tests/corpus.rs` replays what it has found to be interesting.
//!
//! | target | what it drives |
//! | --- | --- |
//! | [`framing`] | lines out of reads of any size, and whose answer an over-long one was |
//! | [`envelope`] | what kind of message a line is, told by both readers of lines |
//! | [`negotiation`] | the handshake with a server that says anything |
//! | [`relay`] | ids followed in a conversation that passes through |
//! | [`shared`] | ids rewritten between one client and two servers |
pub mod envelope;
pub mod framing;
pub mod negotiation;
pub mod relay;
pub mod shared;

/// One target: its name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 5] = [
    ("framing", framing::run),
    ("envelope", envelope::run),
    ("negotiation", negotiation::run),
    ("relay", relay::run),
    ("shared", shared::run),
];

/// An input's lines, each with the byte that says what to do with it.
fn script(input: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    input
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split_first().map(|(first, rest)| (*first, rest)))
}

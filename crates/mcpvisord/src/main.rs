//! The daemon as a binary of its own.
fn main() {}

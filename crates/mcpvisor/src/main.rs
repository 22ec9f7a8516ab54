//! The client.
fn main() {}

//! The fault proxy as a command.
fn main() {}

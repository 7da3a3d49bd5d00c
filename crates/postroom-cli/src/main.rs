//! The `postroom` command.
fn main() {}

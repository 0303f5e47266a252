//! Placeholder, filled by the commits that follow.
fn main() {}

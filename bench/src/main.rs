//! The `ringlog-bench` binary.
fn main() {}

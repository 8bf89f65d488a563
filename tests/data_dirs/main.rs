//! Several data directories under one server, over the simulator: where partitions go and are
//! found, what a start refuses, what fails alone, what a crash leaves of topics and checkpoints.
//!
//! Owns: the promises about directories that need no socket. Never does: real I/O. Left:
//! `ringlog::server`. Right: nobody.

mod crash;
mod failing;
mod harness;
mod places;

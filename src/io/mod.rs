//! The kernel, behind one seam: an [`Op`] goes in, a [`Done`] comes out.
//!
//! Owns: the only io_uring code and the only `unsafe` of the crate; the three engines that carry
//! ops out (the ring, plain system calls, the simulator); the buffers ops own while in flight.
//! Never does: anything that knows Kafka, a protocol or a policy.
//! Left: [`crate::types`]. Right: `log` (ops and buffers only), `shard`, `server`.
//!
//! The contract, the same for every engine and held by one test suite:
//! - An op owns its buffers from `submit` until its `Done`; `Done` gives the whole op back.
//! - A refused submit gives the op back, buffers and all; nothing has happened.
//! - Exactly one `Done` for each accepted op, in any order, also after `Cancel`.
//! - Short transfers are results, not errors: the submitter resumes.
//! - Two ops of one `reap` may have run in either order: whoever needs order waits (D2).
#![allow(unsafe_code)]

pub mod affinity;
pub mod blocking;
pub mod buffers;
mod calls;
#[cfg(test)]
mod confined;
pub mod cpu;
pub mod engine;
mod entries;
mod epoll;
mod files;
mod inflight;
pub mod kernel;
pub mod lock;
pub mod op;
mod pool;
pub mod probe;
mod ring;
pub mod setup;
pub mod signal;
pub mod sim;
mod sys;
pub mod syscall;
mod timers;
pub mod uring;
pub mod volume;
mod wake;

pub use op::{Done, Errno, FileId, Io, Op, Outcome, Refused, Tag, Token, Wait};

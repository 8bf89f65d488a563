//! The load: prebuilt batches, their frames, and clients that send them and fetch them back.
//!
//! Owns: closed-loop clients over plain sockets, one pinned thread each. Never does: start a
//! server, judge a row. Left: `ringlog::format`, `sys`. Right: `ceiling`, `quick`.
//!
//! Closed loop means that a client which waits for a stalled server stops sampling: the latencies
//! here omit that waiting (M6), and every row made here says so.

pub mod batches;
pub mod fetch;
pub mod produce;
pub mod wire;

/// What every row of this load is labelled with (M6).
pub const CLOSED_LOOP: &str = "closed loop: latency omits waiting to send";

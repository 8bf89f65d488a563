//! Bytes on the wire: what `docs/protocol.md` specifies, in both directions.
//!
//! Owns: frames, headers, every request and response body, error bodies. Client and server use
//! the same types. Never does: I/O, clocks, looking into record batches (they are opaque slices).
//! Left: [`crate::types`], [`crate::errors`]. Right: `shard`, `client`.
//!
//! A frame's way in: [`frame::scan_request`] finds it, [`api::RequestHeader::admit`] names the
//! api or the refusal, [`Message::parse`] reads the body. The way out: [`api::encode_request`],
//! [`api::encode_response`], [`error::encode_error`], and for the two hot messages fixed-size
//! heads that need no buffer ([`produce::response_frame`], [`fetch::frame_head`],
//! [`fetch::part_head`]).
//!
//! Outside bytes never panic here and never size an allocation: a list's count is checked against
//! the bytes that remain before anything is allocated ([`cursor::Reader::list`], R85).
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod api;
pub mod cursor;
pub mod epochs;
pub mod error;
pub mod fetch;
pub mod frame;
pub mod hello;
pub mod log_dirs;
pub mod metadata;
pub mod offsets;
pub mod produce;
pub mod stats;
pub mod topics;

pub use api::{Api, Message, Request};
pub use cursor::WireError;

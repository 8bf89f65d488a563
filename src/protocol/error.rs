//! The body of an error response, the same for every api: a message for people, then what the
//! code's reader needs to go on.
//!
//! Owns: [`ErrorBody`], [`Detail`], the framing of an error response. Never does: choose codes.
//! Left: [`super::cursor`], [`super::api`]. Right: `shard`, `client`.
//!
//! ```text
//! string message | detail to the end of the body, by error code
//! NOT_OWNER            u16 shard that owns the partition
//! OFFSET_OUT_OF_RANGE  i64 log start | i64 high watermark
//! OUT_OF_ORDER_SEQUENCE_NUMBER  i16 epoch | i32 sequence that is due in it
//! CORRUPT_MESSAGE      i64 first offset lost | i64 first offset behind (of a fetch)
//! FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
//!                      i32 epoch | i64 end: how far the reader's history and the log's agree
//! UNSUPPORTED_VERSION  u8 lowest | u8 highest version served (lowest > highest: none)
//! ```

use super::api::{ResponseHeader, framed};
use super::cursor::{Reader, WireError, Writer};
use crate::errors::ErrorCode;
use crate::types::ShardId;

/// Messages are cut here, at a character's start.
pub const MESSAGE_BYTES_MAX: usize = 1024;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    None,
    Owner(ShardId),
    Range {
        start: i64,
        high_watermark: i64,
    },
    /// These offsets are damaged on the disk; reading goes on at `next`.
    Damage {
        first: i64,
        next: i64,
    },
    /// The log and what the reader read are the same up to `end`, which lies in `epoch`.
    Diverged {
        epoch: i32,
        end: i64,
    },
    Versions {
        min: u8,
        max: u8,
    },
    /// The producer's epoch as the partition knows it, and the sequence that it awaits.
    Sequence {
        epoch: i16,
        next: i32,
    },
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ErrorBody<'a> {
    pub message: &'a str,
    pub detail: Detail,
}

impl<'a> ErrorBody<'a> {
    /// An empty body is a body without a message. Bytes behind a known detail, and the detail of
    /// a code this build does not know, are a newer server's: skipped.
    pub fn parse(code: i16, body: &'a [u8]) -> Result<ErrorBody<'a>, WireError> {
        if body.is_empty() {
            return Ok(ErrorBody { message: "", detail: Detail::None });
        }
        let mut reader = Reader::new(body);
        let message = reader.string("error message")?;
        let detail = match ErrorCode::from_code(code) {
            _ if reader.left() == 0 => Detail::None,
            Some(ErrorCode::NotOwner) => Detail::Owner(ShardId(reader.u16("owner shard")?)),
            Some(ErrorCode::OffsetOutOfRange) => Detail::Range {
                start: reader.i64("log start")?,
                high_watermark: reader.i64("high watermark")?,
            },
            Some(ErrorCode::CorruptMessage) => Detail::Damage {
                first: reader.i64("first offset lost")?,
                next: reader.i64("next offset")?,
            },
            Some(ErrorCode::FencedLeaderEpoch | ErrorCode::UnknownLeaderEpoch) => {
                Detail::Diverged {
                    epoch: reader.i32("leader epoch")?,
                    end: reader.i64("end offset")?,
                }
            }
            Some(ErrorCode::UnsupportedVersion) => Detail::Versions {
                min: reader.u8("lowest version")?,
                max: reader.u8("highest version")?,
            },
            Some(ErrorCode::OutOfOrderSequenceNumber) => Detail::Sequence {
                epoch: reader.i16("producer epoch")?,
                next: reader.i32("next sequence")?,
            },
            _ => Detail::None,
        };
        Ok(ErrorBody { message, detail })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        let cut = self.message.floor_char_boundary(MESSAGE_BYTES_MAX);
        let message = self.message.get(..cut).unwrap_or_default();
        writer.u16(message.len() as u16); // at most MESSAGE_BYTES_MAX
        writer.raw(message.as_bytes());
        match self.detail {
            Detail::None => {}
            Detail::Owner(ShardId(shard)) => writer.u16(shard),
            Detail::Range { start, high_watermark } => {
                writer.i64(start);
                writer.i64(high_watermark);
            }
            Detail::Damage { first, next } => {
                writer.i64(first);
                writer.i64(next);
            }
            Detail::Diverged { epoch, end } => {
                writer.i32(epoch);
                writer.i64(end);
            }
            Detail::Versions { min, max } => writer.raw(&[min, max]),
            Detail::Sequence { epoch, next } => {
                writer.i16(epoch);
                writer.i32(next);
            }
        }
    }
}

const _: () = assert!(MESSAGE_BYTES_MAX <= u16::MAX as usize);

/// Appends a whole error response. `api` and `version` are the request's, whatever they were.
pub fn encode_error(
    api: u8,
    version: u8,
    code: ErrorCode,
    correlation: u32,
    message: &str,
    detail: Detail,
    out: &mut Vec<u8>,
) {
    let header = ResponseHeader { api, version, error: code.code(), correlation };
    let framed = framed(out, |out| {
        let mut writer = Writer::new(out);
        writer.raw(&[header.api, header.version]);
        writer.i16(header.error);
        writer.u32(header.correlation);
        ErrorBody { message, detail }.encode(out);
        Ok(())
    });
    debug_assert!(framed.is_ok(), "an error body is at most a message and a detail");
}

//! Produce: the hot message in. The record bytes sit at a fixed place in the frame.
//!
//! Owns: the two bodies of api 6 and their fixed-size encoders. Never does: look into batches.
//! Left: [`super::cursor`], [`super::api`]. Right: `shard::produce`, `client::producer`.
//!
//! ```text
//! request   u32 handle | u8 ack level | 3 reserved, zero | batches to the end of the frame
//! response  i64 base offset | i64 append time, -1 under CreateTime | u8 level met | i64 log start
//! ```

use super::api::{Api, BODY_AT, Message, Request, ResponseHeader, VERSION};
use super::cursor::{Head, Reader, WireError, Writer};
use super::frame::PREFIX;
use crate::types::{AckLevel, Handle, Offset, WallMs};

/// Bytes of the body before the first batch.
pub const FIXED: usize = 4 + 1 + 3;
/// Where the first batch begins, counted from the frame's first byte (its prefix).
pub const BATCHES_AT: usize = BODY_AT + FIXED;
const _: () = assert!(BATCHES_AT == 20);
/// Bytes of a response's body.
pub const RESPONSE: usize = 8 + 8 + 1 + 8;
/// Bytes of a whole response frame.
pub const RESPONSE_FRAME: usize = BODY_AT + RESPONSE;
const _: () = assert!(RESPONSE_FRAME == 37);

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ProduceRequest<'a> {
    pub handle: Handle,
    pub ack: AckLevel,
    /// One or more record batches, back to back.
    pub batches: &'a [u8],
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ProduceResponse {
    /// The first record's offset; the others follow it without a gap.
    pub base: Offset,
    /// The server's clock when the topic is LogAppendTime, else -1.
    pub append_time: WallMs,
    /// Never [`AckLevel::Policy`]: what the ack really waited for.
    pub level_met: AckLevel,
    pub log_start: Offset,
}

/// All of a produce frame that stands before its batches.
///
/// # Panics
/// When the batches are longer than a frame can say; the client bounds them by hello's limit.
pub fn request_head(
    handle: Handle,
    ack: AckLevel,
    correlation: u32,
    batches_len: usize,
) -> [u8; BATCHES_AT] {
    let length = u32::try_from(BATCHES_AT - PREFIX + batches_len).unwrap_or(u32::MAX);
    assert!(length < u32::MAX, "batches of {batches_len} bytes do not fit a frame");
    Head::new()
        .put(length.to_be_bytes())
        .put([Api::Produce.to_wire(), VERSION, 0, 0])
        .put(correlation.to_be_bytes())
        .put(handle.0.to_be_bytes())
        .put([ack.to_wire(), 0, 0, 0])
        .done()
}

/// A whole response frame, on the stack.
pub fn response_frame(correlation: u32, response: &ProduceResponse) -> [u8; RESPONSE_FRAME] {
    let header =
        ResponseHeader { api: Api::Produce.to_wire(), version: VERSION, error: 0, correlation };
    Head::new().put(header.head(RESPONSE)).put(response.body()).done()
}

impl ProduceResponse {
    fn body(&self) -> [u8; RESPONSE] {
        assert!(self.level_met != AckLevel::Policy, "policy is asked for, never met");
        Head::new()
            .put(self.base.get().to_be_bytes())
            .put(self.append_time.to_be_bytes())
            .put([self.level_met.to_wire()])
            .put(self.log_start.get().to_be_bytes())
            .done()
    }
}

impl<'a> Message<'a> for ProduceRequest<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let handle = Handle(reader.u32("handle")?);
        let ack = reader.ack_level("ack level")?;
        reader.reserved::<3>("reserved")?;
        Ok(ProduceRequest { handle, ack, batches: reader.rest() })
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.u32(self.handle.0);
        writer.raw(&[self.ack.to_wire(), 0, 0, 0]);
        writer.raw(self.batches);
        Ok(())
    }
}

impl<'a> Request<'a> for ProduceRequest<'a> {
    const API: Api = Api::Produce;
    type Response<'r> = ProduceResponse;
}

impl<'a> Message<'a> for ProduceResponse {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = ProduceResponse {
            base: reader.offset("base offset")?,
            append_time: reader.i64("append time")?,
            level_met: match reader.ack_level("level met")? {
                AckLevel::Policy => Err(WireError::Value { field: "level met", got: 3 })?,
                level => level,
            },
            log_start: reader.offset("log start")?,
        };
        reader.end("produce response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(&self.body());
        Ok(())
    }
}

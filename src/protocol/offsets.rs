//! List offsets, init producer, flush, delete records, roll: small questions about one partition.
//!
//! Owns: the bodies of apis 8 to 11 and 15. Never does: answer them.
//! Left: [`super::cursor`]. Right: `shard`, `client`.

use super::api::{Api, Message, Request};
use super::cursor::{Reader, WireError, Writer};
use super::fetch::Isolation;
use crate::types::{Handle, Offset, WallMs};

/// Timestamps of a list-offsets request that are no times.
pub mod special {
    /// The end a consumer may read to: the high watermark, or the last stable offset.
    pub const LATEST: i64 = -1;
    /// The log start.
    pub const EARLIEST: i64 = -2;
    /// The first record with the greatest timestamp.
    pub const MAX_TIMESTAMP: i64 = -3;
    /// The first record that is here, and not only in a remote store: there is none, so the start.
    pub const EARLIEST_LOCAL: i64 = -4;
    /// The last record in a remote store: there is none.
    pub const LATEST_TIERED: i64 = -5;
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsRequest {
    pub handle: Handle,
    /// Milliseconds since 1970, or one of [`special`].
    pub timestamp: i64,
    /// Read committed: nothing at or above the last stable offset is found.
    pub isolation: Isolation,
}

/// The first record at or after the time asked for; -1 and -1 when there is none.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsResponse {
    pub offset: i64,
    /// That record's; -1 for latest and earliest.
    pub timestamp: WallMs,
    /// That record's; of the latest the log's own, of the earliest the one at the start. -1: none.
    pub leader_epoch: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitProducerRequest<'a> {
    pub transactional_id: Option<&'a str>,
    pub timeout_ms: u32,
    /// The id held, whose epoch is to rise; -1 with epoch -1: a new one.
    pub producer_id: i64,
    pub epoch: i16,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct InitProducerResponse {
    pub producer_id: i64,
    pub epoch: i16,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FlushRequest {
    pub handle: Handle,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FlushResponse {
    /// Every record below it is durable; at least all that was written when the request came.
    pub durable: Offset,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DeleteRecordsRequest {
    pub handle: Handle,
    /// The log start to be; -1: the high watermark.
    pub before: i64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DeleteRecordsResponse {
    pub start: Offset,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RollRequest {
    pub handle: Handle,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RollResponse {
    /// Base offset of the active segment: a new one, unless it was empty.
    pub base: Offset,
}

impl<'a> Message<'a> for ListOffsetsRequest {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = ListOffsetsRequest {
            handle: Handle(reader.u32("handle")?),
            timestamp: reader.i64("timestamp")?,
            isolation: Isolation::read(&mut reader)?,
        };
        reader.end("list offsets request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.u32(self.handle.0);
        writer.i64(self.timestamp);
        self.isolation.write(&mut writer);
        Ok(())
    }
}

impl<'a> Request<'a> for ListOffsetsRequest {
    const API: Api = Api::ListOffsets;
    type Response<'r> = ListOffsetsResponse;
}

impl<'a> Message<'a> for ListOffsetsResponse {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = ListOffsetsResponse {
            offset: reader.i64("offset")?,
            timestamp: reader.i64("timestamp")?,
            leader_epoch: reader.i32("leader epoch")?,
        };
        reader.end("list offsets response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.i64(self.offset);
        writer.i64(self.timestamp);
        writer.i32(self.leader_epoch);
        Ok(())
    }
}

impl<'a> Message<'a> for InitProducerRequest<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = InitProducerRequest {
            transactional_id: reader.option_string("transactional id")?,
            timeout_ms: reader.u32("timeout ms")?,
            producer_id: reader.i64("producer id")?,
            epoch: reader.i16("producer epoch")?,
        };
        reader.end("init producer request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.option_string("transactional id", self.transactional_id)?;
        writer.u32(self.timeout_ms);
        writer.i64(self.producer_id);
        writer.i16(self.epoch);
        Ok(())
    }
}

impl<'a> Request<'a> for InitProducerRequest<'a> {
    const API: Api = Api::InitProducer;
    type Response<'r> = InitProducerResponse;
}

impl<'a> Message<'a> for InitProducerResponse {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = InitProducerResponse {
            producer_id: reader.i64("producer id")?,
            epoch: reader.i16("producer epoch")?,
        };
        reader.end("init producer response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.i64(self.producer_id);
        writer.i16(self.epoch);
        Ok(())
    }
}

impl<'a> Message<'a> for FlushRequest {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = FlushRequest { handle: Handle(reader.u32("handle")?) };
        reader.end("flush request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Writer::new(out).u32(self.handle.0);
        Ok(())
    }
}

impl<'a> Request<'a> for FlushRequest {
    const API: Api = Api::Flush;
    type Response<'r> = FlushResponse;
}

impl<'a> Message<'a> for FlushResponse {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = FlushResponse { durable: reader.offset("durable offset")? };
        reader.end("flush response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Writer::new(out).i64(self.durable.get());
        Ok(())
    }
}

impl<'a> Message<'a> for DeleteRecordsRequest {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = DeleteRecordsRequest {
            handle: Handle(reader.u32("handle")?),
            before: reader.i64("before offset")?,
        };
        reader.end("delete records request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.u32(self.handle.0);
        writer.i64(self.before);
        Ok(())
    }
}

impl<'a> Request<'a> for DeleteRecordsRequest {
    const API: Api = Api::DeleteRecords;
    type Response<'r> = DeleteRecordsResponse;
}

impl<'a> Message<'a> for DeleteRecordsResponse {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = DeleteRecordsResponse { start: reader.offset("log start")? };
        reader.end("delete records response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Writer::new(out).i64(self.start.get());
        Ok(())
    }
}

impl<'a> Message<'a> for RollRequest {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = RollRequest { handle: Handle(reader.u32("handle")?) };
        reader.end("roll request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Writer::new(out).u32(self.handle.0);
        Ok(())
    }
}

impl<'a> Request<'a> for RollRequest {
    const API: Api = Api::Roll;
    type Response<'r> = RollResponse;
}

impl<'a> Message<'a> for RollResponse {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = RollResponse { base: reader.offset("base offset")? };
        reader.end("roll response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Writer::new(out).i64(self.base.get());
        Ok(())
    }
}

//! End offset for epoch: how far the records of a leader epoch reach.
//!
//! Owns: the bodies of api 13. Never does: answer them (the partition's epochs do).
//! Left: [`super::cursor`]. Right: `shard`, `client`.

use super::api::{Api, Message, Request};
use super::cursor::{Reader, WireError, Writer};
use crate::types::Handle;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EpochEndRequest {
    pub handle: Handle,
    pub epoch: i32,
}

/// Where the records of `epoch`, the greatest one known at or below the one asked for, end. Both
/// are -1 when the epoch asked for is newer than all that are known.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EpochEndResponse {
    pub epoch: i32,
    pub end: i64,
}

impl<'a> Message<'a> for EpochEndRequest {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = EpochEndRequest {
            handle: Handle(reader.u32("handle")?),
            epoch: reader.i32("leader epoch")?,
        };
        reader.end("end offset for epoch request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.u32(self.handle.0);
        writer.i32(self.epoch);
        Ok(())
    }
}

impl<'a> Request<'a> for EpochEndRequest {
    const API: Api = Api::EpochEnd;
    type Response<'r> = EpochEndResponse;
}

impl<'a> Message<'a> for EpochEndResponse {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response =
            EpochEndResponse { epoch: reader.i32("leader epoch")?, end: reader.i64("end offset")? };
        reader.end("end offset for epoch response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.i32(self.epoch);
        writer.i64(self.end);
        Ok(())
    }
}

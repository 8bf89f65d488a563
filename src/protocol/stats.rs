//! Stats: the server's counters and histograms.
//!
//! Owns: the two bodies of api 12. Never does: decode a histogram.
//! Left: [`super::cursor`]. Right: `shard`, `client`.

use super::api::{Api, Message, Request};
use super::cursor::{Reader, WireError, Writer};

/// Bits of [`StatsRequest::flags`].
pub mod flags {
    pub const COUNTERS: u32 = 1;
    pub const HISTOGRAMS: u32 = 2;
    /// Only the shard behind this connection; without it, all shards merged.
    pub const THIS_SHARD: u32 = 4;
    pub(super) const KNOWN: u32 = COUNTERS | HISTOGRAMS | THIS_SHARD;
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StatsRequest {
    pub flags: u32,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Counter<'a> {
    pub name: &'a str,
    pub value: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Histogram<'a> {
    pub name: &'a str,
    /// "us", "bytes", "batches".
    pub unit: &'a str,
    /// HdrHistogram V2, compressed (its own cookie, length and zlib stream).
    pub data: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsResponse<'a> {
    pub uptime_ms: u64,
    /// How many shards' figures are merged here.
    pub shards: u16,
    pub counters: Vec<Counter<'a>>,
    pub histograms: Vec<Histogram<'a>>,
}

impl<'a> Message<'a> for StatsRequest {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let flags = reader.u32("stats flags")?;
        reader.end("stats request")?;
        match flags & !flags::KNOWN {
            0 => Ok(StatsRequest { flags }),
            unknown => Err(WireError::Value { field: "stats flags", got: u64::from(unknown) }),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Writer::new(out).u32(self.flags);
        Ok(())
    }
}

impl<'a> Request<'a> for StatsRequest {
    const API: Api = Api::Stats;
    type Response<'r> = StatsResponse<'r>;
}

impl<'a> Message<'a> for StatsResponse<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = StatsResponse {
            uptime_ms: reader.u64("uptime ms")?,
            shards: reader.u16("shards")?,
            counters: reader.list("counters", 2 + 8, |reader| {
                Ok(Counter {
                    name: reader.string("counter name")?,
                    value: reader.u64("counter value")?,
                })
            })?,
            histograms: reader.list("histograms", 2 + 2 + 4, |reader| {
                Ok(Histogram {
                    name: reader.string("histogram name")?,
                    unit: reader.string("histogram unit")?,
                    data: reader.bytes("histogram data")?,
                })
            })?,
        };
        reader.end("stats response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.u64(self.uptime_ms);
        writer.u16(self.shards);
        writer.list("counters", &self.counters, |writer, counter| {
            writer.string("counter name", counter.name)?;
            writer.u64(counter.value);
            Ok(())
        })?;
        writer.list("histograms", &self.histograms, |writer, histogram| {
            writer.string("histogram name", histogram.name)?;
            writer.string("histogram unit", histogram.unit)?;
            writer.bytes("histogram data", histogram.data)
        })
    }
}

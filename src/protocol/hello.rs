//! Hello: who speaks to whom, the server's limits, and where its shards listen.
//!
//! Owns: the two bodies of api 0. Never does: decide about tokens, resolve addresses.
//! Left: [`super::cursor`]. Right: `shard`, `client`.

use super::api::{Api, Message, Request};
use super::cursor::{Reader, WireError, Writer};
use crate::types::{AckLevel, ShardId};

/// Bits of [`HelloResponse::features`]; a client ignores the bits it does not know.
pub mod features {
    /// Init producer is served: idempotent producers.
    pub const IDEMPOTENCE: u64 = 1;
    /// Delete records is served.
    pub const DELETE_RECORDS: u64 = 2;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloRequest<'a> {
    /// Name and version, for the server's log: "ringlog-cli 0.1.0".
    pub client: &'a str,
    pub token: Option<&'a str>,
}

/// What a server bounds; a client that stays below is never refused for size or number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most the length field of a request may say.
    pub frame_bytes_max: u32,
    /// Requests a connection may have unanswered; beyond it the server stops reading.
    pub in_flight_max: u32,
    /// A fetch's `max_bytes` is cut to this.
    pub fetch_bytes_max: u32,
}

/// Where a shard listens. Shard *i* is the *i*-th of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardAddress<'a> {
    /// A name or an address. Empty, `0.0.0.0` or `::` means: the host you dialled.
    pub host: &'a str,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloResponse<'a> {
    /// "ringlog 0.1.0".
    pub server: &'a str,
    pub features: u64,
    pub limits: Limits,
    /// "uring" or "syscall".
    pub engine: &'a str,
    /// The default flush policy as the configuration writes it: "group", "interval:100".
    pub flush_policy: &'a str,
    /// The level that an ack under that policy has met.
    pub policy_level: AckLevel,
    /// What that policy can lose at a power cut, in words.
    pub promise: &'a str,
    /// The shard behind this connection.
    pub shard: ShardId,
    pub shards: Vec<ShardAddress<'a>>,
}

impl<'a> Message<'a> for HelloRequest<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = HelloRequest {
            client: reader.string("client name")?,
            token: reader.option_string("token")?,
        };
        reader.end("hello request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.string("client name", self.client)?;
        writer.option_string("token", self.token)
    }
}

impl<'a> Request<'a> for HelloRequest<'a> {
    const API: Api = Api::Hello;
    type Response<'r> = HelloResponse<'r>;
}

impl<'a> Message<'a> for HelloResponse<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = HelloResponse {
            server: reader.string("server version")?,
            features: reader.u64("features")?,
            limits: Limits {
                frame_bytes_max: reader.u32("frame bytes max")?,
                in_flight_max: reader.u32("in flight max")?,
                fetch_bytes_max: reader.u32("fetch bytes max")?,
            },
            engine: reader.string("engine")?,
            flush_policy: reader.string("flush policy")?,
            policy_level: reader.ack_level("policy level")?,
            promise: reader.string("promise")?,
            shard: ShardId(reader.u16("shard")?),
            shards: reader.list("shard addresses", 4, |reader| {
                Ok(ShardAddress { host: reader.string("host")?, port: reader.u16("port")? })
            })?,
        };
        reader.end("hello response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.string("server version", self.server)?;
        writer.u64(self.features);
        writer.u32(self.limits.frame_bytes_max);
        writer.u32(self.limits.in_flight_max);
        writer.u32(self.limits.fetch_bytes_max);
        writer.string("engine", self.engine)?;
        writer.string("flush policy", self.flush_policy)?;
        writer.u8(self.policy_level.to_wire());
        writer.string("promise", self.promise)?;
        writer.u16(self.shard.0);
        writer.list("shard addresses", &self.shards, |writer, address| {
            writer.string("host", address.host)?;
            writer.u16(address.port);
            Ok(())
        })
    }
}

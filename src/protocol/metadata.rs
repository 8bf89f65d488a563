//! Metadata: topic names to ids, handles and shards.
//!
//! Owns: the two bodies of api 1. Never does: cache, look anything up.
//! Left: [`super::cursor`]. Right: `shard`, `client`.

use super::api::{Api, Message, Request};
use super::cursor::{Reader, WireError, Writer};
use crate::types::{Handle, ShardId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataRequest<'a> {
    All,
    Names(Vec<&'a str>),
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PartitionMeta {
    pub index: u32,
    pub handle: Handle,
    pub shard: ShardId,
    /// -1 when the answering shard does not know (it is not the owner).
    pub start: i64,
    /// -1 when the answering shard does not know (it is not the owner).
    pub high_watermark: i64,
    /// Raw; not 0 for a partition that cannot be served, poisoned storage for one.
    pub error: i16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMeta<'a> {
    pub name: &'a str,
    /// Zeros when the topic is not known.
    pub id: [u8; 16],
    /// Raw; each name asked for is answered, an unknown one with its error.
    pub error: i16,
    pub partitions: Vec<PartitionMeta>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataResponse<'a> {
    pub cluster_id: &'a str,
    pub server_id: i32,
    pub topics: Vec<TopicMeta<'a>>,
}

/// Bytes of a partition on the wire.
const PARTITION: usize = 4 + 4 + 2 + 8 + 8 + 2;
/// The least bytes of a topic: empty name, id, error, no partitions.
const TOPIC_MIN: usize = 2 + 16 + 2 + 4;

impl<'a> Message<'a> for MetadataRequest<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = match reader.bool("by name")? {
            false => MetadataRequest::All,
            true => MetadataRequest::Names(
                reader.list("topic names", 2, |reader| reader.string("topic name"))?,
            ),
        };
        reader.end("metadata request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        match self {
            MetadataRequest::All => {
                writer.bool(false);
                Ok(())
            }
            MetadataRequest::Names(names) => {
                writer.bool(true);
                writer.list("topic names", names, |writer, name| writer.string("topic name", name))
            }
        }
    }
}

impl<'a> Request<'a> for MetadataRequest<'a> {
    const API: Api = Api::Metadata;
    type Response<'r> = MetadataResponse<'r>;
}

impl PartitionMeta {
    fn read(reader: &mut Reader<'_>) -> Result<PartitionMeta, WireError> {
        Ok(PartitionMeta {
            index: reader.u32("partition index")?,
            handle: Handle(reader.u32("handle")?),
            shard: ShardId(reader.u16("shard")?),
            start: reader.i64("log start")?,
            high_watermark: reader.i64("high watermark")?,
            error: reader.i16("partition error")?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.index);
        writer.u32(self.handle.0);
        writer.u16(self.shard.0);
        writer.i64(self.start);
        writer.i64(self.high_watermark);
        writer.i16(self.error);
    }
}

impl<'a> Message<'a> for MetadataResponse<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = MetadataResponse {
            cluster_id: reader.string("cluster id")?,
            server_id: reader.i32("server id")?,
            topics: reader.list("topics", TOPIC_MIN, |reader| {
                Ok(TopicMeta {
                    name: reader.string("topic name")?,
                    id: reader.id("topic id")?,
                    error: reader.i16("topic error")?,
                    partitions: reader.list("partitions", PARTITION, PartitionMeta::read)?,
                })
            })?,
        };
        reader.end("metadata response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.string("cluster id", self.cluster_id)?;
        writer.i32(self.server_id);
        writer.list("topics", &self.topics, |writer, topic| {
            writer.string("topic name", topic.name)?;
            writer.raw(&topic.id);
            writer.i16(topic.error);
            writer.list("partitions", &topic.partitions, |writer, partition| {
                partition.write(writer);
                Ok(())
            })
        })
    }
}

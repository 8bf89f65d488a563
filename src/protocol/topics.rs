//! Create, delete, describe and alter a topic.
//!
//! Owns: the bodies of apis 2 to 5. Never does: judge names (R87) or configuration values.
//! Left: [`super::cursor`]. Right: `shard`, `client`.

use super::api::{Api, Message, Request};
use super::cursor::{Reader, WireError, Writer};
use crate::types::{Handle, ShardId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest<'a> {
    pub name: &'a str,
    pub partitions: u32,
    pub configs: Vec<(&'a str, &'a str)>,
}

/// A partition just made; its index is its place in the list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub handle: Handle,
    pub shard: ShardId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateResponse<'a> {
    pub id: [u8; 16],
    pub partitions: Vec<Placed>,
    pub notices: Notices<'a>,
}

/// What the topic's owner should know of its settings, a sentence each: one has no effect here,
/// one does not hold.
pub type Notices<'a> = Vec<&'a str>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRequest<'a> {
    pub name: &'a str,
}

/// An empty body.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DeleteResponse;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeRequest<'a> {
    pub name: &'a str,
}

/// Where a configuration value comes from: the strongest that sets it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    Default,
    Server,
    Topic,
}

impl ConfigSource {
    const ALL: [ConfigSource; 3] =
        [ConfigSource::Default, ConfigSource::Server, ConfigSource::Topic];

    pub const fn to_wire(self) -> u8 {
        self as u8
    }

    pub fn from_wire(raw: u8) -> Option<ConfigSource> {
        ConfigSource::ALL.get(usize::from(raw)).copied()
    }

    pub const fn name(self) -> &'static str {
        match self {
            ConfigSource::Default => "default",
            ConfigSource::Server => "server",
            ConfigSource::Topic => "topic",
        }
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry<'a> {
    pub key: &'a str,
    pub value: &'a str,
    pub source: ConfigSource,
    /// What it is where nobody sets it.
    pub default: &'a str,
}

/// A partition's marks. Offsets are exclusive ends, `start` excepted; -1: not known.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo<'a> {
    pub index: u32,
    pub handle: Handle,
    pub shard: ShardId,
    pub start: i64,
    pub high_watermark: i64,
    pub staged: i64,
    pub written: i64,
    pub durable: i64,
    pub leader_epoch: i32,
    pub bytes: u64,
    pub segments: u32,
    /// "ok", or what is wrong in words: "poisoned: fdatasync: EIO", "read-only: no space".
    pub state: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeResponse<'a> {
    pub name: &'a str,
    pub id: [u8; 16],
    pub configs: Vec<ConfigEntry<'a>>,
    pub partitions: Vec<PartitionInfo<'a>>,
    pub notices: Notices<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterRequest<'a> {
    pub name: &'a str,
    /// `None` takes the topic's own value away. A key that is not named keeps its value.
    pub changes: Vec<(&'a str, Option<&'a str>)>,
}

/// The configuration as it now stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterResponse<'a> {
    pub configs: Vec<ConfigEntry<'a>>,
    pub notices: Notices<'a>,
}

const CONFIG_MIN: usize = 2 + 2;
const ENTRY_MIN: usize = 2 + 2 + 1 + 2;
const NOTICE_MIN: usize = 2;
const CHANGE_MIN: usize = 2 + 1;
const PLACED: usize = 4 + 2;
const INFO_MIN: usize = 4 + 4 + 2 + 5 * 8 + 4 + 8 + 4 + 2;

impl<'a> Message<'a> for CreateRequest<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = CreateRequest {
            name: reader.string("topic name")?,
            partitions: reader.u32("partitions")?,
            configs: reader.list("configs", CONFIG_MIN, |reader| {
                Ok((reader.string("config key")?, reader.string("config value")?))
            })?,
        };
        reader.end("create request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.string("topic name", self.name)?;
        writer.u32(self.partitions);
        writer.list("configs", &self.configs, |writer, (key, value)| {
            writer.string("config key", key)?;
            writer.string("config value", value)
        })
    }
}

impl<'a> Request<'a> for CreateRequest<'a> {
    const API: Api = Api::CreateTopic;
    type Response<'r> = CreateResponse<'r>;
}

fn read_notices<'a>(reader: &mut Reader<'a>) -> Result<Notices<'a>, WireError> {
    reader.list("notices", NOTICE_MIN, |reader| reader.string("notice"))
}

fn write_notices(writer: &mut Writer<'_>, notices: &Notices<'_>) -> Result<(), WireError> {
    writer.list("notices", notices, |writer, notice| writer.string("notice", notice))
}

impl<'a> Message<'a> for CreateResponse<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = CreateResponse {
            id: reader.id("topic id")?,
            partitions: reader.list("partitions", PLACED, |reader| {
                Ok(Placed {
                    handle: Handle(reader.u32("handle")?),
                    shard: ShardId(reader.u16("shard")?),
                })
            })?,
            notices: read_notices(&mut reader)?,
        };
        reader.end("create response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.raw(&self.id);
        writer.list("partitions", &self.partitions, |writer, placed| {
            writer.u32(placed.handle.0);
            writer.u16(placed.shard.0);
            Ok(())
        })?;
        write_notices(&mut writer, &self.notices)
    }
}

impl<'a> Message<'a> for DeleteRequest<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = DeleteRequest { name: reader.string("topic name")? };
        reader.end("delete request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Writer::new(out).string("topic name", self.name)
    }
}

impl<'a> Request<'a> for DeleteRequest<'a> {
    const API: Api = Api::DeleteTopic;
    type Response<'r> = DeleteResponse;
}

impl<'a> Message<'a> for DeleteResponse {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        Reader::new(body).end("delete response").map(|()| DeleteResponse)
    }

    fn encode(&self, _out: &mut Vec<u8>) -> Result<(), WireError> {
        Ok(())
    }
}

impl<'a> Message<'a> for DescribeRequest<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = DescribeRequest { name: reader.string("topic name")? };
        reader.end("describe request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Writer::new(out).string("topic name", self.name)
    }
}

impl<'a> Request<'a> for DescribeRequest<'a> {
    const API: Api = Api::DescribeTopic;
    type Response<'r> = DescribeResponse<'r>;
}

fn read_entries<'a>(reader: &mut Reader<'a>) -> Result<Vec<ConfigEntry<'a>>, WireError> {
    reader.list("configs", ENTRY_MIN, |reader| {
        let key = reader.string("config key")?;
        let value = reader.string("config value")?;
        let raw = reader.u8("config source")?;
        let source = ConfigSource::from_wire(raw)
            .ok_or(WireError::Value { field: "config source", got: u64::from(raw) })?;
        let default = reader.string("config default")?;
        Ok(ConfigEntry { key, value, source, default })
    })
}

fn write_entries(writer: &mut Writer<'_>, entries: &[ConfigEntry<'_>]) -> Result<(), WireError> {
    writer.list("configs", entries, |writer, entry| {
        writer.string("config key", entry.key)?;
        writer.string("config value", entry.value)?;
        writer.u8(entry.source.to_wire());
        writer.string("config default", entry.default)
    })
}

impl<'a> PartitionInfo<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<PartitionInfo<'a>, WireError> {
        Ok(PartitionInfo {
            index: reader.u32("partition index")?,
            handle: Handle(reader.u32("handle")?),
            shard: ShardId(reader.u16("shard")?),
            start: reader.i64("log start")?,
            high_watermark: reader.i64("high watermark")?,
            staged: reader.i64("staged")?,
            written: reader.i64("written")?,
            durable: reader.i64("durable")?,
            leader_epoch: reader.i32("leader epoch")?,
            bytes: reader.u64("bytes")?,
            segments: reader.u32("segments")?,
            state: reader.string("state")?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
        writer.u32(self.index);
        writer.u32(self.handle.0);
        writer.u16(self.shard.0);
        for mark in [self.start, self.high_watermark, self.staged, self.written, self.durable] {
            writer.i64(mark);
        }
        writer.i32(self.leader_epoch);
        writer.u64(self.bytes);
        writer.u32(self.segments);
        writer.string("state", self.state)
    }
}

impl<'a> Message<'a> for DescribeResponse<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = DescribeResponse {
            name: reader.string("topic name")?,
            id: reader.id("topic id")?,
            configs: read_entries(&mut reader)?,
            partitions: reader.list("partitions", INFO_MIN, PartitionInfo::read)?,
            notices: read_notices(&mut reader)?,
        };
        reader.end("describe response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.string("topic name", self.name)?;
        writer.raw(&self.id);
        write_entries(&mut writer, &self.configs)?;
        writer.list("partitions", &self.partitions, |writer, partition| partition.write(writer))?;
        write_notices(&mut writer, &self.notices)
    }
}

impl<'a> Message<'a> for AlterRequest<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let request = AlterRequest {
            name: reader.string("topic name")?,
            changes: reader.list("changes", CHANGE_MIN, |reader| {
                Ok((reader.string("config key")?, reader.option_string("config value")?))
            })?,
        };
        reader.end("alter request")?;
        Ok(request)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.string("topic name", self.name)?;
        writer.list("changes", &self.changes, |writer, (key, value)| {
            writer.string("config key", key)?;
            writer.option_string("config value", *value)
        })
    }
}

impl<'a> Request<'a> for AlterRequest<'a> {
    const API: Api = Api::AlterTopic;
    type Response<'r> = AlterResponse<'r>;
}

impl<'a> Message<'a> for AlterResponse<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let response = AlterResponse {
            configs: read_entries(&mut reader)?,
            notices: read_notices(&mut reader)?,
        };
        reader.end("alter response")?;
        Ok(response)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        write_entries(&mut writer, &self.configs)?;
        write_notices(&mut writer, &self.notices)
    }
}

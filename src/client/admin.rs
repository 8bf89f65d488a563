//! Questions and orders about topics, and the server's figures.
//!
//! Owns: the owned forms of what control requests return. Never does: pipeline, retry an order.
//! Left: [`super::cluster`]. Right: users.

use super::cluster::Client;
use super::error::Error;
use super::metadata::Topic;
use crate::protocol::epochs::{EpochEndRequest, EpochEndResponse};
use crate::protocol::fetch::Isolation;
use crate::protocol::offsets::{
    DeleteRecordsRequest, DeleteRecordsResponse, FlushRequest, FlushResponse, ListOffsetsRequest,
    ListOffsetsResponse, RollRequest, RollResponse,
};
use crate::protocol::stats::{StatsRequest, StatsResponse};
use crate::protocol::topics::{
    AlterRequest, AlterResponse, ConfigEntry, ConfigSource, CreateRequest, CreateResponse,
    DeleteRequest, DescribeRequest, DescribeResponse,
};
use crate::types::{Handle, Offset, ShardId, WallMs};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub key: String,
    pub value: String,
    pub source: ConfigSource,
    pub default: String,
}

/// Settings as they stand after a change, and what their owner should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Altered {
    pub configs: Vec<Config>,
    pub notices: Vec<String>,
}

/// A partition's marks; -1: not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionDescription {
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
    pub state: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    pub name: String,
    pub id: [u8; 16],
    pub configs: Vec<Config>,
    pub partitions: Vec<PartitionDescription>,
    /// What the owner should know of the settings.
    pub notices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramExport {
    pub name: String,
    pub unit: String,
    /// HdrHistogram V2, compressed.
    pub data: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    pub uptime_ms: u64,
    pub shards: u16,
    pub counters: Vec<(String, u64)>,
    pub histograms: Vec<HistogramExport>,
}

impl Client {
    /// Makes a topic; its id, and what its owner should know of the settings.
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: u32,
        configs: &[(&str, &str)],
    ) -> Result<([u8; 16], Vec<String>), Error> {
        let request = CreateRequest { name, partitions, configs: configs.to_vec() };
        let connection = self.call_any(&request, false)?;
        let made: CreateResponse<'_> = connection.response()?;
        let made = (made.id, owned_notices(&made.notices));
        self.forget(name);
        Ok(made)
    }

    pub fn delete_topic(&mut self, name: &str) -> Result<(), Error> {
        self.call_any(&DeleteRequest { name }, false)?;
        self.forget(name);
        Ok(())
    }

    /// All topics, in name order.
    pub fn list_topics(&mut self) -> Result<Vec<(String, Topic)>, Error> {
        let metadata = self.refresh(None)?;
        Ok(metadata.topics().map(|(name, topic)| (name.to_owned(), topic.clone())).collect())
    }

    pub fn describe_topic(&mut self, name: &str) -> Result<TopicDescription, Error> {
        let connection = self.call_any(&DescribeRequest { name }, true)?;
        let described: DescribeResponse<'_> = connection.response()?;
        let partitions = described.partitions.iter().map(|partition| PartitionDescription {
            index: partition.index,
            handle: partition.handle,
            shard: partition.shard,
            start: partition.start,
            high_watermark: partition.high_watermark,
            staged: partition.staged,
            written: partition.written,
            durable: partition.durable,
            leader_epoch: partition.leader_epoch,
            bytes: partition.bytes,
            segments: partition.segments,
            state: partition.state.to_owned(),
        });
        Ok(TopicDescription {
            name: described.name.to_owned(),
            id: described.id,
            configs: owned(&described.configs),
            partitions: partitions.collect(),
            notices: owned_notices(&described.notices),
        })
    }

    /// Sets configuration values of a topic, `None` takes one away; the configuration as it then
    /// stands.
    pub fn alter_topic(
        &mut self,
        name: &str,
        changes: &[(&str, Option<&str>)],
    ) -> Result<Altered, Error> {
        let request = AlterRequest { name, changes: changes.to_vec() };
        let connection = self.call_any(&request, false)?;
        let altered: AlterResponse<'_> = connection.response()?;
        let notices = owned_notices(&altered.notices);
        Ok(Altered { configs: owned(&altered.configs), notices })
    }

    /// The first record at or after a time, or one of
    /// [`special`](crate::protocol::offsets::special); offset and timestamp, -1 where none is.
    pub fn list_offsets(
        &mut self,
        topic: &str,
        partition: u32,
        timestamp: i64,
    ) -> Result<(i64, WallMs), Error> {
        let found = self.find_offset(topic, partition, timestamp, Isolation::ReadUncommitted)?;
        Ok((found.offset, found.timestamp))
    }

    /// The same for a consumer of either isolation level, with the leader epoch.
    pub fn find_offset(
        &mut self,
        topic: &str,
        partition: u32,
        timestamp: i64,
        isolation: Isolation,
    ) -> Result<ListOffsetsResponse, Error> {
        let connection = self.call_owner(topic, partition, true, |owner| ListOffsetsRequest {
            handle: owner.handle,
            timestamp,
            isolation,
        })?;
        connection.response()
    }

    /// Where the records of a leader epoch end: the greatest known epoch at or below it, and the
    /// offset behind them. `None` when it is newer than all that the log knows.
    pub fn end_offset_for_epoch(
        &mut self,
        topic: &str,
        partition: u32,
        epoch: i32,
    ) -> Result<Option<(i32, i64)>, Error> {
        let connection = self.call_owner(topic, partition, true, |owner| EpochEndRequest {
            handle: owner.handle,
            epoch,
        })?;
        let found: EpochEndResponse = connection.response()?;
        Ok((found.end >= 0).then_some((found.epoch, found.end)))
    }

    /// Makes all that is written durable; the durable end.
    pub fn flush(&mut self, topic: &str, partition: u32) -> Result<Offset, Error> {
        let connection =
            self.call_owner(topic, partition, true, |owner| FlushRequest { handle: owner.handle })?;
        Ok(connection.response::<FlushResponse>()?.durable)
    }

    /// Moves the log start up to `before` (-1: to the high watermark); the new start.
    pub fn delete_records(
        &mut self,
        topic: &str,
        partition: u32,
        before: i64,
    ) -> Result<Offset, Error> {
        let repeatable = before >= 0; // "all that is readable" is more the second time
        let connection = self.call_owner(topic, partition, repeatable, |owner| {
            DeleteRecordsRequest { handle: owner.handle, before }
        })?;
        Ok(connection.response::<DeleteRecordsResponse>()?.start)
    }

    /// Ends the active segment, unless it is empty; the base offset of the one that is active then.
    pub fn roll(&mut self, topic: &str, partition: u32) -> Result<Offset, Error> {
        let connection =
            self.call_owner(topic, partition, true, |owner| RollRequest { handle: owner.handle })?;
        Ok(connection.response::<RollResponse>()?.base)
    }

    /// Counters and histograms; `flags` of [`stats::flags`](crate::protocol::stats::flags).
    pub fn stats(&mut self, flags: u32) -> Result<Stats, Error> {
        let connection = self.call_any(&StatsRequest { flags }, true)?;
        let stats: StatsResponse<'_> = connection.response()?;
        let counters = stats.counters.iter().map(|one| (one.name.to_owned(), one.value));
        let histograms = stats.histograms.iter().map(|one| HistogramExport {
            name: one.name.to_owned(),
            unit: one.unit.to_owned(),
            data: one.data.to_vec(),
        });
        Ok(Stats {
            uptime_ms: stats.uptime_ms,
            shards: stats.shards,
            counters: counters.collect(),
            histograms: histograms.collect(),
        })
    }
}

fn owned(entries: &[ConfigEntry<'_>]) -> Vec<Config> {
    let config = |entry: &ConfigEntry<'_>| Config {
        key: entry.key.to_owned(),
        value: entry.value.to_owned(),
        source: entry.source,
        default: entry.default.to_owned(),
    };
    entries.iter().map(config).collect()
}

fn owned_notices(notices: &[&str]) -> Vec<String> {
    notices.iter().map(|notice| (*notice).to_owned()).collect()
}

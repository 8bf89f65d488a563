//! What the data directories are and hold.
//!
//! Owns: the body of api 14. Never does: judge. Left: [`super::cursor`]. Right: `server`, `client`.

use super::api::{Api, Message, Request};
use super::cursor::{Reader, WireError, Writer};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirsRequest<'a> {
    /// Partitions of these topics only; none: of all.
    pub topics: Vec<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirsResponse<'a> {
    /// In the order in which the server was told of them.
    pub dirs: Vec<LogDir<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDir<'a> {
    pub path: &'a str,
    /// `directory.id`; zero where it could not be read.
    pub id: [u8; 16],
    /// 0: online; else Kafka's number, and `why` in words.
    pub error: i16,
    pub why: &'a str,
    /// Bytes of the file system, and those of them that the server may still use; -1: not known.
    pub total_bytes: i64,
    pub usable_bytes: i64,
    pub topics: Vec<DirTopic<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirTopic<'a> {
    pub name: &'a str,
    pub partitions: Vec<DirPartition>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DirPartition {
    pub index: u32,
    /// Of all its `.log` files.
    pub bytes: u64,
    /// From the high watermark to the end; -1: not known, the partition is offline.
    pub lag: i64,
}

const NAME_MIN: usize = 2;
const DIR_MIN: usize = 2 + 16 + 2 + 2 + 8 + 8 + 4;
const TOPIC_MIN: usize = 2 + 4;
const PARTITION: usize = 4 + 8 + 8;

impl<'a> Message<'a> for LogDirsRequest<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let topics = reader.list("topics", NAME_MIN, |reader| reader.string("topic name"))?;
        reader.end("log dirs request")?;
        Ok(LogDirsRequest { topics })
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Writer::new(out)
            .list("topics", &self.topics, |writer, name| writer.string("topic name", name))
    }
}

impl<'a> Request<'a> for LogDirsRequest<'a> {
    const API: Api = Api::LogDirs;
    type Response<'r> = LogDirsResponse<'r>;
}

impl<'a> Message<'a> for LogDirsResponse<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let dirs = reader.list("directories", DIR_MIN, LogDir::read)?;
        reader.end("log dirs response")?;
        Ok(LogDirsResponse { dirs })
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        Writer::new(out).list("directories", &self.dirs, |writer, dir| dir.write(writer))
    }
}

impl<'a> LogDir<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<LogDir<'a>, WireError> {
        Ok(LogDir {
            path: reader.string("path")?,
            id: reader.id("directory id")?,
            error: reader.i16("directory error")?,
            why: reader.string("why")?,
            total_bytes: reader.i64("total bytes")?,
            usable_bytes: reader.i64("usable bytes")?,
            topics: reader.list("topics", TOPIC_MIN, |reader| {
                Ok(DirTopic {
                    name: reader.string("topic name")?,
                    partitions: reader.list("partitions", PARTITION, |reader| {
                        Ok(DirPartition {
                            index: reader.u32("partition index")?,
                            bytes: reader.u64("bytes")?,
                            lag: reader.i64("lag")?,
                        })
                    })?,
                })
            })?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), WireError> {
        writer.string("path", self.path)?;
        writer.raw(&self.id);
        writer.i16(self.error);
        writer.string("why", self.why)?;
        writer.i64(self.total_bytes);
        writer.i64(self.usable_bytes);
        writer.list("topics", &self.topics, |writer, topic| {
            writer.string("topic name", topic.name)?;
            writer.list("partitions", &topic.partitions, |writer, partition| {
                writer.u32(partition.index);
                writer.u64(partition.bytes);
                writer.i64(partition.lag);
                Ok(())
            })
        })
    }
}

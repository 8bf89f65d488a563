//! The server's data directories, asked for.
//!
//! Owns: the owned form of the answer. Never does: judge. Left: [`super::cluster`]. Right: users.

use super::cluster::Client;
use super::error::Error;
use crate::protocol::log_dirs::{LogDirsRequest, LogDirsResponse};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirDescription {
    pub path: String,
    pub id: [u8; 16],
    /// Why it is offline; none: it is online.
    pub offline: Option<String>,
    /// None: not known.
    pub total_bytes: Option<u64>,
    pub usable_bytes: Option<u64>,
    pub partitions: Vec<HeldPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPartition {
    pub topic: String,
    pub index: u32,
    pub bytes: u64,
    /// From the high watermark to the end; none: the partition is offline.
    pub lag: Option<u64>,
}

impl Client {
    /// The data directories, with their partitions of these topics; of all if none is named.
    pub fn describe_log_dirs(&mut self, topics: &[&str]) -> Result<Vec<LogDirDescription>, Error> {
        let connection = self.call_any(&LogDirsRequest { topics: topics.to_vec() }, true)?;
        let described: LogDirsResponse<'_> = connection.response()?;
        let known = |figure: i64| u64::try_from(figure).ok();
        let dirs = described.dirs.iter().map(|dir| LogDirDescription {
            path: dir.path.to_owned(),
            id: dir.id,
            offline: (dir.error != 0).then(|| dir.why.to_owned()),
            total_bytes: known(dir.total_bytes),
            usable_bytes: known(dir.usable_bytes),
            partitions: dir
                .topics
                .iter()
                .flat_map(|topic| topic.partitions.iter().map(move |one| (topic.name, one)))
                .map(|(topic, one)| HeldPartition {
                    topic: topic.to_owned(),
                    index: one.index,
                    bytes: one.bytes,
                    lag: known(one.lag),
                })
                .collect(),
        });
        Ok(dirs.collect())
    }
}

//! The answer to who asks for the data directories: state, space, partitions with their sizes.
//!
//! Owns: that answer. Never does: look into a directory. Left: `homes`, `io::volume`,
//! `protocol::log_dirs`. Right: `requests`.

use std::collections::BTreeMap;
use std::path::Path;

use super::control::Control;
use super::requests::{Refused, body, invalid};
use crate::errors::ErrorCode;
use crate::io::{Io, volume};
use crate::protocol::api::Message;
use crate::protocol::log_dirs::{DirPartition, DirTopic, LogDir, LogDirsRequest, LogDirsResponse};
use crate::shard::catalogue::STATE_NOT_OPEN;

impl<I: Io> Control<I> {
    pub(super) fn log_dirs(&self, bytes: &[u8]) -> Result<Vec<u8>, Refused> {
        let request = LogDirsRequest::parse(bytes).map_err(invalid)?;
        let held = self.held_by_dir(&request.topics);
        let mut dirs = Vec::new();
        let paths: Vec<String> =
            self.homes.dirs().iter().map(|dir| dir.path.display().to_string()).collect();
        for ((dir, path), topics) in self.homes.dirs().iter().zip(&paths).zip(held) {
            let (total_bytes, usable_bytes) = space(&dir.path);
            let topics = topics.into_iter();
            dirs.push(LogDir {
                path,
                id: dir.id().unwrap_or_default().into_bytes(),
                error: match dir.failure() {
                    None => ErrorCode::None.code(),
                    Some(_) => ErrorCode::KafkaStorageError.code(),
                },
                why: dir.failure().unwrap_or_default(),
                total_bytes,
                usable_bytes,
                topics: topics.map(|(name, partitions)| DirTopic { name, partitions }).collect(),
            });
        }
        body(&LogDirsResponse { dirs })
    }

    /// For each directory its partitions of these topics, by topic.
    fn held_by_dir(&self, wanted: &[&str]) -> Vec<BTreeMap<&str, Vec<DirPartition>>> {
        let mut held: Vec<BTreeMap<&str, Vec<DirPartition>>> =
            self.homes.dirs().iter().map(|_| BTreeMap::new()).collect();
        for topic in self.catalogue.topics() {
            if !wanted.is_empty() && !wanted.contains(&topic.name.as_str()) {
                continue;
            }
            for partition in &topic.partitions {
                let Some(at) = self.homes.place(&topic.name, partition.index) else { continue };
                let marks = partition.marks.now();
                let lag = match marks.state {
                    STATE_NOT_OPEN => -1,
                    _ => (marks.staged - marks.high_watermark).max(0),
                };
                let one = DirPartition { index: partition.index, bytes: marks.bytes as u64, lag };
                held[at].entry(&topic.name).or_default().push(one);
            }
        }
        held
    }
}

/// -1 where the file system does not tell.
fn space(path: &Path) -> (i64, i64) {
    let capped = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    match volume::space(path) {
        Ok(space) => (capped(space.total_bytes), capped(space.usable_bytes)),
        Err(_) => (-1, -1),
    }
}

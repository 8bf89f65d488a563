//! The topic file, in the first data directory: topics (names, ids, partition counts, places,
//! settings), the data directories there are, and deletions that are not through yet.
//!
//! Owns: its text and its generation counter. Never does: I/O (the control thread replaces the file
//! atomically). Left: `serde`, `toml`. Right: `control`.
//!
//! A plain file, because a foreign sub-directory would stop a Kafka broker that opens the
//! directory; brokers ignore plain files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// In a topic's `dirs`: nobody knows where that partition is.
pub const NOWHERE: u16 = u16::MAX;
pub const FILE_NAME: &str = "ringlog-topics.toml";
/// Past this the file is not read: it is not ours.
pub const FILE_BYTES_MAX: usize = 256 << 20;
const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicFile {
    version: u32,
    /// Moves at every start and every deletion; handles carry its low bits.
    pub generation: u32,
    /// Every data directory that was ever used and not taken out of here by hand.
    #[serde(default, rename = "directory", skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<Directory>,
    /// Topics whose partitions may still lie somewhere under their old names.
    #[serde(default, rename = "deleted", skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<Deleted>,
    #[serde(default, rename = "topic")]
    pub topics: Vec<Topic>,
}

/// A data directory, known by its id wherever it is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// What topics' `dirs` name it by; never used again for another one.
    pub number: u16,
    /// The `directory.id` of its `meta.properties`.
    pub id: String,
    /// Where it was last.
    pub path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deleted {
    pub name: String,
    pub id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    pub name: String,
    /// base64url, 22 characters, as in `partition.metadata`.
    pub id: String,
    pub partitions: u32,
    /// The topic may not have all its partitions yet: a start makes those that are missing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub making: bool,
    /// The number of each partition's data directory; empty while there is only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirs: Vec<u16>,
    /// Overrides only, by Kafka's name or ours.
    #[serde(default)]
    pub configs: BTreeMap<String, String>,
    /// The most that may be written and not flushed when the power goes, as `window` keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unflushed_bytes: Option<u64>,
}

/// A directory is the same one wherever the server was started from.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Default for TopicFile {
    fn default() -> Self {
        TopicFile {
            version: VERSION,
            generation: 0,
            directories: Vec::new(),
            deleted: Vec::new(),
            topics: Vec::new(),
        }
    }
}

impl TopicFile {
    pub fn parse(bytes: &[u8]) -> Result<TopicFile, String> {
        let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
        let file: TopicFile = toml::from_str(text).map_err(|e| e.to_string())?;
        if file.version != VERSION {
            return Err(format!("version {} (this server reads {VERSION})", file.version));
        }
        Ok(file)
    }

    pub fn render(&self) -> String {
        let body = toml::to_string(self).expect("strings, numbers and maps always render");
        format!(
            "# Topics of this ringlog data directory. Change them with `ringlog topic`.\n{body}"
        )
    }

    pub fn find(&self, name: &str) -> Option<&Topic> {
        self.topics.iter().find(|topic| topic.name == name)
    }

    pub fn directory_at(&self, path: &Path) -> Option<&Directory> {
        let path = absolute(path);
        self.directories.iter().find(|dir| dir.path == path)
    }

    pub fn directory(&self, number: u16) -> Option<&Directory> {
        self.directories.iter().find(|dir| dir.number == number)
    }

    /// The number of the directory with this id, now at `path`; a new one gets the next number.
    pub fn number_of(&mut self, id: &str, path: &Path) -> u16 {
        let path = absolute(path);
        // What lay here before is somewhere else now, or gone.
        if let Some(known) = self.directories.iter_mut().find(|dir| dir.id == id) {
            known.path = path;
            return known.number;
        }
        let used = self.topics.iter().flat_map(|topic| &topic.dirs).copied();
        let used = used.filter(|number| *number != NOWHERE);
        let number = self.directories.iter().map(|dir| dir.number).chain(used).max();
        let number = number.map_or(0, |highest| highest.saturating_add(1));
        self.directories.push(Directory { number, id: id.to_string(), path });
        number
    }

    /// A new topic's `dirs`: nothing while there is only one directory.
    pub fn numbers_of(&self, numbers: impl Iterator<Item = u16>) -> Vec<u16> {
        if self.directories.len() < 2 { Vec::new() } else { numbers.collect() }
    }

    /// The directory that holds this partition, as far as it was ever written down.
    pub fn place_of(&self, topic: &Topic, index: u32) -> Option<&Directory> {
        match (topic.dirs.get(index as usize), self.directories.as_slice()) {
            (Some(number), _) => self.directory(*number),
            (None, [only]) if topic.dirs.is_empty() => Some(only),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let topic = Topic {
            name: "a.b".into(),
            id: "AAAAAAAAAAAAAAAAAAAAAQ".into(),
            partitions: 3,
            making: true,
            dirs: vec![0, 1, 0],
            configs: [("segment.bytes".to_string(), "1048576".to_string())].into(),
            unflushed_bytes: Some(7),
        };
        let mut file = TopicFile { generation: 9, topics: vec![topic], ..TopicFile::default() };
        file.deleted.push(Deleted { name: "b".into(), id: "AAAAAAAAAAAAAAAAAAAAAg".into() });
        assert_eq!(file.number_of("one", Path::new("/a")), 2, "0 and 1 are taken");
        assert_eq!(file.number_of("one", Path::new("/moved")), 2);
        assert_eq!(file.directory_at(Path::new("/moved")).map(|dir| dir.number), Some(2));
        assert_eq!(TopicFile::parse(file.render().as_bytes()), Ok(file));
        assert_eq!(
            TopicFile::parse(TopicFile::default().render().as_bytes()),
            Ok(TopicFile::default())
        );
    }

    #[test]
    fn a_damaged_file_is_an_error_never_an_empty_list() {
        for text in ["", "version = 2\ngeneration = 1", "version = 1\ngen", "\u{0}"] {
            assert!(TopicFile::parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}

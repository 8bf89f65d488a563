//! The topic file: names, ids, partition counts and settings, in the first data directory.
//!
//! Owns: its text and its generation counter. Never does: I/O (the control thread replaces the file
//! atomically). Left: `serde`, `toml`. Right: `control`.
//!
//! A plain file, because a foreign sub-directory would stop a Kafka broker that opens the
//! directory; brokers ignore plain files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    #[serde(default, rename = "topic")]
    pub topics: Vec<Topic>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    pub name: String,
    /// base64url, 22 characters, as in `partition.metadata`.
    pub id: String,
    pub partitions: u32,
    /// Overrides only, by Kafka's name or ours.
    #[serde(default)]
    pub configs: BTreeMap<String, String>,
    /// The most that may be written and not flushed when the power goes, as `window` keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unflushed_bytes: Option<u64>,
}

impl Default for TopicFile {
    fn default() -> Self {
        TopicFile { version: VERSION, generation: 0, topics: Vec::new() }
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
            configs: [("segment.bytes".to_string(), "1048576".to_string())].into(),
            unflushed_bytes: Some(7),
        };
        let file = TopicFile { generation: 9, topics: vec![topic], ..TopicFile::default() };
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

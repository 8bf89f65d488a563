//! What the client knows of topics: names to handles and shards.
//!
//! Owns: the cache and reading it from a response. Never does: ask for it (`cluster` does).
//! Left: [`crate::protocol::metadata`]. Right: [`super::cluster`].

use std::collections::BTreeMap;

use crate::protocol::metadata::{MetadataResponse, PartitionMeta};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub id: [u8; 16],
    /// Raw error number of the topic.
    pub error: i16,
    /// In index order.
    pub partitions: Vec<PartitionMeta>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    pub cluster_id: String,
    pub server_id: i32,
    topics: BTreeMap<String, Topic>,
}

impl Metadata {
    /// Takes a response in: what it names is replaced, an unknown name forgotten.
    pub fn update(&mut self, response: &MetadataResponse<'_>) {
        self.cluster_id.clear();
        self.cluster_id.push_str(response.cluster_id);
        self.server_id = response.server_id;
        for topic in &response.topics {
            if topic.error != 0 && topic.partitions.is_empty() {
                self.topics.remove(topic.name);
                continue;
            }
            let mut partitions = topic.partitions.clone();
            partitions.sort_by_key(|partition| partition.index);
            let known = Topic { id: topic.id, error: topic.error, partitions };
            self.topics.insert(topic.name.to_owned(), known);
        }
    }

    /// A response to a request for all: what it does not name is gone.
    pub fn replace(&mut self, response: &MetadataResponse<'_>) {
        self.topics.clear();
        self.update(response);
    }

    pub fn forget(&mut self, topic: &str) {
        self.topics.remove(topic);
    }

    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.get(name)
    }

    pub fn partition(&self, name: &str, index: u32) -> Option<PartitionMeta> {
        let partitions = &self.topics.get(name)?.partitions;
        let at = partitions.binary_search_by_key(&index, |partition| partition.index).ok()?;
        partitions.get(at).copied()
    }

    /// In name order.
    pub fn topics(&self) -> impl Iterator<Item = (&str, &Topic)> {
        self.topics.iter().map(|(name, topic)| (name.as_str(), topic))
    }
}

//! What every shard knows of all topics: an immutable picture, replaced whole on each change.
//!
//! Owns: names, ids, handles, which shard has which partition, and the marks each owner publishes.
//! Never does: change a picture in place (only the marks move). Left: `types`. Right: `control`
//! replies of the shard, `server::control`, which makes the pictures.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::types::{Handle, ShardId};

/// Bits of a handle that index the catalogue; the rest is the generation.
pub const HANDLE_INDEX_BITS: u32 = 20;

pub fn handle(index: u32, generation: u32) -> Handle {
    assert!(index < 1 << HANDLE_INDEX_BITS, "partition index {index} beyond the handle space");
    Handle((generation << HANDLE_INDEX_BITS) | index)
}

pub fn handle_index(handle: Handle) -> usize {
    (handle.0 & ((1 << HANDLE_INDEX_BITS) - 1)) as usize
}

macro_rules! marks {
    ($($(#[doc = $doc:literal])* $name:ident),+ $(,)?) => {
        /// A partition's offsets as its owner last published them, read by any thread. Each is
        /// current to within one tick; they are not one consistent picture.
        #[derive(Debug, Default)]
        pub struct Marks { $($(#[doc = $doc])* pub $name: AtomicI64,)+ }

        /// A copy of [`Marks`].
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
        pub struct MarksNow { $($(#[doc = $doc])* pub $name: i64,)+ }

        impl Marks {
            pub fn now(&self) -> MarksNow {
                MarksNow { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }

            pub fn publish(&self, now: MarksNow) {
                $(self.$name.store(now.$name, Ordering::Relaxed);)+
            }
        }
    };
}

marks! {
    /// First offset a reader may ask for.
    start,
    /// Base offset of the first segment.
    first_base,
    /// What a consumer may read (exclusive).
    high_watermark,
    /// End of what was given offsets.
    staged,
    /// End of what the kernel has.
    written,
    /// End of what a successful flush covers.
    durable,
    /// Leader epoch of new batches.
    epoch,
    /// Bytes of all `.log` files.
    bytes,
    segments,
    /// Everything below is flushed and trimmed: where a scan after a crash starts.
    recovery_point,
    /// Ranges known to be damaged on the disk, and the first offset in the first of them.
    damaged,
    damaged_from,
    /// 0 open, 1 read-only, 2 no space, 3 poisoned, 4 closed, 5 not open.
    state,
}

/// [`Marks`]'s `state` of a partition whose write or flush failed.
pub const STATE_POISONED: i64 = 3;
/// [`Marks`]'s `state` of a partition that no shard has open.
pub const STATE_NOT_OPEN: i64 = 5;

pub const STATE_NAMES: [&str; 6] =
    ["open", "read-only", "no space", "poisoned", "closed", "not open"];

#[derive(Clone, Debug)]
pub struct PartitionEntry {
    pub index: u32,
    pub handle: Handle,
    pub shard: ShardId,
    pub marks: Arc<Marks>,
}

#[derive(Clone, Debug)]
pub struct TopicEntry {
    pub name: String,
    pub id: [u8; 16],
    /// Overrides as given, name then value.
    pub configs: Vec<(String, String)>,
    pub partitions: Vec<PartitionEntry>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No such partition, or not any more.
    Stale,
    Shard(ShardId),
}

/// All topics at one moment.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    topics: Vec<Arc<TopicEntry>>,
    by_name: HashMap<String, usize>,
    /// By handle index.
    owners: Vec<Option<(Handle, ShardId)>>,
}

impl Catalogue {
    pub fn new(topics: Vec<Arc<TopicEntry>>) -> Catalogue {
        let by_name = topics.iter().enumerate().map(|(at, t)| (t.name.clone(), at)).collect();
        let mut owners = Vec::new();
        for partition in topics.iter().flat_map(|topic| &topic.partitions) {
            let at = handle_index(partition.handle);
            if owners.len() <= at {
                owners.resize(at + 1, None);
            }
            owners[at] = Some((partition.handle, partition.shard));
        }
        Catalogue { topics, by_name, owners }
    }

    pub fn topics(&self) -> &[Arc<TopicEntry>] {
        &self.topics
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<TopicEntry>> {
        self.by_name.get(name).map(|&at| &self.topics[at])
    }

    pub fn owner(&self, handle: Handle) -> Owner {
        match self.owners.get(handle_index(handle)).copied().flatten() {
            Some((current, shard)) if current == handle => Owner::Shard(shard),
            _ => Owner::Stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_topics_handle_is_stale_for_its_successor() {
        let entry = |generation| {
            let partition = PartitionEntry {
                index: 0,
                handle: handle(7, generation),
                shard: ShardId(1),
                marks: Arc::default(),
            };
            let (name, id, configs) = ("t".to_string(), [0; 16], Vec::new());
            Arc::new(TopicEntry { name, id, configs, partitions: vec![partition] })
        };
        let before = Catalogue::new(vec![entry(3)]);
        let after = Catalogue::new(vec![entry(4)]);
        assert_eq!(before.owner(handle(7, 3)), Owner::Shard(ShardId(1)));
        assert_eq!(after.owner(handle(7, 3)), Owner::Stale);
        assert_eq!(after.owner(handle(8, 0)), Owner::Stale);
    }
}

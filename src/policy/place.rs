//! Which shard owns a partition.
//!
//! Owns: the function. Never does: a table of exceptions. Left: `types`. Right: `server`.

use crate::types::ShardId;

/// The owner of a topic's partition: neighbours go to neighbouring shards, so that the partitions
/// of one topic spread evenly, and small topics do not all begin on the first shard. Stable over
/// restarts with the same number of shards.
pub fn shard_of(topic: &str, partition: u32, shards: u16) -> ShardId {
    assert!(shards > 0, "a server has at least one shard");
    let shift = (fnv1a(topic.as_bytes()) + u64::from(partition)) % u64::from(shards);
    ShardId(u16::try_from(shift).expect("below a u16"))
}

/// FNV-1a, folded to 32 bits so that the sum above cannot overflow.
fn fnv1a(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_topic_spread_evenly() {
        for shards in [1, 2, 3, 16] {
            let mut counts = vec![0; usize::from(shards)];
            for partition in 0..u32::from(shards) * 5 {
                counts[usize::from(shard_of("orders", partition, shards).0)] += 1;
            }
            assert!(counts.iter().all(|count| *count == 5), "{counts:?}");
        }
    }

    #[test]
    fn the_place_is_part_of_what_is_on_disk() {
        assert_eq!(shard_of("orders", 0, 7), shard_of("orders", 7, 7));
        assert_eq!((0..4).map(|p| shard_of("t", p, 4).0).collect::<Vec<_>>(), FIXED);
    }

    const FIXED: [u16; 4] = [3, 0, 1, 2];
}

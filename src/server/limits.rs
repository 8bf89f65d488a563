//! How a process's descriptors are shared out (R68).
//!
//! Owns: the arithmetic and the line that says it. Never does: read or raise a limit. Left:
//! nothing. Right: `run`.

/// Rings, listeners, the lock, standard streams, the files of a checkpoint, and some air.
const FIXED: u64 = 64;
const FIXED_PER_SHARD: u64 = 8;
/// Below this a shard would open and close files for every request.
const FILES_MIN: u64 = 16;

/// Who may take how many.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    pub limit: u64,
    /// Files of logs that a shard keeps open.
    pub files_per_shard: usize,
    /// Left for connections, of all shards.
    pub connections: u64,
}

impl Shares {
    /// Connections get what they may ever take, but at most half; logs the rest. `limit` None is
    /// unlimited.
    pub fn new(limit: Option<u64>, shards: u64, connections_max: u64) -> Shares {
        // More than a process can use, and small enough to reckon with.
        let limit = limit.unwrap_or(1 << 30).min(1 << 30);
        let free = limit.saturating_sub(FIXED + FIXED_PER_SHARD * shards);
        let connections = (connections_max * shards).min(free / 2);
        let files = ((free - connections) / shards.max(1)).max(FILES_MIN);
        Shares { limit, files_per_shard: files as usize, connections }
    }

    /// For the start of the server's log; `partitions` are those that it found.
    pub fn line(&self, partitions: usize) -> String {
        format!(
            "open files: limit {}; {} for connections, {} a shard for the files of logs, of which \
             {partitions} partitions want about {partitions} at once: what is not in use is closed \
             beyond that and opened again when it is needed",
            self.limit, self.connections, self.files_per_shard
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_stay_below_the_limit() {
        for limit in [1024, 4096, 65_536, 1 << 20] {
            for shards in [1, 2, 64] {
                let shares = Shares::new(Some(limit), shards, 4096);
                let files = shares.files_per_shard as u64 * shards;
                if files > FILES_MIN * shards {
                    assert!(files + shares.connections + FIXED <= limit, "{limit} {shards}");
                }
                assert!(shares.files_per_shard as u64 >= FILES_MIN);
            }
        }
        let shares = Shares::new(Some(4096), 2, 4096);
        assert_eq!((shares.files_per_shard, shares.connections), (1004, 2008));
        assert!(shares.line(10_000).contains("limit 4096"), "{}", shares.line(10_000));
        assert!(Shares::new(None, 1, 4096).files_per_shard > 1_000_000);
    }
}

//! What one log is told: segment bounds, flush policy, queue bounds.
//!
//! Owns: the resolved values and their defaults (Kafka's where Kafka has one). Never does: parsing.
//! Left: `policy`. Right: everything in `log`.

use crate::format::index::IndexLimits;
use crate::policy::FlushPolicy;
use crate::policy::group::{GroupLimits, SLICES_MAX};
use crate::policy::roll::RollLimits;

/// Resolved once a topic; bounds were checked where they were typed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    pub segment_bytes: u64,
    pub segment_index_bytes: usize,
    pub index_interval_bytes: u32,
    pub segment_ms: i64,
    pub segment_jitter_ms: i64,
    pub max_message_bytes: usize,
    pub flush: FlushPolicy,
    /// `cleanup.policy` has `compact`: segments may end before the next one's base offset.
    pub compacted: bool,
    /// `cleanup.policy` has `delete`: retention by time and size may remove segments.
    pub deletes: bool,
    /// Below 0: for ever.
    pub retention_ms: i64,
    /// Below 0: without bound.
    pub retention_bytes: i64,
    /// How long a removed segment's renamed files stay.
    pub file_delete_delay_ms: i64,
    /// Bounds `segment_ms` of compacted topics.
    pub max_compaction_lag_ms: i64,
    /// `producer.id.expiration.ms` of the server.
    pub producer_expiration_ms: i64,
    /// `producer.id.expiration.check.interval.ms` of the server.
    pub producer_check_interval_ms: u64,
    /// One write takes at most this many bytes, or one append.
    pub group_bytes_max: usize,
    /// Writes of this partition that may be in flight at once.
    pub writes_in_flight_max: usize,
    /// Bytes staged and not settled by the policy: past it appends are refused (backpressure).
    pub unsettled_bytes_max: u64,
    /// Batches whose positions are kept in memory, so that tail fetches read nothing to find them.
    pub tail_batches_max: usize,
    /// Sealed segments' files kept open; readers open what they need beyond.
    pub sealed_files_max: usize,
    /// What recovery has cut and keeps aside in this partition's directory may take this much; past
    /// it nothing is cut, and the partition is read-only until there is room.
    pub cut_bytes_max: u64,
    /// Bytes of sealed indexes kept in memory.
    pub index_cache_bytes_max: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            segment_ms: 7 * 24 * 3600 * 1000,
            segment_jitter_ms: 0,
            max_message_bytes: (1 << 20) + 12,
            flush: FlushPolicy::default(),
            compacted: false,
            deletes: true,
            retention_ms: 7 * 24 * 3600 * 1000,
            retention_bytes: -1,
            file_delete_delay_ms: 60_000,
            max_compaction_lag_ms: i64::MAX,
            producer_expiration_ms: 24 * 3600 * 1000,
            producer_check_interval_ms: 600_000,
            group_bytes_max: 4 << 20,
            writes_in_flight_max: 1,
            unsettled_bytes_max: 32 << 20,
            tail_batches_max: 1024,
            sealed_files_max: 16,
            cut_bytes_max: 8 << 30,
            index_cache_bytes_max: 4 << 20,
        }
    }
}

impl LogConfig {
    pub(super) fn index_limits(&self) -> IndexLimits {
        IndexLimits {
            interval_bytes: self.index_interval_bytes,
            index_bytes_max: self.segment_index_bytes,
        }
    }

    pub(super) fn group_limits(&self) -> GroupLimits {
        GroupLimits { bytes_max: self.group_bytes_max, slices_max: SLICES_MAX }
    }

    pub(super) fn roll_limits(&self, jitter_ms: i64) -> RollLimits {
        let segment_bytes = self.segment_bytes;
        RollLimits { segment_bytes, segment_ms: self.segment_ms_bound(), jitter_ms }
    }

    /// A compacted topic's segments end in time to be compacted.
    pub(super) fn segment_ms_bound(&self) -> i64 {
        match self.compacted {
            true => self.segment_ms.min(self.max_compaction_lag_ms),
            false => self.segment_ms,
        }
    }
}

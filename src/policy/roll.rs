//! When the active segment ends and a new one begins, exactly as Kafka decides it.
//!
//! Owns: the conditions. Never does: the roll (`log::roll`).
//! Left: `types`. Right: `log`.

use crate::types::WallMs;

/// Relative offsets and positions are non-negative i32 on disk.
pub const COLUMN_MAX: u64 = i32::MAX as u64;

/// The active segment, everything staged counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RollState {
    pub base: i64,
    pub size: u64,
    /// The greatest timestamp of the first batch, if that is a time at all.
    pub first_timestamp: Option<WallMs>,
    /// When this process created or opened the segment.
    pub created: WallMs,
    /// Either index has no slot left.
    pub index_full: bool,
}

/// What bounds a segment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RollLimits {
    pub segment_bytes: u64,
    pub segment_ms: i64,
    /// Drawn once a segment, taken off `segment_ms`.
    pub jitter_ms: i64,
}

/// The append that may not fit.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    pub bytes: u64,
    pub max_timestamp: WallMs,
    pub last_offset: i64,
    pub now: WallMs,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RollReason {
    Size,
    Time,
    /// Either index.
    IndexFull,
    /// A relative offset would pass i32 (R05).
    OffsetRange,
}

/// Whether the segment must roll before this append. An empty one takes any append, except where
/// the offset does not fit its base.
pub fn roll(state: &RollState, limits: &RollLimits, incoming: &Incoming) -> Option<RollReason> {
    let relative = incoming.last_offset.checked_sub(state.base);
    if relative.is_none_or(|r| u64::try_from(r).is_ok_and(|r| r > COLUMN_MAX)) {
        return Some(RollReason::OffsetRange);
    }
    if state.size == 0 {
        return None;
    }
    let size_max = limits.segment_bytes.min(COLUMN_MAX);
    if state.size.saturating_add(incoming.bytes) > size_max {
        return Some(RollReason::Size);
    }
    let waited = match state.first_timestamp {
        Some(first) => incoming.max_timestamp.saturating_sub(first),
        None => incoming.now.saturating_sub(state.created),
    };
    if waited > limits.segment_ms.saturating_sub(limits.jitter_ms) {
        return Some(RollReason::Time);
    }
    state.index_full.then_some(RollReason::IndexFull)
}

/// What a segment takes off its `segment_ms`, drawn once: below min(`jitter_ms`, `segment_ms`).
/// `seed` tells the segments of a server apart, or they would all roll at once.
pub fn draw_jitter(seed: u64, jitter_ms: i64, segment_ms: i64) -> i64 {
    let bound = jitter_ms.min(segment_ms);
    if bound <= 0 {
        return 0;
    }
    let mut mixed = seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % bound as u64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RollLimits = RollLimits { segment_bytes: 1000, segment_ms: 100, jitter_ms: 10 };

    fn state() -> RollState {
        RollState {
            base: 50,
            size: 900,
            first_timestamp: Some(5000),
            created: 7000,
            index_full: false,
        }
    }

    fn incoming() -> Incoming {
        Incoming { bytes: 100, max_timestamp: 5090, last_offset: 60, now: 7090 }
    }

    #[test]
    fn exactly_filling_is_allowed() {
        assert_eq!(roll(&state(), &LIMITS, &incoming()), None);
        let more = Incoming { bytes: 101, ..incoming() };
        assert_eq!(roll(&state(), &LIMITS, &more), Some(RollReason::Size));
        let empty = RollState { size: 0, ..state() };
        let huge = Incoming { bytes: 5000, ..incoming() };
        assert_eq!(roll(&empty, &LIMITS, &huge), None);
    }

    #[test]
    fn time_is_record_time_where_there_is_one() {
        let later = Incoming { max_timestamp: 5091, ..incoming() };
        assert_eq!(roll(&state(), &LIMITS, &later), Some(RollReason::Time));
        let back = Incoming { max_timestamp: -1, ..incoming() };
        assert_eq!(roll(&state(), &LIMITS, &back), None);
        let untimed = RollState { first_timestamp: None, ..state() };
        assert_eq!(roll(&untimed, &LIMITS, &later), None);
        let waited = Incoming { now: 7091, ..incoming() };
        assert_eq!(roll(&untimed, &LIMITS, &waited), Some(RollReason::Time));
    }

    #[test]
    fn jitter_stays_below_its_bounds_and_spreads() {
        assert_eq!(draw_jitter(9, 0, 100), 0);
        assert_eq!(draw_jitter(9, 100, 0), 0);
        let drawn: Vec<i64> = (1..=1000).map(|seed| draw_jitter(seed, 500, 40)).collect();
        assert!(drawn.iter().all(|ms| (0..40).contains(ms)));
        let low = drawn.iter().filter(|ms| **ms < 20).count();
        assert!((400..600).contains(&low), "{low} of 1000 in the lower half");
    }

    #[test]
    fn offsets_and_indexes_bound_a_segment_too() {
        let last = Incoming { last_offset: 50 + i64::from(i32::MAX), ..incoming() };
        assert_eq!(roll(&state(), &LIMITS, &last), None);
        let past = Incoming { last_offset: last.last_offset + 1, ..incoming() };
        assert_eq!(roll(&state(), &LIMITS, &past), Some(RollReason::OffsetRange));
        let full = RollState { index_full: true, ..state() };
        assert_eq!(roll(&full, &LIMITS, &incoming()), Some(RollReason::IndexFull));
    }
}

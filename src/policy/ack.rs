//! Which watermark answers which ack level, and whether an ack stays within the policy's bound.
//!
//! Owns: the two questions. Never does: keeping waiters (`log::flush_queue`).
//! Left: `types`, `flush`. Right: `log`.

use super::flush::FlushPolicy;
use crate::types::{AckLevel, Micros};

/// What an append waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: the request is answered when it is staged.
    Staged,
    /// Its write.
    Written,
    /// Its write, and room within the policy's bound.
    Bounded,
    /// A flush submitted after its write completed (D2).
    Durable,
}

pub fn answer(level: AckLevel, policy: FlushPolicy) -> Answer {
    match level {
        AckLevel::None => Answer::Staged,
        AckLevel::Written => Answer::Written,
        AckLevel::Durable => Answer::Durable,
        AckLevel::Policy if policy.promises_durable() => Answer::Durable,
        AckLevel::Policy if policy.is_bounded() => Answer::Bounded,
        AckLevel::Policy => Answer::Written,
    }
}

/// What acks would have promised ahead of the disk if this one left now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    pub bytes: u64,
    pub records: u64,
    /// When the oldest ack that is not durable left; `now` if there is none.
    pub oldest_ack: Micros,
}

/// Whether an ack may leave ahead of its flush.
pub fn within_bound(policy: FlushPolicy, exposure: &Exposure, now: Micros) -> bool {
    match policy {
        FlushPolicy::Os => true,
        FlushPolicy::Interval(time) => now.since(exposure.oldest_ack) < time,
        FlushPolicy::Bytes(bytes) => exposure.bytes <= bytes,
        FlushPolicy::Records(records) => exposure.records <= records,
        FlushPolicy::RecordsOrInterval { records, time } => {
            exposure.records <= records && now.since(exposure.oldest_ack) < time
        }
        FlushPolicy::Each | FlushPolicy::Group { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_never_answered_by_less_than_it_names() {
        let group = FlushPolicy::default();
        assert_eq!(answer(AckLevel::Durable, FlushPolicy::Os), Answer::Durable);
        assert_eq!(answer(AckLevel::Policy, group), Answer::Durable);
        assert_eq!(answer(AckLevel::Policy, FlushPolicy::Os), Answer::Written);
        assert_eq!(answer(AckLevel::Policy, FlushPolicy::Records(5)), Answer::Bounded);
        assert_eq!(answer(AckLevel::Written, group), Answer::Written);
        assert_eq!(answer(AckLevel::None, group), Answer::Staged);
    }

    #[test]
    fn acks_wait_exactly_past_the_bound() {
        let exposure = Exposure { bytes: 100, records: 10, oldest_ack: Micros(50) };
        assert!(within_bound(FlushPolicy::Bytes(100), &exposure, Micros(0)));
        assert!(!within_bound(FlushPolicy::Bytes(99), &exposure, Micros(0)));
        assert!(within_bound(FlushPolicy::Records(10), &exposure, Micros(0)));
        assert!(!within_bound(FlushPolicy::Records(9), &exposure, Micros(0)));
        assert!(within_bound(FlushPolicy::Interval(Micros(10)), &exposure, Micros(59)));
        assert!(!within_bound(FlushPolicy::Interval(Micros(10)), &exposure, Micros(60)));
        let both = |records| FlushPolicy::RecordsOrInterval { records, time: Micros(10) };
        assert!(within_bound(both(10), &exposure, Micros(59)));
        assert!(!within_bound(both(10), &exposure, Micros(60)));
        assert!(!within_bound(both(9), &exposure, Micros(59)));
    }
}

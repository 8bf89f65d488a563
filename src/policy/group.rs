//! Which staged appends leave together in one write.
//!
//! Owns: the decision. Never does: the write (`log::appender`).
//! Left: `flush`. Right: `log`.

use super::flush::FlushPolicy;

/// The kernel takes at most this many pieces in one vectored write (UIO_MAXIOV).
pub const SLICES_MAX: usize = 1024;

/// How far one write may grow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    pub bytes_max: usize,
    pub slices_max: usize,
}

/// Whether a group that holds `bytes` in `slices` takes one more append of `next` bytes.
pub fn takes(
    policy: FlushPolicy,
    limits: &GroupLimits,
    bytes: usize,
    slices: usize,
    next: usize,
) -> bool {
    if slices == 0 {
        return true;
    }
    let alone = policy == FlushPolicy::Each;
    !alone
        && slices < limits.slices_max.min(SLICES_MAX)
        && bytes.saturating_add(next) <= limits.bytes_max
}

/// Whether the next write may leave: under `each` only when nothing written waits for a flush.
pub fn may_write(
    policy: FlushPolicy,
    in_flight: usize,
    in_flight_max: usize,
    unflushed: bool,
) -> bool {
    match policy {
        FlushPolicy::Each => in_flight == 0 && !unflushed,
        _ => in_flight < in_flight_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_bounded_and_its_first_append_is_not() {
        let limits = GroupLimits { bytes_max: 100, slices_max: 3 };
        let group = FlushPolicy::default();
        assert!(takes(group, &limits, 0, 0, 5000));
        assert!(takes(group, &limits, 60, 1, 40));
        assert!(!takes(group, &limits, 60, 1, 41));
        assert!(!takes(group, &limits, 3, 3, 1));
        assert!(!takes(FlushPolicy::Each, &limits, 1, 1, 1));
        let wide = GroupLimits { bytes_max: usize::MAX, slices_max: usize::MAX };
        assert!(!takes(group, &wide, 0, SLICES_MAX, 1));
    }

    #[test]
    fn each_is_serial() {
        assert!(may_write(FlushPolicy::Each, 0, 4, false));
        assert!(!may_write(FlushPolicy::Each, 0, 4, true));
        assert!(!may_write(FlushPolicy::Each, 1, 4, false));
        assert!(may_write(FlushPolicy::Os, 3, 4, true));
        assert!(!may_write(FlushPolicy::Os, 4, 4, false));
    }
}

//! Whether more work is taken in.
//!
//! Owns: the decision. Never does: the counting (`log` and `shard` keep the sums).
//! Left: nothing. Right: `log`, `shard`.

/// Whether `incoming` bytes may join `held` under a bound. Something always fits where nothing is
/// held: one item larger than the bound must not wait for ever.
pub fn fits(held: u64, incoming: u64, held_max: u64) -> bool {
    held == 0 || held.saturating_add(incoming) <= held_max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_except_for_a_lone_item() {
        assert!(fits(0, 1000, 10));
        assert!(fits(4, 6, 10));
        assert!(!fits(4, 7, 10));
        assert!(!fits(1, u64::MAX, u64::MAX - 1));
    }
}

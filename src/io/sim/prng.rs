//! The simulator's dice: one seeded stream, the same on every machine.
//!
//! Owns: SplitMix64 and the few distributions the simulator draws from. Never does: read a clock
//! or the system's randomness. Left: nothing. Right: the rest of `sim`.

/// A seeded stream of numbers; the same seed gives the same stream for ever.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    pub fn new(seed: u64) -> Prng {
        Prng(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// True in `n` of 1000 cases.
    pub fn per_mille(&mut self, n: u32) -> bool {
        n > 0 && self.below(1000) < u64::from(n)
    }

    pub fn coin(&mut self) -> bool {
        self.draw() & 1 == 1
    }

    /// A count from 0 to `n`, with both ends far more likely than chance: "nothing" and "all of
    /// it" are the outcomes that find most faults.
    pub fn share(&mut self, n: usize) -> usize {
        match self.below(4) {
            0 => 0,
            1 => n,
            _ => self.below(n as u64 + 1) as usize,
        }
    }

    /// A chance for a whole family of coins: never, sometimes, often, always.
    pub fn chance(&mut self) -> u32 {
        [0, 250, 500, 750, 1000][self.below(5) as usize]
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_and_seeds_differ() {
        let draw = |seed| {
            let mut prng = Prng::new(seed);
            (0..8).map(|_| prng.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn shares_cover_both_ends_and_shuffles_keep_every_item() {
        let mut prng = Prng::new(1);
        let shares: Vec<usize> = (0..100).map(|_| prng.share(5)).collect();
        assert!(shares.contains(&0) && shares.contains(&5) && shares.iter().all(|&s| s <= 5));
        let mut items: Vec<u32> = (0..50).collect();
        prng.shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}

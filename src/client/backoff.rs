//! How long to wait before the next attempt: twice as long each time, capped, and never in step
//! with other clients.
//!
//! Owns: [`Backoff`]. Never does: sleep, look at a clock.
//! Left: nothing. Right: [`super::cluster`].

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Backoff {
    pub first: Duration,
    pub cap: Duration,
    /// Attempts before giving up; the first one waits for nothing.
    pub attempts_max: u32,
}

impl Default for Backoff {
    /// Gives a server that restarts about ten seconds.
    fn default() -> Backoff {
        Backoff { first: Duration::from_millis(50), cap: Duration::from_secs(2), attempts_max: 10 }
    }
}

impl Backoff {
    /// The wait before attempt `attempt` (from 0); `None`: give up.
    pub fn delay(&self, attempt: u32) -> Option<Duration> {
        self.delay_with(attempt, random())
    }

    /// As [`Self::delay`] with the randomness given: between half and all of the full wait.
    pub fn delay_with(&self, attempt: u32, random: u32) -> Option<Duration> {
        if attempt >= self.attempts_max {
            return None;
        }
        let Some(doublings) = attempt.checked_sub(1) else { return Some(Duration::ZERO) };
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let full = self.first.saturating_mul(factor).min(self.cap);
        Some(full / 2 + (full / 2).mul_f64(f64::from(random) / f64::from(u32::MAX)))
    }
}

/// A new `RandomState` has new keys; its hash of nothing is all the chance a jitter needs.
fn random() -> u32 {
    (RandomState::new().hash_one(0u8) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_cap_and_end() {
        let backoff = Backoff::default();
        assert_eq!(backoff.delay_with(0, u32::MAX), Some(Duration::ZERO));
        for attempt in 1..backoff.attempts_max {
            let least = backoff.delay_with(attempt, 0).unwrap();
            let most = backoff.delay_with(attempt, u32::MAX).unwrap();
            let full = (backoff.first * 2u32.pow(attempt - 1)).min(backoff.cap);
            assert_eq!((least, most), (full / 2, full), "attempt {attempt}");
            let drawn = backoff.delay(attempt).unwrap();
            assert!((least..=most).contains(&drawn));
        }
        assert_eq!(backoff.delay_with(backoff.attempts_max, 0), None);
        let long = Backoff { attempts_max: u32::MAX, ..backoff };
        assert_eq!(long.delay_with(4_000_000_000, u32::MAX), Some(long.cap));
    }
}

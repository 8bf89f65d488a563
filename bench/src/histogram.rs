//! Latencies of one row: merged over its clients, printed only where samples allow it.
//!
//! Owns: the range and precision of every histogram, and the floor of M7. Never does: merge over
//! passes (runs are shown apart). Left: `hdrhistogram`. Right: `row`, `load`, `ceiling`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Samples that must lie beyond a percentile before it is printed (M7).
pub const SAMPLES_BEYOND_MIN: u64 = 100;
/// Longest latency kept apart; longer ones count as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Nanoseconds, three significant digits.
#[derive(Clone)]
pub struct Latencies(hdrhistogram::Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let inner = hdrhistogram::Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
        Latencies(inner.expect("constant bounds that the library accepts"))
    }
}

impl Latencies {
    pub fn record(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(ns);
    }

    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    pub fn summary(&self) -> Summary {
        let n = self.0.len();
        Summary {
            n,
            p50_us: self.percentile_us(0.5),
            p99_us: self.percentile_us(0.99),
            p999_us: self.percentile_us(0.999),
            max_us: (n > 0).then(|| self.0.max() as f64 / 1e3),
        }
    }

    fn percentile_us(&self, quantile: f64) -> Option<f64> {
        enough_beyond(self.0.len(), quantile)
            .then(|| self.0.value_at_quantile(quantile) as f64 / 1e3)
    }
}

/// Whether `n` samples leave [`SAMPLES_BEYOND_MIN`] beyond the quantile.
fn enough_beyond(n: u64, quantile: f64) -> bool {
    // With a little slack: 1 - 0.999 is not quite a thousandth in binary.
    n as f64 * (1.0 - quantile) > SAMPLES_BEYOND_MIN as f64 - 1e-6
}

/// What a row tells of its latencies; a missing percentile had too few samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub n: u64,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
    pub max_us: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values_us: impl Iterator<Item = u64>) -> Latencies {
        let mut all = Latencies::default();
        values_us.for_each(|us| all.record(Duration::from_micros(us)));
        all
    }

    fn near(got: Option<f64>, want: f64) -> bool {
        got.is_some_and(|got| (got / want - 1.0).abs() < 0.002)
    }

    #[test]
    fn percentiles_of_known_data() {
        let all = of(1..=100_000).summary();
        assert_eq!(all.n, 100_000);
        assert!(near(all.p50_us, 50_000.0), "{all:?}");
        assert!(near(all.p99_us, 99_000.0), "{all:?}");
        assert!(near(all.p999_us, 99_900.0), "{all:?}");
        assert!(near(all.max_us, 100_000.0), "{all:?}");
    }

    #[test]
    fn a_percentile_needs_a_hundred_samples_beyond_it() {
        assert_eq!(of(1..=199).summary().p50_us, None);
        assert!(of(1..=200).summary().p50_us.is_some());
        assert_eq!(of(1..=9_999).summary().p99_us, None);
        assert!(of(1..=10_000).summary().p99_us.is_some());
        assert_eq!(of(1..=99_999).summary().p999_us, None);
        assert!(of(1..=100_000).summary().p999_us.is_some());
    }

    #[test]
    fn the_maximum_is_always_told_and_absent_without_samples() {
        assert!(near(of(7..=7).summary().max_us, 7.0));
        assert_eq!(Latencies::default().summary(), Summary::default());
    }

    #[test]
    fn merging_is_recording_into_one() {
        let mut left = of(1..=500);
        left.merge(&of(501..=1000));
        assert_eq!(left.summary(), of(1..=1000).summary());
    }
}

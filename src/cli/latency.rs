//! A stage's histogram as the few figures that people read.
//!
//! Owns: decoding it, and which percentiles its samples can carry. Never does: record.
//! Left: `hdrhistogram`. Right: [`super::stats`].

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{DeserializeError, Deserializer};
use serde::Serialize;

/// Samples that must lie beyond a percentile for it to mean something.
const BEYOND_MIN: u64 = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    pub stage: String,
    pub unit: String,
    pub count: u64,
    pub p50: Option<u64>,
    pub p99: Option<u64>,
    pub p99_9: Option<u64>,
    /// None without samples.
    pub max: Option<u64>,
}

impl Latency {
    /// From HdrHistogram's V2 encoding.
    pub fn read(stage: &str, unit: &str, data: &[u8]) -> Result<Latency, DeserializeError> {
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &*data)?;
        // Per thousand: whole numbers say exactly how many samples lie beyond.
        let percentile = |permille: u64| {
            let beyond = u128::from(histogram.len()) * u128::from(1000 - permille) / 1000;
            let enough = beyond >= u128::from(BEYOND_MIN);
            enough.then(|| histogram.value_at_quantile(permille as f64 / 1000.0))
        };
        Ok(Latency {
            stage: stage.to_owned(),
            unit: unit.to_owned(),
            count: histogram.len(),
            p50: percentile(500),
            p99: percentile(990),
            p99_9: percentile(999),
            max: (!histogram.is_empty()).then(|| histogram.max()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

    fn of(samples: u64) -> Latency {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 1 << 30, 3).expect("bounds");
        for sample in 1..=samples {
            histogram.record(sample).expect("in bounds");
        }
        let mut data = Vec::new();
        V2DeflateSerializer::new().serialize(&histogram, &mut data).expect("memory");
        Latency::read("produce.write", "us", &data).expect("sound")
    }

    #[test]
    fn a_percentile_needs_a_hundred_samples_beyond_it() {
        let near = |got: Option<u64>, wanted: u64| {
            got.is_some_and(|got| got.abs_diff(wanted) * 500 <= wanted)
        };
        let none = of(0);
        assert_eq!((none.count, none.p50, none.max), (0, None, None));
        let few = of(199);
        assert!(few.p50.is_none() && near(few.max, 199), "{few:?}");
        let some = of(200);
        assert!(near(some.p50, 100) && some.p99.is_none(), "{some:?}");
        let many = of(9_999);
        assert!(many.p99.is_none(), "{many:?}");
        let more = of(10_000);
        assert!(near(more.p99, 9_900) && more.p99_9.is_none(), "{more:?}");
        let most = of(100_000);
        assert!(near(most.p99_9, 99_900) && near(most.max, 100_000), "{most:?}");
    }

    #[test]
    fn what_is_no_histogram_is_refused() {
        assert!(Latency::read("x", "us", b"\xde\xad").is_err());
        assert!(Latency::read("x", "us", b"").is_err());
    }
}

//! The flush policies: their names, what each promises, and whether a file is flushed now.
//!
//! Owns: [`FlushPolicy`] and the decision. Never does: the flush (`log::flush_queue` carries it
//! out, at most one in flight a file). Left: `types`, `units`. Right: `log`, the server's config.

use std::fmt;
use std::str::FromStr;

use super::units::{parse_size, parse_time, show_size, show_time};
use crate::types::Micros;

/// When written bytes are made durable, and which acks wait for it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FlushPolicy {
    /// The kernel writes back when it likes; a segment is flushed when it rolls.
    Os,
    /// Acks at most this much time ahead of the disk.
    Interval(Micros),
    /// Acks at most this many bytes ahead of the disk.
    Bytes(u64),
    /// Acks at most this many records ahead of the disk.
    Records(u64),
    /// Acks at most this many records and this much time ahead of the disk, as Kafka's
    /// `flush.messages` and `flush.ms` together.
    RecordsOrInterval { records: u64, time: Micros },
    /// One append, one flush, then the next.
    Each,
    /// One flush settles all that was written when it was submitted; `linger` lets more gather.
    Group { linger: Micros },
}

impl Default for FlushPolicy {
    fn default() -> Self {
        FlushPolicy::Group { linger: Micros(0) }
    }
}

impl FlushPolicy {
    /// Whether an ack under this policy means durable: then readers see durable records only.
    pub fn promises_durable(self) -> bool {
        matches!(self, FlushPolicy::Each | FlushPolicy::Group { .. })
    }

    /// Whether acks wait at a bound.
    pub fn is_bounded(self) -> bool {
        self.bounds_time() || matches!(self, FlushPolicy::Bytes(_) | FlushPolicy::Records(_))
    }

    /// Whether the bound is one of time: then it counts when acks left.
    pub fn bounds_time(self) -> bool {
        matches!(self, FlushPolicy::Interval(_) | FlushPolicy::RecordsOrInterval { .. })
    }

    /// What an ack under this policy may lose when the power goes, for start lines and documents.
    pub fn promise(self) -> String {
        match self {
            FlushPolicy::Os => {
                "acks after write; a power cut loses what the kernel had not written back: no bound"
                    .to_string()
            }
            FlushPolicy::Interval(time) => {
                format!("acks after write; a power cut loses at most the last {}", show_time(time))
            }
            FlushPolicy::Bytes(bytes) => {
                format!("acks after write; a power cut loses at most {}", show_size(bytes))
            }
            FlushPolicy::Records(records) => {
                format!("acks after write; a power cut loses at most {records} records")
            }
            FlushPolicy::RecordsOrInterval { records, time } => {
                let time = show_time(time);
                format!(
                    "acks after write; a power cut loses at most {records} records, of the last \
                     {time}"
                )
            }
            FlushPolicy::Each => "acks after its own flush; a power cut loses nothing".to_string(),
            FlushPolicy::Group { .. } => {
                "acks after a shared flush; a power cut loses nothing".to_string()
            }
        }
    }

    /// The most bytes that may be written and not flushed while `unsettled_max` bounds what waits
    /// for an ack; `None` when nothing bounds it. Recovery tells damage from a torn tail by it
    /// (D6).
    pub fn unflushed_max(self, unsettled_max: u64) -> Option<u64> {
        match self {
            FlushPolicy::Each | FlushPolicy::Group { .. } => Some(unsettled_max),
            FlushPolicy::Bytes(bytes) => Some(bytes.saturating_add(unsettled_max)),
            FlushPolicy::Os
            | FlushPolicy::Interval(_)
            | FlushPolicy::Records(_)
            | FlushPolicy::RecordsOrInterval { .. } => None,
        }
    }
}

impl fmt::Display for FlushPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FlushPolicy::Os => f.write_str("os"),
            FlushPolicy::Interval(time) => write!(f, "interval:{}", show_time(time)),
            FlushPolicy::Bytes(bytes) => write!(f, "bytes:{}", show_size(bytes)),
            FlushPolicy::Records(records) => write!(f, "records:{records}"),
            FlushPolicy::RecordsOrInterval { records, time } => {
                write!(f, "records:{records},interval:{}", show_time(time))
            }
            FlushPolicy::Each => f.write_str("each"),
            FlushPolicy::Group { linger: Micros(0) } => f.write_str("group"),
            FlushPolicy::Group { linger } => write!(f, "group:{}", show_time(linger)),
        }
    }
}

/// No ack waits longer than this for company.
const LINGER_MAX: Micros = Micros(1_000_000);

/// Why a text names no flush policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no flush policy: os, interval:10ms, bytes:1MiB, records:1000, \
     records:1000,interval:10ms, each, group[:50us] (at most a second)"
)]
pub struct PolicyError(String);

impl FromStr for FlushPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<FlushPolicy, PolicyError> {
        if let Some((records, interval)) = text.split_once(',') {
            return match (records.parse()?, interval.parse()?) {
                (FlushPolicy::Records(records), FlushPolicy::Interval(time)) => {
                    Ok(FlushPolicy::RecordsOrInterval { records, time })
                }
                _ => Err(PolicyError(text.to_string())),
            };
        }
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let positive = |n: u64| (n > 0).then_some(n);
        let parsed = match (name, value) {
            ("os", None) => Some(FlushPolicy::Os),
            ("each", None) => Some(FlushPolicy::Each),
            ("group", None) => Some(FlushPolicy::default()),
            ("group", Some(v)) => parse_time(v)
                .filter(|&linger| linger <= LINGER_MAX)
                .map(|linger| FlushPolicy::Group { linger }),
            ("interval", Some(v)) => {
                parse_time(v).filter(|time| time.0 > 0).map(FlushPolicy::Interval)
            }
            ("bytes", Some(v)) => parse_size(v).and_then(positive).map(FlushPolicy::Bytes),
            ("records", Some(v)) => v.parse().ok().and_then(positive).map(FlushPolicy::Records),
            _ => None,
        };
        parsed.ok_or_else(|| PolicyError(text.to_string()))
    }
}

/// One file's distance to the disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FlushState {
    /// Bytes and records written and not covered by a finished flush.
    pub unflushed_bytes: u64,
    pub unflushed_records: u64,
    /// When the oldest of them had been written.
    pub oldest_written: Micros,
    /// Somebody waits: a durable ack, a flush request, a roll, a close, an alteration (D1).
    pub asked: bool,
    /// A flush of this file is in flight: at most one is.
    pub in_flight: bool,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FlushDecision {
    No,
    Now,
    /// Not before this time, unless something changes.
    At(Micros),
}

/// Whether to submit a flush of a file.
pub fn decide(policy: FlushPolicy, state: &FlushState, now: Micros) -> FlushDecision {
    if state.in_flight || state.unflushed_bytes == 0 {
        return FlushDecision::No;
    }
    let when = |due: bool| if due || state.asked { FlushDecision::Now } else { FlushDecision::No };
    let from = |time: Micros| match now >= state.oldest_written.plus(time) {
        true => FlushDecision::Now,
        false => FlushDecision::At(state.oldest_written.plus(time)),
    };
    match policy {
        FlushPolicy::Os => when(false),
        FlushPolicy::Each => FlushDecision::Now,
        FlushPolicy::Group { linger } => from(linger),
        // Half way to the bound: acks normally never reach it.
        FlushPolicy::Bytes(bytes) => when(state.unflushed_bytes >= bytes.div_ceil(2)),
        FlushPolicy::Records(records) => when(state.unflushed_records >= records.div_ceil(2)),
        FlushPolicy::RecordsOrInterval { records, .. }
            if state.unflushed_records >= records.div_ceil(2) =>
        {
            FlushDecision::Now
        }
        FlushPolicy::Interval(_) | FlushPolicy::RecordsOrInterval { .. } if state.asked => {
            FlushDecision::Now
        }
        FlushPolicy::RecordsOrInterval { time, .. } => from(Micros(time.0 / 2)),
        FlushPolicy::Interval(time) => from(Micros(time.0 / 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> FlushState {
        FlushState {
            unflushed_bytes: 100,
            unflushed_records: 10,
            oldest_written: Micros(1000),
            asked: false,
            in_flight: false,
        }
    }

    #[test]
    fn every_policy_is_parsed_back_from_its_text() {
        for text in [
            "os",
            "interval:10ms",
            "interval:50us",
            "bytes:1MiB",
            "bytes:1000",
            "records:1000",
            "records:1000,interval:10ms",
            "each",
            "group",
            "group:50us",
            "group:1s",
        ] {
            assert_eq!(text.parse::<FlushPolicy>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "none",
            "os:1",
            "interval:1s,records:1",
            "each,os",
            ",",
            "interval",
            "interval:0ms",
            "bytes:0",
            "records:x",
            "group:",
        ] {
            assert!(text.parse::<FlushPolicy>().is_err(), "{text}");
        }
    }

    #[test]
    fn one_flush_a_file_and_none_for_nothing() {
        for policy in [FlushPolicy::Each, FlushPolicy::default(), FlushPolicy::Bytes(1)] {
            let busy = FlushState { in_flight: true, asked: true, ..state() };
            assert_eq!(decide(policy, &busy, Micros(9999)), FlushDecision::No);
            let idle = FlushState { unflushed_bytes: 0, asked: true, ..state() };
            assert_eq!(decide(policy, &idle, Micros(9999)), FlushDecision::No);
        }
    }

    #[test]
    fn os_flushes_only_when_asked() {
        assert_eq!(decide(FlushPolicy::Os, &state(), Micros(u64::MAX)), FlushDecision::No);
        let asked = FlushState { asked: true, ..state() };
        assert_eq!(decide(FlushPolicy::Os, &asked, Micros(0)), FlushDecision::Now);
    }

    #[test]
    fn bounded_policies_start_half_way() {
        let interval = FlushPolicy::Interval(Micros(100));
        assert_eq!(decide(interval, &state(), Micros(1049)), FlushDecision::At(Micros(1050)));
        assert_eq!(decide(interval, &state(), Micros(1050)), FlushDecision::Now);
        assert_eq!(decide(FlushPolicy::Bytes(201), &state(), Micros(0)), FlushDecision::No);
        assert_eq!(decide(FlushPolicy::Bytes(200), &state(), Micros(0)), FlushDecision::Now);
        assert_eq!(decide(FlushPolicy::Records(21), &state(), Micros(0)), FlushDecision::No);
        assert_eq!(decide(FlushPolicy::Records(20), &state(), Micros(0)), FlushDecision::Now);
        let both = |records| FlushPolicy::RecordsOrInterval { records, time: Micros(100) };
        assert_eq!(decide(both(21), &state(), Micros(1049)), FlushDecision::At(Micros(1050)));
        assert_eq!(decide(both(21), &state(), Micros(1050)), FlushDecision::Now);
        assert_eq!(decide(both(20), &state(), Micros(0)), FlushDecision::Now);
    }

    #[test]
    fn linger_counts_from_the_oldest_write() {
        let policy = FlushPolicy::Group { linger: Micros(50) };
        assert_eq!(decide(policy, &state(), Micros(1049)), FlushDecision::At(Micros(1050)));
        assert_eq!(decide(policy, &state(), Micros(1050)), FlushDecision::Now);
        assert_eq!(decide(FlushPolicy::default(), &state(), Micros(1000)), FlushDecision::Now);
    }
}

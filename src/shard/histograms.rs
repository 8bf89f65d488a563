//! A shard's latency histograms, one a stage, and the counters beside them.
//!
//! Owns: recording and merging. Never does: print or lock (a shard has its own set; a copy is
//! taken on demand). Left: `hdrhistogram`. Right: `tick`, `server::control`, which merges.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::types::Micros;

/// Longest latency told apart; longer ones count as this.
pub const LATENCY_US_MAX: u64 = 60_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// What is timed, in the order a request passes through it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// Bytes reaped until the batches are checked and staged.
    Parse,
    /// Staged until the write that carries it is submitted.
    Queue,
    /// Write submitted until it completed.
    Write,
    /// Write completed until the ack level is met (no flush: about zero).
    Flush,
    /// Ack level met until the response left to the kernel.
    Ack,
    /// Bytes reaped until the response left: the whole produce request.
    Produce,
    /// Fetch begun until its ranges are known (time parked excluded).
    Lookup,
    /// Ranges known until the bytes are in the reply (`sendfile`: zero).
    Read,
    /// Reply ready until it left to the kernel.
    Send,
    /// Fetch begun, or woken from its park, until the reply left.
    Fetch,
}

pub const STAGES: [(Stage, &str); 10] = [
    (Stage::Parse, "produce.parse"),
    (Stage::Queue, "produce.queue"),
    (Stage::Write, "produce.write"),
    (Stage::Flush, "produce.flush"),
    (Stage::Ack, "produce.ack"),
    (Stage::Produce, "produce.total"),
    (Stage::Lookup, "fetch.lookup"),
    (Stage::Read, "fetch.read"),
    (Stage::Send, "fetch.send"),
    (Stage::Fetch, "fetch.total"),
];

/// One histogram a stage, in microseconds.
#[derive(Clone, Debug)]
pub struct Stages(Vec<Histogram<u64>>);

impl Default for Stages {
    fn default() -> Self {
        let one = || {
            Histogram::new_with_bounds(1, LATENCY_US_MAX, SIGNIFICANT_DIGITS)
                .expect("constant bounds are valid")
        };
        Stages(STAGES.iter().map(|_| one()).collect())
    }
}

impl Stages {
    pub fn record(&mut self, stage: Stage, took: Micros) {
        self.0[stage as usize].saturating_record(took.0.max(1));
    }

    pub fn record_n(&mut self, stage: Stage, took: Micros, count: u64) {
        self.0[stage as usize].saturating_record_n(took.0.max(1), count);
    }

    pub fn merge(&mut self, other: &Stages) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.add(theirs).expect("same bounds everywhere");
        }
    }

    /// Each stage's name and its histogram as HdrHistogram V2, compressed.
    pub fn export(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut serializer = V2DeflateSerializer::new();
        self.0
            .iter()
            .zip(STAGES)
            .map(|(histogram, (_, name))| {
                let mut bytes = Vec::new();
                serializer
                    .serialize(histogram, &mut bytes)
                    .expect("writing to memory does not fail");
                (name, bytes)
            })
            .collect()
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident),+ $(,)?) => {
        /// Plain counts of a shard since its start.
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[doc = $doc])* pub $name: u64,)+ }

        impl Counters {
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)+
            }

            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

counters! {
    /// Loop turns.
    ticks,
    connections_accepted,
    connections_refused,
    stalled_closed,
    connections_open,
    /// Frames that were no request of ours; each closed its connection.
    frames_refused,
    requests,
    produce_requests,
    produce_refused,
    batches,
    records,
    /// Bytes of accepted batches.
    bytes_in,
    /// Produce requests stored in another codec than they came in (`compression.type`).
    reencoded,
    /// Records accepted although they were older than `retention.ms`: they go at its next pass
    /// (R44).
    records_past_retention,
    fetch_requests,
    fetches_parked,
    fetch_bytes,
    /// Requests that had to wait because a bound was reached.
    backpressure,
    writes,
    flushes,
    /// Acks that waited for a flush; over `flushes` it is waiters a flush.
    flush_waiters,
    segments_rolled,
    /// Retention and deleted records.
    segments_deleted,
    bytes_deleted,
    /// Segments whose age is their file's, because a timestamp lies in the future.
    segments_from_the_future,
    /// Descriptors of logs' files, now.
    files_open,
    /// Bytes of batches that recovery read.
    recovery_read_bytes,
    /// Places where recovery cut a log, and the bytes it keeps aside of them.
    recovery_cuts,
    recovery_cut_bytes,
    /// Ranges known to be damaged on the disk.
    damaged_ranges,
    /// Batches of idempotent producers that were in the log already.
    duplicates,
    /// Produce requests refused for a gap in a producer's sequences.
    out_of_order,
    /// Idempotent producers that partitions remember now.
    producers_known,
    producers_expired,
    io_submitted,
    io_enters,
    io_calls,
    io_punted,
    io_cq_overflows,
    io_refused,
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;

    #[test]
    fn merged_stages_export_as_standard_histograms() {
        let mut one = Stages::default();
        let mut two = Stages::default();
        one.record(Stage::Write, Micros(100));
        two.record_n(Stage::Write, Micros(300), 3);
        one.merge(&two);
        let exported = one.export();
        let (_, bytes) = exported.iter().find(|(name, _)| *name == "produce.write").unwrap();
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!((read.len(), read.max(), read.min()), (4, 300, 100));
    }

    #[test]
    fn stages_stand_at_their_own_index() {
        for (at, (stage, _)) in STAGES.iter().enumerate() {
            assert_eq!(*stage as usize, at);
        }
    }
}

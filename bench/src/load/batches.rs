//! Record batches built once, before the clock starts, so that the client costs little.
//!
//! Owns: the seeded incompressible payload and the shape of the batches. Never does: send.
//! Left: `ringlog::format`. Right: `wire`, `ceiling`.

use std::time::{SystemTime, UNIX_EPOCH};

use ringlog::format::batch::{Codec, HEADER_LEN};
use ringlog::format::builder::BatchBuilder;

/// Payload of a record, unless the batch is smaller.
pub const RECORD_BYTES: usize = 1024;
/// Distinct batches kept; enough that their bytes differ from one write to the next.
const BATCHES_BYTES: usize = 4 << 20;
const BATCHES_MAX: usize = 256;
/// Length, attributes, deltas, key, value length and header count of a record, at most.
const RECORD_OVERHEAD: usize = 12;
/// The payload is the same in every run.
const SEED: u64 = 0x7269_6e67_6c6f_6721;

/// Batches of one shape.
pub struct Batches {
    pub all: Vec<Vec<u8>>,
    pub records_each: u64,
    /// Bytes of each batch; all are equal.
    pub bytes_each: usize,
}

/// As many records of about a KiB as fit into `batch_bytes`, at least one.
pub fn build(batch_bytes: usize) -> Batches {
    let room = batch_bytes.saturating_sub(HEADER_LEN).max(RECORD_OVERHEAD + 1);
    let records = (room / (RECORD_BYTES + RECORD_OVERHEAD)).max(1);
    let value_len = (room / records - RECORD_OVERHEAD).min(RECORD_BYTES);
    let count = (BATCHES_BYTES / batch_bytes.max(1)).clamp(1, BATCHES_MAX);
    let mut noise = Noise(SEED);
    let now_ms = now_ms();
    let all: Vec<Vec<u8>> =
        (0..count).map(|_| build_one(records, value_len, now_ms, &mut noise)).collect();
    let bytes_each = all[0].len();
    assert!(all.iter().all(|one| one.len() == bytes_each), "batches of one shape are equal");
    Batches { all, records_each: records as u64, bytes_each }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn build_one(records: usize, value_len: usize, now_ms: i64, noise: &mut Noise) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let mut value = Vec::with_capacity(value_len);
    for _ in 0..records {
        value.clear();
        noise.fill(value_len, &mut value);
        builder.append(None, Some(&value), &[], now_ms);
    }
    builder.finish(Codec::None, None).expect("a batch without compression cannot fail").to_vec()
}

/// xorshift64: incompressible enough, and the same everywhere.
struct Noise(u64);

impl Noise {
    fn fill(&mut self, len: usize, out: &mut Vec<u8>) {
        let end = out.len() + len;
        while out.len() < end {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let word = self.0.to_le_bytes();
            let take = word.len().min(end - out.len());
            out.extend_from_slice(&word[..take]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringlog::format::{batch, record};

    #[test]
    fn every_batch_verifies_walks_and_fits() {
        for (batch_bytes, records) in [(1024, 1), (4096, 3), (65_536, 63), (100, 1)] {
            let batches = build(batch_bytes);
            assert_eq!(batches.records_each, records, "{batch_bytes}");
            assert!(batches.bytes_each <= batch_bytes && batches.bytes_each * 10 > batch_bytes * 7);
            for bytes in &batches.all {
                let header = batch::verify_stored(bytes).unwrap();
                assert_eq!(header.total_len(), bytes.len());
                record::walk(&bytes[HEADER_LEN..], header.records_count, 0).unwrap();
            }
        }
    }

    #[test]
    fn payload_is_seeded_and_differs_between_batches() {
        let (one, two) = (build(4096), build(4096));
        assert_eq!(one.all[5][HEADER_LEN..], two.all[5][HEADER_LEN..]);
        assert_ne!(one.all[0][HEADER_LEN..], one.all[1][HEADER_LEN..]);
    }
}

//! Records inside a batch: the walk of produce and the decoder of readers agree.

use ringlog::format::batch::{self, BatchHeader, Codec};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::record::{records, walk};
use ringlog::format::varint;

/// The count of records, then records.
pub fn run(input: &[u8]) {
    varints(input);
    let Some((count, payload)) = input.split_first_chunk::<2>() else { return };
    let count = i32::from(i16::from_be_bytes(*count));
    let header = header_of(count, payload.len());
    let mut decoded = Vec::new();
    let mut broken = false;
    for record in records(payload, &header) {
        assert!(!broken, "a decoder ends with its first error");
        match record {
            Ok(record) => {
                assert!(record.headers.into_iter().count() <= payload.len());
                decoded.push(record);
            }
            Err(_) => broken = true,
        }
    }
    assert!(decoded.len() <= payload.len(), "a record of no bytes");
    if let Ok(walked) = walk(payload, count, header.base_timestamp) {
        assert!(!broken, "accepted from a producer, and no reader can decode it");
        assert_eq!(decoded.len(), count as usize);
        let first_null = decoded.iter().position(|record| record.key.is_none());
        assert_eq!(walked.first_null_key, first_null.map(|at| at as i32));
        let greatest = decoded.iter().map(|record| record.timestamp).max().unwrap_or(-1);
        assert_eq!(walked.max_timestamp, greatest.max(-1));
    }
}

/// As `parse_header` gives it; the counts are the input's.
fn header_of(records_count: i32, payload_len: usize) -> BatchHeader {
    let mut builder = BatchBuilder::new();
    builder.append(None, None, &[], 1_700_000_000_000);
    let batch = builder.finish(Codec::None, None).expect("plain");
    BatchHeader {
        base_offset: 1000,
        batch_length: batch::BATCH_LENGTH_MIN + payload_len as i32,
        last_offset_delta: records_count.saturating_sub(1),
        records_count,
        ..batch::parse_header(batch).expect("just made")
    }
}

fn varints(bytes: &[u8]) {
    if let Ok((value, len)) = varint::decode_i32(bytes) {
        assert!(len <= bytes.len() && len <= varint::VARINT_LEN_MAX);
        let mut minimal = Vec::new();
        varint::encode_i32(value, &mut minimal);
        assert!(minimal.len() == varint::len_i32(value) && minimal.len() <= len);
        assert_eq!(varint::decode_i32(&minimal), Ok((value, minimal.len())));
    }
    if let Ok((value, len)) = varint::decode_i64(bytes) {
        assert!(len <= bytes.len());
        let mut minimal = Vec::new();
        varint::encode_i64(value, &mut minimal);
        assert!(minimal.len() == varint::len_i64(value) && minimal.len() <= len);
        assert_eq!(varint::decode_i64(&minimal), Ok((value, minimal.len())));
    }
}

//! Record batches: as a produce request brings them, as a log holds them, through every codec.

use ringlog::format::batch::{self, HEADER_LEN, LENGTH_PREFIX, scan};
use ringlog::format::codec::{Workspace, decompress};
use ringlog::format::dump;
use ringlog::format::record::records;
use ringlog::format::validate::{Depth, Limits, Scratch, check_produce};
use ringlog::tools::records::RecordReader;
use ringlog::tools::walk::{Item, Walk};

const NOW_MS: i64 = 1_800_000_000_000;
const PLAIN_BYTES_MAX: u64 = 1 << 20;

fn limits(bits: u8) -> Limits {
    Limits {
        message_bytes_max: 1 << 20,
        depth: if bits & 1 == 0 { Depth::Deep } else { Depth::Records },
        decompressed_bytes_max: PLAIN_BYTES_MAX,
        now_ms: NOW_MS,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: if bits & 2 == 0 { i64::MAX } else { 3_600_000 },
        log_append_time: bits & 4 != 0,
        key_required: bits & 8 != 0,
    }
}

/// The first byte chooses settings, and whether lengths and CRCs are made true first.
pub fn run(input: &[u8]) {
    let Some((&bits, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if bits & 16 != 0 {
        make_true(&mut bytes);
    }
    stored(&bytes);
    produced(&bytes, &limits(bits));
}

/// Makes the length of a lone batch fit and its CRC hold, so that what lies behind is reached.
fn make_true(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_LEN {
        let length = (bytes.len() - LENGTH_PREFIX) as i32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        batch::reseal(bytes).expect("a header is there");
    }
}

/// What a log holds: every door that recovery, readers and the dump use.
fn stored(bytes: &[u8]) {
    let mut workspace = Workspace::new();
    for found in scan(bytes) {
        assert_eq!(found.bytes.len(), found.header.total_len());
        let sound = batch::verify_stored(found.bytes).is_ok();
        assert!(!sound || found.crc_ok());
        let mut plain = Vec::new();
        let Some(codec) = found.header.codec() else { continue };
        let payload = found.payload();
        if decompress(codec, payload, PLAIN_BYTES_MAX, &mut workspace, &mut plain).is_err() {
            continue;
        }
        assert!(plain.len() as u64 <= PLAIN_BYTES_MAX, "more than the bound");
        let decoded = records(&plain, &found.header).take_while(Result::is_ok).count();
        assert!(decoded <= plain.len(), "a record of no bytes");
    }
    dumped(bytes);
}

/// The walk deals with every byte, and the dump's lines are made of whatever it finds.
fn dumped(bytes: &[u8]) {
    let mut walk = Walk::new(bytes).expect("a slice is read");
    let mut reader = RecordReader::default();
    let mut end = 0;
    while let Some(item) = walk.next_item().expect("a slice is read") {
        let (pos, len) = match item {
            Item::Bad(bad) => (bad.pos, bad.len),
            Item::Batch(batch) => {
                let _ = dump::batch_line(&batch.header, batch.pos, batch.crc_ok());
                let _ = reader.each(&batch, &mut |record| {
                    let _ = dump::record_line(record, &batch.header, true);
                });
                (batch.pos, batch.bytes.len() as u64)
            }
        };
        assert!(pos == end && len > 0, "bytes are left that nothing is said of");
        end += len;
    }
    assert_eq!(end, bytes.len() as u64);
}

/// What a produce request brings. Accepted, it is one batch that a log may hold, and accepting it
/// once more changes nothing.
fn produced(bytes: &[u8], limits: &Limits) {
    let mut scratch = Scratch::new();
    let mut taken = bytes.to_vec();
    let Ok(checked) = check_produce(&mut taken, limits, &mut scratch) else { return };
    assert_eq!(checked.rewritten, taken != bytes);
    let header = batch::verify_stored(&taken).expect("what is accepted can be stored");
    assert_eq!(header, checked.header);
    assert_eq!(header.total_len(), taken.len());
    assert_eq!(header.records_count, header.last_offset_delta + 1);
    if limits.depth == Depth::Deep {
        every_record_is_readable(&taken, &header);
    }
}

fn every_record_is_readable(taken: &[u8], header: &batch::BatchHeader) {
    let mut plain = Vec::new();
    let codec = header.codec().expect("a known codec");
    let bound = PLAIN_BYTES_MAX;
    decompress(codec, &taken[HEADER_LEN..], bound, &mut Workspace::new(), &mut plain)
        .expect("it was decompressed before");
    let offsets: Vec<i64> =
        records(&plain, header).map(|record| record.expect("readable").offset).collect();
    assert!(offsets.iter().copied().eq(0..i64::from(header.records_count)), "{offsets:?}");
}

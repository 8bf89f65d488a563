//! Memory under hostile batches (R01, R88): no number that a batch contains may size an allocation,
//! and an uncompressed batch is checked without any.
//!
//! Own file, because it counts every allocation of its process.

#[path = "support/counting.rs"]
mod counting;

use counting::{Asked, measured};
use ringlog::errors::ErrorCode;
use ringlog::format::batch::{self, Codec, HEADER_LEN, LAST_OFFSET_DELTA, RECORDS_COUNT};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::codec::{self, Workspace};
use ringlog::format::record;
use ringlog::format::validate::{Depth, Limits, Scratch, check_produce};
use ringlog::tools::records::RecordReader;
use ringlog::tools::walk::{Item, Walk};

const MIB: isize = 1 << 20;
const NOW: i64 = 1_800_000_000_000;

const LIMITS: Limits = Limits {
    message_bytes_max: 2 << 20,
    depth: Depth::Deep,
    decompressed_bytes_max: 64 << 20,
    now_ms: NOW,
    timestamp_before_max_ms: i64::MAX,
    timestamp_after_max_ms: i64::MAX,
    log_append_time: false,
    key_required: false,
};

/// A batch of one record around a payload made elsewhere.
fn batch_around(codec: Codec, payload: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.append(None, None, &[], NOW);
    let mut bytes = builder.finish(codec, None).expect("compresses").to_vec();
    bytes.truncate(HEADER_LEN);
    bytes.extend_from_slice(payload);
    let batch_length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&batch_length.to_be_bytes());
    batch::reseal(&mut bytes).expect("whole");
    bytes
}

/// Reads a batch in every way there is.
fn read_everywhere(bytes: &[u8], scratch: &mut Scratch) {
    assert!(check_produce(&mut bytes.to_vec(), &LIMITS, scratch).is_err());
    let header = batch::verify(bytes).expect("its checksum holds");
    let _ = batch::verify_stored(bytes);
    assert!(record::records(&bytes[HEADER_LEN..], &header).count() <= 2);
    let mut walk = Walk::new(bytes).expect("a slice");
    while let Some(item) = walk.next_item().expect("a slice") {
        if let Item::Batch(batch) = item {
            assert!(RecordReader::default().each(&batch, &mut |_| {}).is_err());
        }
    }
}

#[test]
fn r01_a_hostile_record_count_costs_no_memory() {
    let mut scratch = Scratch::new();
    for codec in Codec::ALL {
        let mut builder = BatchBuilder::new();
        builder.append(Some(b"k"), Some(b"v"), &[], NOW);
        let good = builder.finish(codec, None).expect("compresses").to_vec();
        assert!(check_produce(&mut good.clone(), &LIMITS, &mut scratch).is_ok());
        for (count, last_delta) in
            [(-1, 0), (i32::MAX, i32::MAX - 1), (i32::MAX, 0), (i32::MIN, -1)]
        {
            let mut hostile = good.clone();
            hostile[RECORDS_COUNT..RECORDS_COUNT + 4].copy_from_slice(&i32::to_be_bytes(count));
            hostile[LAST_OFFSET_DELTA..LAST_OFFSET_DELTA + 4]
                .copy_from_slice(&i32::to_be_bytes(last_delta));
            batch::reseal(&mut hostile).expect("whole");
            let ((), Asked { peak_bytes: peak, .. }) =
                measured(|| read_everywhere(&hostile, &mut scratch));
            assert!(peak < MIB, "{codec:?}, count {count}: {peak} bytes");
        }
    }
}

#[test]
fn an_uncompressed_batch_is_checked_without_an_allocation() {
    let mut builder = BatchBuilder::new();
    for i in 0..1000i64 {
        builder.append(Some(b"key"), Some(&[7; 100]), &[(b"header", Some(b"x"))], NOW + i);
    }
    let mut bytes = builder.finish(Codec::None, None).expect("plain").to_vec();
    let mut scratch = Scratch::new();
    let (checked, Asked { calls, .. }) =
        measured(|| check_produce(&mut bytes, &LIMITS, &mut scratch));
    assert!(checked.is_ok());
    assert_eq!(calls, 0);
    bytes[100] ^= 1;
    let (refused, Asked { calls, .. }) =
        measured(|| check_produce(&mut bytes, &LIMITS, &mut scratch));
    assert_eq!(refused.map_err(|refused| refused.code()), Err(ErrorCode::CorruptMessage));
    assert_eq!(calls, 0, "nor is a broken one refused with one");

    builder.reset();
    let ((), Asked { calls, .. }) = measured(|| {
        for i in 0..1000 {
            builder.append(Some(b"key"), Some(&[7; 100]), &[(b"header", Some(b"x"))], NOW + i);
        }
        assert!(builder.finish(Codec::None, None).is_ok());
    });
    assert_eq!(calls, 0, "a builder that is used again has its memory");
}

/// A record that declares a length and a value as long as i32 can: a walk follows it to the end.
const ENDLESS: [u8; 14] = [0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f];

/// At most a megabyte that would become many: an endless record of zeros, in streams joined to
/// gigabytes where the codec allows it.
fn bomb(codec: Codec) -> Vec<u8> {
    let compressed = |plain: &[u8]| {
        let mut stream = Vec::new();
        codec::compress(codec, None, plain, &mut stream).expect("compresses");
        stream
    };
    let endless = |len: usize| [&ENDLESS[..], &vec![0; len]].concat();
    match codec {
        Codec::Gzip => [compressed(&ENDLESS), compressed(&vec![0; 10 << 20]).repeat(100)].concat(),
        Codec::Zstd => [compressed(&ENDLESS), compressed(&vec![0; 64 << 20]).repeat(160)].concat(),
        _ => compressed(&endless(20 << 20)),
    }
}

#[test]
fn r88_bombs_are_refused_within_bounded_memory() {
    let limits = Limits { decompressed_bytes_max: 16 << 20, ..LIMITS };
    let mut scratch = Scratch::new();
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let payload = bomb(codec);
        let mut bytes = batch_around(codec, &payload);
        assert!(bytes.len() < 2 << 20, "{codec:?}: {}", bytes.len());
        let (refused, Asked { peak_bytes: peak, .. }) =
            measured(|| check_produce(&mut bytes, &limits, &mut scratch));
        let code = refused.expect_err("refused").code();
        assert_eq!(code, ErrorCode::MessageTooLarge, "{codec:?}");
        assert!(peak < MIB, "{codec:?}: {peak} bytes");
        let mut out = Vec::new();
        let (read, Asked { peak_bytes: peak, .. }) = measured(|| {
            codec::decompress(codec, &payload, 4 << 20, &mut Workspace::new(), &mut out)
        });
        assert!(read.is_err());
        assert!(out.len() <= 4 << 20);
        assert!(peak < 14 * MIB, "{codec:?}: {peak} bytes"); // a vector that doubles past 4 MiB
    }
}

#[test]
fn r88_declared_sizes_are_not_allocated() {
    let lax = Limits { decompressed_bytes_max: u64::MAX, ..LIMITS };
    let zstd =
        [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &(1u64 << 40).to_le_bytes(), &[1, 0, 0]].concat();
    let zstd_window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 1, 0, 0];
    let raw_snappy = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
    let framed_snappy = [&b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x07"[..], &raw_snappy].concat();
    let long_block = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\x7f\xff\xff\xff\0".to_vec();
    // The largest blocks and a content size of 2^60 declared; one claims 4 MiB, one has five bytes.
    let lz4 = |block: u32| {
        let descriptor = [&[0x68, 0x70][..], &(1u64 << 60).to_le_bytes()].concat();
        let check = (twox_hash::XxHash32::oneshot(0, &descriptor) >> 8) as u8;
        [&[0x04, 0x22, 0x4d, 0x18][..], &descriptor, &[check], &block.to_le_bytes(), &[0; 9]]
            .concat()
    };
    let mut scratch = Scratch::new();
    for (codec, payload) in [
        (Codec::Zstd, zstd),
        (Codec::Zstd, zstd_window.to_vec()),
        (Codec::Snappy, raw_snappy.to_vec()),
        (Codec::Snappy, framed_snappy),
        (Codec::Snappy, long_block),
        (Codec::Lz4, lz4(4 << 20)),
        (Codec::Lz4, lz4(5)),
    ] {
        let mut bytes = batch_around(codec, &payload);
        let (refused, Asked { peak_bytes: peak, .. }) =
            measured(|| check_produce(&mut bytes, &lax, &mut scratch));
        assert_eq!(refused.expect_err("refused").code(), ErrorCode::InvalidRecord, "{codec:?}");
        assert!(peak < MIB, "{codec:?}: {peak} bytes");
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split_whitespace().nth(1).expect("resident");
    pages.parse::<u64>().expect("a number") * 4096
}

/// The highest levels ask for a window of 128 MiB whatever they compress. Such a batch is an honest
/// one; what it costs is what it holds.
#[test]
fn a_wide_zstd_window_costs_what_is_written_into_it() {
    let mut builder = BatchBuilder::new();
    builder.append(None, Some(b"small"), &[], NOW);
    let plain = builder.finish(Codec::None, None).expect("plain")[HEADER_LEN..].to_vec();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
    encoder.window_log(27).expect("a legal window");
    std::io::Write::write_all(&mut encoder, &plain).expect("compresses");
    let mut bytes = batch_around(Codec::Zstd, &encoder.finish().expect("compresses"));
    let mut scratch = Scratch::new();
    let before = resident_bytes();
    assert!(check_produce(&mut bytes, &LIMITS, &mut scratch).is_ok());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}

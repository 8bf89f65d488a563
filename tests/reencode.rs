//! `compression.type`: what a broker made of batches in another codec, and ours of the same.
//!
//! Owns: the promises of re-encoding and of append time on the bytes themselves; over the wire they
//! are tested with the shard. Never does: I/O beyond the fixtures. Left: `ringlog::format`.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use ringlog::errors::ErrorCode;
use ringlog::format::batch::{
    self, ATTRIBUTES, Attributes, BatchHeader, Codec, HEADER_LEN, MAX_TIMESTAMP, TimestampType,
};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::codec::{self, Workspace};
use ringlog::format::record::{self, Record};
use ringlog::format::reencode::{Reencoder, Target, differs};
use ringlog::format::validate::{Checked, Depth, Limits, Refused, Scratch, check_produce};

const NOW: i64 = 1_800_000_000_000;

const LIMITS: Limits = Limits {
    message_bytes_max: 1 << 20,
    depth: Depth::Deep,
    decompressed_bytes_max: 64 << 20,
    now_ms: NOW,
    timestamp_before_max_ms: i64::MAX,
    timestamp_after_max_ms: i64::MAX,
    log_append_time: false,
    key_required: false,
};

fn to(codec: Codec) -> Target {
    Target { codec, level: None }
}

/// The batch as it would be stored.
fn stored(sent: &[u8], target: Target, limits: &Limits) -> Result<(Vec<u8>, Checked), Refused> {
    let (mut out, mut scratch) = (b"before".to_vec(), Scratch::new());
    let done = Reencoder::default().reencode(sent, target, limits, &mut scratch, &mut out);
    match done {
        Ok(checked) => Ok((out.split_off(6), checked)),
        Err(refused) => {
            assert_eq!(out, b"before", "nothing of a refused batch is kept");
            Err(refused)
        }
    }
}

fn plain(bytes: &[u8]) -> Vec<u8> {
    let codec = batch::parse_header(bytes).expect("a header").codec().expect("a codec");
    let mut plain = Vec::new();
    codec::decompress(codec, &bytes[HEADER_LEN..], 64 << 20, &mut Workspace::new(), &mut plain)
        .expect("decompresses");
    plain
}

/// The batches of a partition that the broker closed cleanly.
fn golden(topic: &str) -> Vec<Vec<u8>> {
    let path = format!("tests/fixtures/golden/clean/gold-{topic}-0/00000000000000000000.log");
    let log = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a fixture");
    let found: Vec<_> = batch::scan(&log).map(|found| found.bytes.to_vec()).collect();
    assert!(!found.is_empty());
    found
}

/// A broker with `compression.type=zstd` stored these: its producer sent them as gzip and plain. In
/// whatever codec we get them, we store the same records, byte for byte before compression, under
/// the same header.
#[test]
fn a_batch_is_stored_as_the_broker_stored_it() {
    let (mut builder, mut compared) = (BatchBuilder::new(), 0);
    for kept in golden("recompressed") {
        let header = batch::verify(&kept).expect("sound");
        if header.codec() != Some(Codec::Zstd) {
            continue;
        }
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
            builder.reset();
            builder.producer(header.producer_id, header.producer_epoch, header.base_sequence);
            let records = plain(&kept);
            for record in record::records(&records, &header) {
                let record = record.expect("sound");
                let headers: Vec<_> = record.headers.map(|h| (h.key, h.value)).collect();
                builder.append(record.key, record.value, &headers, record.timestamp);
            }
            let sent = builder.finish(codec, None).expect("compresses").to_vec();
            assert!(differs(&sent, to(Codec::Zstd)));
            let (mut ours, checked) = stored(&sent, to(Codec::Zstd), &LIMITS).expect("accepted");
            batch::assign(&mut ours, header.base_offset, header.leader_epoch).expect("whole");
            assert_eq!(batch::verify(&ours).map(|h| h.crc), Ok(checked.header.crc));
            assert_eq!(plain(&ours), records);
            let as_ours = |crc, batch_length| BatchHeader { crc, batch_length, ..header };
            let got = batch::parse_header(&ours).expect("a header");
            assert_eq!(got, as_ours(got.crc, got.batch_length));
            compared += 1;
        }
    }
    assert!(compared >= 4, "{compared}");
}

/// The broker stamped these as they arrived. From what their producer sent we make the same bytes:
/// bit, maximum timestamp and CRC.
#[test]
fn append_time_is_written_as_the_broker_writes_it() {
    let mut seen = Vec::new();
    for kept in golden("appendtime") {
        let header = batch::verify(&kept).expect("sound");
        assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
        let mut sent = kept.clone();
        let attributes = header.attributes.with_timestamp_type(TimestampType::CreateTime);
        sent[ATTRIBUTES..][..2].copy_from_slice(&attributes.0.to_be_bytes());
        sent[MAX_TIMESTAMP..][..8].copy_from_slice(&NOW.to_be_bytes());
        batch::reseal(&mut sent).expect("whole");
        batch::assign(&mut sent, 0, -1).expect("whole");
        let now_ms = header.max_timestamp;
        let limits = Limits { log_append_time: true, now_ms, ..LIMITS };
        let checked = check_produce(&mut sent, &limits, &mut Scratch::new()).expect("accepted");
        assert!(checked.rewritten);
        batch::assign(&mut sent, header.base_offset, header.leader_epoch).expect("whole");
        assert_eq!(sent, kept);
        seen.push(header.codec());
    }
    assert!(seen.contains(&Some(Codec::None)) && seen.contains(&Some(Codec::Lz4)), "{seen:?}");
}

type Fields = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>, i64);

fn fields(record: &Record<'_>) -> Fields {
    let headers = record.headers.map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec)));
    let (key, value) = (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
    (key, value, headers.collect(), record.timestamp)
}

fn decoded(bytes: &[u8]) -> Vec<Fields> {
    let header = batch::parse_header(bytes).expect("a header");
    let plain = plain(bytes);
    record::records(&plain, &header).map(|record| fields(&record.expect("sound"))).collect()
}

fn some_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(0u8..4, 0..200))
}

fn some_record() -> impl Strategy<Value = Fields> {
    let header = (proptest::collection::vec(any::<u8>(), 0..8), some_bytes());
    let times = prop_oneof![Just(-1), NOW - 1_000_000..NOW + 1_000_000];
    (some_bytes(), some_bytes(), proptest::collection::vec(header, 0..4), times)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Any batch, from any codec to any other, on both kinds of topic: every record is there, with
    /// what is kept of the header, and it passes the check of a stored batch.
    #[test]
    fn nothing_is_lost_on_the_way_to_another_codec(
        records in proptest::collection::vec(some_record(), 1..40),
        (from, into) in (0usize..5, 0usize..5),
        producer in proptest::option::of((0i64..1000, 0i16..9, 0i32..1000)),
        (transactional, log_append_time) in (any::<bool>(), any::<bool>()),
    ) {
        let (from, into) = (Codec::ALL[from], Codec::ALL[into]);
        let mut builder = BatchBuilder::new();
        if let Some((id, epoch, sequence)) = producer {
            builder.producer(id, epoch, sequence);
        }
        // A bit without a meaning besides: it does not survive.
        builder.attributes(Attributes(1 << 9).with_transactional(transactional));
        for (key, value, headers, time) in &records {
            let headers: Vec<_> = headers.iter().map(|(k, v)| (&k[..], v.as_deref())).collect();
            builder.append(key.as_deref(), value.as_deref(), &headers, *time);
        }
        let sent = builder.finish(from, None).expect("compresses").to_vec();
        prop_assert_eq!(differs(&sent, to(into)), from != into);
        let limits = Limits { log_append_time, ..LIMITS };
        let (bytes, checked) = stored(&sent, to(into), &limits).expect("accepted");
        let was = batch::parse_header(&sent).expect("a header");
        let header = batch::verify_stored(&bytes).expect("sound");
        prop_assert_eq!(header, checked.header);
        prop_assert_eq!(header.codec(), Some(into));
        prop_assert_eq!(header.is_transactional(), transactional);
        prop_assert_eq!(header.timestamp_type() == TimestampType::LogAppendTime, log_append_time);
        let kept = |h: &BatchHeader| {
            let producer = (h.producer_id, h.producer_epoch, h.base_sequence);
            (producer, h.records_count, h.last_offset_delta, h.base_timestamp)
        };
        prop_assert_eq!(kept(&header), kept(&was));
        let max = records.iter().map(|record| record.3).max().expect("one at least");
        prop_assert_eq!(header.max_timestamp, if log_append_time { NOW } else { max });
        if from != into {
            prop_assert_eq!(header.attributes.0 & (1 << 9), 0);
        }
        let mut wanted = records;
        if log_append_time {
            wanted.iter_mut().for_each(|record| record.3 = NOW);
        }
        prop_assert_eq!(decoded(&bytes), wanted);
    }
}

/// A producer whose base timestamp is not its first record's: the stored one's is.
#[test]
fn the_base_timestamp_is_the_first_records() {
    let mut builder = BatchBuilder::new();
    builder.append(Some(b"k"), Some(b"v"), &[], NOW);
    let sent = builder.finish(Codec::None, None).expect("plain").to_vec();
    let mut moved = sent.clone();
    // One byte of timestamp delta, one later: the base is one earlier then.
    moved[HEADER_LEN + 2] = 2;
    moved[batch::BASE_TIMESTAMP..][..8].copy_from_slice(&(NOW - 1).to_be_bytes());
    batch::reseal(&mut moved).expect("whole");
    assert_eq!(decoded(&moved), decoded(&sent));
    let (bytes, checked) = stored(&moved, to(Codec::Lz4), &LIMITS).expect("accepted");
    assert_eq!((checked.header.base_timestamp, checked.header.max_timestamp), (NOW, NOW));
    assert_eq!(plain(&bytes), plain(&sent));
}

fn one_value(len: usize, codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.append(None, Some(&vec![b'a'; len]), &[], NOW);
    builder.finish(codec, None).expect("compresses").to_vec()
}

/// R35: both the sent size and the stored one, to the byte.
#[test]
fn r35_the_size_is_measured_on_what_is_stored() {
    let code =
        |refused: Result<(Vec<u8>, Checked), Refused>| refused.expect_err("too large").code();
    let sent = one_value(5_000_000, Codec::Gzip);
    let most = |message_bytes_max| Limits { message_bytes_max, ..LIMITS };
    assert!(sent.len() < 6_000);
    assert!(stored(&sent, to(Codec::Zstd), &most(100_000)).is_ok());
    assert_eq!(code(stored(&sent, to(Codec::None), &most(100_000))), ErrorCode::MessageTooLarge);
    let refused = stored(&sent, to(Codec::None), &most(100_000)).expect_err("too large");
    assert!(refused.to_string().contains("5000") && refused.to_string().contains("100000"));
    let whole = one_value(5_000_000, Codec::None);
    assert!(stored(&sent, to(Codec::None), &most(whole.len())).is_ok());
    let less = most(whole.len() - 1);
    assert_eq!(code(stored(&sent, to(Codec::None), &less)), ErrorCode::MessageTooLarge);
    // As in Kafka what is sent must fit too, even if it would shrink.
    assert_eq!(code(stored(&whole, to(Codec::Zstd), &less)), ErrorCode::MessageTooLarge);
}

#[test]
fn levels_are_the_codecs_own() {
    let mut builder = BatchBuilder::new();
    let mut seed = 7u64;
    for _ in 0..500 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let word = format!("{:x} {:x} {:x}", seed >> 60, seed >> 55, (seed >> 50) % 50);
        builder.append(Some(word.as_bytes()), Some(word.repeat(9).as_bytes()), &[], NOW);
    }
    let sent = builder.finish(Codec::None, None).expect("plain").to_vec();
    for (codec, low, high) in [(Codec::Gzip, 1, 9), (Codec::Zstd, -50, 19)] {
        let at = |level| {
            stored(&sent, Target { codec, level: Some(level) }, &LIMITS).expect("accepted").0
        };
        assert!(at(high).len() < at(low).len(), "{codec:?}");
        assert_eq!(decoded(&at(high)), decoded(&at(low)));
    }
}

#[test]
fn a_broken_batch_is_refused_as_without_re_encoding() {
    let good = one_value(1000, Codec::Gzip);
    let mut flipped = good.clone();
    flipped[100.min(good.len() - 1)] ^= 1;
    let mut broken = flipped.clone();
    batch::reseal(&mut broken).expect("whole");
    let bomb = Limits { decompressed_bytes_max: 999, ..LIMITS };
    let cut = &good[..good.len() - 1];
    for (bytes, limits, code) in [
        (&flipped[..], &LIMITS, ErrorCode::CorruptMessage),
        (&broken, &LIMITS, ErrorCode::InvalidRecord),
        (cut, &LIMITS, ErrorCode::InvalidRecord),
        (&good, &bomb, ErrorCode::MessageTooLarge),
    ] {
        // Also where the records would not be looked at, were they stored as they came.
        for depth in [Depth::Deep, Depth::Records] {
            let limits = Limits { depth, ..*limits };
            let refused = stored(bytes, to(Codec::Lz4), &limits).expect_err("refused");
            assert_eq!(refused.code(), code, "{refused}");
        }
    }
}

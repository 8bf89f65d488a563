//! Messages of magic 0 and 1, as brokers wrote them before there were record batches: read, dumped
//! and checked as Kafka's client library and tools do it, and the shapes that no golden file has.

#[path = "support/golden.rs"]
mod fixtures;

use std::fs;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use fixtures::{LEGACY_SETS, golden, legacy};
use ringlog::format::batch::{self, BatchError, Codec, Stop};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::codec::{self, CodecError, Workspace};
use ringlog::format::record::RecordFault;
use ringlog::format::stored;
use ringlog::format::unpack::{MessageFault, UnpackError, UnpackFault, Unpacker};

const CAP: u64 = 1 << 20;
const T: i64 = 1_400_000_000_000;

fn log(set: &str) -> Vec<u8> {
    legacy(set, "00000000000000000000.log")
}

/// What a test compares of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

fn unpack(bytes: &[u8], cap: u64) -> Result<Vec<Seen>, UnpackError> {
    let mut unpacker = Unpacker::new(cap);
    let mut seen = Vec::new();
    let mut scan = stored::scan(bytes);
    for found in scan.by_ref() {
        assert!(found.crc_ok());
        let mut records = unpacker.open(&found)?;
        while let Some(unpacked) = records.next() {
            let unpacked = unpacked?;
            let (record, header) = (unpacked.record, &found.header);
            assert_eq!(unpacked.own_crc.is_some(), header.is_legacy());
            seen.push(Seen {
                offset: record.offset,
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
            });
        }
    }
    assert_eq!(scan.stop(), Some(Stop::End { pos: bytes.len() }));
    Ok(seen)
}

#[test]
fn every_record_reads_as_kafkas_client_library_reads_it() {
    for set in LEGACY_SETS {
        let lines = fs::read_to_string(golden(&format!("legacy/{set}-0/records.jsonl")));
        let wanted: Vec<serde_json::Value> = serde_json::Deserializer::from_str(&lines.unwrap())
            .into_iter()
            .collect::<Result<_, _>>()
            .expect("JSON lines");
        let bytes = log(set);
        let (mut unpacker, mut got) = (Unpacker::new(CAP), Vec::new());
        for found in stored::scan(&bytes) {
            let mut records = unpacker.open(&found).expect("opens");
            while let Some(unpacked) = records.next() {
                let unpacked = unpacked.expect("sound");
                assert!(unpacked.own_crc.is_some_and(|(_, holds)| holds), "{set}");
                let record = unpacked.record;
                let text = |bytes: Option<&[u8]>| bytes.map(|bytes| BASE64.encode(bytes));
                got.push(serde_json::json!({
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "timestamp_type": found.header.timestamp_type().name(),
                    "key": text(record.key),
                    "value": text(record.value),
                }));
            }
        }
        assert_eq!(got, wanted, "{set}");
    }
}

/// A message around a value made by hand, with a true checksum.
fn message(magic: i8, bits: u8, offset: i64, timestamp: i64, value: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    bytes[..8].copy_from_slice(&offset.to_be_bytes());
    bytes.extend([magic as u8, bits]);
    if magic > 0 {
        bytes.extend(timestamp.to_be_bytes());
    }
    bytes.extend((-1i32).to_be_bytes()); // no key
    bytes.extend(value.map_or(-1, |value| value.len() as i32).to_be_bytes());
    bytes.extend(value.unwrap_or_default());
    let size = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&size.to_be_bytes());
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.sum().to_be_bytes());
    bytes
}

fn compressed(codec: Codec, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    codec::compress(codec, None, plain, &mut out).expect("compresses");
    out
}

/// A compressed set of these inner messages.
fn wrapper(magic: i8, codec: Codec, offset: i64, time: i64, inner: &[Vec<u8>]) -> Vec<u8> {
    message(magic, codec.id(), offset, time, Some(&compressed(codec, &inner.concat())))
}

fn offsets(bytes: &[u8]) -> Vec<i64> {
    unpack(bytes, CAP).expect("reads").iter().map(|seen| seen.offset).collect()
}

fn fault(bytes: &[u8]) -> UnpackFault {
    unpack(bytes, CAP).expect_err("does not read").fault
}

fn three(magic: i8) -> [Vec<u8>; 3] {
    [0, 1, 2].map(|i| message(magic, 0, i, T + i, Some(&[i as u8])))
}

#[test]
fn the_vectors_of_the_specification() {
    let v0 = b"\0\0\0\0\0\0\0\x05\0\0\0\x10\x1f\xec\xd7\x0a\0\0\0\0\0\x01k\0\0\0\x01v";
    let v1 = b"\0\0\0\0\0\0\0\x05\0\0\0\x18\x39\x26\x8c\x33\x01\0\0\0\x01\x8b\xcf\xe5\x68\0\
               \0\0\0\x01k\0\0\0\x01v";
    for (bytes, timestamp) in [(&v0[..], -1), (v1, 1_700_000_000_000)] {
        let header = stored::verify(bytes).expect("sound");
        assert_eq!((header.last_offset(), header.total_len()), (5, bytes.len()));
        let wanted =
            Seen { offset: 5, timestamp, key: Some(b"k".to_vec()), value: Some(b"v".to_vec()) };
        assert_eq!(unpack(bytes, CAP), Ok(vec![wanted]));
        // What is appended and sent is judged by `batch`, which takes none of it.
        let magic = header.magic;
        assert_eq!(batch::parse_header(bytes), Err(BatchError::Legacy { magic }));
        for cut in 0..bytes.len() {
            let short = stored::verify(&bytes[..cut]);
            assert!(matches!(short, Err(BatchError::NeedMore { .. })), "{cut}: {short:?}");
        }
        for at in 16..bytes.len() {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x80;
            assert!(stored::verify(&flipped).is_err(), "{at}");
        }
    }
}

#[test]
fn offsets_inside_a_set_are_absolute_in_magic_0_and_relative_in_magic_1() {
    let absolute = [7, 9, 12].map(|i| message(0, 0, i, -1, None));
    assert_eq!(offsets(&wrapper(0, Codec::Gzip, 12, -1, &absolute)), [7, 9, 12]);
    assert_eq!(offsets(&wrapper(1, Codec::Gzip, 102, T, &three(1))), [100, 101, 102]);
    // With holes, as compaction left them: relative to what the last one says.
    let holes = [0, 3, 5].map(|i| message(1, 0, i, T, None));
    assert_eq!(offsets(&wrapper(1, Codec::Snappy, 105, T, &holes)), [100, 103, 105]);
}

/// librdkafka left 0 in the outer message.
#[test]
fn a_wrapper_at_offset_0_does_not_shift_what_is_inside() {
    assert_eq!(offsets(&wrapper(1, Codec::Lz4, 0, T, &three(1))), [0, 1, 2]);
    let beyond = wrapper(1, Codec::Lz4, 1, T, &three(1));
    assert_eq!(fault(&beyond), MessageFault::Offsets { wrapper: 1, inner: 2 }.into());
}

#[test]
fn append_time_of_a_wrapper_is_every_records_time() {
    let value = compressed(Codec::Gzip, &three(1).concat());
    let set = message(1, Codec::Gzip.id() | 8, 2, T + 500, Some(&value));
    let times: Vec<_> = unpack(&set, CAP).unwrap().iter().map(|seen| seen.timestamp).collect();
    assert_eq!(times, [T + 500; 3]);
    let own = unpack(&wrapper(1, Codec::Gzip, 2, T + 500, &three(1)), CAP).unwrap();
    assert_eq!(own.iter().map(|s| s.timestamp).collect::<Vec<_>>(), [T, T + 1, T + 2]);
}

/// Some brokers left inner messages of another magic than their wrapper's (KAFKA-4298).
#[test]
fn inner_messages_are_read_by_their_own_magic() {
    let mixed = [message(0, 0, 0, -1, Some(b"old")), message(1, 0, 1, T, Some(b"new"))];
    let times = |bytes: &[u8]| -> Vec<(i64, i64)> {
        unpack(bytes, CAP).unwrap().iter().map(|s| (s.offset, s.timestamp)).collect()
    };
    assert_eq!(times(&wrapper(1, Codec::Gzip, 51, T, &mixed)), [(50, -1), (51, T)]);
    assert_eq!(times(&wrapper(0, Codec::Gzip, 1, -1, &mixed)), [(0, -1), (1, T)]);
    let batch = BatchBuilder::new().finish(Codec::None, None).expect("plain").to_vec();
    let newer = wrapper(1, Codec::Gzip, 0, T, &[batch]);
    assert!(matches!(fault(&newer), UnpackFault::Message(MessageFault::Header(_))));
}

#[test]
fn a_set_that_ends_inside_a_message_ends_before_it() {
    for magic in [0, 1] {
        let plain = three(magic).concat();
        let third = plain.len() * 2 / 3;
        for cut in third..plain.len() {
            let value = compressed(Codec::Gzip, &plain[..cut]);
            let set = message(magic, Codec::Gzip.id(), 1, T, Some(&value));
            assert_eq!(offsets(&set), [0, 1], "magic {magic}, {cut}");
        }
    }
}

#[test]
fn what_no_compressed_set_may_be() {
    for magic in [0, 1] {
        let bits = Codec::Gzip.id();
        let null = message(magic, bits, 0, T, None);
        assert_eq!(fault(&null), MessageFault::NoValue.into());
        assert_eq!(fault(&wrapper(magic, Codec::Gzip, 0, T, &[])), MessageFault::Empty.into());
        let nested = wrapper(magic, Codec::Gzip, 0, T, &three(magic));
        let twice = wrapper(magic, Codec::Gzip, 2, T, &[nested]);
        assert_eq!(fault(&twice), MessageFault::Nested.into());
        let zstd = wrapper(magic, Codec::Zstd, 2, T, &three(magic));
        assert_eq!(fault(&zstd), CodecError::Unknown { id: 4 }.into());
        let mut broken = message(magic, bits, 0, T, Some(b"not gzip"));
        assert_eq!(fault(&broken), CodecError::Broken { codec: Codec::Gzip }.into());
        // A size that no message has, inside.
        let small = [0i64.to_be_bytes().as_slice(), &13i32.to_be_bytes(), &[0; 13]].concat();
        broken = wrapper(magic, Codec::Gzip, 0, T, &[small]);
        assert!(matches!(fault(&broken), UnpackFault::Message(MessageFault::Header(_))));
        // A value that ends behind the message.
        let mut long = message(magic, 0, 0, T, Some(b"value"));
        let at = long.len() - 9;
        long[at..at + 4].copy_from_slice(&6i32.to_be_bytes());
        let mut crc = flate2::Crc::new();
        crc.update(&long[16..]);
        long[12..16].copy_from_slice(&crc.sum().to_be_bytes());
        assert_eq!(fault(&long), MessageFault::Body.into());
    }
}

/// KAFKA-3160: the wrong checksum is read where it was written, and nowhere else.
#[test]
fn a_wrong_lz4_header_checksum_is_read_in_magic_0_only() {
    let mut frame = compressed(Codec::Lz4, &three(0).concat());
    frame[6] = 0x1a;
    assert_eq!(offsets(&message(0, 3, 2, -1, Some(&frame))), [0, 1, 2]);
    let broken = CodecError::Broken { codec: Codec::Lz4 };
    let mut frame = compressed(Codec::Lz4, &three(1).concat());
    assert_eq!(offsets(&message(1, 3, 2, T, Some(&frame))), [0, 1, 2]);
    frame[6] = 0x1a;
    assert_eq!(fault(&message(1, 3, 2, T, Some(&frame))), broken.into());
}

/// R88: on the way through a compressed set, too.
#[test]
fn r88_bombs_in_compressed_sets() {
    let big = message(1, 0, 0, T, Some(&vec![0; 8 << 20]));
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4] {
        let bomb = wrapper(1, codec, 0, T, std::slice::from_ref(&big));
        let refused = unpack(&bomb, CAP).expect_err("refused").fault;
        assert_eq!(refused, CodecError::TooLarge { bytes_max: CAP }.into(), "{codec:?}");
        assert_eq!(unpack(&bomb, 16 << 20).expect("under the bound")[0].offset, 0);
    }
    // A size that nothing stands behind costs nothing.
    let claims = [0i64.to_be_bytes().as_slice(), &i32::MAX.to_be_bytes(), &[1; 40]].concat();
    assert_eq!(fault(&wrapper(1, Codec::Gzip, 0, T, &[claims])), MessageFault::Empty.into());
}

/// A log that was upgraded in the middle.
#[test]
fn all_three_formats_in_one_file() {
    let mut builder = BatchBuilder::new();
    builder.append(None, Some(b"two"), &[], T + 9);
    builder.append(Some(b"k"), None, &[], T + 10);
    let mut batch = builder.finish(Codec::Zstd, None).expect("compresses").to_vec();
    batch::assign(&mut batch, 20, 3).expect("whole");
    let file = [log("magic0-none"), wrapper(1, Codec::Snappy, 60, T, &three(1)), batch].concat();
    let seen = offsets(&file);
    assert_eq!(seen[seen.len() - 5..], [58, 59, 60, 20, 21]);
    assert_eq!(seen.len(), offsets(&log("magic0-none")).len() + 5);
}

/// Gzip as Java reads it: several members are one stream, what follows them is left alone, and each
/// trailer must be right.
#[test]
fn gzip_members() {
    let plain: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    let member = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).and_then(|()| gzip.finish()).expect("compresses")
    };
    let read = |bytes: &[u8]| {
        let mut out = Vec::new();
        codec::decompress(Codec::Gzip, bytes, CAP, &mut Workspace::new(), &mut out).map(|()| out)
    };
    let (left, right) = plain.split_at(33_333);
    let two = [member(left), member(right)].concat();
    assert_eq!(read(&two), Ok(plain.clone()));
    assert_eq!(read(&[&two[..], &member(b"")].concat()), Ok(plain.clone()));
    assert_eq!(read(&[&two[..], b"\0\0\0 anything"].concat()), Ok(plain.clone()));
    let broken = Err(CodecError::Broken { codec: Codec::Gzip });
    for from_end in 1..=8 {
        let mut bad = two.clone();
        let at = bad.len() - from_end;
        bad[at] ^= 1; // checksum and length
        assert_eq!(read(&bad), broken, "{from_end}");
        assert_eq!(read(&two[..at]), broken, "{from_end}");
    }
    let mut first = two.clone();
    first[member(left).len() - 6] ^= 1;
    assert_eq!(read(&first), broken);
    assert_eq!(read(&[]), broken);
}

/// A batch whose records end early or go on is told, wherever its window ends.
#[test]
fn the_records_of_a_batch_are_those_it_declares() {
    let mut builder = BatchBuilder::new();
    for i in 0..3000 {
        builder.append(Some(&[1; 60]), Some(&[2; 20]), &[(b"h", None)], T + i);
    }
    for codec in Codec::ALL {
        let mut batch = builder.finish(codec, None).expect("compresses").to_vec();
        assert_eq!(unpack(&batch, 1 << 24).expect("reads").len(), 3000, "{codec:?}");
        for (count, fault) in [(2999, RecordFault::LeftOver), (3001, RecordFault::Truncated)] {
            batch[batch::RECORDS_COUNT..batch::RECORDS].copy_from_slice(&i32::to_be_bytes(count));
            batch::reseal(&mut batch).expect("whole");
            let error = unpack(&batch, 1 << 24).expect_err("refused");
            assert_eq!(error.fault, fault.into(), "{codec:?}");
            assert_eq!(error.index, count.min(3000));
        }
    }
}

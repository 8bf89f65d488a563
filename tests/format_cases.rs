//! The behaviour cases that the format layer alone can show, each named by its number, through the
//! public doors of `format`.

use ringlog::errors::ErrorCode;
use ringlog::format::batch::{
    self, ATTRIBUTES, Attributes, BASE_OFFSET, BASE_SEQUENCE, BatchError, BatchHeader, CRC, Codec,
    HEADER_LEN, LAST_OFFSET_DELTA, LEADER_EPOCH, MAX_TIMESTAMP, PRODUCER_ID, RECORDS_COUNT, Stop,
    TimestampType,
};
use ringlog::format::builder::{BatchBuilder, NewHeader};
use ringlog::format::codec::{self, CodecError, Workspace};
use ringlog::format::index::{
    self, IndexBuilder, IndexFault, IndexLimits, OffsetEntry, TimeEntry, floor_offset,
};
use ringlog::format::name::{TopicError, check_topic};
use ringlog::format::record::{self, RecordFault};
use ringlog::format::validate::{Checked, Depth, Limits, Refused, Scratch, check_produce};

const NOW: i64 = 1_800_000_000_000;
const TEN_YEARS_MS: i64 = 10 * 365 * 86_400_000;

fn limits() -> Limits {
    Limits {
        message_bytes_max: 1_048_588,
        depth: Depth::Deep,
        decompressed_bytes_max: 64 << 20,
        now_ms: NOW,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        log_append_time: false,
        key_required: false,
    }
}

fn check(batch: &mut [u8]) -> Result<Checked, Refused> {
    check_produce(batch, &limits(), &mut Scratch::new())
}

fn code(batch: &[u8], limits: &Limits) -> ErrorCode {
    let mut bytes = batch.to_vec();
    let refused = check_produce(&mut bytes, limits, &mut Scratch::new()).expect_err("refused");
    assert_eq!(bytes, batch, "a refused batch is not touched");
    refused.code()
}

fn batch_of(codec: Codec, times: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (i, time) in times.iter().enumerate() {
        builder.append(Some(b"key"), Some(format!("value {i}").as_bytes()), &[], *time);
    }
    builder.finish(codec, None).expect("compresses").to_vec()
}

/// Overwrites bytes of a batch and makes its CRC true again.
fn patch<const N: usize>(batch: &[u8], at: usize, value: [u8; N]) -> Vec<u8> {
    let mut bytes = batch.to_vec();
    bytes[at..at + N].copy_from_slice(&value);
    batch::reseal(&mut bytes).expect("a whole header");
    bytes
}

/// A batch around a payload made by hand.
fn batch_around(codec: Codec, payload: &[u8], records_count: i32) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    bytes.extend_from_slice(payload);
    let header = BatchHeader {
        magic: batch::MAGIC_V2,
        base_offset: 0,
        batch_length: (bytes.len() - 12) as i32,
        leader_epoch: -1,
        crc: 0,
        attributes: Attributes(0).with_codec(codec),
        last_offset_delta: records_count - 1,
        base_timestamp: NOW,
        max_timestamp: NOW,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records_count,
    };
    batch::write_header(&mut bytes, &header).expect("a whole header");
    batch::reseal(&mut bytes).expect("a whole header");
    bytes
}

/// A record with no key and no value, and these bytes from the header count on.
fn record_with(offset_delta: u8, tail: &[u8]) -> Vec<u8> {
    let body = [&[0, 0, offset_delta << 1, 1, 1], tail].concat();
    [&[(body.len() as u8) << 1], body.as_slice()].concat()
}

fn compressed(codec: Codec, records: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    codec::compress(codec, None, records, &mut payload).expect("compresses");
    payload
}

#[test]
fn r01_hostile_record_count() {
    let one = batch_of(Codec::None, &[NOW]);
    let negative = patch(&one, RECORDS_COUNT, (-1i32).to_be_bytes());
    let huge = patch(&one, RECORDS_COUNT, i32::MAX.to_be_bytes());
    let huge = patch(&huge, LAST_OFFSET_DELTA, (i32::MAX - 1).to_be_bytes());
    assert!(huge.len() < 100);
    for hostile in [&negative, &huge] {
        assert_eq!(code(hostile, &limits()), ErrorCode::InvalidRecord);
        // On disk: the CRC holds, and still it is no batch to trust.
        assert!(batch::verify(hostile).is_ok());
        assert!(matches!(batch::verify_stored(hostile), Err(BatchError::Count { .. })));
        let header = batch::parse_header(hostile).expect("a header");
        let read: Vec<_> = record::records(&hostile[HEADER_LEN..], &header).collect();
        assert!(read.last().expect("at least the error").is_err());
        assert!(read.len() <= 2);
    }
    assert!(batch::verify_stored(&one).is_ok());
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let huge = patch(&batch_of(codec, &[NOW]), RECORDS_COUNT, i32::MAX.to_be_bytes());
        let huge = patch(&huge, LAST_OFFSET_DELTA, (i32::MAX - 1).to_be_bytes());
        assert_eq!(code(&huge, &limits()), ErrorCode::InvalidRecord);
    }
}

#[test]
fn r02_record_header_count() {
    for codec in Codec::ALL {
        let minus_one = record_with(0, &[1]);
        let huge = record_with(0, &[0xfe, 0xff, 0xff, 0xff, 0x0f]);
        for record in [minus_one, huge] {
            let batch = batch_around(codec, &compressed(codec, &record), 1);
            let refused = check(&mut batch.clone()).expect_err("refused");
            assert_eq!(refused.code(), ErrorCode::InvalidRecord, "{refused}");
            assert!(refused.to_string().contains("headers"), "{refused}");
        }
        let keys: Vec<String> = (0..2000).map(|i| format!("h{}", i / 2)).collect();
        let headers: Vec<NewHeader<'_>> = keys
            .iter()
            .enumerate()
            .map(|(i, key)| (key.as_bytes(), [Some(&b"v"[..]), None, Some(b"")][i.min(2)]))
            .collect();
        let mut builder = BatchBuilder::new();
        builder.append(None, None, &headers, NOW);
        let mut batch = builder.finish(codec, None).expect("compresses").to_vec();
        let checked = check(&mut batch).expect("accepted");
        let mut plain = Vec::new();
        let mut workspace = Workspace::new();
        codec::decompress(codec, &batch[HEADER_LEN..], 1 << 20, &mut workspace, &mut plain)
            .expect("decompresses");
        let record = record::records(&plain, &checked.header).next().expect("one").expect("sound");
        let read: Vec<_> = record.headers.map(|header| (header.key, header.value)).collect();
        assert_eq!(read, headers, "order, repeated names, null beside empty");
    }
}

#[test]
fn r03_zstd_frames() {
    let mut builder = BatchBuilder::new();
    for i in 0..100 {
        builder.append(None, Some(format!("value number {i}").as_bytes()), &[], NOW);
    }
    let plain = builder.finish(Codec::None, None).expect("plain")[HEADER_LEN..].to_vec();

    let streamed = compressed(Codec::Zstd, &plain);
    assert_eq!(streamed[..4], [0x28, 0xb5, 0x2f, 0xfd]);
    assert_eq!(streamed[4] & 0b1110_0000, 0, "neither content size nor single segment");
    let (left, right) = plain.split_at(plain.len() / 3);
    let two_frames = [compressed(Codec::Zstd, left), compressed(Codec::Zstd, right)].concat();
    let with_size = zstd::bulk::compress(&plain, 3).expect("compresses");
    for payload in [&streamed, &two_frames, &with_size] {
        let mut batch = batch_around(Codec::Zstd, payload, 100);
        assert!(check(&mut batch).is_ok());
        let mut read = Vec::new();
        codec::decompress(Codec::Zstd, payload, 1 << 20, &mut Workspace::new(), &mut read)
            .expect("decompresses");
        assert_eq!(read, plain);
        let cut = batch_around(Codec::Zstd, &payload[..payload.len() - 1], 100);
        assert_eq!(code(&cut, &limits()), ErrorCode::InvalidRecord);
    }
}

#[test]
fn a_cut_stream_is_refused_in_every_codec() {
    let plain = &batch_of(Codec::None, &[NOW; 50])[HEADER_LEN..];
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let payload = compressed(codec, plain);
        assert!(check(&mut batch_around(codec, &payload, 50)).is_ok());
        for cut in 0..payload.len() {
            let batch = batch_around(codec, &payload[..cut], 50);
            assert_eq!(code(&batch, &limits()), ErrorCode::InvalidRecord, "{codec:?} at {cut}");
        }
    }
}

/// A batch's position, last offset and length.
type Place = (u64, i64, u32);

/// Appends `lens` as batches of ten records, and returns what both indexes get, and each batch's
/// place.
fn indexed(lens: &[u32], interval_bytes: u32) -> (Vec<u8>, Vec<u8>, Vec<Place>) {
    let limits = IndexLimits { interval_bytes, index_bytes_max: 10_485_760 };
    let mut builder = IndexBuilder::new(0, limits);
    let (mut offsets, mut times, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let (mut pos, mut last_offset) = (0, -1);
    for (i, len) in lens.iter().enumerate() {
        last_offset += 10;
        if let Some((entry, time)) = builder.on_batch(pos, last_offset, NOW + i as i64) {
            offsets.extend(entry.encode());
            times.extend(time.into_iter().flat_map(TimeEntry::encode));
        }
        places.push((pos, last_offset, *len));
        pos += u64::from(*len);
    }
    times.extend(builder.close().into_iter().flat_map(TimeEntry::encode));
    (offsets, times, places)
}

#[test]
fn r04_index_density_with_big_appends() {
    let lens = [vec![4096; 10], vec![1 << 20], vec![100; 10]].concat();
    let (offsets, times, places) = indexed(&lens, 4096);
    let log_len = lens.iter().map(|len| u64::from(*len)).sum();
    assert_eq!(index::check_offset_index(&offsets, log_len), Ok(()));
    assert_eq!(index::check_time_index(&times), Ok(()));
    let at_batches: Vec<_> = places.iter().map(|p| (p.0 as u32, p.1 as u32)).collect();
    for entry in index::offset_entries(&offsets) {
        assert!(at_batches.contains(&(entry.pos, entry.relative_offset)), "{entry:?}");
    }
    let longest = u64::from(*lens.iter().max().expect("some"));
    for offset in 0..=places.last().expect("some").1 {
        let found = places.iter().find(|place| place.1 >= offset).expect("stored");
        let begin = floor_offset(&offsets, offset as u32).map_or(0, |entry| u64::from(entry.pos));
        assert!(begin <= found.0, "never behind the batch");
        assert!(found.0 - begin <= 4096 + longest, "one interval and one batch at most");
    }
    // Resumed in the middle, the rule goes on as if nothing had happened.
    for cut in 0..lens.len() {
        let limits = IndexLimits { interval_bytes: 4096, index_bytes_max: 10_485_760 };
        let (early, early_times, _) = indexed(&lens[..cut], 4096);
        let mut resumed = IndexBuilder::resume(0, limits, &early, &early_times);
        let mut rest = early.clone();
        for (i, place) in places.iter().enumerate().skip(cut) {
            let added = resumed.on_batch(place.0, place.1, NOW + i as i64);
            rest.extend(added.into_iter().flat_map(|(entry, _)| entry.encode()));
        }
        assert_eq!(rest, offsets, "resumed before batch {cut}");
    }
}

#[test]
fn the_worked_example_of_the_specification() {
    let (offsets, _, _) = indexed(&[3000; 5], 4096);
    let entries: Vec<_> = index::offset_entries(&offsets).collect();
    let entry = |relative_offset, pos| OffsetEntry { relative_offset, pos };
    assert_eq!(entries, [entry(29, 6000), entry(49, 12000)]);
    assert_eq!(offsets[..8], [0, 0, 0, 0x1d, 0, 0, 0x17, 0x70]);
}

#[test]
fn r05_no_entry_is_ever_negative() {
    assert_eq!(index::relative_offset(0, 2_147_483_648), None);
    assert_eq!(index::relative_offset(0, 2_147_483_647), Some(2_147_483_647));
    assert_eq!(index::relative_offset(100, 99), None);
    let limits = IndexLimits { interval_bytes: 0, index_bytes_max: 4096 };
    let mut builder = IndexBuilder::new(0, limits);
    assert_eq!(builder.on_batch(0, 9, NOW), None, "the first append is never indexed");
    assert_eq!(builder.on_batch(500, 2_147_483_648, NOW), None);
    assert_eq!(builder.on_batch(1 << 31, 20, NOW), None);
}

#[test]
fn a_full_index_takes_only_the_closing_entry() {
    let limits = IndexLimits { interval_bytes: 0, index_bytes_max: 36 };
    let mut builder = IndexBuilder::new(0, limits);
    let mut added = Vec::new();
    for i in 0..10i64 {
        added.extend(builder.on_batch(i as u64 * 100, i, NOW + i));
    }
    assert!(builder.is_full());
    assert_eq!(added.len(), 2, "4 slots of 8 bytes; 3 of 12, of which one is kept free");
    let closing = TimeEntry { timestamp: NOW + 9, relative_offset: 9 };
    assert_eq!(builder.close(), Some(closing));
    assert_eq!(builder.close(), None);
    assert_eq!(builder.max_timestamp(), (NOW + 9, 9));
}

#[test]
fn r06_only_offset_and_epoch_are_patched_on_append() {
    let sent = batch_of(Codec::Zstd, &[NOW, NOW + 5]);
    let mut stored = sent.clone();
    let checked = check(&mut stored).expect("accepted");
    assert!(!checked.rewritten);
    batch::assign(&mut stored, 41, 3).expect("a whole header");
    let differ: Vec<usize> = (0..sent.len()).filter(|i| sent[*i] != stored[*i]).collect();
    assert!(!differ.is_empty());
    let ours = |i: usize| {
        (BASE_OFFSET..BASE_OFFSET + 8).contains(&i) || (LEADER_EPOCH..LEADER_EPOCH + 4).contains(&i)
    };
    assert!(differ.into_iter().all(ours));
    let header = batch::verify(&stored).expect("the CRC is still right");
    assert_eq!((header.base_offset, header.last_offset(), header.leader_epoch), (41, 42, 3));

    let mut stored = sent.clone();
    let append_time = Limits { log_append_time: true, ..limits() };
    let checked = check_produce(&mut stored, &append_time, &mut Scratch::new()).expect("accepted");
    assert!(checked.rewritten);
    let header = batch::verify(&stored).expect("the CRC was redone");
    assert_eq!(header, checked.header);
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(header.max_timestamp, NOW);
    assert_eq!(header.base_timestamp, NOW, "left as the producer wrote it");
    let may_differ = |i: usize| {
        (CRC..ATTRIBUTES + 2).contains(&i) || (MAX_TIMESTAMP..MAX_TIMESTAMP + 8).contains(&i)
    };
    assert!((0..sent.len()).filter(|i| sent[*i] != stored[*i]).all(may_differ));
    let mut plain = Vec::new();
    codec::decompress(Codec::Zstd, &stored[61..], 9999, &mut Workspace::new(), &mut plain)
        .expect("decompresses");
    for record in record::records(&plain, &header) {
        assert_eq!(record.expect("sound").timestamp, NOW);
    }
}

#[test]
fn a_rewritten_header_keeps_what_it_means() {
    let mut builder = BatchBuilder::new();
    builder.producer(7, 2, 40);
    builder.attributes(Attributes(0x4100).with_transactional(true));
    builder.append(None, None, &[], NOW);
    let mut bytes = builder.finish(Codec::Lz4, None).expect("compresses").to_vec();
    let sent = batch::verify(&bytes).expect("sound");
    batch::set_max_timestamp(&mut bytes, TimestampType::LogAppendTime, NOW + 9).expect("whole");
    let header = batch::verify(&bytes).expect("sealed anew");
    // Transactional, append time, lz4; the unknown bits are gone.
    let attributes = Attributes(0b0001_1011);
    let max_timestamp = NOW + 9;
    assert_eq!(header, BatchHeader { attributes, max_timestamp, crc: header.crc, ..sent });
}

#[test]
fn r12_offset_index_sanity() {
    let bytes = |entries: &[(u32, u32)]| -> Vec<u8> {
        let entry = |&(relative_offset, pos)| OffsetEntry { relative_offset, pos }.encode();
        entries.iter().flat_map(entry).collect()
    };
    assert_eq!(index::check_offset_index(&bytes(&[(0, 0)]), 1000), Ok(()));
    let whole = bytes(&[(5, 100), (9, 300)]);
    assert_eq!(index::check_offset_index(&whole, 1000), Ok(()));
    let odd = [whole.as_slice(), &[0; 3]].concat();
    assert_eq!(
        index::check_offset_index(&odd, 1000),
        Err(IndexFault::Length { len: 19, entry_len: 8 })
    );
    let order = Err(IndexFault::Order { entry: 1 });
    assert_eq!(index::check_offset_index(&bytes(&[(5, 100), (5, 300)]), 1000), order);
    assert_eq!(index::check_offset_index(&bytes(&[(5, 300), (9, 300)]), 1000), order);
    let beyond = Err(IndexFault::BeyondLog { entry: 1, log_len: 300 });
    assert_eq!(index::check_offset_index(&whole, 300), beyond);
    let negative = Err(IndexFault::Column { entry: 0 });
    assert_eq!(index::check_offset_index(&bytes(&[(1 << 31, 5)]), 300), negative);
}

#[test]
fn r32_bytes_behind_the_last_declared_record() {
    for codec in Codec::ALL {
        let two = [record_with(0, &[0]), record_with(1, &[0])].concat();
        assert!(check(&mut batch_around(codec, &compressed(codec, &two), 2)).is_ok());
        let batch = batch_around(codec, &compressed(codec, &two), 1);
        assert_eq!(code(&batch, &limits()), ErrorCode::InvalidRecord);
        let three = batch_around(codec, &compressed(codec, &two), 3);
        assert_eq!(code(&three, &limits()), ErrorCode::InvalidRecord);
    }
}

#[test]
fn r33_base_offset_and_inner_deltas() {
    let good = batch_of(Codec::None, &[NOW, NOW]);
    let based = patch(&good, BASE_OFFSET, 5i64.to_be_bytes());
    assert_eq!(code(&based, &limits()), ErrorCode::InvalidRecord);
    for codec in Codec::ALL {
        for deltas in [&[0u8, 2, 1][..], &[0, 0], &[1, 2]] {
            let records: Vec<u8> = deltas.iter().flat_map(|d| record_with(*d, &[0])).collect();
            let batch = batch_around(codec, &compressed(codec, &records), deltas.len() as i32);
            assert_eq!(code(&batch, &limits()), ErrorCode::InvalidRecord, "{deltas:?}");
        }
    }
}

#[test]
fn r34_the_headers_maximum_time_is_not_trusted() {
    for codec in Codec::ALL {
        let good = batch_of(codec, &[NOW, NOW + 7, NOW - 3, NOW + 7]);
        for wrong in [-1, NOW + TEN_YEARS_MS] {
            let mut batch = patch(&good, MAX_TIMESTAMP, wrong.to_be_bytes());
            let checked = check(&mut batch).expect("accepted");
            assert!(checked.rewritten);
            assert_eq!(checked.header.max_timestamp, NOW + 7);
            assert_eq!(checked.offset_delta_of_max, 1);
            assert_eq!(batch, good, "the header says what is true, the CRC too");
        }
    }
    // Records that nobody decompresses: what their header says must at least be in range.
    let wrong =
        patch(&batch_of(Codec::Gzip, &[NOW]), MAX_TIMESTAMP, (NOW + TEN_YEARS_MS).to_be_bytes());
    let shallow = Limits { depth: Depth::Records, ..limits() };
    assert_eq!(code(&wrong, &shallow), ErrorCode::InvalidTimestamp);
}

#[test]
fn timestamps_out_of_range() {
    let hour = 3_600_000;
    for codec in Codec::ALL {
        let ok = batch_of(codec, &[NOW + hour, -1, NOW]);
        assert!(check(&mut ok.clone()).is_ok());
        let late = batch_of(codec, &[NOW, NOW + hour + 1]);
        assert_eq!(code(&late, &limits()), ErrorCode::InvalidTimestamp);
        let old = batch_of(codec, &[NOW, NOW - hour - 1]);
        assert!(check(&mut old.clone()).is_ok());
        let strict = Limits { timestamp_before_max_ms: hour, ..limits() };
        assert_eq!(code(&old, &strict), ErrorCode::InvalidTimestamp);
        let unstamped = batch_of(codec, &[-1, NOW]);
        assert!(check_produce(&mut unstamped.clone(), &strict, &mut Scratch::new()).is_ok());
        // Nobody asks for the records' times where they are replaced.
        let append_time = Limits { log_append_time: true, ..strict };
        assert!(check_produce(&mut old.clone(), &append_time, &mut Scratch::new()).is_ok());
    }
}

#[test]
fn r35_size_limit_boundary() {
    let max = Limits { message_bytes_max: 100_000, ..limits() };
    let of_len = |len: usize| {
        let mut builder = BatchBuilder::new();
        builder.append(None, Some(&[]), &[], NOW);
        let overhead = builder.plain_len() + 4; // length fields grow from one byte to three
        builder.reset();
        builder.append(None, Some(&vec![7; len - overhead]), &[], NOW);
        let batch = builder.finish(Codec::None, None).expect("plain").to_vec();
        assert_eq!(batch.len(), len);
        batch
    };
    let mut scratch = Scratch::new();
    assert!(check_produce(&mut of_len(100_000), &max, &mut scratch).is_ok());
    assert_eq!(code(&of_len(100_001), &max), ErrorCode::MessageTooLarge);
    // Before the CRC is looked at, and before anything is decompressed.
    let mut broken = of_len(100_001);
    broken[90_000] ^= 1;
    assert_eq!(code(&broken, &max), ErrorCode::MessageTooLarge);

    let mut builder = BatchBuilder::new();
    builder.append(None, Some(&vec![b'a'; 5_000_000]), &[], NOW);
    let mut small = builder.finish(Codec::Gzip, None).expect("compresses").to_vec();
    assert!(small.len() < 6000);
    assert!(check_produce(&mut small, &max, &mut scratch).is_ok());
}

#[test]
fn r36_header_bits_a_client_may_not_set() {
    let good = batch_of(Codec::None, &[NOW]);
    let bits = |attributes: Attributes| patch(&good, ATTRIBUTES, attributes.0.to_be_bytes());
    let append_time_topic = Limits { log_append_time: true, ..limits() };

    let control = bits(Attributes(0).with_control(true));
    assert_eq!(code(&control, &limits()), ErrorCode::InvalidRecord);
    let stamped = bits(Attributes(0).with_timestamp_type(TimestampType::LogAppendTime));
    for topic in [limits(), append_time_topic] {
        assert_eq!(code(&stamped, &topic), ErrorCode::InvalidTimestamp);
    }
    let producer = patch(&good, PRODUCER_ID, 7i64.to_be_bytes());
    assert_eq!(code(&producer, &limits()), ErrorCode::InvalidRecord);
    let sequenced = patch(&producer, BASE_SEQUENCE, 0i32.to_be_bytes());
    assert!(check(&mut sequenced.clone()).is_ok());
    for codec in Codec::ALL {
        let one = batch_of(codec, &[NOW]);
        let mut two = [one.as_slice(), &one].concat();
        assert_eq!(check(&mut two), Err(Refused::SeveralBatches));
    }
    assert_eq!(Refused::SeveralBatches.code(), ErrorCode::InvalidRecord);
    let codec_5 = bits(Attributes(5));
    assert_eq!(code(&codec_5, &limits()), ErrorCode::UnsupportedCompressionType);
}

#[test]
fn bytes_that_are_no_sound_batch() {
    let good = batch_of(Codec::None, &[NOW]);
    for cut in 0..good.len() {
        assert_eq!(code(&good[..cut], &limits()), ErrorCode::InvalidRecord, "{cut} bytes");
    }
    let mut flipped = good.clone();
    flipped[HEADER_LEN + 3] ^= 0x10;
    assert_eq!(code(&flipped, &limits()), ErrorCode::CorruptMessage);
    for (magic, want) in [
        (0, ErrorCode::InvalidRecord),
        (1, ErrorCode::InvalidRecord),
        (3, ErrorCode::CorruptMessage),
        (-1i8, ErrorCode::CorruptMessage),
    ] {
        assert_eq!(code(&patch(&good, batch::MAGIC, magic.to_be_bytes()), &limits()), want);
    }
    assert_eq!(code(&[0; 100], &limits()), ErrorCode::CorruptMessage);
    let keyless = batch_around(Codec::None, &record_with(0, &[0]), 1);
    let compacted = Limits { key_required: true, ..limits() };
    assert_eq!(code(&keyless, &compacted), ErrorCode::InvalidRecord);
    assert!(check(&mut keyless.clone()).is_ok());
}

#[test]
fn a_scan_says_how_it_stopped() {
    let one = batch_of(Codec::None, &[NOW, NOW]);
    let two = batch_of(Codec::Lz4, &[NOW]);
    let log = [one.as_slice(), &two].concat();
    for cut in 0..=log.len() {
        let mut scan = batch::scan(&log[..cut]);
        let found = scan.by_ref().count();
        let (whole, begin) = match cut {
            _ if cut >= log.len() => (2, log.len()),
            _ if cut >= one.len() => (1, one.len()),
            _ => (0, 0),
        };
        assert_eq!(found, whole);
        let stop = scan.stop().expect("ended");
        assert_eq!(stop.pos(), begin);
        match stop {
            Stop::End { .. } => assert_eq!(cut, begin),
            Stop::Incomplete { have, need, .. } => {
                assert_eq!(have, cut - begin);
                let len = if begin == 0 { one.len() } else { two.len() };
                assert_eq!(need, if have < HEADER_LEN { HEADER_LEN } else { len });
            }
            Stop::Bad { .. } => panic!("nothing is bad at {cut}"),
        }
    }
    let zeros = [log.as_slice(), &[0; 40]].concat();
    let mut scan = batch::scan(&zeros);
    assert_eq!(scan.by_ref().filter(batch::Found::crc_ok).count(), 2);
    let error = BatchError::Length { batch_length: 0 };
    assert_eq!(scan.stop(), Some(Stop::Bad { pos: log.len(), error }));
}

#[test]
fn sequences_wrap() {
    assert_eq!(batch::sequence_add(i32::MAX, 1), 0);
    assert_eq!(batch::sequence_add(i32::MAX - 2, 5), 2);
    assert_eq!(batch::sequence_add(7, 0), 7);
    assert_eq!(batch::sequence_sub(0, 1), i32::MAX);
    assert_eq!(batch::sequence_sub(2, 5), i32::MAX - 2);
    for delta in [0, 1, 1000, i32::MAX] {
        for sequence in [0, 1, 500, i32::MAX - 1, i32::MAX] {
            let there = batch::sequence_add(sequence, delta);
            assert!(there >= 0);
            assert_eq!(batch::sequence_sub(there, delta), sequence);
        }
    }
}

#[test]
fn r87_topic_names() {
    for name in ["a", "..a", "a.b_c-D9", &"x".repeat(249)] {
        assert_eq!(check_topic(name), Ok(()), "{name}");
    }
    for name in ["../../../x", "a/b", "a\0b", "%2e%2e", "a b", "\u{e4}", "a\n"] {
        assert!(matches!(check_topic(name), Err(TopicError::Character { .. })), "{name}");
    }
    assert_eq!(check_topic("."), Err(TopicError::Dots));
    assert_eq!(check_topic(".."), Err(TopicError::Dots));
    assert_eq!(check_topic(""), Err(TopicError::Empty));
    assert_eq!(check_topic(&"x".repeat(250)), Err(TopicError::TooLong { len: 250 }));
}

#[test]
fn r88_decompression_bombs() {
    let zeros = vec![0; 8 << 20];
    let capped = Limits { decompressed_bytes_max: 1 << 20, ..limits() };
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut builder = BatchBuilder::new();
        builder.append(None, Some(&zeros), &[], NOW);
        let bomb = builder.finish(codec, None).expect("compresses");
        assert!(bomb.len() < 1 << 20);
        assert_eq!(code(bomb, &capped), ErrorCode::MessageTooLarge, "{codec:?}");
        let mut out = Vec::new();
        let read =
            codec::decompress(codec, &bomb[HEADER_LEN..], 1 << 20, &mut Workspace::new(), &mut out);
        assert_eq!(read, Err(CodecError::TooLarge { bytes_max: 1 << 20 }));
        assert!(out.len() <= 1 << 20);
    }
    // A zstd frame that declares 2^40 bytes: single segment, content size in eight bytes.
    let declares = [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &(1u64 << 40).to_le_bytes(), &[1, 0, 0]];
    assert_eq!(
        code(&batch_around(Codec::Zstd, &declares.concat(), 1), &limits()),
        ErrorCode::InvalidRecord
    );
    // A frame that asks for a window beyond zstd's own limit; one within it is read.
    let payload = compressed(Codec::Zstd, &record_with(0, &[0]));
    for (window_log, accepted) in [(27, true), (28, false)] {
        let mut wide = payload.clone();
        wide[5] = (window_log - 10) << 3;
        assert_eq!(check(&mut batch_around(Codec::Zstd, &wide, 1)).is_ok(), accepted);
    }
    // A snappy block that declares 2^32 - 1 bytes: refused by the bound, and where the bound is
    // higher, because its bytes cannot become that many.
    let block = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
    assert_eq!(
        code(&batch_around(Codec::Snappy, &block, 1), &limits()),
        ErrorCode::MessageTooLarge
    );
    let lax = Limits { decompressed_bytes_max: u64::MAX, ..limits() };
    assert_eq!(code(&batch_around(Codec::Snappy, &block, 1), &lax), ErrorCode::InvalidRecord);
}

/// One shard's buffers serve batch after batch, whatever became of the one before.
#[test]
fn a_refused_batch_leaves_nothing_behind_in_the_scratch() {
    let mut scratch = Scratch::new();
    let capped = Limits { decompressed_bytes_max: 1 << 20, ..limits() };
    for bad in Codec::ALL {
        for good in Codec::ALL {
            let mut builder = BatchBuilder::new();
            builder.append(None, Some(&vec![1; 2 << 20]), &[], NOW);
            let mut bomb = builder.finish(bad, None).expect("compresses").to_vec();
            assert!(check_produce(&mut bomb, &capped, &mut scratch).is_err());
            let mut batch = batch_of(good, &[NOW]);
            assert!(check_produce(&mut batch, &capped, &mut scratch).is_ok(), "{bad:?} {good:?}");
        }
    }
}

/// The window that compressed records are walked through may end anywhere in a record.
#[test]
fn records_across_the_edge_of_the_window() {
    let mut scratch = Scratch::new();
    for shift in 0..24 {
        let mut builder = BatchBuilder::new();
        builder.append(None, Some(&vec![7; shift]), &[], NOW);
        for i in 0..5000i64 {
            let headers: [NewHeader<'_>; 2] = [(b"a", None), (b"b", Some(b"x"))];
            builder.append(Some(&[3; 70]), Some(&[0; 2]), &headers, NOW + i * 1_000_000);
        }
        let later = Limits { now_ms: NOW + 5_000_000_000, ..limits() };
        for codec in [Codec::Lz4, Codec::Zstd] {
            let mut batch = builder.finish(codec, None).expect("compresses").to_vec();
            let checked = check_produce(&mut batch, &later, &mut scratch).expect("accepted");
            assert_eq!((checked.rewritten, checked.offset_delta_of_max), (false, 5000));
        }
    }
}

#[test]
fn snappy_framing_as_other_clients_write_it() {
    let plain = &batch_of(Codec::None, &[NOW; 9])[HEADER_LEN..];
    let raw = snap::raw::Encoder::new().compress_vec(plain).expect("compresses");
    assert!(check(&mut batch_around(Codec::Snappy, &raw, 9)).is_ok(), "one raw block");
    let (left, right) = plain.split_at(50);
    let joined = [compressed(Codec::Snappy, left), compressed(Codec::Snappy, right)].concat();
    assert!(check(&mut batch_around(Codec::Snappy, &joined, 9)).is_ok(), "a header between blocks");
    let framed = compressed(Codec::Snappy, plain);
    assert_eq!(framed[..16], *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
    let mut version_0 = framed.clone();
    version_0[11] = 0;
    assert_eq!(
        code(&batch_around(Codec::Snappy, &version_0, 9), &limits()),
        ErrorCode::InvalidRecord
    );
}

#[test]
fn lz4_framing() {
    let plain = &batch_of(Codec::None, &[NOW; 9])[HEADER_LEN..];
    let framed = compressed(Codec::Lz4, plain);
    assert_eq!(framed[..7], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
    let mut wrong_hc = framed.clone();
    wrong_hc[6] = 0x1a; // what Kafka wrote for magic 0 (KAFKA-3160)
    assert_eq!(code(&batch_around(Codec::Lz4, &wrong_hc, 9), &limits()), ErrorCode::InvalidRecord);
    let other = |info: lz4_flex::frame::FrameInfo| {
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        std::io::Write::write_all(&mut encoder, plain).expect("compresses");
        batch_around(Codec::Lz4, &encoder.finish().expect("compresses"), 9)
    };
    let info = lz4_flex::frame::FrameInfo::new;
    let checksums = info().block_checksums(true).content_checksum(true);
    assert!(check(&mut other(checksums.content_size(Some(plain.len() as u64)))).is_ok());
    let linked = info().block_mode(lz4_flex::frame::BlockMode::Linked);
    assert_eq!(code(&other(linked), &limits()), ErrorCode::InvalidRecord);
    // Bytes that do not compress are stored, and come back.
    let noise: Vec<u8> =
        (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut out = Vec::new();
    let payload = compressed(Codec::Lz4, &noise);
    codec::decompress(Codec::Lz4, &payload, 1 << 20, &mut Workspace::new(), &mut out)
        .expect("reads");
    assert_eq!(out, noise);
}

#[test]
fn a_walk_names_the_record_and_the_fault() {
    let second = [record_with(0, &[0]), record_with(7, &[0])].concat();
    let error = record::walk(&second, 2, NOW).expect_err("refused");
    assert_eq!((error.index, error.fault), (1, RecordFault::OffsetDelta { want: 1, got: 7 }));
    let mut longer = record_with(0, &[0]);
    longer[0] += 2;
    longer.push(0);
    let error = record::walk(&longer, 1, NOW).expect_err("refused");
    assert_eq!(error.fault, RecordFault::LengthMismatch { declared: 7, actual: 6 });
    assert_eq!(error.to_string(), "record 0: it declares 7 bytes and has 6");
    let walked = record::walk(&record_with(0, &[0]), 1, NOW).expect("sound");
    assert_eq!((walked.max_timestamp, walked.first_null_key), (NOW, Some(0)));
}

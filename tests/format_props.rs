//! Properties of the format layer: what is built is read back, damage is noticed, and no bytes
//! whatever make a decoder panic. proptest prints the seed of a failure and replays it.

use proptest::prelude::*;
use ringlog::format::batch::{self, ATTRIBUTES, Codec, HEADER_LEN, RECORDS_COUNT};
use ringlog::format::builder::{BatchBuilder, NewHeader};
use ringlog::format::codec::{self, Workspace};
use ringlog::format::index::{
    self, IndexBuilder, IndexLimits, OffsetEntry, TimeEntry, floor_offset, floor_time,
};
use ringlog::format::name::{DirState, FileKind, PartitionDir, SegmentFile};
use ringlog::format::record;
use ringlog::format::validate::{Depth, Limits, Scratch, check_produce};

type Bytes = Option<Vec<u8>>;

#[derive(Clone, Debug)]
struct NewRecord {
    key: Bytes,
    value: Bytes,
    headers: Vec<(Vec<u8>, Bytes)>,
    timestamp: i64,
}

fn field() -> impl Strategy<Value = Bytes> {
    let small = prop::collection::vec(any::<u8>(), 0..200);
    let repeated = (any::<u8>(), 0usize..9000).prop_map(|(byte, len)| vec![byte; len]);
    prop::option::of(prop_oneof![8 => small, 1 => repeated])
}

fn new_record() -> impl Strategy<Value = NewRecord> {
    let header = (prop::collection::vec(any::<u8>(), 0..10), field());
    let timestamp =
        prop_oneof![Just(-1i64), 0..2_000_000_000_000i64, 1_700_000_000_000..1_700_000_000_300i64];
    (field(), field(), prop::collection::vec(header, 0..4), timestamp)
        .prop_map(|(key, value, headers, timestamp)| NewRecord { key, value, headers, timestamp })
}

fn records() -> impl Strategy<Value = Vec<NewRecord>> {
    prop::collection::vec(new_record(), 1..20)
}

fn any_codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(Codec::ALL.to_vec())
}

fn limits(depth: Depth) -> Limits {
    Limits {
        message_bytes_max: 1 << 20,
        depth,
        decompressed_bytes_max: 1 << 24,
        now_ms: 1_700_000_000_000,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: i64::MAX,
        log_append_time: false,
        key_required: false,
    }
}

fn build(records: &[NewRecord], codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for record in records {
        let headers: Vec<NewHeader<'_>> =
            record.headers.iter().map(|(k, v)| (k.as_slice(), v.as_deref())).collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let before = builder.plain_len();
        builder.append(key, value, &headers, record.timestamp);
        let grown = builder.plain_len() - before;
        assert!(grown <= BatchBuilder::record_len_max(key, value, &headers));
    }
    builder.finish(codec, None).expect("compresses").to_vec()
}

/// Everything a reader can be asked to do with bytes from outside.
fn read_everything(bytes: &[u8], scratch: &mut Scratch, workspace: &mut Workspace) {
    for found in batch::scan(bytes) {
        let _ = (found.crc_ok(), batch::counts_possible(&found.header));
        let mut plain = Vec::new();
        let Some(codec) = found.header.codec() else { continue };
        let _ = codec::decompress(codec, found.payload(), 1 << 20, workspace, &mut plain);
        for record in record::records(&plain, &found.header) {
            let _ = record.map(|record| record.headers.count());
        }
        let _ = record::walk(&plain, found.header.records_count, found.header.base_timestamp);
        let mut copy = found.bytes.to_vec();
        let _ = check_produce(&mut copy, &limits(Depth::Deep), scratch);
        let _ = batch::reseal(&mut copy);
        let _ = check_produce(&mut copy, &limits(Depth::Deep), scratch);
    }
    let _ = (index::check_offset_index(bytes, 1 << 30), index::check_time_index(bytes));
    let _ = (floor_offset(bytes, 77), floor_time(bytes, 77));
}

proptest! {
    #[test]
    fn what_is_built_is_read_back(new in records(), codec in any_codec()) {
        let mut bytes = build(&new, codec);
        let header = batch::verify_stored(&bytes).expect("sound");
        let max = new.iter().map(|record| record.timestamp).max().expect("one or more");
        prop_assert_eq!(header.max_timestamp, max);
        let mut scratch = Scratch::new();
        for depth in [Depth::Records, Depth::Deep] {
            let checked = check_produce(&mut bytes, &limits(depth), &mut scratch);
            let checked = checked.expect("accepted");
            prop_assert!(!checked.rewritten);
            if depth == Depth::Deep {
                let first = new.iter().position(|record| record.timestamp == max).unwrap_or(0);
                let want = if max == -1 { 0 } else { first as i32 };
                prop_assert_eq!(checked.offset_delta_of_max, want);
            }
        }
        batch::assign(&mut bytes, 1000, 5).expect("whole");
        let header = batch::verify(&bytes).expect("the CRC still holds");
        let mut plain = Vec::new();
        codec::decompress(codec, &bytes[HEADER_LEN..], 1 << 24, &mut Workspace::new(), &mut plain)
            .expect("decompresses");
        let read: Vec<_> = record::records(&plain, &header).collect();
        prop_assert_eq!(read.len(), new.len());
        for (i, (read, new)) in read.into_iter().zip(&new).enumerate() {
            let read = read.expect("sound");
            prop_assert_eq!(read.offset, 1000 + i as i64);
            prop_assert_eq!(read.timestamp, new.timestamp);
            prop_assert_eq!(read.key, new.key.as_deref());
            prop_assert_eq!(read.value, new.value.as_deref());
            let headers = read.headers.map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec)));
            prop_assert_eq!(&headers.collect::<Vec<_>>(), &new.headers);
        }
    }

    /// The CRC covers all but the first 17 bytes; of those a size or a magic that changed is
    /// noticed too, and the two fields that the server owns are what they say.
    #[test]
    fn a_flipped_bit_is_noticed(
        new in records(), codec in any_codec(), at in any::<prop::sample::Index>(), bit in 0..8
    ) {
        let mut bytes = build(&new, codec);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        let owned = at < 8 || (12..16).contains(&at);
        prop_assert_eq!(batch::verify(&bytes).is_ok(), owned);
        if at >= ATTRIBUTES {
            prop_assert_eq!(batch::scan(&bytes).filter(batch::Found::crc_ok).count(), 0);
        }
        read_everything(&bytes, &mut Scratch::new(), &mut Workspace::new());
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let (mut scratch, mut workspace) = (Scratch::new(), Workspace::new());
        read_everything(&bytes, &mut scratch, &mut workspace);
        for codec in Codec::ALL {
            let mut out = Vec::new();
            let _ = codec::decompress(codec, &bytes, 1 << 16, &mut workspace, &mut out);
            prop_assert!(out.len() <= 1 << 16);
        }
    }

    /// Hostile from the header on: a true CRC around damaged records and streams.
    #[test]
    fn sealed_damage_does_not_make_a_decoder_panic(
        new in records(), codec in any_codec(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        count in prop_oneof![Just(None), any::<i32>().prop_map(Some)],
    ) {
        let mut bytes = build(&new, codec);
        for (at, byte) in damage {
            let at = ATTRIBUTES + at.index(bytes.len() - ATTRIBUTES);
            bytes[at] = byte;
        }
        if let Some(count) = count {
            bytes[RECORDS_COUNT..RECORDS_COUNT + 4].copy_from_slice(&count.to_be_bytes());
        }
        batch::reseal(&mut bytes).expect("whole");
        read_everything(&bytes, &mut Scratch::new(), &mut Workspace::new());
    }

    #[test]
    fn floor_search_equals_a_scan(
        steps in prop::collection::vec((1u32..50, 1u32..5000, 1i64..100), 0..200),
        target in 0u32..6000,
    ) {
        let (mut offsets, mut times) = (Vec::new(), Vec::new());
        let (mut at, mut timestamp) = (OffsetEntry { relative_offset: 0, pos: 0 }, 0);
        for (offset, pos, time) in steps {
            at = OffsetEntry { relative_offset: at.relative_offset + offset, pos: at.pos + pos };
            timestamp += time;
            offsets.extend(at.encode());
            times.extend(TimeEntry { timestamp, relative_offset: at.relative_offset }.encode());
        }
        let naive = index::offset_entries(&offsets).rfind(|e| e.relative_offset <= target);
        prop_assert_eq!(floor_offset(&offsets, target), naive);
        let wanted = i64::from(target);
        let naive = index::time_entries(&times).rfind(|e| e.timestamp <= wanted);
        prop_assert_eq!(floor_time(&times, wanted), naive);
        let below = index::offset_entries(&offsets).filter(|e| e.relative_offset < target).count();
        prop_assert_eq!(index::offset_len_below(&offsets, target), below * 8);
        prop_assert_eq!(index::time_len_below(&times, target), below * 12);
    }

    /// R04: whatever the batches, however often the server restarted in between.
    #[test]
    fn the_live_index_equals_a_rebuilt_one(
        batches in prop::collection::vec(
            (1u64..9000, 1i64..40, -1i64..1000, prop::bool::weighted(0.1)), 1..120
        ),
        interval_bytes in 0u32..9000,
        index_bytes_max in 24usize..600,
    ) {
        let limits = IndexLimits { interval_bytes, index_bytes_max };
        let run = |restarts: bool| {
            let mut builder = IndexBuilder::new(700, limits);
            let (mut offsets, mut times) = (Vec::new(), Vec::new());
            let (mut pos, mut last_offset) = (0, 699);
            let mut stored: Vec<(i64, i64)> = Vec::new();
            for (len, records, timestamp, restart) in &batches {
                if restarts && *restart {
                    builder = IndexBuilder::resume(700, limits, &offsets, &times);
                    stored.iter().for_each(|(offset, time)| builder.on_stored(*offset, *time));
                }
                last_offset += records;
                if let Some((entry, time)) = builder.on_batch(pos, last_offset, *timestamp) {
                    offsets.extend(entry.encode());
                    times.extend(time.into_iter().flat_map(TimeEntry::encode));
                }
                stored.push((last_offset, *timestamp));
                pos += len;
            }
            times.extend(builder.close().into_iter().flat_map(TimeEntry::encode));
            (offsets, times, pos)
        };
        let (offsets, times, log_len) = run(false);
        let (offsets_live, times_live, _) = run(true);
        prop_assert_eq!(&offsets, &offsets_live);
        prop_assert_eq!(&times, &times_live);
        prop_assert_eq!(index::check_offset_index(&offsets, log_len), Ok(()));
        prop_assert_eq!(index::check_time_index(&times), Ok(()));
        prop_assert!(offsets.len() <= index_bytes_max && times.len() <= index_bytes_max);
        let max = batches.iter().map(|batch| batch.2).max().expect("one or more");
        let last = index::time_entries(&times).next_back().map_or(-1, |entry| entry.timestamp);
        prop_assert_eq!(last, max, "a closed time index ends with the true maximum");
    }

    #[test]
    fn names_come_back(
        offset in 0i64..,
        kind in prop::sample::select(FileKind::ALL.to_vec()),
        any_name in ".{0,40}",
    ) {
        let file = SegmentFile::live(offset, kind);
        prop_assert_eq!(SegmentFile::parse(&file.to_string()), Some(file));
        let parsed = SegmentFile::parse(&any_name).map(|file| file.to_string());
        prop_assert!(parsed.is_none_or(|back| back == any_name));
        if let Ok(dir) = PartitionDir::parse(&any_name) {
            prop_assert!(!dir.topic.is_empty());
            prop_assert!(dir.state != DirState::Current || any_name.starts_with(dir.topic));
        }
    }
}

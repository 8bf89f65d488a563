//! Real Kafka bytes: what a broker and its clients wrote is read, checked, indexed and dumped as
//! they do it. The fixtures are described beside them.

#[path = "support/golden.rs"]
mod fixtures;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use fixtures::{TOPICS, golden};
use ringlog::format::batch::{self, Attributes, BatchHeader, Codec, HEADER_LEN, TimestampType};
use ringlog::format::builder::{BatchBuilder, NewHeader};
use ringlog::format::checkpoint::{EpochCache, parse_offsets, render_offsets};
use ringlog::format::codec::{self, Workspace};
use ringlog::format::dump;
use ringlog::format::identity::{
    MetaProperties, parse_clean_shutdown, parse_partition_metadata, render_clean_shutdown,
    render_partition_metadata,
};
use ringlog::format::index::{
    self, IndexBuilder, IndexLimits, OffsetEntry, TimeEntry, floor_offset,
};
use ringlog::format::name::{FileKind, PartitionDir, SegmentFile};
use ringlog::format::record::{self, Record};
use ringlog::format::unpack::Unpacked;
use ringlog::format::validate::{Depth, Limits, Scratch, check_produce};
use ringlog::format::{snapshot, txn_index};

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a partition in the order of their names, with what each name says.
fn files(state: &str, topic: &str) -> Vec<(String, SegmentFile, Vec<u8>)> {
    let dir = golden(&format!("{state}/gold-{topic}-0"));
    let mut files: Vec<_> = fs::read_dir(&dir)
        .expect("a partition")
        .filter_map(|entry| {
            let entry = entry.expect("readable");
            let name = entry.file_name().into_string().expect("UTF-8");
            Some((name.clone(), SegmentFile::parse(&name)?, read(&entry.path())))
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(files.len() >= 3);
    files
}

fn logs(topic: &str) -> Vec<(i64, Vec<u8>)> {
    let of_kind = |file: &(String, SegmentFile, Vec<u8>)| file.1.kind == FileKind::Log;
    files("clean", topic).into_iter().filter(of_kind).map(|file| (file.1.offset, file.2)).collect()
}

/// All batches of a log that is sound to its last byte.
fn batches(log: &[u8]) -> Vec<batch::Found<'_>> {
    let mut scan = batch::scan(log);
    let found: Vec<_> = scan.by_ref().collect();
    assert_eq!(scan.stop(), Some(batch::Stop::End { pos: log.len() }));
    for batch in &found {
        assert_eq!(batch::verify_stored(batch.bytes), Ok(batch.header));
    }
    found
}

fn plain(found: &batch::Found<'_>) -> Vec<u8> {
    let mut plain = Vec::new();
    let codec = found.header.codec().expect("a codec");
    codec::decompress(codec, found.payload(), 1 << 20, &mut Workspace::new(), &mut plain)
        .expect("decompresses");
    plain
}

fn as_json(record: &Record<'_>, header: &BatchHeader) -> serde_json::Value {
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| BASE64.encode(bytes));
    let headers: Vec<_> =
        record.headers.map(|h| serde_json::json!([BASE64.encode(h.key), text(h.value)])).collect();
    serde_json::json!({
        "offset": record.offset,
        "leader_epoch": header.leader_epoch,
        "timestamp": record.timestamp,
        "timestamp_type": header.timestamp_type().name(),
        "key": text(record.key),
        "value": text(record.value),
        "headers": headers,
    })
}

#[test]
fn every_record_reads_as_the_java_consumer_read_it() {
    for topic in TOPICS {
        let consumed = read(&golden(&format!("consumed/gold-{topic}.read_uncommitted.jsonl")));
        let wanted: Vec<serde_json::Value> = serde_json::Deserializer::from_slice(&consumed)
            .into_iter()
            .collect::<Result<_, _>>()
            .expect("JSON lines");
        let first = wanted[0]["offset"].as_i64().expect("an offset");
        let mut got = Vec::new();
        for (_, log) in logs(topic) {
            for found in batches(&log).iter().filter(|found| !found.header.is_control()) {
                for record in record::records(&plain(found), &found.header) {
                    got.push(as_json(&record.expect("sound"), &found.header));
                }
            }
        }
        got.retain(|record| record["offset"].as_i64() >= Some(first));
        assert_eq!(got.len(), wanted.len(), "{topic}");
        for (got, wanted) in got.iter().zip(&wanted) {
            assert_eq!(got, wanted, "{topic}");
        }
    }
}

/// What the producer sent is accepted as it stands, whatever its codec, and only the fields that
/// are the server's differ from what was stored.
#[test]
fn every_clients_batch_passes_validation_untouched() {
    let limits = Limits {
        message_bytes_max: 1 << 20,
        depth: Depth::Deep,
        decompressed_bytes_max: 1 << 20,
        now_ms: 1_700_000_000_000,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: i64::MAX,
        log_append_time: false,
        key_required: false,
    };
    let mut scratch = Scratch::new();
    let mut checked = BTreeMap::new();
    for topic in TOPICS.into_iter().filter(|topic| !["compacted", "appendtime"].contains(topic)) {
        for (_, log) in logs(topic) {
            for found in batches(&log).iter().filter(|found| !found.header.is_control()) {
                let mut sent = found.bytes.to_vec();
                batch::assign(&mut sent, 0, -1).expect("whole");
                let before = sent.clone();
                let accepted = check_produce(&mut sent, &limits, &mut scratch).expect("accepted");
                assert!(!accepted.rewritten && sent == before);
                batch::assign(&mut sent, found.header.base_offset, found.header.leader_epoch)
                    .expect("whole");
                assert_eq!(sent, found.bytes);
                *checked.entry(found.header.attributes.codec_id()).or_insert(0) += 1;
            }
        }
    }
    assert_eq!(checked.len(), 5, "batches of every codec: {checked:?}");
}

/// Uncompressed batches leave no freedom: from the same records come the same bytes.
#[test]
fn the_builder_makes_the_bytes_of_the_java_producer() {
    let mut built = 0;
    for topic in ["deleted", "producers", "recompressed", "segments", "shapes", "transactions"] {
        for (_, log) in logs(topic) {
            for found in batches(&log) {
                let header = &found.header;
                if header.codec() != Some(Codec::None) || header.is_control() {
                    continue;
                }
                let mut builder = BatchBuilder::new();
                builder.producer(header.producer_id, header.producer_epoch, header.base_sequence);
                builder.attributes(Attributes(0).with_transactional(header.is_transactional()));
                for record in record::records(found.payload(), header) {
                    let record = record.expect("sound");
                    let headers: Vec<NewHeader<'_>> =
                        record.headers.map(|header| (header.key, header.value)).collect();
                    builder.append(record.key, record.value, &headers, record.timestamp);
                }
                let mut bytes = builder.finish(Codec::None, None).expect("plain").to_vec();
                batch::assign(&mut bytes, header.base_offset, header.leader_epoch).expect("whole");
                assert_eq!(bytes, found.bytes, "{topic} at {}", found.pos);
                built += 1;
            }
        }
    }
    assert!(built > 50, "{built}");
}

#[test]
fn rebuilt_indexes_equal_the_brokers() {
    let limits = IndexLimits { interval_bytes: 512, index_bytes_max: 1200 };
    let mut entries = 0;
    for topic in TOPICS {
        for (base_offset, log) in logs(topic) {
            let mut builder = IndexBuilder::new(base_offset, limits);
            let (mut offsets, mut times) = (Vec::new(), Vec::new());
            for found in batches(&log) {
                let (last_offset, max) = (found.header.last_offset(), found.header.max_timestamp);
                if let Some((entry, time)) = builder.on_batch(found.pos as u64, last_offset, max) {
                    offsets.extend(entry.encode());
                    times.extend(time.into_iter().flat_map(TimeEntry::encode));
                }
            }
            times.extend(builder.close().into_iter().flat_map(TimeEntry::encode));
            let brokers = |kind| {
                let name = SegmentFile::live(base_offset, kind);
                read(&golden(&format!("rebuilt/gold-{topic}-0/{name}")))
            };
            assert_eq!(offsets, brokers(FileKind::OffsetIndex), "{topic} {base_offset}");
            assert_eq!(times, brokers(FileKind::TimeIndex), "{topic} {base_offset}");
            assert_eq!(index::check_offset_index(&offsets, log.len() as u64), Ok(()));
            assert_eq!(index::check_time_index(&times), Ok(()));
            entries += offsets.len() / 8 + times.len() / 12;
        }
    }
    assert!(entries > 100, "{entries}");
}

#[test]
fn the_brokers_live_index_leads_to_every_offset() {
    for topic in TOPICS {
        for (base_offset, log) in logs(topic) {
            let name = SegmentFile::live(base_offset, FileKind::OffsetIndex);
            let offsets = read(&golden(&format!("clean/gold-{topic}-0/{name}")));
            assert_eq!(index::check_offset_index(&offsets, log.len() as u64), Ok(()));
            let found = batches(&log);
            for batch in &found {
                for offset in [batch.header.base_offset, batch.header.last_offset()] {
                    let relative = index::relative_offset(base_offset, offset).expect("in range");
                    let begin = floor_offset(&offsets, relative).map_or(0, |e| e.pos as usize);
                    assert!(begin <= batch.pos);
                    assert!(found.iter().any(|batch| batch.pos == begin), "where a batch begins");
                }
            }
        }
    }
}

#[test]
fn producer_snapshots_and_aborted_transactions_come_back_byte_for_byte() {
    let (mut producers, mut aborted) = (0, 0);
    for (state, topic) in ["clean", "rebuilt"].into_iter().flat_map(|s| TOPICS.map(|t| (s, t))) {
        for (name, file, bytes) in files(state, topic) {
            match file.kind {
                FileKind::Snapshot => {
                    let entries = snapshot::parse(&bytes).expect("sound");
                    assert_eq!(snapshot::render(&entries), bytes, "{topic} {name}");
                    producers += entries.len();
                }
                FileKind::TxnIndex => {
                    let entries: Vec<_> =
                        txn_index::entries(&bytes).map(|txn| txn.expect("known")).collect();
                    let again: Vec<u8> = entries.iter().flat_map(|txn| txn.encode()).collect();
                    assert_eq!(again, bytes, "{topic} {name}");
                    aborted += entries.len();
                }
                _ => {}
            }
        }
    }
    assert!(producers > 10 && aborted > 3, "{producers} {aborted}");
}

#[test]
fn text_files_come_back_byte_for_byte() {
    let clean = golden("clean");
    for name in [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ] {
        let bytes = read(&clean.join(name));
        let rows = parse_offsets(&bytes).expect("sound");
        assert!(!rows.is_empty(), "{name}");
        assert_eq!(render_offsets(&rows).as_bytes(), bytes, "{name}");
    }
    let marker = read(&clean.join(".kafka_cleanshutdown"));
    let epoch = parse_clean_shutdown(&marker).expect("an epoch");
    assert_eq!(render_clean_shutdown(epoch).as_bytes(), marker);
    let meta = MetaProperties::parse(&read(&clean.join("meta.properties"))).expect("sound");
    assert_eq!((meta.version, meta.node_id), (1, Some(1)));
    assert_eq!(MetaProperties::parse(meta.render("").as_bytes()), Ok(meta));
    for topic in TOPICS {
        let dir = clean.join(format!("gold-{topic}-0"));
        let name = dir.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        let parsed = PartitionDir::parse(name).expect("a partition");
        assert_eq!(parsed.topic, format!("gold-{topic}"));
        let bytes = read(&dir.join("partition.metadata"));
        let id = parse_partition_metadata(&bytes).expect("sound");
        assert_eq!(render_partition_metadata(id).as_bytes(), bytes);
        let bytes = read(&dir.join("leader-epoch-checkpoint"));
        let epochs = EpochCache::parse(&bytes).expect("sound");
        assert_eq!(epochs.render().as_bytes(), bytes);
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(text, 16).expect("hex")
    };
    digits.chunks(2).map(byte).collect()
}

const T: i64 = 1_700_000_000_000;

/// Appendix B1: three records, null key, null value, headers with and without a value.
fn three_records() -> (Vec<u8>, Vec<u8>) {
    let wanted = hex("00 00 00 00 00 00 00 64 00 00 00 55 00 00 00 07 02 c5 de a8 00 00 00 00
         00 00 02 00 00 01 8b cf e5 68 00 00 00 01 8b cf e5 68 05 ff ff ff ff ff
         ff ff ff ff ff ff ff ff ff 00 00 00 03 14 00 00 00 04 6b 31 04 76 31 00
         1e 00 0a 02 01 04 76 32 04 02 68 02 78 02 6e 01 10 00 05 04 04 6b 31 01
         00");
    let mut builder = BatchBuilder::new();
    builder.append(Some(b"k1"), Some(b"v1"), &[], T);
    builder.append(None, Some(b"v2"), &[(b"h", Some(b"x")), (b"n", None)], T + 5);
    builder.append(Some(b"k1"), None, &[], T - 3);
    (builder.finish(Codec::None, None).expect("plain").to_vec(), wanted)
}

#[test]
fn vector_b1_three_records() {
    let (mut bytes, wanted) = three_records();
    assert_eq!(bytes[12..16], [0xff; 4]);
    assert_eq!(bytes[16..], wanted[16..], "the producer's differs only in offset and epoch");
    batch::assign(&mut bytes, 100, 7).expect("whole");
    assert_eq!(bytes, wanted);
    let header = batch::verify_stored(&wanted).expect("sound");
    let line = dump::batch_line(&header, 0, true);
    assert!(line.starts_with("baseOffset: 100 lastOffset: 102 count: 3 "), "{line}");
    assert!(line.ends_with("compresscodec: none crc: 3319703552 isvalid: true"), "{line}");
    let lines: Vec<_> = record::records(&wanted[HEADER_LEN..], &header)
        .map(|record| Unpacked { record: record.expect("sound"), own_crc: None })
        .map(|record| dump::record_line(&record, &header, true))
        .collect();
    assert_eq!(
        lines[1],
        "| offset: 101 CreateTime: 1700000000005 keySize: -1 valueSize: 2 sequence: -1 \
         headerKeys: [h,n] payload: v2"
    );
}

#[test]
fn vector_b2_append_time() {
    let (_, sent) = three_records();
    let mut bytes = sent.clone();
    batch::set_max_timestamp(&mut bytes, TimestampType::LogAppendTime, T + 1000).expect("whole");
    let mut wanted = sent;
    wanted[17..21].copy_from_slice(&hex("4e 7c 05 c2"));
    wanted[21..23].copy_from_slice(&hex("00 08"));
    wanted[35..43].copy_from_slice(&hex("00 00 01 8b cf e5 6b e8"));
    assert_eq!(bytes, wanted);
}

#[test]
fn vector_b3_markers() {
    let commit = hex("00 00 00 00 00 00 00 67 00 00 00 42 00 00 00 07 02 71 fb 2b 9f 00 30 00
         00 00 00 00 00 01 8b cf e5 68 00 00 00 01 8b cf e5 68 00 00 00 00 00 00
         00 0f a0 00 03 ff ff ff ff 00 00 00 01 20 00 00 00 08 00 00 00 01 0c 00
         00 00 00 00 2a 00");
    let mut abort = commit.clone();
    abort[17..21].copy_from_slice(&hex("85 c5 fd d7"));
    abort[69] = 0;
    for (bytes, key, name) in [(&commit, [0, 0, 0, 1], "COMMIT"), (&abort, [0; 4], "ABORT")] {
        let mut builder = BatchBuilder::new();
        builder.producer(4000, 3, -1);
        builder.attributes(Attributes(0).with_transactional(true).with_control(true));
        builder.append(Some(&key), Some(&[0, 0, 0, 0, 0, 42]), &[], T);
        let mut built = builder.finish(Codec::None, None).expect("plain").to_vec();
        batch::assign(&mut built, 103, 7).expect("whole");
        assert_eq!(&built, bytes);
        let header = batch::verify_stored(bytes).expect("sound");
        let record = record::records(&bytes[61..], &header).next().expect("one").expect("sound");
        let line = dump::record_line(&Unpacked { record, own_crc: None }, &header, true);
        assert_eq!(
            line,
            format!(
                "| offset: 103 CreateTime: 1700000000000 keySize: 4 valueSize: 6 sequence: -1 \
                 headerKeys: [] endTxnMarker: {name} coordinatorEpoch: 42"
            )
        );
    }
}

#[test]
fn vector_b4_an_empty_batch_of_compaction() {
    let bytes = hex("00 00 00 00 00 00 00 64 00 00 00 31 00 00 00 07 02 6d 32 12 17 00 00 00
         00 00 02 ff ff ff ff ff ff ff ff 00 00 01 8b cf e5 68 05 00 00 00 00 00
         00 0f a0 00 03 00 00 00 0a 00 00 00 00");
    let header = batch::verify_stored(&bytes).expect("sound");
    assert_eq!((header.last_offset(), header.last_sequence(), header.records_count), (102, 12, 0));
    assert_eq!(record::records(&bytes[61..], &header).count(), 0);
}

#[test]
fn vector_b5_old_formats_are_named() {
    let magic_0 =
        hex("00 00 00 00 00 00 00 05 00 00 00 10 1f ec d7 0a 00 00 00 00 00 01 6b 00 00 00 01 76");
    let magic_1 = hex("00 00 00 00 00 00 00 05 00 00 00 18 39 26 8c 33 01 00 00 00 01 8b cf e5 68
         00 00 00 00 01 6b 00 00 00 01 76");
    for (bytes, magic) in [(magic_0, 0), (magic_1, 1)] {
        assert_eq!(batch::parse_header(&bytes), Err(batch::BatchError::Legacy { magic }));
    }
}

#[test]
fn vector_b6_index_entries() {
    let entry = OffsetEntry { relative_offset: 5, pos: 4200 };
    assert_eq!(entry.encode().to_vec(), hex("00 00 00 05 00 00 10 68"));
    assert_eq!(OffsetEntry::decode(entry.encode()), entry);
    assert_eq!(dump::index_line(105, entry.pos), "offset: 105 position: 4200");
    let entry = TimeEntry { timestamp: T, relative_offset: 5 };
    assert_eq!(entry.encode().to_vec(), hex("00 00 01 8b cf e5 68 00 00 00 00 05"));
    assert_eq!(TimeEntry::decode(entry.encode()), entry);
}

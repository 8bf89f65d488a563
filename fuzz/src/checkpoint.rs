//! Small files and names: checkpoints, epochs, meta.properties, partition.metadata, snapshots.
//! What is read is written so that it is read the same.

use ringlog::format::checkpoint::{EpochCache, parse_offsets, render_offsets};
use ringlog::format::identity::{
    MetaProperties, parse_clean_shutdown, parse_partition_metadata, parse_uuid,
    render_partition_metadata, render_uuid,
};
use ringlog::format::name::{PartitionDir, SegmentFile, file_name};
use ringlog::format::{dump, snapshot};

pub fn run(bytes: &[u8]) {
    if let Ok(rows) = parse_offsets(bytes) {
        assert_eq!(parse_offsets(render_offsets(&rows).as_bytes()), Ok(rows));
    }
    if let Ok(cache) = EpochCache::parse(bytes) {
        epochs(&cache);
    }
    if let Ok(meta) = MetaProperties::parse(bytes) {
        assert_eq!(MetaProperties::parse(meta.render("again").as_bytes()), Ok(meta));
    }
    if let Ok(id) = parse_partition_metadata(bytes) {
        assert_eq!(parse_partition_metadata(render_partition_metadata(id).as_bytes()), Ok(id));
    }
    let _ = parse_clean_shutdown(bytes);
    snapshots(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        names(text);
    }
}

/// Every change keeps both columns rising, and truncating leaves nothing outside.
fn epochs(cache: &EpochCache) {
    assert_eq!(EpochCache::parse(cache.render().as_bytes()).as_ref(), Ok(cache));
    let middle = cache.entries().get(cache.entries().len() / 2).copied();
    let Some(middle) = middle else { return };
    let mut ended = cache.clone();
    ended.truncate_end(middle.start_offset);
    assert!(ended.entries().iter().all(|entry| entry.start_offset < middle.start_offset));
    let mut begun = cache.clone();
    begun.truncate_start(middle.start_offset);
    assert!(begun.entries().iter().all(|entry| entry.start_offset >= middle.start_offset));
    let mut grown = cache.clone();
    grown.assign(middle.epoch, middle.start_offset);
    for changed in [ended, begun, grown] {
        assert_eq!(EpochCache::parse(changed.render().as_bytes()), Ok(changed));
    }
    let _ = cache.end_offset_for(middle.epoch, i64::MAX);
}

/// As it stands, and with the CRC made true, so that what lies behind is reached.
fn snapshots(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if let Some((head, body)) = sealed.split_at_mut_checked(6) {
        let crc = ringlog::format::checksum::crc32c(body);
        head[2..].copy_from_slice(&crc.to_be_bytes());
    }
    for bytes in [bytes, &sealed] {
        if let Ok(entries) = snapshot::parse(bytes) {
            assert_eq!(snapshot::render(&entries), bytes, "read and written, it is another");
            entries.iter().for_each(|entry| _ = dump::snapshot_line(entry));
        }
    }
}

fn names(text: &str) {
    if let Some(file) = SegmentFile::parse(text) {
        assert!(file.offset >= 0);
        let live = SegmentFile::parse(&file_name(file.offset, file.kind));
        assert_eq!(live.map(|live| (live.offset, live.kind)), Some((file.offset, file.kind)));
    }
    if let Some(id) = parse_uuid(text) {
        assert_eq!(parse_uuid(&render_uuid(id)), Some(id));
    }
    let _ = PartitionDir::parse(text);
}

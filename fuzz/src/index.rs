//! Index files: searches against a plain loop, checks before trust, entries written back the same.

use ringlog::format::dump;
use ringlog::format::index::{
    IndexBuilder, IndexLimits, OffsetEntry, TimeEntry, check_offset_index, check_time_index,
    floor_offset, floor_time, offset_entries, offset_len_below, time_entries, time_len_below,
};
use ringlog::format::txn_index;
use ringlog::tools::index_file::{Entries, Entry};

const LIMITS: IndexLimits = IndexLimits { interval_bytes: 512, index_bytes_max: 1200 };

/// What is searched for, then the bytes of an index, taken for each of the three.
pub fn run(input: &[u8]) {
    let Some((wanted, bytes)) = input.split_first_chunk::<8>() else { return };
    let wanted = i64::from_be_bytes(*wanted);
    offsets(bytes, wanted as u32);
    times(bytes, wanted);
    transactions(bytes);
    resumed(bytes, wanted);
    streamed::<OffsetEntry>(bytes);
    streamed::<TimeEntry>(bytes);
}

/// A window at a time, up to the space not used yet.
fn streamed<E: Entry>(bytes: &[u8]) {
    let mut entries = Entries::<_, E>::new(bytes).expect("a slice is read");
    while entries.next_entry().expect("a slice is read").is_some() {}
    let (unused, _) = entries.unused().expect("a slice is read");
    assert_eq!(entries.number() * E::LEN + unused as usize, bytes.len());
}

fn offsets(bytes: &[u8], wanted: u32) {
    let entries: Vec<OffsetEntry> = offset_entries(bytes).collect();
    let written: Vec<u8> = entries.iter().flat_map(|entry| entry.encode()).collect();
    assert_eq!(written, bytes[..written.len()]);
    let (floor, below) = (floor_offset(bytes, wanted), offset_len_below(bytes, wanted));
    if check_offset_index(bytes, u64::from(u32::MAX)).is_ok() {
        let plain = entries.iter().rev().find(|entry| entry.relative_offset <= wanted);
        assert_eq!(floor, plain.copied());
        let count = entries.iter().filter(|entry| entry.relative_offset < wanted).count();
        assert_eq!(below, count * 8);
    }
}

fn times(bytes: &[u8], wanted: i64) {
    let entries: Vec<TimeEntry> = time_entries(bytes).collect();
    let written: Vec<u8> = entries.iter().flat_map(|entry| entry.encode()).collect();
    assert_eq!(written, bytes[..written.len()]);
    let (floor, below) = (floor_time(bytes, wanted), time_len_below(bytes, wanted as u32));
    if check_time_index(bytes).is_ok() {
        let plain = entries.iter().rev().find(|entry| entry.timestamp <= wanted);
        assert_eq!(floor, plain.copied());
        let under = |entry: &&TimeEntry| entry.relative_offset < wanted as u32;
        assert_eq!(below, entries.iter().filter(under).count() * 12);
    }
}

fn transactions(bytes: &[u8]) {
    for (entry, raw) in txn_index::entries(bytes).zip(bytes.chunks(txn_index::TXN_ENTRY_LEN)) {
        if let Ok(entry) = entry {
            assert_eq!(entry.encode(), raw);
            let _ = dump::txn_line(&entry);
        }
    }
}

/// A segment that goes on with these indexes keeps them sound, if they were.
fn resumed(bytes: &[u8], seed: i64) {
    let half = bytes.len() / 2 / 24 * 24;
    let (index, timeindex) = bytes.split_at(half);
    let timeindex = &timeindex[..timeindex.len() / 12 * 12];
    let sound = check_offset_index(index, u64::from(u32::MAX)).is_ok()
        && check_time_index(timeindex).is_ok();
    let (base, step) = (seed & 0xffff, 1 + (seed >> 16 & 0xfff));
    let mut builder = IndexBuilder::resume(base, LIMITS, index, timeindex);
    let (mut index, mut timeindex) = (index.to_vec(), timeindex.to_vec());
    let last = offset_entries(&index).next_back();
    let mut pos = last.map_or(0, |entry| u64::from(entry.pos));
    let mut offset = base + last.map_or(0, |entry| i64::from(entry.relative_offset));
    for at in 0..32 {
        (pos, offset) = (pos + step as u64, offset + 1 + at % 3);
        if let Some((entry, time)) = builder.on_batch(pos, offset, seed ^ (at << 40)) {
            index.extend(entry.encode());
            timeindex.extend(time.into_iter().flat_map(TimeEntry::encode));
        }
    }
    timeindex.extend(builder.close().into_iter().flat_map(TimeEntry::encode));
    if sound {
        assert_eq!(check_offset_index(&index, u64::from(u32::MAX)), Ok(()));
    }
}

//! What a partition's directory is made of, without reading its logs.
//!
//! Owns: the picture: segments, indexes, snapshots, epochs, checkpoints, side files. Never does:
//! check any of it (`verify` does). Left: `partition`, `index_file`, `cuts`. Right: the CLI's
//! explore.

use std::fs::File;
use std::io;
use std::path::Path;

use serde::Serialize;

use super::cuts;
use super::index_check::header_at;
use super::index_file::{Entry, floor};
use super::partition::{Around, EPOCHS, Listing, SegmentFiles, read_small};
use crate::format::checkpoint::EpochCache;
use crate::format::index::{OffsetEntry, TimeEntry};
use crate::format::name::FileKind;
use crate::format::txn_index::TXN_ENTRY_LEN;

#[derive(Clone, Debug, Serialize)]
pub struct Segment {
    pub base_offset: i64,
    /// None: its log is missing.
    pub bytes: Option<u64>,
    /// Entries in use; None: the file is missing.
    pub index_entries: Option<u64>,
    pub time_index_entries: Option<u64>,
    pub aborted_transactions: u64,
    /// By the time index; None: no entry yet.
    pub max_timestamp: Option<i64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    pub offset: i64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Epoch {
    pub epoch: i32,
    pub start_offset: i64,
}

#[derive(Clone, Debug, Serialize)]
pub struct CutAside {
    pub file: String,
    pub segment: i64,
    pub position: u64,
    pub bytes: u64,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Picture {
    pub directory: String,
    /// The last stop was clean and no server has started since; None: not in a data directory.
    pub clean: Option<bool>,
    pub log_start: i64,
    /// Behind the last batch whose header can be read.
    pub log_end: i64,
    pub high_watermark: Option<i64>,
    pub recovery_point: Option<i64>,
    pub bytes: u64,
    pub index_bytes: u64,
    pub segments: Vec<Segment>,
    pub snapshots: Vec<Snapshot>,
    pub epochs: Vec<Epoch>,
    /// Why the leader epochs cannot be read.
    pub epochs_error: Option<String>,
    pub cuts: Vec<CutAside>,
    /// Renamed, to be unlinked soon: their names.
    pub deleted: Vec<String>,
    pub foreign: Vec<String>,
}

pub fn picture(dir: &Path, listing: &Listing) -> io::Result<Picture> {
    let around = Around::read(dir);
    let segments: Vec<Segment> =
        listing.segments.values().map(|files| segment(listing, files)).collect::<Result<_, _>>()?;
    let others = listing.segments.values().flat_map(|files| files.others.values());
    let (epochs, epochs_error) = match epochs(dir) {
        Ok(epochs) => (epochs, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let first = listing.segments.keys().next().copied().unwrap_or(0);
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let cut_aside = |cut: cuts::SideFile| CutAside {
        file: name(&cut.path),
        segment: cut.segment,
        position: cut.pos,
        bytes: cut.bytes,
        reason: cut.reason.to_string(),
    };
    Ok(Picture {
        directory: dir.display().to_string(),
        clean: around.clean,
        log_start: around.log_start.unwrap_or(first).max(first),
        log_end: log_end(listing)?,
        high_watermark: around.high_watermark,
        recovery_point: around.recovery_point,
        bytes: segments.iter().filter_map(|segment| segment.bytes).sum(),
        index_bytes: others.sum(),
        segments,
        snapshots: listing
            .snapshots
            .iter()
            .map(|(offset, bytes)| Snapshot { offset: *offset, bytes: *bytes })
            .collect(),
        epochs,
        epochs_error,
        cuts: cuts::list(dir)?.into_iter().map(cut_aside).collect(),
        deleted: listing.deleted.iter().map(|(path, _)| name(path)).collect(),
        foreign: listing.foreign.iter().map(|path| name(path)).collect(),
    })
}

fn segment(listing: &Listing, files: &SegmentFiles) -> io::Result<Segment> {
    let base = files.base_offset;
    let last_offset = last::<OffsetEntry>(listing, base, FileKind::OffsetIndex)?;
    let last_time = last::<TimeEntry>(listing, base, FileKind::TimeIndex)?;
    let txn_bytes = files.others.get(&FileKind::TxnIndex).copied().unwrap_or(0);
    Ok(Segment {
        base_offset: base,
        bytes: files.log_bytes,
        index_entries: last_offset.map(|(count, _)| count),
        time_index_entries: last_time.map(|(count, _)| count),
        aborted_transactions: txn_bytes / TXN_ENTRY_LEN as u64,
        max_timestamp: last_time.and_then(|(_, last)| last).map(|entry| entry.timestamp),
    })
}

/// How many entries are in use, and the last of them; None: no such file.
fn last<E: Entry>(
    listing: &Listing,
    base: i64,
    kind: FileKind,
) -> io::Result<Option<(u64, Option<E>)>> {
    let file = match File::open(listing.path(base, kind)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = floor(&file, |_: &E| true)?;
    let entry = found.entry.filter(|entry| !entry.is_blank());
    Ok(Some((entry.map_or(0, |_| found.number + 1), entry)))
}

fn epochs(dir: &Path) -> Result<Vec<Epoch>, String> {
    let bytes = read_small(&dir.join(EPOCHS)).map_err(|error| error.to_string())?;
    let cache = EpochCache::parse(&bytes.unwrap_or_default()).map_err(|error| error.to_string())?;
    let entries = cache.entries().iter();
    Ok(entries.map(|e| Epoch { epoch: e.epoch, start_offset: e.start_offset }).collect())
}

/// From the last index entry of the last segment on, header by header.
fn log_end(listing: &Listing) -> io::Result<i64> {
    let Some(base) = listing.last_base() else { return Ok(0) };
    let log = File::open(listing.path(base, FileKind::Log))?;
    let indexed = last::<OffsetEntry>(listing, base, FileKind::OffsetIndex)?;
    let mut pos = indexed.and_then(|(_, last)| last).map_or(0, |entry| u64::from(entry.pos));
    let len = log.metadata()?.len();
    let mut end = base;
    while let Some(header) = header_at(&log, pos)? {
        let next = pos + header.total_len() as u64;
        if next > len || header.next_offset() <= end {
            break;
        }
        (pos, end) = (next, header.next_offset());
    }
    Ok(end)
}

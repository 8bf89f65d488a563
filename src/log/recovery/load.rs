//! What need not be scanned: sealed segments below the recovery point, and the active one after a
//! clean stop.
//!
//! Owns: how little is read to trust them. Never does: repairing; what looks wrong is scanned
//! instead. Left: `format::index`, `cursor`. Right: `open`.

use std::path::Path;

use super::cursor::FileCursor;
use super::files::{LogFiles, path_of};
use crate::format::index::{
    self, IndexBuilder, OFFSET_ENTRY_LEN, OffsetEntry, TIME_ENTRY_LEN, TimeEntry,
};
use crate::format::name::FileKind;
use crate::io::blocking::Blocking;
use crate::io::op::OpenHow;
use crate::io::{Errno, Io};
use crate::log::config::LogConfig;
use crate::log::segment::{Segment, SegmentIndex};
use crate::log::watermarks::Mark;
use crate::types::{Offset, WallMs};

/// An index that must be in memory may not be larger: it is rebuilt instead.
const INDEX_BYTES_MAX: usize = 64 << 20;

/// A sealed segment, its indexes left on the disk; `None` when one is missing or looks wrong (R12).
pub(super) fn sealed<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    log: &LogFiles,
    next_base: Offset,
    config: &LogConfig,
    now: WallMs,
) -> Result<Option<Segment>, Errno> {
    if !log.has_index || !log.has_time_index {
        return Ok(None);
    }
    let offset = path_of(dir, log.base, FileKind::OffsetIndex);
    let time = path_of(dir, log.base, FileKind::TimeIndex);
    let Some(last) = last_entry::<OFFSET_ENTRY_LEN, I>(b, &offset)? else { return Ok(None) };
    if last.is_some_and(|entry| u64::from(OffsetEntry::decode(entry).pos) >= log.len) {
        return Ok(None);
    }
    let Some(last) = last_entry::<TIME_ENTRY_LEN, I>(b, &time)? else { return Ok(None) };
    let index = SegmentIndex::on_disk(log.base, config, last.map(TimeEntry::decode));
    let end = Mark { end: next_base, pos: log.len };
    Ok(Some(Segment::stored(end, log.base, index, now)))
}

/// `None` when the file is not whole entries.
fn last_entry<const N: usize, I: Io>(
    b: &mut Blocking<'_, I>,
    path: &Path,
) -> Result<Option<Option<[u8; N]>>, Errno> {
    let file = b.open(path, OpenHow::default())?;
    let mut entry = [0; N];
    let read = b.len(file).and_then(|len| {
        let Some(pos) = len.checked_sub(N as u64) else { return Ok((len, 0)) };
        b.read_at(file, pos, &mut entry).map(|read| (len, read))
    });
    b.close(file)?;
    Ok(match read? {
        (0, _) => Some(None),
        (len, read) if len.is_multiple_of(N as u64) && read == N => Some(Some(entry)),
        _ => None,
    })
}

/// The active segment after a clean stop: only what lies behind the last index entry is read.
#[derive(Debug)]
pub(super) struct Active {
    pub end: Mark,
    pub index: SegmentIndex,
    pub first_timestamp: Option<WallMs>,
}

/// `None` when its indexes or its tail are not what a clean stop leaves.
pub(super) fn active<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    log: &LogFiles,
    cursor: &mut FileCursor,
    config: &LogConfig,
) -> Result<Option<Active>, Errno> {
    let offset = b.read_file(&path_of(dir, log.base, FileKind::OffsetIndex), INDEX_BYTES_MAX)?;
    let time = b.read_file(&path_of(dir, log.base, FileKind::TimeIndex), INDEX_BYTES_MAX)?;
    let (Some(offset), Some(time)) = (offset, time) else { return Ok(None) };
    let sound = index::check_offset_index(&offset, log.len).is_ok()
        && index::check_time_index(&time).is_ok();
    if !sound {
        return Ok(None);
    }
    let mut builder = IndexBuilder::resume(log.base.get(), config.index_limits(), &offset, &time);
    let from = index::offset_entries(&offset).next_back().map_or(0, |entry| u64::from(entry.pos));
    let mut end = Mark { end: log.base, pos: from };
    while end.pos < log.len {
        let Ok(header) = cursor.verify(b, end.pos)? else { return Ok(None) };
        let next = Offset::new(header.next_offset()).filter(|next| *next > end.end);
        let Some(next) = next.filter(|_| header.base_offset >= end.end.get()) else {
            return Ok(None);
        };
        builder.on_stored(header.last_offset(), header.max_timestamp);
        end = Mark { end: next, pos: end.pos + header.total_len() as u64 };
    }
    let first = match log.len {
        0 => None,
        _ => cursor.header(b, 0)?.ok().map(|header| header.max_timestamp),
    };
    let index = SegmentIndex::held(builder, offset, time);
    Ok(Some(Active { end, index, first_timestamp: first.filter(|time| *time >= 0) }))
}

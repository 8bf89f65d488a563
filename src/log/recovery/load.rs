//! What need not be scanned: sealed segments below the recovery point, and the active one after a
//! clean stop.
//!
//! Owns: how little is read to trust them. Never does: repairing; what looks wrong is scanned
//! instead. Left: `format::index`, `cursor`. Right: `open`.

use std::path::Path;

use super::OpenParams;
use super::cursor::FileCursor;
use super::files::{LogFiles, path_of};
use crate::format::index::{self, IndexBuilder, IndexFault, OFFSET_ENTRY_LEN, TIME_ENTRY_LEN};
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

/// Why a sealed segment's indexes are made anew.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsound {
    #[error("a file is missing")]
    Missing,
    #[error(transparent)]
    Fault(#[from] IndexFault),
}

/// A sealed segment, its indexes left on the disk, unless one is missing or unsound (R12). After a
/// clean stop only their last entries are looked at; after another one all.
pub(super) fn sealed<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    log: &LogFiles,
    next_base: Offset,
    params: &OpenParams,
    now: WallMs,
) -> Result<Result<Segment, Unsound>, Errno> {
    if !log.has_index || !log.has_time_index {
        return Ok(Err(Unsound::Missing));
    }
    let whole = !params.clean;
    let offset = path_of(dir, log.base, FileKind::OffsetIndex);
    let offset = entries::<OFFSET_ENTRY_LEN, I>(b, &offset, whole)?;
    let time = path_of(dir, log.base, FileKind::TimeIndex);
    let time = entries::<TIME_ENTRY_LEN, I>(b, &time, whole)?;
    let sound = |offset: &[u8], time: &[u8]| {
        index::check_offset_index(offset, log.len).and_then(|()| index::check_time_index(time))
    };
    let (offset, time) = match (offset, time) {
        (Ok(offset), Ok(time)) => (offset, time),
        (Err(fault), _) | (_, Err(fault)) => return Ok(Err(fault.into())),
    };
    if let Err(fault) = sound(&offset, &time) {
        return Ok(Err(fault.into()));
    }
    let last = index::time_entries(&time).next_back();
    let index = SegmentIndex::on_disk(log.base, &params.config, last);
    let end = Mark { end: next_base, pos: log.len };
    Ok(Ok(Segment::stored(end, log.base, index, now)))
}

/// All entries of an index file, or the last one.
fn entries<const N: usize, I: Io>(
    b: &mut Blocking<'_, I>,
    path: &Path,
    whole: bool,
) -> Result<Result<Vec<u8>, IndexFault>, Errno> {
    let file = b.open(path, OpenHow::default())?;
    let read = b.len(file).and_then(|len| {
        let want = if whole { len.min(INDEX_BYTES_MAX as u64) } else { len.min(N as u64) };
        let mut bytes = vec![0; want as usize];
        let read = b.read_at(file, len - want, &mut bytes)?;
        bytes.truncate(read);
        Ok((len, bytes))
    });
    b.close(file)?;
    let (len, bytes) = read?;
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    Ok(match len.is_multiple_of(N) && len <= INDEX_BYTES_MAX {
        true => Ok(bytes),
        false => Err(IndexFault::Length { len, entry_len: N }),
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

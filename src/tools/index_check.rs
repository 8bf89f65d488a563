//! An index file beside its log, entry by entry, as `kafka-dump-log` looks at them.
//!
//! Owns: what the log has where an entry points. Never does: judge whether lookups still work
//! (`verify` does). Left: `index_file`, `source`. Right: the CLI's dump.

use std::fs::File;
use std::io;
use std::path::Path;

use super::index_file::floor;
use super::source::{Source, read_full};
use crate::format::batch::{BatchHeader, HEADER_LEN};
use crate::format::index::{OffsetEntry, TimeEntry};
use crate::format::name::{FileKind, SegmentFile};
use crate::format::stored;

/// The log that an index belongs to, and the offset index beside it.
#[derive(Debug)]
pub struct Beside {
    log: File,
    index: Option<File>,
    base_offset: i64,
    /// Where the last search ended: the next one need not begin before it.
    found: (i64, u64),
}

/// What is wrong with a time entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeMismatch {
    /// The batch that it points at has another maximum.
    Timestamp { log: i64 },
    /// Its offset is not the last one of any batch; the batch behind it ends at `log` (-1: none).
    Offset { log: i64 },
}

impl Beside {
    /// None if there is no log beside the file at `path`.
    pub fn open(path: &Path, file: SegmentFile) -> Option<Beside> {
        let sibling =
            |kind| File::open(path.with_file_name(SegmentFile { kind, ..file }.to_string()));
        let log = sibling(FileKind::Log).ok()?;
        let index = sibling(FileKind::OffsetIndex).ok();
        Some(Beside { log, index, base_offset: file.offset, found: (i64::MIN, 0) })
    }

    /// The last offset of the batch at an entry's position, if it is not the entry's.
    pub fn offset_mismatch(&self, entry: OffsetEntry) -> io::Result<Option<i64>> {
        let offset = self.base_offset.saturating_add(i64::from(entry.relative_offset));
        let last = self.header(u64::from(entry.pos))?.map_or(-1, |header| header.last_offset());
        Ok((last != offset).then_some(last))
    }

    pub fn time_mismatch(&mut self, entry: TimeEntry) -> io::Result<Option<TimeMismatch>> {
        let offset = self.base_offset.saturating_add(i64::from(entry.relative_offset));
        let mut pos = self.begin(offset, entry)?;
        while let Some(header) = self.header(pos)? {
            if header.last_offset() < offset {
                pos += header.total_len() as u64;
                continue;
            }
            self.found = (offset, pos);
            let (log, max) = (header.last_offset(), header.max_timestamp);
            return Ok(match log == offset {
                false => Some(TimeMismatch::Offset { log }),
                true if max != entry.timestamp => Some(TimeMismatch::Timestamp { log: max }),
                true => None,
            });
        }
        Ok(Some(TimeMismatch::Offset { log: -1 }))
    }

    fn begin(&self, offset: i64, entry: TimeEntry) -> io::Result<u64> {
        let before = if self.found.0 <= offset { self.found.1 } else { 0 };
        let Some(index) = &self.index else { return Ok(before) };
        let at_or_below = |e: &OffsetEntry| e.relative_offset <= entry.relative_offset;
        let from = floor(index, at_or_below)?.entry.map_or(0, |entry| u64::from(entry.pos));
        Ok(before.max(from))
    }

    fn header(&self, pos: u64) -> io::Result<Option<BatchHeader>> {
        header_at(&self.log, pos)
    }
}

/// The header at a position; none where no batch begins.
pub fn header_at(log: &impl Source, pos: u64) -> io::Result<Option<BatchHeader>> {
    let mut head = [0; HEADER_LEN];
    let read = read_full(log, &mut head, pos)?;
    Ok(stored::parse_header(&head[..read]).ok())
}

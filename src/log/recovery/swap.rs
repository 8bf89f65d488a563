//! A broker's compaction or split that was interrupted: finished where its new segments were whole,
//! undone where they were not (R53).
//!
//! Owns: `.cleaned` and `.swap` files, and the order in which they and what they replace come and
//! go. A crash between any two steps leads to the same end. Never does: compacting.
//! Left: `cursor`, `io::blocking`. Right: `files`.
//!
//! ```text
//! B.log.cleaned  being written: worthless. While one is there, a .swap at or above it is too, for
//!                the names were changed from the last segment back to the first
//! B.log.swap     whole and synced: it takes the place of every file in its range of offsets
//! ```

use std::path::Path;

use super::cursor::FileCursor;
use super::{Fault, OpenError, cut};
use crate::format::name::{FileKind, FileState, SegmentFile};
use crate::io::Io;
use crate::io::blocking::Blocking;
use crate::io::op::OpenHow;

/// Settles what is there, by name; says whether the directory has changed.
pub(super) fn settle<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    files: &[SegmentFile],
) -> Result<bool, OpenError> {
    let of = |state| files.iter().filter(move |file| file.state == state);
    let unfinished = of(FileState::Cleaned).map(|file| file.offset).min();
    let (undone, mut whole): (Vec<_>, Vec<_>) = of(FileState::Swap)
        .copied()
        .partition(|swap| unfinished.is_some_and(|from| swap.offset >= from));
    remove_all(b, dir, undone.iter())?;
    remove_all(b, dir, of(FileState::Cleaned))?;
    if !whole.is_empty() {
        finish(b, dir, files, &mut whole)?;
    }
    Ok(unfinished.is_some() || !whole.is_empty())
}

/// Gone for good before anything else happens: a name that came back would change its meaning.
fn remove_all<'f, I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    files: impl Iterator<Item = &'f SegmentFile>,
) -> Result<(), OpenError> {
    let mut removed = false;
    for file in files {
        cut::remove(b, &dir.join(file.to_string()))?;
        removed = true;
    }
    if removed {
        b.sync_dir(dir).map_err(OpenError::io("syncing", dir))?;
    }
    Ok(())
}

/// The new segments take the place of the old ones. First everything is read that is to stay.
fn finish<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    files: &[SegmentFile],
    swaps: &mut [SegmentFile],
) -> Result<(), OpenError> {
    let mut range: Option<(i64, i64)> = None;
    for swap in swaps.iter().filter(|swap| swap.kind == FileKind::Log) {
        let end = end_of(b, &dir.join(swap.to_string()), swap.offset)?;
        let (low, high) = range.unwrap_or((swap.offset, end));
        range = Some((low.min(swap.offset), high.max(end)));
    }
    let replaced = |file: &&SegmentFile| {
        file.state == FileState::Live
            && range.is_some_and(|(low, high)| (low..high).contains(&file.offset))
    };
    remove_all(b, dir, files.iter().filter(replaced))?;
    // A segment's log first: once its range is no longer known, its index must not be old.
    swaps.sort_by_key(|swap| (swap.offset, swap.kind != FileKind::Log));
    for swap in swaps.iter() {
        let from = dir.join(swap.to_string());
        let to = dir.join(SegmentFile::live(swap.offset, swap.kind).to_string());
        b.rename(&from, &to).map_err(OpenError::io("renaming", from))?;
    }
    b.sync_dir(dir).map_err(OpenError::io("syncing", dir))?;
    let (dir, segments) = (dir.display(), swaps.iter().filter(|s| s.kind == FileKind::Log).count());
    tracing::warn!(%dir, segments, ?range, "finished a compaction that was interrupted");
    Ok(())
}

/// Behind the last batch of a new segment, all of which must be sound: what it replaces is removed
/// on the strength of that.
fn end_of<I: Io>(b: &mut Blocking<'_, I>, path: &Path, base: i64) -> Result<i64, OpenError> {
    let file =
        b.open(path, OpenHow::default()).map_err(OpenError::io("opening", path.to_path_buf()))?;
    let read = b.len(file).and_then(|len| {
        let mut cursor = FileCursor::new(file, len);
        let (mut pos, mut next) = (0, base);
        while pos < len {
            let header = match cursor.verify(b, pos)? {
                Ok(header) => header,
                Err(fault) => return Ok(Err((pos, fault))),
            };
            next = next.max(header.next_offset());
            pos += header.total_len() as u64;
        }
        Ok(Ok(next))
    });
    b.close(file).map_err(OpenError::io("closing", path))?;
    let unsound = |(pos, fault): (u64, Fault)| OpenError::Swap { path: path.into(), pos, fault };
    read.map_err(OpenError::io("reading", path))?.map_err(unsound)
}

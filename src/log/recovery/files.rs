//! What lies in a partition's directory, by name.
//!
//! Owns: the listing, and taking away what never counts (leftovers, orphans). Never does: reading
//! batches. Left: `format::name`, `io::blocking`. Right: `open`.

use std::path::{Path, PathBuf};

use super::{OpenError, cut, swap};
use crate::format::cut_name::CutFile;
use crate::format::name::{FileKind, FileState, SegmentFile, file_name};
use crate::io::Io;
use crate::io::blocking::Blocking;
use crate::types::{Offset, WallMs};

/// A `.log` and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogFiles {
    pub base: Offset,
    pub len: u64,
    /// When the file was last written to.
    pub modified_ms: WallMs,
    pub has_index: bool,
    pub has_time_index: bool,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    /// In offset order.
    pub logs: Vec<LogFiles>,
    /// Offsets of producer snapshots.
    pub snapshots: Vec<i64>,
    /// Bytes of all side files: what earlier recoveries cut.
    pub kept_aside: u64,
}

pub(super) fn path_of(dir: &Path, base: Offset, kind: FileKind) -> PathBuf {
    dir.join(file_name(base.get(), kind))
}

fn list<I: Io>(b: &mut Blocking<'_, I>, dir: &Path) -> Result<Vec<SegmentFile>, OpenError> {
    let entries = b.list(dir).map_err(OpenError::io("listing", dir))?;
    let files = entries.iter().filter(|entry| !entry.is_dir);
    Ok(files.filter_map(|entry| SegmentFile::parse(&entry.name)).collect())
}

/// Bytes of all side files.
fn kept_aside<I: Io>(b: &mut Blocking<'_, I>, dir: &Path) -> Result<u64, OpenError> {
    let mut bytes = 0;
    for entry in b.list(dir).map_err(OpenError::io("listing", dir))? {
        if CutFile::parse(&entry.name).is_some() {
            let path = dir.join(&entry.name);
            bytes += b.stat(&path).map_err(OpenError::io("looking at", &path))?.len;
        }
    }
    Ok(bytes)
}

/// Lists the directory. What an interrupted deletion left goes, and so do indexes without their
/// log; an interrupted compaction is finished or undone.
pub(super) fn find<I: Io>(b: &mut Blocking<'_, I>, dir: &Path) -> Result<Found, OpenError> {
    let mut files = list(b, dir)?;
    for file in files.iter().filter(|file| file.state == FileState::Deleted) {
        cut::remove(b, &dir.join(file.to_string()))?;
    }
    if swap::settle(b, dir, &files)? {
        files = list(b, dir)?;
    }
    files.retain(|file| file.state == FileState::Live);
    let mut found = Found { kept_aside: kept_aside(b, dir)?, ..Found::default() };
    let has = |base: i64, kind| files.contains(&SegmentFile::live(base, kind));
    for file in &files {
        let path = dir.join(file.to_string());
        let base = Offset::new(file.offset).unwrap_or(Offset::ZERO);
        match file.kind {
            FileKind::Log => {
                let stat = b.stat(&path).map_err(OpenError::io("looking at", &path))?;
                found.logs.push(LogFiles {
                    base,
                    len: stat.len,
                    modified_ms: stat.modified_ms,
                    has_index: has(file.offset, FileKind::OffsetIndex),
                    has_time_index: has(file.offset, FileKind::TimeIndex),
                });
            }
            FileKind::Snapshot => found.snapshots.push(file.offset),
            _ if has(file.offset, FileKind::Log) => {}
            _ => b.unlink(&path).map_err(OpenError::io("removing", path))?,
        }
    }
    found.logs.sort_by_key(|log| log.base);
    Ok(found)
}

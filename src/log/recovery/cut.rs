//! Taking away what does not count, so that nothing of it can come back (D4, D6, R10), and
//! keeping it aside.
//!
//! Owns: side files and the order of steps: later segments first, from the last one back, each
//! name synced; then the tail, copied and synced before it is truncated. A crash in between finds
//! the same tear again. Never does: deciding what counts. Left: `io::blocking`. Right: `open`.

use std::path::{Path, PathBuf};

use super::OpenError;
use super::files::path_of;
use crate::format::cut_name::{CutFile, CutReason};
use crate::format::name::FileKind;
use crate::io::blocking::Blocking;
use crate::io::op::OpenHow;
use crate::io::{Errno, FileId, Io};
use crate::types::Offset;

/// Bytes copied at once.
const STEP_BYTES: u64 = 1 << 20;
/// Side files of one position; more mean that something cuts the same spot again and again.
const SIDE_FILES_MAX: u32 = 100;

/// What is taken out: of which segment, from where on, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub base: Offset,
    pub pos: u64,
    pub reason: CutReason,
}

/// A name that no broker takes for a segment, and that is not taken yet.
fn side_path<I: Io>(b: &mut Blocking<'_, I>, dir: &Path, at: At) -> Result<PathBuf, Errno> {
    let At { base, pos, reason } = at;
    for number in 0..SIDE_FILES_MAX {
        let name = CutFile { base_offset: base.get(), pos, reason, number };
        let path = dir.join(name.to_string());
        match b.stat(&path) {
            Err(Errno::ENOENT) => return Ok(path),
            Err(errno) => return Err(errno),
            Ok(_) => {}
        }
    }
    Err(Errno::EEXIST)
}

/// Sets a whole segment aside by renaming its log; its indexes go.
pub(super) fn set_aside<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    base: Offset,
    reason: CutReason,
) -> Result<PathBuf, OpenError> {
    let log = path_of(dir, base, FileKind::Log);
    let side = side_path(b, dir, At { base, pos: 0, reason })
        .map_err(OpenError::io("setting aside", &log))?;
    b.rename(&log, &side).map_err(OpenError::io("setting aside", &log))?;
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TxnIndex] {
        remove(b, &path_of(dir, base, kind))?;
    }
    b.sync_dir(dir).map_err(OpenError::io("syncing", dir))?;
    Ok(side)
}

pub(super) fn remove<I: Io>(b: &mut Blocking<'_, I>, path: &Path) -> Result<(), OpenError> {
    match b.unlink(path) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(OpenError::io("removing", path)(errno)),
    }
}

/// Copies what lies behind `pos` to a side file, synced, then truncates. The caller syncs the log.
/// ENOSPC leaves everything as it was (D12, R21).
pub(super) fn cut_tail<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    at: At,
    file: FileId,
    len: u64,
) -> Result<PathBuf, OpenError> {
    let log = path_of(dir, at.base, FileKind::Log);
    let side = side_path(b, dir, at).map_err(OpenError::io("setting aside", &log))?;
    if let Err(errno) = copy(b, file, at.pos, len, &side) {
        remove(b, &side)?;
        return Err(OpenError::io("writing", side)(errno));
    }
    b.sync_dir(dir).map_err(OpenError::io("syncing", dir))?;
    b.truncate(file, at.pos).map_err(OpenError::io("truncating", log))?;
    Ok(side)
}

fn copy<I: Io>(
    b: &mut Blocking<'_, I>,
    from: FileId,
    pos: u64,
    len: u64,
    side: &Path,
) -> Result<(), Errno> {
    let how = OpenHow { write: true, create: true, truncate: true, ..OpenHow::default() };
    let into = b.open(side, how)?;
    let copied = copy_bytes(b, from, pos, len, into).and_then(|()| b.fdatasync(into));
    b.close(into)?;
    copied
}

fn copy_bytes<I: Io>(
    b: &mut Blocking<'_, I>,
    from: FileId,
    pos: u64,
    len: u64,
    into: FileId,
) -> Result<(), Errno> {
    let mut at = pos;
    let mut bytes = Vec::new();
    while at < len {
        bytes.resize((len - at).min(STEP_BYTES) as usize, 0);
        let read = b.read_at(from, at, &mut bytes)?;
        if read == 0 {
            break;
        }
        b.write_at(into, at - pos, &bytes[..read])?;
        at += read as u64;
    }
    Ok(())
}

//! Ops that are one blocking call on plain data: what a worker thread, or the caller itself, runs.
//!
//! Owns: [`Call`] (Send, no buffers), made from an op, run anywhere. Never does: socket or
//! buffer work, retries (a failed flush is never repeated, D11).
//! Left: `op`, `sys`, `files`. Right: `pool`, the engines.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::files::Files;
use super::op::{DirEntry, Errno, Op, OpenHow, Stat};
use super::sys::{self, errno_of};

/// A blocking call. Descriptors stay open because the engine holds the file for the op's time.
#[derive(Debug)]
pub enum Call {
    Open { path: PathBuf, how: OpenHow },
    Close(OwnedFd),
    Fdatasync(RawFd),
    SyncRange { fd: RawFd, pos: u64, len: u64 },
    DropCache(RawFd),
    Truncate { fd: RawFd, len: u64 },
    Len(RawFd),
    SyncDir(PathBuf),
    Rename { from: PathBuf, to: PathBuf },
    Unlink(PathBuf),
    CreateDir(PathBuf),
    RemoveDir(PathBuf),
    List(PathBuf),
    Stat(PathBuf),
}

/// What a call brought; an open file has no slot yet.
#[derive(Debug)]
pub enum Answer {
    Nothing,
    Opened(OwnedFd),
    Len(u64),
    Entries(Vec<DirEntry>),
    Stat(Stat),
}

impl Call {
    /// The call that carries `op` out; `None` when the op is not of this kind (sockets, buffers,
    /// timers, `Close`, which needs the table).
    pub fn of(op: &Op, files: &Files) -> Option<Result<Call, Errno>> {
        let call = match op {
            Op::Open { path, how } => Call::Open { path: path.clone(), how: *how },
            Op::Fdatasync { file } => return Some(files.fd(*file).map(Call::Fdatasync)),
            Op::SyncRange { file, pos, len } => {
                let (pos, len) = (*pos, *len);
                return Some(files.fd(*file).map(|fd| Call::SyncRange { fd, pos, len }));
            }
            Op::DropCache { file } => return Some(files.fd(*file).map(Call::DropCache)),
            Op::Truncate { file, len } => {
                return Some(files.fd(*file).map(|fd| Call::Truncate { fd, len: *len }));
            }
            Op::Len { file } => return Some(files.fd(*file).map(Call::Len)),
            Op::SyncDir { path } => Call::SyncDir(path.clone()),
            Op::Rename { from, to } => Call::Rename { from: from.clone(), to: to.clone() },
            Op::Unlink { path } => Call::Unlink(path.clone()),
            Op::CreateDir { path } => Call::CreateDir(path.clone()),
            Op::RemoveDir { path } => Call::RemoveDir(path.clone()),
            Op::List { path } => Call::List(path.clone()),
            Op::Stat { path } => Call::Stat(path.clone()),
            _ => return None,
        };
        Some(Ok(call))
    }

    /// May wait for the device, or for a lock that someone who waits for it holds.
    pub fn may_block(&self) -> bool {
        match self {
            Call::Open { how, .. } => how.create || how.truncate,
            Call::Len(_) => false,
            _ => true,
        }
    }

    pub fn run(self) -> Result<Answer, Errno> {
        let nothing = |()| Answer::Nothing;
        let std_nothing = |result: std::io::Result<()>| {
            result.map(|()| Answer::Nothing).map_err(|error| errno_of(&error))
        };
        match self {
            Call::Open { path, how } => sys::open(&path, how).map(Answer::Opened),
            Call::Close(fd) => sys::close(fd).map(nothing),
            Call::Fdatasync(fd) => sys::fdatasync(fd).map(nothing),
            Call::SyncRange { fd, pos, len } => sys::sync_range(fd, pos, len).map(nothing),
            Call::DropCache(fd) => sys::drop_cache(fd).map(nothing),
            Call::Truncate { fd, len } => sys::truncate(fd, len).map(nothing),
            Call::Len(fd) => sys::file_len(fd).map(Answer::Len),
            Call::SyncDir(path) => sync_dir(&path).map(nothing),
            Call::Rename { from, to } => std_nothing(std::fs::rename(from, to)),
            Call::Unlink(path) => std_nothing(std::fs::remove_file(path)),
            Call::CreateDir(path) => std_nothing(std::fs::create_dir(path)),
            Call::RemoveDir(path) => std_nothing(std::fs::remove_dir(path)),
            Call::List(path) => list(&path).map(Answer::Entries),
            Call::Stat(path) => stat(&path).map(Answer::Stat),
        }
    }
}

fn sync_dir(path: &Path) -> Result<(), Errno> {
    let dir = sys::open_dir(path)?;
    sys::fsync(dir.as_raw_fd())
}

fn list(path: &Path) -> Result<Vec<DirEntry>, Errno> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|e| errno_of(&e))? {
        let entry = entry.map_err(|e| errno_of(&e))?;
        // An entry that vanished between the two calls is not one.
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        entries.push(DirEntry { name, is_dir: kind.is_dir() });
    }
    Ok(entries)
}

fn stat(path: &Path) -> Result<Stat, Errno> {
    let meta = std::fs::metadata(path).map_err(|e| errno_of(&e))?;
    let modified_ms = meta.mtime() * 1000 + meta.mtime_nsec() / 1_000_000;
    Ok(Stat { len: meta.len(), is_dir: meta.is_dir(), modified_ms })
}

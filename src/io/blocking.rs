//! The seam for code that may wait: one op at a time, each to its end.
//!
//! Owns: submit-and-wait over any engine, and the file helpers that recovery and the control
//! thread use. Never does: hot-path work (a shard that serves never calls this except to open a
//! partition). Left: `op`, the engines. Right: `log::recovery`, `server`.
//!
//! Completions of other ops that arrive meanwhile are kept in `foreign`, never lost.

use std::path::{Path, PathBuf};

use super::buffers::{Group, Pool};
use super::op::{DirEntry, Done, Errno, FileId, Io, Op, OpenHow, Outcome, Stat, Tag, Wait};

/// Largest single read or write of the helpers here.
const STEP_BYTES: usize = 1 << 20;

/// Marks ops of this module; no other submitter uses this tag.
pub const TAG: Tag = Tag(u64::MAX);

/// An engine borrowed to wait on.
pub struct Blocking<'a, I: Io> {
    pub io: &'a mut I,
    pool: Pool,
    /// Completions of others that came while waiting here; the owner handles them afterwards.
    pub foreign: Vec<Done>,
}

impl<'a, I: Io> Blocking<'a, I> {
    /// `pool` must have room for one window of a megabyte.
    pub fn new(io: &'a mut I, pool: Pool) -> Self {
        Blocking { io, pool, foreign: Vec::new() }
    }

    /// Carries one op out; gives the op back with its outcome.
    pub fn run(&mut self, op: Op) -> Result<(Outcome, Op), Errno> {
        let mut op = op;
        let mut done = Vec::new();
        loop {
            match self.io.submit(op, TAG) {
                Ok(_) => break,
                Err(refused) => {
                    op = refused.op;
                    self.io.reap(Wait::Forever, &mut done)?;
                    self.foreign.append(&mut done);
                }
            }
        }
        loop {
            self.io.reap(Wait::Forever, &mut done)?;
            let mut mine = None;
            for one in done.drain(..) {
                match one.tag == TAG {
                    true => mine = Some(one),
                    false => self.foreign.push(one),
                }
            }
            if let Some(one) = mine {
                return one.result.map(|outcome| (outcome, one.op));
            }
        }
    }

    fn run_plain(&mut self, op: Op) -> Result<(), Errno> {
        self.run(op).map(|_| ())
    }

    pub fn open(&mut self, path: &Path, how: OpenHow) -> Result<FileId, Errno> {
        match self.run(Op::Open { path: path.to_path_buf(), how })?.0 {
            Outcome::File(file) => Ok(file),
            other => unreachable!("open gave {other:?}"),
        }
    }

    pub fn close(&mut self, file: FileId) -> Result<(), Errno> {
        self.run_plain(Op::Close { file })
    }

    /// Reads up to `buf.len()` bytes at `pos`; short only at the end of the file.
    pub fn read_at(&mut self, file: FileId, pos: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let mut read = 0;
        while read < buf.len() {
            let max = (buf.len() - read).min(STEP_BYTES);
            let into = self.pool.window(max).ok_or(Errno(libc::ENOMEM))?;
            let op = Op::Read { file, pos: pos + read as u64, max: max as u32, into };
            let (n, into) = match self.run(op) {
                Ok((Outcome::Bytes(n), Op::Read { into, .. })) => (n as usize, into),
                Ok(other) => unreachable!("read gave {other:?}"),
                Err(errno) if errno.is_transient() => continue,
                Err(errno) => return Err(errno),
            };
            if n == 0 {
                break;
            }
            buf[read..read + n].copy_from_slice(&into.bytes()[..n]);
            read += n;
        }
        Ok(read)
    }

    /// Writes all of `bytes` at `pos`, resuming short writes.
    pub fn write_at(&mut self, file: FileId, pos: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut written = 0;
        while written < bytes.len() {
            let end = bytes.len().min(written + STEP_BYTES);
            let slice = self.pool.copied(&bytes[written..end]).ok_or(Errno(libc::ENOMEM))?;
            let op = Op::Write { file, pos: pos + written as u64, bufs: Group::of(slice) };
            match self.run(op) {
                Ok((Outcome::Bytes(0), _)) => return Err(Errno::EIO),
                Ok((Outcome::Bytes(n), _)) => written += n as usize,
                Ok(other) => unreachable!("write gave {other:?}"),
                Err(errno) if errno.is_transient() => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// The whole of a small file, or `None` if it is missing. EFBIG past `bytes_max`.
    pub fn read_file(&mut self, path: &Path, bytes_max: usize) -> Result<Option<Vec<u8>>, Errno> {
        let file = match self.open(path, OpenHow::default()) {
            Ok(file) => file,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let read = self.len(file).and_then(|len| {
            if len > bytes_max as u64 {
                return Err(Errno(libc::EFBIG));
            }
            let mut bytes = vec![0; len as usize];
            let n = self.read_at(file, 0, &mut bytes)?;
            bytes.truncate(n);
            Ok(bytes)
        });
        self.close(file)?;
        read.map(Some)
    }

    /// Replaces a small file so that a crash leaves the old or the new one, whole: write beside
    /// it, sync, rename over it, sync the directory.
    pub fn replace_file(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Errno> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".tmp");
        let beside = PathBuf::from(beside);
        let how = OpenHow { write: true, create: true, truncate: true, ..OpenHow::default() };
        let file = self.open(&beside, how)?;
        let written = self.write_at(file, 0, bytes).and_then(|()| self.fdatasync(file));
        self.close(file)?;
        written?;
        self.rename(&beside, path)?;
        self.sync_dir(path.parent().unwrap_or(Path::new(".")))
    }

    pub fn len(&mut self, file: FileId) -> Result<u64, Errno> {
        match self.run(Op::Len { file })?.0 {
            Outcome::Len(len) => Ok(len),
            other => unreachable!("len gave {other:?}"),
        }
    }

    pub fn stat(&mut self, path: &Path) -> Result<Stat, Errno> {
        match self.run(Op::Stat { path: path.to_path_buf() })?.0 {
            Outcome::Stat(stat) => Ok(stat),
            other => unreachable!("stat gave {other:?}"),
        }
    }

    /// Entries of a directory, sorted by name.
    pub fn list(&mut self, path: &Path) -> Result<Vec<DirEntry>, Errno> {
        match self.run(Op::List { path: path.to_path_buf() })?.0 {
            Outcome::Entries(mut entries) => {
                entries.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(entries)
            }
            other => unreachable!("list gave {other:?}"),
        }
    }

    pub fn fdatasync(&mut self, file: FileId) -> Result<(), Errno> {
        self.run_plain(Op::Fdatasync { file })
    }

    pub fn drop_cache(&mut self, file: FileId) -> Result<(), Errno> {
        self.run_plain(Op::DropCache { file })
    }

    pub fn truncate(&mut self, file: FileId, len: u64) -> Result<(), Errno> {
        self.run_plain(Op::Truncate { file, len })
    }

    pub fn sync_dir(&mut self, path: &Path) -> Result<(), Errno> {
        self.run_plain(Op::SyncDir { path: path.to_path_buf() })
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        self.run_plain(Op::Rename { from: from.to_path_buf(), to: to.to_path_buf() })
    }

    pub fn unlink(&mut self, path: &Path) -> Result<(), Errno> {
        self.run_plain(Op::Unlink { path: path.to_path_buf() })
    }

    pub fn create_dir(&mut self, path: &Path) -> Result<(), Errno> {
        self.run_plain(Op::CreateDir { path: path.to_path_buf() })
    }

    pub fn remove_dir(&mut self, path: &Path) -> Result<(), Errno> {
        self.run_plain(Op::RemoveDir { path: path.to_path_buf() })
    }
}

//! The seam itself: operations, their outcomes, and the trait the engines implement.
//!
//! Owns: plain data. Never does: a system call. Left: `types`, `buffers`. Right: the engines,
//! `log`, `shard`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::buffers::{Group, Window};
use crate::types::{Micros, WallMs};

/// An open file, socket or listener of one engine: a slot of its table and that slot's
/// generation, so that a stale id is refused (EBADF), never taken for the slot's next user.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub slot: u32,
    pub generation: u32,
}

/// The submitter's own word; comes back in [`Done`] unread.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);

/// An accepted op, for [`Op::Cancel`]. Stale tokens are harmless: they find nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// How [`Op::Open`] opens. Files are never opened in append mode (R66): every write says where.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct OpenHow {
    pub write: bool,
    /// Create it if missing.
    pub create: bool,
    /// With `create`: fail with EEXIST if it is there.
    pub exclusive: bool,
    /// Cut it to nothing.
    pub truncate: bool,
    /// O_DIRECT: positions, lengths and memory aligned to the device's block.
    pub direct: bool,
}

/// One request to the kernel. Buffers travel inside and come back in [`Done`].
#[derive(Debug)]
pub enum Op {
    /// -> [`Outcome::Accepted`]; the new socket is non-blocking with TCP_NODELAY.
    Accept {
        listener: FileId,
    },
    /// Fills spare room of `into` -> [`Outcome::Bytes`]; 0 = the peer closed.
    Recv {
        socket: FileId,
        into: Window,
    },
    /// Sends what is left of `bufs` -> `Bytes`, may be short. `more` = MSG_MORE.
    Send {
        socket: FileId,
        bufs: Group,
        more: bool,
    },
    /// sendfile(2) of resident ranges -> `Bytes`, may be short; waits while the socket is full.
    Sendfile {
        socket: FileId,
        file: FileId,
        pos: u64,
        len: u32,
    },
    /// shutdown(2) both ways: pending receives and sends finish. -> `Nothing`
    Shutdown {
        socket: FileId,
    },
    /// -> [`Outcome::File`]
    Open {
        path: PathBuf,
        how: OpenHow,
    },
    /// Gives the slot back -> `Nothing`. Ops still in flight on it keep the file alive.
    Close {
        file: FileId,
    },
    /// Fills at most `max` bytes of spare room -> `Bytes`; short at the end of the file, 0 = end.
    Read {
        file: FileId,
        pos: u64,
        max: u32,
        into: Window,
    },
    /// Writes what is left of `bufs` at `pos` -> `Bytes`, may be short.
    Write {
        file: FileId,
        pos: u64,
        bufs: Group,
    },
    /// -> `Nothing`. After an error the unsynced suffix is lost; never retry (D11).
    Fdatasync {
        file: FileId,
    },
    /// Starts write-back of a range, no promise of any kind -> `Nothing`.
    SyncRange {
        file: FileId,
        pos: u64,
        len: u64,
    },
    /// Drops clean cached pages of the file (POSIX_FADV_DONTNEED) -> `Nothing`.
    DropCache {
        file: FileId,
    },
    /// -> `Nothing`
    Truncate {
        file: FileId,
        len: u64,
    },
    /// -> `Len` of an open file.
    Len {
        file: FileId,
    },
    /// fsync(2) of a directory: names created, renamed or removed in it become durable.
    SyncDir {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Unlink {
        path: PathBuf,
    },
    /// mkdir(2), one level. EEXIST if there.
    CreateDir {
        path: PathBuf,
    },
    /// rmdir(2), must be empty.
    RemoveDir {
        path: PathBuf,
    },
    /// -> [`Outcome::Entries`], without `.` and `..`, in no order.
    List {
        path: PathBuf,
    },
    /// -> [`Outcome::Stat`]
    Stat {
        path: PathBuf,
    },
    /// -> `Nothing` once the clock has reached `at`; ECANCELED if cancelled.
    Timeout {
        at: Micros,
    },
    /// Asks that an op end early -> `Nothing`, or ENOENT if it was not found. The op itself still
    /// completes exactly once: with its result, or with ECANCELED.
    Cancel {
        token: Token,
    },
}

/// What an op that succeeded brought.
#[derive(Debug)]
pub enum Outcome {
    Nothing,
    Bytes(u32),
    Len(u64),
    File(FileId),
    Accepted { socket: FileId, peer: Option<SocketAddr> },
    Entries(Vec<DirEntry>),
    Stat(Stat),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name as the file system has it; names that are not UTF-8 come with U+FFFD.
    pub name: String,
    pub is_dir: bool,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub len: u64,
    pub is_dir: bool,
    pub modified_ms: WallMs,
}

/// A finished op: the submitter's tag, the op with all its buffers, and how it went.
/// After `Recv` and `Read` the window's filled part has grown; after `Write` and `Send` the group
/// has NOT advanced: the submitter decides (short-write resume).
#[derive(Debug)]
pub struct Done {
    pub tag: Tag,
    pub op: Op,
    pub result: Result<Outcome, Errno>,
}

/// A submit that did not happen: the engine's queue is full. Reap, then try again.
#[derive(Debug)]
pub struct Refused {
    pub op: Op,
}

/// An error number of the kernel, always positive.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    pub const EINTR: Errno = Errno(libc::EINTR);
    pub const EAGAIN: Errno = Errno(libc::EAGAIN);
    pub const EIO: Errno = Errno(libc::EIO);
    pub const EBADF: Errno = Errno(libc::EBADF);
    pub const ENOENT: Errno = Errno(libc::ENOENT);
    pub const EEXIST: Errno = Errno(libc::EEXIST);
    pub const ENOSPC: Errno = Errno(libc::ENOSPC);
    pub const EDQUOT: Errno = Errno(libc::EDQUOT);
    pub const ECANCELED: Errno = Errno(libc::ECANCELED);
    pub const EINVAL: Errno = Errno(libc::EINVAL);
    pub const EACCES: Errno = Errno(libc::EACCES);
    pub const ENOTDIR: Errno = Errno(libc::ENOTDIR);

    /// The error of the last system call of this thread.
    pub fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// No space left, by quota or device: the one write error a partition survives (D12).
    pub fn is_no_space(self) -> bool {
        self == Errno::ENOSPC || self == Errno::EDQUOT
    }

    /// Too many open files, of the process or the system: a bound of this machine, not of a disk.
    pub fn is_no_descriptors(self) -> bool {
        self == Errno(libc::EMFILE) || self == Errno(libc::ENFILE)
    }

    /// Worth the same op again.
    pub fn is_transient(self) -> bool {
        self == Errno::EINTR || self == Errno::EAGAIN
    }
}

/// A CQE's `res`: a count, or an error number with its sign turned. The one place that knows.
pub fn check(res: i32) -> Result<u32, Errno> {
    u32::try_from(res).map_err(|_| Errno(res.checked_neg().unwrap_or(libc::EIO)))
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {})", self.0, self)
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        std::io::Error::from_raw_os_error(errno.0)
    }
}

/// How long [`Io::reap`] may sleep when nothing has completed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: hand out what is there.
    No,
    /// Until a completion, a wake-up or this time.
    Until(Micros),
    /// Until a completion or a wake-up.
    Forever,
}

/// Wakes a sleeping [`Io::reap`] from any thread. Spurious wake-ups are allowed, lost ones not.
#[derive(Clone)]
pub struct Waker(pub Arc<dyn Fn() + Send + Sync>);

impl Waker {
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

/// What an engine counts; all since its start.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Ops accepted.
    pub submitted: u64,
    /// System calls that entered the kernel to submit or wait (io_uring_enter, epoll_wait).
    pub enters: u64,
    /// System calls made for ops directly (the syscall engine; the ring's direct paths).
    pub calls: u64,
    /// Ops handed to a worker thread on purpose (ring: REQ_F_FORCE_ASYNC kinds; syscall: its pool).
    pub punted: u64,
    /// Completion-queue overflows the kernel reported.
    pub cq_overflows: u64,
    /// Submits refused because a queue was full.
    pub refused: u64,
}

/// An engine: carries ops out. One a thread; never shared.
pub trait Io {
    /// Takes `op`, or gives it back when the queue is full. The kernel may see it only at the next
    /// `reap` (one submit a tick).
    fn submit(&mut self, op: Op, tag: Tag) -> Result<Token, Refused>;

    /// Submits what is queued, waits as told, and appends every finished op to `done`.
    ///
    /// # Errors
    /// Only when the engine itself is broken; ops report their own errors in [`Done`].
    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), Errno>;

    /// Ops accepted and not yet handed out as [`Done`].
    fn in_flight(&self) -> usize;

    /// Reads the monotonic clock.
    fn now(&self) -> Micros;

    /// Reads the wall clock.
    fn wall_ms(&self) -> WallMs;

    /// Opens a listening TCP socket (cold path). Port 0 takes a free one; the address tells.
    fn listen(&mut self, addr: SocketAddr) -> Result<(FileId, SocketAddr), Errno>;

    fn waker(&self) -> Waker;

    fn counters(&self) -> IoCounters;

    /// Short name for results: `uring`, `syscall`, `sim`.
    fn name(&self) -> &'static str;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_result_becomes_its_positive_errno() {
        assert_eq!(check(0), Ok(0));
        assert_eq!(check(4096), Ok(4096));
        assert_eq!(check(-28), Err(Errno(28)));
        assert_eq!(check(-5), Err(Errno(5)));
        assert_eq!(check(i32::MIN), Err(Errno(5)));
    }
}

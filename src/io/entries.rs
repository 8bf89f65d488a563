//! An op as a submission entry, and the memory beside its buffers that the entry points at.
//!
//! Owns: [`Parts`] (iovecs, addresses, C strings, statx buffers), in place until the last
//! completion. Never does: submit. Left: `op`, `files`, `sys`. Right: `uring`.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use io_uring::{opcode, squeue, types};

use super::buffers::{Arena, Group};
use super::op::{Errno, FileId, Op, OpenHow, Stat};
use super::sys;

/// What an entry points at beside the op's own buffers. Each part is boxed or owns its heap
/// memory, so moving a `Parts` moves nothing that the kernel has been told of.
pub enum Parts {
    None,
    Vector(Vector),
    Peer(Box<Peer>),
    Path(CString),
    Paths(CString, CString),
    Stat(CString, Box<libc::statx>),
    /// A directory opened only to be synced.
    Dir(OwnedFd),
    /// A descriptor that the ring is to close: ours again only if it did not.
    Closing(RawFd),
}

/// Iovecs and the message header that names them; recycled, so that a vectored op costs no
/// allocation after the first ones.
pub struct Vector(Box<Message>);

struct Message {
    iovecs: Vec<libc::iovec>,
    header: libc::msghdr,
}

/// Where an accept puts the peer's address.
pub struct Peer {
    pub storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Vector {
    fn new() -> Vector {
        let iovecs = Vec::with_capacity(sys::IOV_MAX);
        Vector(Box::new(Message { iovecs, header: sys::message_of(&mut []) }))
    }

    fn point_at(&mut self, bufs: &Group) {
        let Message { iovecs, header } = &mut *self.0;
        sys::gather(bufs, iovecs);
        *header = sys::message_of(iovecs);
    }
}

/// How an entry names a file.
#[derive(Copy, Clone)]
pub enum Target {
    Fixed(u32),
    Fd(RawFd),
}

/// Builds an entry with whichever name its file has.
macro_rules! on {
    ($target:expr, |$fd:ident| $build:expr) => {
        match $target {
            Target::Fixed(slot) => {
                let $fd = types::Fixed(slot);
                $build
            }
            Target::Fd(raw) => {
                let $fd = types::Fd(raw);
                $build
            }
        }
    };
}

const CWD: types::Fd = types::Fd(libc::AT_FDCWD);

/// What the entry of an op needs prepared, made once; a repeated entry uses it again.
/// `vectors` are spare ones.
pub fn prepare(op: &Op, vectors: &mut Vec<Vector>) -> Result<Parts, Errno> {
    Ok(match op {
        Op::Accept { .. } => {
            let len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            Parts::Peer(Box::new(Peer { storage: sys::empty_address(), len }))
        }
        Op::Send { bufs, .. } | Op::Write { bufs, .. } if bufs.remaining().nth(1).is_some() => {
            let mut vector = vectors.pop().unwrap_or_else(Vector::new);
            vector.point_at(bufs);
            Parts::Vector(vector)
        }
        Op::Open { path, .. }
        | Op::Unlink { path }
        | Op::CreateDir { path }
        | Op::RemoveDir { path } => Parts::Path(sys::c_path(path)?),
        Op::Rename { from, to } => Parts::Paths(sys::c_path(from)?, sys::c_path(to)?),
        Op::Stat { path } => Parts::Stat(sys::c_path(path)?, Box::new(sys::empty_statx())),
        Op::SyncDir { path } => Parts::Dir(sys::open_dir(path)?),
        _ => Parts::None,
    })
}

/// The index of the one registered buffer.
const ARENA: u16 = 0;

/// A direct transfer between a file and memory that is registered, as an entry that says so;
/// `None` for every other op.
pub fn on_arena(op: &mut Op, target: Target, arena: &Arena) -> Option<squeue::Entry> {
    match op {
        Op::Read { pos, max, into, .. } => {
            let room = into.spare_mut();
            let (at, len) = (room.as_mut_ptr(), len_of(room.len()).min(*max));
            arena.contains(room).then(|| {
                on!(target, |fd| opcode::ReadFixed::new(fd, at, len, ARENA).offset(*pos).build())
            })
        }
        Op::Write { pos, bufs, .. } => {
            let mut slices = bufs.remaining();
            let (only, more) = (slices.next()?, slices.next());
            let (at, len) = (only.as_ptr(), len_of(only.len()));
            (more.is_none() && arena.contains(only)).then(|| {
                on!(target, |fd| opcode::WriteFixed::new(fd, at, len, ARENA).offset(*pos).build())
            })
        }
        _ => None,
    }
}

/// Entries of ops on one open file.
pub fn on_file(op: &mut Op, parts: &mut Parts, target: Target) -> squeue::Entry {
    match (op, parts) {
        (Op::Accept { .. }, Parts::Peer(peer)) => {
            let address: *mut libc::sockaddr_storage = &mut peer.storage;
            let len: *mut libc::socklen_t = &mut peer.len;
            on!(target, |fd| opcode::Accept::new(fd, address.cast(), len)
                .flags(sys::ACCEPT_FLAGS)
                .build())
        }
        (Op::Recv { into, .. }, _) => {
            let room = into.spare_mut();
            let (at, len) = (room.as_mut_ptr(), len_of(room.len()));
            on!(target, |fd| opcode::Recv::new(fd, at, len).build())
        }
        (Op::Send { more, .. }, Parts::Vector(vector)) => {
            let flags = sys::send_flags(*more);
            let message: *const libc::msghdr = &vector.0.header;
            on!(target, |fd| opcode::SendMsg::new(fd, message).flags(flags as u32).build())
        }
        (Op::Send { bufs, more, .. }, _) => {
            let only = bufs.remaining().next().expect("empty sends are answered at once");
            let (at, len, flags) = (only.as_ptr(), len_of(only.len()), sys::send_flags(*more));
            on!(target, |fd| opcode::Send::new(fd, at, len).flags(flags).build())
        }
        (Op::Sendfile { .. }, _) => {
            on!(target, |fd| opcode::PollAdd::new(fd, libc::POLLOUT as u32).build())
        }
        (Op::Read { pos, max, into, .. }, _) => {
            let room = into.spare_mut();
            let (at, len) = (room.as_mut_ptr(), len_of(room.len()).min(*max));
            on!(target, |fd| opcode::Read::new(fd, at, len).offset(*pos).build())
        }
        (Op::Write { pos, .. }, Parts::Vector(vector)) => {
            let (at, count) = (vector.0.iovecs.as_ptr(), vector.0.iovecs.len() as u32);
            on!(target, |fd| opcode::Writev::new(fd, at, count).offset(*pos).build())
        }
        (Op::Write { pos, bufs, .. }, _) => {
            let only = bufs.remaining().next().expect("empty writes are answered at once");
            let (at, len) = (only.as_ptr(), len_of(only.len()));
            on!(target, |fd| opcode::Write::new(fd, at, len).offset(*pos).build())
        }
        (Op::Fdatasync { .. }, _) => {
            let flags = types::FsyncFlags::DATASYNC;
            on!(target, |fd| opcode::Fsync::new(fd).flags(flags).build())
        }
        (Op::SyncRange { pos, len, .. }, _) => {
            // Past 4 GiB: 0, "to the end". It promises nothing either way.
            let (len, flags) = (u32::try_from(*len).unwrap_or(0), libc::SYNC_FILE_RANGE_WRITE);
            on!(target, |fd| opcode::SyncFileRange::new(fd, len).offset(*pos).flags(flags).build())
        }
        (Op::DropCache { .. }, _) => {
            on!(target, |fd| opcode::Fadvise::new(fd, 0, libc::POSIX_FADV_DONTNEED).build())
        }
        (Op::Truncate { len, .. }, _) => {
            on!(target, |fd| opcode::Ftruncate::new(fd, *len).build())
        }
        (op, _) => unreachable!("not an op on one file: {op:?}"),
    }
}

/// Entries of ops that name what they touch by path.
pub fn on_path(op: &Op, parts: &mut Parts) -> squeue::Entry {
    match (op, parts) {
        (Op::Open { how, .. }, Parts::Path(path)) => open_entry(path, *how),
        (Op::Unlink { .. }, Parts::Path(path)) => opcode::UnlinkAt::new(CWD, path.as_ptr()).build(),
        (Op::RemoveDir { .. }, Parts::Path(path)) => {
            opcode::UnlinkAt::new(CWD, path.as_ptr()).flags(libc::AT_REMOVEDIR).build()
        }
        (Op::CreateDir { .. }, Parts::Path(path)) => {
            opcode::MkDirAt::new(CWD, path.as_ptr()).mode(sys::DIR_MODE).build()
        }
        (Op::Rename { .. }, Parts::Paths(from, to)) => {
            opcode::RenameAt::new(CWD, from.as_ptr(), CWD, to.as_ptr()).build()
        }
        (Op::Stat { .. }, Parts::Stat(path, buffer)) => {
            let buffer: *mut libc::statx = &mut **buffer;
            opcode::Statx::new(CWD, path.as_ptr(), buffer.cast())
                .mask(libc::STATX_BASIC_STATS)
                .build()
        }
        (Op::SyncDir { .. }, Parts::Dir(dir)) => {
            opcode::Fsync::new(types::Fd(dir.as_raw_fd())).build()
        }
        (op, _) => unreachable!("not an op on a path, or not prepared: {op:?}"),
    }
}

fn open_entry(path: &CString, how: OpenHow) -> squeue::Entry {
    opcode::OpenAt::new(CWD, path.as_ptr()).flags(sys::open_flags(how)).mode(sys::FILE_MODE).build()
}

/// Closes a regular file on a worker: the last close of an unlinked file frees its blocks.
pub fn close(fd: RawFd) -> squeue::Entry {
    opcode::Close::new(types::Fd(fd)).build().flags(squeue::Flags::ASYNC)
}

/// The op, for those that need a worker thread in every kernel.
pub fn is_punted(op: &Op) -> bool {
    match op {
        Op::Open { how, .. } => how.create || how.truncate,
        Op::Fdatasync { .. }
        | Op::SyncRange { .. }
        | Op::DropCache { .. }
        | Op::Truncate { .. }
        | Op::SyncDir { .. }
        | Op::Rename { .. }
        | Op::Unlink { .. }
        | Op::CreateDir { .. }
        | Op::RemoveDir { .. }
        | Op::Stat { .. } => true,
        _ => false,
    }
}

/// The kernel's number of the op's entry; `None` when there is no such entry at all.
pub fn opcode_of(op: &Op) -> Option<u8> {
    Some(match op {
        Op::Accept { .. } => opcode::Accept::CODE,
        Op::Recv { .. } => opcode::Recv::CODE,
        Op::Send { .. } => opcode::SendMsg::CODE,
        Op::Open { .. } => opcode::OpenAt::CODE,
        Op::Close { .. } => opcode::Close::CODE,
        Op::Read { .. } => opcode::Read::CODE,
        Op::Write { .. } => opcode::Writev::CODE,
        Op::Fdatasync { .. } | Op::SyncDir { .. } => opcode::Fsync::CODE,
        Op::SyncRange { .. } => opcode::SyncFileRange::CODE,
        Op::DropCache { .. } => opcode::Fadvise::CODE,
        Op::Truncate { .. } => opcode::Ftruncate::CODE,
        Op::Rename { .. } => opcode::RenameAt::CODE,
        Op::Unlink { .. } | Op::RemoveDir { .. } => opcode::UnlinkAt::CODE,
        Op::CreateDir { .. } => opcode::MkDirAt::CODE,
        Op::Stat { .. } => opcode::Statx::CODE,
        Op::Cancel { .. } => opcode::AsyncCancel::CODE,
        Op::Sendfile { .. }
        | Op::Shutdown { .. }
        | Op::Len { .. }
        | Op::List { .. }
        | Op::Timeout { .. } => return None,
    })
}

/// The file an op works on, for ops that keep one open while they run.
pub fn file_of(op: &Op) -> Option<FileId> {
    match op {
        Op::Accept { listener } => Some(*listener),
        Op::Recv { socket, .. } | Op::Send { socket, .. } | Op::Sendfile { socket, .. } => {
            Some(*socket)
        }
        Op::Read { file, .. }
        | Op::Write { file, .. }
        | Op::Fdatasync { file }
        | Op::SyncRange { file, .. }
        | Op::DropCache { file }
        | Op::Truncate { file, .. } => Some(*file),
        _ => None,
    }
}

pub fn stat_of(buffer: &libc::statx) -> Stat {
    let time = buffer.stx_mtime;
    Stat {
        len: buffer.stx_size,
        is_dir: u32::from(buffer.stx_mode) & libc::S_IFMT == libc::S_IFDIR,
        modified_ms: time.tv_sec * 1000 + i64::from(time.tv_nsec) / 1_000_000,
    }
}

/// A descriptor that a completion brought.
pub fn own(fd: u32) -> OwnedFd {
    // SAFETY: called once for each accept or open completion with its result, a descriptor the
    // kernel installed for this op and that nothing else owns.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

fn len_of(len: usize) -> u32 {
    len.min(i32::MAX as usize) as u32
}

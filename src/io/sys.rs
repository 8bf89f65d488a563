//! System calls by name: each takes safe arguments, makes one call, and gives an [`Errno`] back.
//!
//! Owns: the raw calls for files, sockets, eventfds and clocks, and flag words they need.
//! Never does: keep state, retry for long, decide anything.
//! Left: `op`, `buffers`. Right: `calls`, the engines, `probe`, `lock`.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::buffers::Group;
use super::op::{Errno, OpenHow};
use crate::types::{Micros, WallMs};

/// Most slices one vectored call takes (the kernel's UIO_MAXIOV).
pub const IOV_MAX: usize = 1024;

/// Connections the kernel holds for a listener between two accepts.
const BACKLOG: i32 = 1024;

/// Files created get this mode before the umask.
pub const FILE_MODE: libc::mode_t = 0o644;

/// Directories created get this mode before the umask, as with `std::fs::create_dir`.
pub const DIR_MODE: libc::mode_t = 0o777;

/// A call's return value: negative means errno.
fn check_call<T: TryInto<u64>>(returned: T) -> Result<u64, Errno> {
    returned.try_into().map_err(|_| Errno::last())
}

/// A descriptor that a call returned.
fn check_fd(returned: libc::c_int) -> Result<OwnedFd, Errno> {
    check_call(returned)?;
    // SAFETY: the kernel returned this descriptor just now, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(returned) })
}

/// An error of `std`, as the kernel's number.
pub fn errno_of(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EINVAL))
}

/// The path for a C call; EINVAL when it holds a NUL.
pub fn c_path(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// Flags of open(2) for `how`. Never O_APPEND (R66).
pub fn open_flags(how: OpenHow) -> libc::c_int {
    let mut flags = libc::O_CLOEXEC | if how.write { libc::O_RDWR } else { libc::O_RDONLY };
    for (wanted, flag) in [
        (how.create, libc::O_CREAT),
        (how.create && how.exclusive, libc::O_EXCL),
        (how.truncate, libc::O_TRUNC),
        (how.direct, libc::O_DIRECT),
    ] {
        if wanted {
            flags |= flag;
        }
    }
    flags
}

pub fn open(path: &Path, how: OpenHow) -> Result<OwnedFd, Errno> {
    open_raw(path, open_flags(how))
}

pub fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    open_raw(path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC)
}

pub fn open_raw(path: &Path, flags: libc::c_int) -> Result<OwnedFd, Errno> {
    let path = c_path(path)?;
    // SAFETY: `path` is a NUL-terminated string that lives past the call.
    check_fd(unsafe { libc::open(path.as_ptr(), flags, FILE_MODE) })
}

pub fn read_at(fd: RawFd, buf: &mut [u8], pos: u64) -> Result<u32, Errno> {
    let len = buf.len().min(i32::MAX as usize);
    // SAFETY: `buf` is writable for `len` bytes and borrowed for the whole call.
    let n = unsafe { libc::pread64(fd, buf.as_mut_ptr().cast(), len, pos as i64) };
    check_call(n).map(|n| n as u32)
}

/// What is left of `bufs` as iovecs, at most [`IOV_MAX`] of them. They point into the group's
/// chunks: valid for as long as the group is neither dropped nor cleared.
pub fn gather(bufs: &Group, into: &mut Vec<libc::iovec>) {
    into.clear();
    into.extend(bufs.remaining().take(IOV_MAX).map(|slice| libc::iovec {
        iov_base: slice.as_ptr().cast_mut().cast(),
        iov_len: slice.len(),
    }));
}

/// Writes what is left of `bufs` at `pos`; `scratch` only saves an allocation.
pub fn write_at(
    fd: RawFd,
    bufs: &Group,
    pos: u64,
    scratch: &mut Vec<libc::iovec>,
) -> Result<u32, Errno> {
    gather(bufs, scratch);
    let count = scratch.len() as libc::c_int;
    // SAFETY: the iovecs in `scratch` were gathered from `bufs` above, which is borrowed, and so
    // unchanged, for the whole call; a write only reads them.
    let n = unsafe { libc::pwritev2(fd, scratch.as_ptr(), count, pos as i64, 0) };
    scratch.clear();
    check_call(n).map(|n| n as u32)
}

pub fn recv(fd: RawFd, buf: &mut [u8]) -> Result<u32, Errno> {
    let len = buf.len().min(i32::MAX as usize);
    // SAFETY: `buf` is writable for `len` bytes and borrowed for the whole call.
    let n = unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), len, libc::MSG_DONTWAIT) };
    check_call(n).map(|n| n as u32)
}

/// Flags of every send: a broken pipe is an errno, not a signal.
pub fn send_flags(more: bool) -> libc::c_int {
    libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 }
}

/// A message header for `iovecs` and nothing else.
pub fn message_of(iovecs: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = iovecs.as_mut_ptr();
    message.msg_iovlen = iovecs.len() as _;
    message
}

/// Sends what is left of `bufs` without waiting.
pub fn send(
    fd: RawFd,
    bufs: &Group,
    more: bool,
    scratch: &mut Vec<libc::iovec>,
) -> Result<u32, Errno> {
    gather(bufs, scratch);
    let message = message_of(scratch);
    // SAFETY: `message` points at the iovecs in `scratch`, gathered above from `bufs`, which is
    // borrowed for the whole call; a send only reads them.
    let n = unsafe { libc::sendmsg(fd, &message, send_flags(more) | libc::MSG_DONTWAIT) };
    scratch.clear();
    check_call(n).map(|n| n as u32)
}

/// sendfile(2); EAGAIN when the socket (non-blocking) is full.
pub fn sendfile(socket: RawFd, file: RawFd, pos: u64, len: u32) -> Result<u32, Errno> {
    let mut at = pos as i64;
    // SAFETY: `at` is a local that outlives the call; the kernel reads and writes it only.
    let n = unsafe { libc::sendfile64(socket, file, &mut at, len as usize) };
    check_call(n).map(|n| n as u32)
}

/// An address the kernel wrote into a storage, if it is one of the internet families.
pub fn peer_of(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let at: *const libc::sockaddr_storage = storage;
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says the storage, large and aligned enough for any address,
            // holds a sockaddr_in.
            let v4 = unsafe { at.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says the storage, large and aligned enough for any address,
            // holds a sockaddr_in6.
            let v6 = unsafe { at.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id)))
        }
        _ => None,
    }
}

/// An empty storage for an accept to fill.
pub fn empty_address() -> libc::sockaddr_storage {
    // SAFETY: all-zero is a valid sockaddr_storage of family AF_UNSPEC.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// An empty buffer for a statx to fill.
pub fn empty_statx() -> libc::statx {
    // SAFETY: statx is plain integers: all-zero is a valid one.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

pub const ACCEPT_FLAGS: libc::c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// Takes one connection off a non-blocking listener.
pub fn accept(listener: RawFd) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    let mut storage = empty_address();
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let address: *mut libc::sockaddr_storage = &mut storage;
    // SAFETY: `address` and `len` are locals that outlive the call, and `len` is the true size.
    let fd = unsafe { libc::accept4(listener, address.cast(), &mut len, ACCEPT_FLAGS) };
    let socket = check_fd(fd)?;
    Ok((socket, peer_of(&storage)))
}

/// TCP_NODELAY: a reply leaves when it is written, not when the peer has acknowledged the last.
/// A socket that is not TCP (a test's) keeps what it has.
pub fn set_nodelay(socket: RawFd) {
    let on: libc::c_int = 1;
    let value: *const libc::c_int = &on;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` points at a local int of `len` bytes that outlives the call.
    unsafe {
        libc::setsockopt(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, value.cast(), len);
    }
}

/// A listening TCP socket on `addr` and the address it got. `nonblocking` as the engine wants it.
pub fn listen(addr: SocketAddr, nonblocking: bool) -> Result<(OwnedFd, SocketAddr), Errno> {
    let listener = TcpListener::bind(addr).map_err(|e| errno_of(&e))?;
    listener.set_nonblocking(nonblocking).map_err(|e| errno_of(&e))?;
    let bound = listener.local_addr().map_err(|e| errno_of(&e))?;
    // SAFETY: listen(2) takes no memory; on a listening socket it only changes the backlog.
    check_call(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) })?;
    Ok((listener.into(), bound))
}

pub fn shutdown(socket: RawFd) -> Result<(), Errno> {
    // SAFETY: shutdown(2) takes no memory.
    check_call(unsafe { libc::shutdown(socket, libc::SHUT_RDWR) }).map(drop)
}

pub fn fdatasync(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: fdatasync(2) takes no memory.
    check_call(unsafe { libc::fdatasync(fd) }).map(drop)
}

pub fn fsync(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: fsync(2) takes no memory.
    check_call(unsafe { libc::fsync(fd) }).map(drop)
}

/// Starts write-back of a range and does not wait for it.
pub fn sync_range(fd: RawFd, pos: u64, len: u64) -> Result<(), Errno> {
    // SAFETY: sync_file_range(2) takes no memory.
    check_call(unsafe {
        libc::sync_file_range(fd, pos as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE)
    })
    .map(drop)
}

/// Drops the clean cached pages of a file.
pub fn drop_cache(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: posix_fadvise(2) takes no memory. It returns the error number itself.
    match unsafe { libc::posix_fadvise64(fd, 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}

pub fn truncate(fd: RawFd, len: u64) -> Result<(), Errno> {
    let len = i64::try_from(len).map_err(|_| Errno(libc::EFBIG))?;
    // SAFETY: ftruncate(2) takes no memory.
    check_call(unsafe { libc::ftruncate64(fd, len) }).map(drop)
}

pub fn file_len(fd: RawFd) -> Result<u64, Errno> {
    let mut stat = MaybeUninit::<libc::stat64>::uninit();
    // SAFETY: `stat` is a local of the type the call fills.
    check_call(unsafe { libc::fstat64(fd, stat.as_mut_ptr()) })?;
    // SAFETY: fstat64 succeeded, so it has filled all of `stat`.
    Ok(unsafe { stat.assume_init() }.st_size as u64)
}

/// close(2), with its error. The descriptor is gone whatever the result says.
pub fn close(fd: OwnedFd) -> Result<(), Errno> {
    use std::os::fd::IntoRawFd;
    // SAFETY: ownership of the descriptor was taken from `fd`, so it is closed once.
    check_call(unsafe { libc::close(fd.into_raw_fd()) }).map(drop)
}

pub fn eventfd(nonblocking: bool) -> Result<OwnedFd, Errno> {
    let flags = libc::EFD_CLOEXEC | if nonblocking { libc::EFD_NONBLOCK } else { 0 };
    // SAFETY: eventfd(2) takes no memory.
    check_fd(unsafe { libc::eventfd(0, flags) })
}

/// Adds one to an eventfd; wakes who reads or polls it. Async-signal-safe.
pub fn eventfd_add(fd: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: `one` is a local of eight readable bytes. The only failure, EAGAIN at u64::MAX - 1,
    // leaves the descriptor readable, which is all that is wanted.
    unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
}

/// Takes an eventfd's count; EAGAIN when it is zero and non-blocking.
pub fn eventfd_take(fd: RawFd) -> Result<u64, Errno> {
    let mut count = [0u8; 8];
    // SAFETY: `count` is a local of eight writable bytes.
    check_call(unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) })?;
    Ok(u64::from_ne_bytes(count))
}

/// The monotonic clock.
pub fn now() -> Micros {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a local of the type the call fills. CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Micros(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000)
}

/// How long to sleep until `at`: an hour at most, after which the sleeper looks again. Kernels add
/// a timeout to their clock, and not all of them watch for the sum's end.
pub fn until(at: Micros, now: Micros) -> std::time::Duration {
    const SLEEP_MAX: Micros = Micros(3_600_000_000);
    std::time::Duration::from_micros(at.since(now).min(SLEEP_MAX).0)
}

/// The wall clock; before 1970 counts as 1970.
pub fn wall_ms() -> WallMs {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| d.as_millis() as WallMs)
}

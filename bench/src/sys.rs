//! The raw system calls of the benchmark, and its only `unsafe`.
//!
//! Owns: aligned memory, durable and vectored writes, a ring that keeps several in flight, cache
//! residency, pinning, epoll, the stop signal. Never does: policy or arithmetic on results.
//! Left: `libc`, `io-uring`. Right: `device`, `cold`, `ceiling`, `load`, `server`.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};

/// Alignment of direct I/O: the physical block of every device in use, a multiple of the logical.
pub const DIRECT_ALIGN: usize = 4096;

/// Zeroed memory whose address is a multiple of [`DIRECT_ALIGN`].
pub struct AlignedBuf {
    ptr: std::ptr::NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer is plain memory with one owner; nothing in it is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference only reads; writing takes `&mut`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// # Panics
    /// When `len` is zero or memory is exhausted.
    pub fn zeroed(len: usize) -> AlignedBuf {
        assert!(len > 0, "an aligned buffer holds at least one byte");
        let layout = Layout::from_size_align(len, DIRECT_ALIGN).expect("a size below isize::MAX");
        // SAFETY: `layout` has a size above zero, asserted two lines up.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = std::ptr::NonNull::new(raw) else { std::alloc::handle_alloc_error(layout) };
        AlignedBuf { ptr, layout }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` holds `layout.size()` initialised (zeroed) bytes until `drop`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `ptr` came from `alloc_zeroed(layout)` in `zeroed` and is freed only here.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
    }
}

fn check(ret: libc::c_long) -> io::Result<usize> {
    usize::try_from(ret).map_err(|_| io::Error::last_os_error())
}

/// Opens for `O_DIRECT`, creating the file when `write` is set.
pub fn open_direct(path: &Path, write: bool) -> io::Result<File> {
    let mut how = OpenOptions::new();
    how.read(true).write(write).create(write).truncate(false).custom_flags(libc::O_DIRECT);
    how.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => {
            io::Error::new(io::ErrorKind::Unsupported, "O_DIRECT is refused here")
        }
        _ => error,
    })
}

/// One `pwritev2(RWF_DSYNC)`: returns once the bytes are durable. May be short.
pub fn pwrite_dsync(file: &File, bytes: &[u8], pos: u64) -> io::Result<usize> {
    let iov = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    // SAFETY: `iov` points at `bytes`, borrowed across this synchronous call; the kernel only
    // reads from it.
    let ret =
        unsafe { libc::pwritev2(file.as_raw_fd(), &iov, 1, pos as libc::off_t, libc::RWF_DSYNC) };
    check(ret as libc::c_long)
}

/// One `pwritev` of all `parts` at `pos`. May be short.
pub fn pwritev(file: &File, parts: &[io::IoSlice<'_>], pos: u64) -> io::Result<usize> {
    let count = libc::c_int::try_from(parts.len()).map_err(io::Error::other)?;
    // SAFETY: `IoSlice` has the layout of `iovec` (std guarantees it) and `parts` outlives the
    // synchronous call, which only reads.
    let ret = unsafe {
        libc::pwritev(file.as_raw_fd(), parts.as_ptr().cast(), count, pos as libc::off_t)
    };
    check(ret as libc::c_long)
}

/// Writes back everything dirty on the file system that holds `file`.
pub fn syncfs(file: &File) -> io::Result<()> {
    // SAFETY: takes a descriptor only, open for as long as `file` is borrowed.
    check(unsafe { libc::syncfs(file.as_raw_fd()) }.into()).map(|_| ())
}

/// Asks the kernel to drop the clean cached pages of the whole file.
pub fn drop_cache(file: &File) -> io::Result<()> {
    // SAFETY: takes a descriptor and numbers only.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Pages of a file that this kernel holds in memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Residency {
    pub cached: u64,
    pub dirty: u64,
    pub writeback: u64,
}

/// `cachestat(2)` over the first `len` bytes; ENOSYS before 6.5 and where a sandbox forbids it.
pub fn residency(file: &File, len: u64) -> io::Result<Residency> {
    const SYS_CACHESTAT: libc::c_long = 451; // the same number on every architecture
    let range: [u64; 2] = [0, len];
    let mut stat = [0u64; 5];
    // SAFETY: the kernel reads struct cachestat_range (two u64) and fills struct cachestat (five
    // u64); both arrays have exactly that size and live across the call.
    let ret = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), stat.as_mut_ptr(), 0)
    };
    check(ret)?;
    Ok(Residency { cached: stat[0], dirty: stat[1], writeback: stat[2] })
}

/// Extents of a file (FIEMAP); `None` where the file system does not tell.
pub fn extents(file: &File) -> Option<u32> {
    const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
    #[repr(C)]
    struct Fiemap {
        start: u64,
        length: u64,
        flags: u32,
        mapped_extents: u32,
        extent_count: u32,
        reserved: u32,
    }
    let mut map = Fiemap {
        start: 0,
        length: u64::MAX,
        flags: 0,
        mapped_extents: 0,
        extent_count: 0,
        reserved: 0,
    };
    // SAFETY: `map` has the layout of struct fiemap; with `extent_count` 0 the kernel writes the
    // header only, no extent array behind it.
    let ret = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &mut map) };
    (ret == 0).then_some(map.mapped_extents)
}

/// Bytes an unprivileged user may still write below `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let dir = File::open(path)?;
    // SAFETY: all-zero is a valid value of the plain C struct statvfs.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a whole statvfs that outlives the call.
    check(unsafe { libc::fstatvfs(dir.as_raw_fd(), &mut stat) }.into())?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// CPUs this process may run on, ascending.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: all-zero is a valid (empty) cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: `set` is a whole cpu_set_t of the size given; 0 is the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size, &mut set) }.into())?;
    let max = libc::CPU_SETSIZE as usize;
    // SAFETY: CPU_ISSET reads a bit below CPU_SETSIZE of an initialised set.
    Ok((0..max).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Pins the calling thread, and every thread it starts later, to one CPU.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: all-zero is a valid (empty) cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, checked above.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    let size = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: `set` is a whole cpu_set_t of the size given; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size, &set) }.into()).map(|_| ())
}

/// CPU time of the calling thread so far.
pub fn thread_cpu() -> Duration {
    cpu_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process so far: all threads, the workers of its rings included.
pub fn process_cpu() -> Duration {
    cpu_clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu_clock(clock: libc::clockid_t) -> Duration {
    let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `spec` is a whole timespec that outlives the call.
    let ret = unsafe { libc::clock_gettime(clock, &mut spec) };
    assert_eq!(ret, 0, "every Linux has the two CPU clocks");
    Duration::new(spec.tv_sec as u64, spec.tv_nsec as u32)
}

/// `sendfile(2)` at an explicit position. May be short.
pub fn sendfile(to: RawFd, from: &File, pos: u64, len: usize) -> io::Result<usize> {
    let mut at = pos as libc::off_t;
    // SAFETY: `at` outlives the call; the rest are descriptors and numbers.
    let ret = unsafe { libc::sendfile(to, from.as_raw_fd(), &mut at, len) };
    check(ret as libc::c_long)
}

/// `send(2)` with MSG_MORE: the bytes leave together with what follows. May be short.
pub fn send_more(to: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_MORE | libc::MSG_NOSIGNAL;
    // SAFETY: `bytes` is borrowed across this synchronous call, which only reads it.
    let ret = unsafe { libc::send(to, bytes.as_ptr().cast(), bytes.len(), flags) };
    check(ret as libc::c_long)
}

/// Soft limit of lockable memory in bytes; `u64::MAX` when unlimited.
pub fn memlock_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a whole rlimit that outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) }.into())?;
    Ok(limit.rlim_cur)
}

/// Clock ticks a second of the figures in `/proc/<pid>/stat` and `/proc/stat`.
pub fn ticks_per_second() -> u64 {
    // SAFETY: takes and returns numbers only.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100)
}

/// Has the kernel end this process when the one that started it ends, however that comes.
pub fn end_with_parent() -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.into()).map(|_| ())
}

/// Sends SIGTERM to a child that has not been waited for yet (its id cannot be another's).
pub fn terminate(child: &std::process::Child) -> io::Result<()> {
    // SAFETY: takes numbers only; the child is unreaped, so its id is still its own.
    check(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) }.into()).map(|_| ())
}

/// Readiness of many sockets, edge-triggered: who is woken must read and write until it blocks.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    pub fn new(capacity: usize) -> io::Result<Epoll> {
        // SAFETY: takes a flag only.
        let raw = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into())?;
        // SAFETY: the kernel has just made this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw as RawFd) };
        Ok(Epoll { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; capacity.max(1)] })
    }

    /// Watches `fd` for input and output; `token` comes back from [`Epoll::wait`].
    pub fn add(&self, fd: RawFd, token: usize) -> io::Result<()> {
        let flags = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: flags as u32, u64: token as u64 };
        // SAFETY: `event` is a whole epoll_event that outlives the call.
        let ret =
            unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        check(ret.into()).map(|_| ())
    }

    /// Tokens that became ready; none after `timeout_ms` or a signal.
    pub fn wait(&mut self, timeout_ms: i32, ready: &mut Vec<usize>) -> io::Result<()> {
        ready.clear();
        let max = self.events.len() as libc::c_int;
        // SAFETY: `events` holds `max` whole epoll_event for the kernel to fill.
        let ret = unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), self.events.as_mut_ptr(), max, timeout_ms)
        };
        let count = match check(ret.into()) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        ready.extend(self.events.iter().take(count).map(|event| event.u64 as usize));
        Ok(())
    }
}

// Durable direct writes at a depth.

/// A ring with one aligned block; every write sends the same bytes, as a ceiling may.
pub struct DsyncRing {
    ring: IoUring,
    block: AlignedBuf,
    depth: usize,
}

/// Whether a ring can be made here, and if not, the kernel's answer.
pub fn ring_available() -> io::Result<()> {
    IoUring::new(8).map(|_| ())
}

impl DsyncRing {
    pub fn new(block: AlignedBuf, depth: usize) -> io::Result<DsyncRing> {
        let entries = u32::try_from(depth.max(1).next_power_of_two()).map_err(io::Error::other)?;
        Ok(DsyncRing { ring: IoUring::new(entries)?, block, depth: depth.max(1) })
    }

    /// Keeps `depth` writes in flight at the positions `next_pos` gives, until it gives `None`;
    /// `done` hears the latency of each. Returns when all have completed.
    pub fn run(
        &mut self,
        file: &File,
        mut next_pos: impl FnMut() -> Option<u64>,
        mut done: impl FnMut(Duration),
    ) -> io::Result<()> {
        let mut started = vec![Instant::now(); self.depth];
        let mut free: Vec<usize> = (0..self.depth).collect();
        let mut failed: Option<io::Error> = None;
        let mut open = true;
        loop {
            while open && failed.is_none() {
                let Some(slot) = free.pop() else { break };
                let Some(pos) = next_pos() else {
                    free.push(slot);
                    open = false;
                    break;
                };
                started[slot] = Instant::now();
                self.push(file, pos, slot)?;
            }
            if free.len() == self.depth {
                return failed.map_or(Ok(()), Err);
            }
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let want = self.block.len();
            for cqe in self.ring.completion() {
                let slot = cqe.user_data() as usize;
                match usize::try_from(cqe.result()) {
                    Ok(n) if n == want => done(started[slot].elapsed()),
                    Ok(n) => failed = Some(io::Error::other(format!("short write: {n}"))),
                    Err(_) => failed = Some(io::Error::from_raw_os_error(-cqe.result())),
                }
                free.push(slot);
            }
        }
    }

    fn push(&mut self, file: &File, pos: u64, slot: usize) -> io::Result<()> {
        let fd = types::Fd(file.as_raw_fd());
        let write = opcode::Write::new(fd, self.block.as_ptr(), self.block.len() as u32)
            .offset(pos)
            .rw_flags(libc::RWF_DSYNC)
            .build()
            .user_data(slot as u64);
        // SAFETY: the kernel only reads `block`, which nobody changes, and `run` waits for every
        // completion while it borrows `self` and `file`. If entering the ring itself fails, what
        // is in flight holds its own reference to the file and pins the pages it reads.
        unsafe { self.ring.submission().push(&write) }.map_err(io::Error::other)
    }
}

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_stop_signal(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// The first SIGINT or SIGTERM asks for an orderly end; the second ends the process at once.
pub fn catch_stop_signals() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all-zero is a valid sigaction (no flags, empty mask).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int) = on_stop_signal;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe; `action` is
        // whole and outlives the call.
        check(unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) }.into())?;
    }
    Ok(())
}

/// Whether a stop signal has arrived; every loop of the benchmark asks.
pub fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn aligned_memory_is_aligned_zeroed_and_writable() {
        let mut buf = AlignedBuf::zeroed(8192);
        assert_eq!(buf.as_ptr() as usize % DIRECT_ALIGN, 0);
        assert!(buf.iter().all(|&byte| byte == 0));
        buf[8191] = 7;
        assert_eq!(buf.len(), 8192);
        assert_eq!(buf[8191], 7);
    }

    #[test]
    fn a_vectored_write_lands_where_it_was_sent() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"........").unwrap();
        let parts = [io::IoSlice::new(b"ab"), io::IoSlice::new(b"cd")];
        assert_eq!(pwritev(&file, &parts, 2).unwrap(), 4);
        let mut back = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut back, 0).unwrap();
        assert_eq!(&back, b"..abcd..");
    }

    #[test]
    fn pinning_takes_one_of_the_allowed_cpus() {
        let cpus = allowed_cpus().unwrap();
        assert!(!cpus.is_empty());
        let pinned = std::thread::spawn(move || {
            pin_to(cpus[0]).unwrap();
            (allowed_cpus().unwrap(), cpus[0])
        });
        let (now, want) = pinned.join().unwrap();
        assert_eq!(now, vec![want]);
        assert!(pin_to(usize::MAX).is_err());
    }
}

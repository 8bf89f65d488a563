//! What work cost and what the cache holds: CPU time, and resident pages of a file.
//!
//! Owns: getrusage(2), cachestat(2) with mincore(2) where that is missing.
//! Never does: drop or fill a cache. Left: `op`. Right: `server`, the benchmark (cold reads are
//! proven, not assumed).

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use serde::Serialize;

use super::op::Errno;
use crate::types::Micros;

/// CPU time used, in user space and in the kernel.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    pub user: Micros,
    pub system: Micros,
}

impl CpuTime {
    pub fn total(self) -> Micros {
        self.user.plus(self.system)
    }

    /// Time from `earlier` to here.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime { user: self.user.since(earlier.user), system: self.system.since(earlier.system) }
    }
}

/// All threads of this process, the kernel's workers for its rings included.
pub fn process_time() -> CpuTime {
    usage(libc::RUSAGE_SELF)
}

pub fn thread_time() -> CpuTime {
    usage(libc::RUSAGE_THREAD)
}

fn usage(who: libc::c_int) -> CpuTime {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a local of the type the call fills, and zeroed, so valid even if not.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    let micros = |time: libc::timeval| Micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64);
    CpuTime { user: micros(usage.ru_utime), system: micros(usage.ru_stime) }
}

/// How much of a range of a file the page cache holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Residency {
    pub pages: u64,
    pub resident: u64,
    /// Of those, not yet written back. `None` where the kernel does not tell (mincore).
    pub dirty: Option<u64>,
}

/// Asks for `len` bytes at `pos`, rounded out to pages.
pub fn residency(file: &File, pos: u64, len: u64) -> Result<Residency, Errno> {
    let page = page_size();
    let first = pos / page;
    let pages = (pos + len).div_ceil(page) - first;
    if len == 0 {
        return Ok(Residency { pages: 0, resident: 0, dirty: None });
    }
    match cachestat(file, first * page, pages * page) {
        Ok((resident, dirty)) => Ok(Residency { pages, resident, dirty: Some(dirty) }),
        Err(Errno(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)) => {
            let resident = mincore(file, first * page, pages * page)?;
            Ok(Residency { pages, resident, dirty: None })
        }
        Err(errno) => Err(errno),
    }
}

fn page_size() -> u64 {
    // SAFETY: sysconf(3) takes no memory; _SC_PAGESIZE is always known.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// cachestat(2)'s number, the same on every architecture; `libc` does not have it everywhere.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct Range {
    off: u64,
    len: u64,
}

/// `struct cachestat`, in pages.
#[repr(C)]
#[derive(Default)]
struct Stat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// cachestat(2), since 6.5: pages in the cache, and those of them not on disk yet.
fn cachestat(file: &File, off: u64, len: u64) -> Result<(u64, u64), Errno> {
    let (range, mut stat) = (Range { off, len }, Stat::default());
    let fd = file.as_raw_fd();
    // SAFETY: `range` and `stat` are locals of the layouts that cachestat(2) reads and fills.
    let asked = unsafe {
        let (range, stat): (*const Range, *mut Stat) = (&range, &mut stat);
        libc::syscall(SYS_CACHESTAT, fd, range, stat, 0)
    };
    match asked {
        0 => Ok((stat.cached, stat.dirty + stat.writeback)),
        _ => Err(Errno::last()),
    }
}

/// mincore(2) over a mapping that is never touched. The kernel tells the truth only to who could
/// write the file.
fn mincore(file: &File, off: u64, len: u64) -> Result<u64, Errno> {
    let size = file.metadata().map_err(|error| super::sys::errno_of(&error))?.len();
    let len = len.min(size.saturating_sub(off)) as usize;
    if len == 0 {
        return Ok(0);
    }
    let mut map = memmap2::MmapOptions::new();
    // SAFETY: the mapping is only asked about, never read, so that the file may change or shrink
    // meanwhile is of no consequence.
    let map = unsafe { map.offset(off).len(len).map(file) };
    let map = map.map_err(|error| super::sys::errno_of(&error))?;
    let mut pages = vec![0u8; len.div_ceil(page_size() as usize)];
    let at = map.as_ptr().cast_mut().cast();
    // SAFETY: `at` is the start, page-aligned, of a mapping of `len` bytes that lives past the
    // call, and `pages` has a byte for each page of it.
    match unsafe { libc::mincore(at, len, pages.as_mut_ptr()) } {
        0 => Ok(pages.iter().filter(|page| **page & 1 == 1).count() as u64),
        _ => Err(Errno::last()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn both_ways_to_ask_agree_on_a_file_just_written() {
        let page = page_size();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 10 * page as usize]).unwrap();
        let whole = residency(&file, 0, 10 * page).unwrap();
        assert_eq!((whole.pages, whole.resident), (10, 10));
        assert_eq!(mincore(&file, 0, 10 * page), Ok(10));
        let part = residency(&file, page + 1, page).unwrap();
        assert_eq!((part.pages, part.resident), (2, 2));
        assert_eq!(mincore(&file, 20 * page, page), Ok(0));
        assert_eq!(residency(&file, 0, 0).unwrap().pages, 0);
        assert_eq!(residency(&file, 20 * page, page).unwrap().resident, 0);
    }

    #[test]
    fn dropped_pages_are_seen_as_gone() {
        let page = page_size();
        // Beside the crate, on a disk: a file in memory keeps its pages.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![1; 16 * page as usize]).unwrap();
        file.sync_all().unwrap();
        crate::io::sys::drop_cache(file.as_raw_fd()).unwrap();
        let after = residency(&file, 0, 16 * page).unwrap();
        if after.resident > 0 {
            println!("this file system keeps its pages: {after:?}");
        }
        assert!(after.dirty.is_none_or(|dirty| dirty == 0));
    }

    #[test]
    fn work_costs_time() {
        let (thread, process) = (thread_time(), process_time());
        let mut sum = 0u64;
        while thread_time().since(thread).total() < Micros(2000) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        assert!(process_time().since(process).total() >= Micros(2000));
    }
}

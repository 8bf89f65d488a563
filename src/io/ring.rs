//! The ring itself: entries pushed, the kernel entered, completions taken out.
//!
//! Owns: the queues, the registered ring descriptor, the fixed-file table, opcode support.
//! Never does: know what an entry is for, or own memory that entries point at.
//! Left: `setup`. Right: `uring`.

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, Probe, squeue};

use super::kernel::{self, Version};
use super::op::Errno;
use super::setup::{self, Flags, SetupError};

/// Fixed files only where an update does not wait for unrelated ops: before 6.13 a closed
/// socket's slot was freed in the order of a list that any long receive on the ring held up, so
/// the peer saw the close late and a listener's port stayed taken.
const FIXED_FILES_SINCE: Version = Version::new(6, 13);

// Constants of <linux/io_uring.h> that the crate keeps to itself.
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const ENTER_NO_IOWAIT: u32 = 1 << 7;
const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct WaitArg {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timespec: u64,
}

/// `struct __kernel_timespec`.
#[repr(C)]
struct KernelTimespec {
    sec: i64,
    nsec: i64,
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct RsrcUpdate {
    offset: u32,
    resv: u32,
    data: u64,
}

/// A completion entry, copied out.
#[derive(Copy, Clone, Debug)]
pub struct Completion {
    pub user_data: u64,
    pub result: i32,
    /// More completions of the same entry follow.
    pub more: bool,
}

pub struct Ring {
    uring: IoUring,
    flags: Flags,
    probe: Probe,
    /// What enters name the ring by, and the flag that says which kind of name it is.
    enter_fd: i32,
    enter_flags: u32,
    /// Slots of the fixed-file table; 0 without one.
    fixed_files: u32,
}

impl Ring {
    /// The calling thread becomes the ring's only submitter. `files_max` bounds the fixed-file
    /// table, `iowq_max` the kernel's workers: bounded (files) and unbounded (sockets).
    pub fn new(entries: u32, files_max: u32, iowq_max: [u32; 2]) -> Result<Ring, SetupError> {
        let setup::Made { uring, flags } = setup::make(entries)?;
        let mut probe = Probe::new();
        // A kernel without the probe has no opcode to offer; each op then takes its direct path.
        let _ = uring.submitter().register_probe(&mut probe);
        // Older kernels keep their own worker limits.
        let mut workers = iowq_max;
        let _ = uring.submitter().register_iowq_max_workers(&mut workers);
        let fixed_files = match kernel::running() >= FIXED_FILES_SINCE {
            true => fixed_table(&uring, files_max),
            false => 0,
        };
        let registered = register_ring_fd(uring.as_raw_fd());
        let no_iowait = uring.params().is_feature_no_iowait();
        Ok(Ring {
            enter_fd: registered.unwrap_or(uring.as_raw_fd()),
            enter_flags: ENTER_GETEVENTS
                | ENTER_EXT_ARG
                | if registered.is_some() { ENTER_REGISTERED_RING } else { 0 }
                // An idle ring is not a disk wait (R67).
                | if no_iowait { ENTER_NO_IOWAIT } else { 0 },
            uring,
            flags,
            probe,
            fixed_files,
        })
    }

    pub fn flags(&self) -> Flags {
        self.flags
    }

    pub fn supports(&self, opcode: u8) -> bool {
        self.probe.is_supported(opcode)
    }

    pub fn sq_entries(&self) -> u32 {
        self.uring.params().sq_entries()
    }

    pub fn cq_entries(&self) -> u32 {
        self.uring.params().cq_entries()
    }

    pub fn fixed_files(&self) -> u32 {
        self.fixed_files
    }

    /// Enters name the ring by its registered index.
    pub fn is_registered(&self) -> bool {
        self.enter_flags & ENTER_REGISTERED_RING != 0
    }

    /// Puts a file into the fixed table. False when it has no place there.
    pub fn fix_file(&self, slot: u32, fd: RawFd) -> bool {
        slot < self.fixed_files && self.uring.submitter().register_files_update(slot, &[fd]).is_ok()
    }

    /// Takes a file out again, so that closing its descriptor closes the file.
    pub fn unfix_file(&self, slot: u32) {
        let removed = self.uring.submitter().register_files_update(slot, &[-1]);
        assert!(removed.is_ok(), "slot {slot} of the fixed table cannot be emptied: {removed:?}");
    }

    /// Empties the whole table now: with the ring's own end, which the kernel does later, a
    /// listener's port would stay taken for a while.
    pub fn unfix_all(&mut self) {
        if self.fixed_files > 0 {
            self.fixed_files = 0;
            // The ring's end does it otherwise.
            let _ = self.uring.submitter().unregister_files();
        }
    }

    /// Registers one range of memory, as buffer 0.
    ///
    /// # Safety
    /// The memory stays until the ring is dropped.
    pub unsafe fn register_buffer(&self, at: *mut u8, len: usize) -> Result<(), Errno> {
        let range = libc::iovec { iov_base: at.cast(), iov_len: len };
        // SAFETY: passed on to the caller.
        let registered = unsafe { self.uring.submitter().register_buffers(&[range]) };
        registered.map_err(|error| super::sys::errno_of(&error))
    }

    /// Queues an entry; false when the submission queue is full.
    ///
    /// # Safety
    /// Everything the entry points at stays valid and in place until its completion.
    pub unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { self.uring.submission().push(entry) }.is_ok()
    }

    /// Something waits to be submitted, or completions wait for an enter.
    pub fn wants_enter(&mut self) -> bool {
        let queue = self.uring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    pub fn is_overflown(&mut self) -> bool {
        self.uring.submission().cq_overflow()
    }

    /// Submits what is queued and waits for `min` completions, at most `timeout`.
    pub fn enter(&mut self, min: u32, timeout: Option<Duration>) -> Result<(), Errno> {
        let to_submit = self.uring.submission().len() as u32;
        let timespec = timeout
            .map(|t| KernelTimespec { sec: t.as_secs() as i64, nsec: t.subsec_nanos().into() });
        let timespec = timespec.as_ref().map_or(0, |t| std::ptr::from_ref(t) as u64);
        let arg = WaitArg { sigmask: 0, sigmask_size: 8, min_wait_us: 0, timespec };
        // SAFETY: `arg` and the timespec it names are locals that outlive the call; the entries
        // up to the tail were pushed under `push`'s contract.
        let entered = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                to_submit,
                min,
                self.enter_flags,
                std::ptr::from_ref(&arg),
                size_of::<WaitArg>(),
            )
        };
        if entered >= 0 {
            return Ok(());
        }
        match Errno::last() {
            // A signal; the time is up; completions must be taken out first (overflow); the
            // kernel is short of memory for requests. What was not submitted stays queued.
            Errno(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
            errno => Err(errno),
        }
    }

    /// Moves every completion that is there into `into`.
    pub fn take(&mut self, into: &mut Vec<Completion>) {
        into.extend(self.uring.completion().map(|cqe| Completion {
            user_data: cqe.user_data(),
            result: cqe.result(),
            more: io_uring::cqueue::more(cqe.flags()),
        }));
    }
}

/// A sparse table as large as the limits allow; 0 slots where the kernel refuses.
fn fixed_table(uring: &IoUring, files_max: u32) -> u32 {
    let nofile = kernel::nofile().soft.unwrap_or(u64::from(u32::MAX));
    let slots = u64::from(files_max).min(nofile) as u32;
    match slots > 0 && uring.submitter().register_files_sparse(slots).is_ok() {
        true => slots,
        false => 0,
    }
}

/// Spares the descriptor look-up of each enter. `None` where the kernel has no such table, or this
/// thread's is full.
fn register_ring_fd(fd: RawFd) -> Option<i32> {
    let mut update = RsrcUpdate { offset: u32::MAX, resv: 0, data: fd as u64 };
    update_ring_fds(fd, REGISTER_RING_FDS, &mut update).then_some(update.offset as i32)
}

fn update_ring_fds(fd: RawFd, action: libc::c_uint, update: &mut RsrcUpdate) -> bool {
    // SAFETY: `update` is borrowed for the call and of the layout that both actions read and
    // write, and 1 is its count.
    let updated = unsafe {
        let at: *mut RsrcUpdate = update;
        libc::syscall(libc::SYS_io_uring_register, fd, action, at, 1)
    };
    updated == 1
}

impl Drop for Ring {
    /// A registered descriptor keeps its ring alive until the thread ends.
    fn drop(&mut self) {
        if self.is_registered() {
            let mut update = RsrcUpdate { offset: self.enter_fd as u32, resv: 0, data: 0 };
            update_ring_fds(self.uring.as_raw_fd(), UNREGISTER_RING_FDS, &mut update);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_ring_leaves_its_place_in_the_threads_table() {
        // The kernel's table has 16 places for each thread.
        let registered: Vec<bool> = (0..40)
            .filter_map(|_| Ring::new(setup::ENTRIES_MIN, 0, [0, 0]).ok())
            .map(|ring| ring.is_registered())
            .collect();
        assert!(registered.windows(2).all(|pair| pair[0] == pair[1]), "{registered:?}");
    }
}

//! Readiness of sockets, edge-triggered: one registration a socket, no call to re-arm.
//!
//! Owns: the epoll descriptor, its event buffer, the packing of a file id into an event.
//! Never does: touch a socket. Left: `sys`, `op`. Right: `syscall`.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::op::{Errno, FileId};

/// Events taken by one wait; the rest come with the next.
const EVENTS_MAX: usize = 256;

/// The event data of the engine's own eventfd; no file has it (generations stay below).
const WAKE: u64 = u64::MAX;

pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    has_pwait2: bool,
}

/// What an edge says.
#[derive(Copy, Clone, Debug)]
pub struct Ready {
    /// `None`: the engine's own eventfd.
    pub file: Option<FileId>,
    pub readable: bool,
    pub writable: bool,
    /// The peer (or we) shut a side down, or the socket failed: it will not become unready again.
    pub hangup: bool,
}

impl Epoll {
    pub fn new() -> Result<Epoll, Errno> {
        // SAFETY: epoll_create1(2) takes no memory.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if raw < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the kernel returned this descriptor just now, so nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let events = Vec::with_capacity(EVENTS_MAX);
        Ok(Epoll { fd, events, has_pwait2: true })
    }

    /// Watches a socket, both ways, for its whole life (closing it ends the watch).
    pub fn watch(&self, socket: RawFd, file: FileId) -> Result<(), Errno> {
        let edges = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let data = u64::from(file.generation) << 32 | u64::from(file.slot);
        assert_ne!(data, WAKE, "a file id must not look like the waker");
        self.add(socket, edges as u32, data)
    }

    pub fn watch_wake(&self, eventfd: RawFd) -> Result<(), Errno> {
        self.add(eventfd, libc::EPOLLIN as u32, WAKE)
    }

    fn add(&self, fd: RawFd, events: u32, data: u64) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: `event` is a local that outlives the call; the kernel copies it.
        match unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    /// Waits for edges, at most `timeout` (`None`: for ever). A signal ends the wait early.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<usize, Errno> {
        self.events.clear();
        let n = match self.has_pwait2 {
            true => self.pwait2(timeout),
            false => self.wait_ms(timeout),
        };
        if n >= 0 {
            // SAFETY: the kernel has filled the first `n` of at most EVENTS_MAX entries, which is
            // the capacity reserved in `new`.
            unsafe { self.events.set_len(n as usize) };
            return Ok(n as usize);
        }
        match Errno::last() {
            Errno::EINTR => Ok(0),
            // Kernels before 5.11, and seccomp profiles older than the call.
            Errno(libc::ENOSYS | libc::EPERM) if self.has_pwait2 => {
                self.has_pwait2 = false;
                self.wait(timeout)
            }
            errno => Err(errno),
        }
    }

    fn pwait2(&mut self, timeout: Option<Duration>) -> libc::c_int {
        let spec = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs() as libc::time_t,
            tv_nsec: t.subsec_nanos().into(),
        });
        let spec = spec.as_ref().map_or(std::ptr::null(), |spec| spec as *const libc::timespec);
        let (fd, at) = (self.fd.as_raw_fd(), self.events.as_mut_ptr());
        // SAFETY: `at` has room for EVENTS_MAX events (reserved in `new`), `spec` is null or
        // points at a local that outlives the call, and no signal mask is passed. The raw call is
        // used because not every C library wraps it; its last argument is the kernel's sigset size.
        let n = unsafe {
            let (no_mask, mask_len) = (std::ptr::null::<libc::sigset_t>(), 8usize);
            libc::syscall(libc::SYS_epoll_pwait2, fd, at, EVENTS_MAX, spec, no_mask, mask_len)
        };
        n as libc::c_int
    }

    fn wait_ms(&mut self, timeout: Option<Duration>) -> libc::c_int {
        let ms = timeout.map_or(-1, |t| t.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32);
        let (fd, at) = (self.fd.as_raw_fd(), self.events.as_mut_ptr());
        // SAFETY: `at` has room for EVENTS_MAX events, reserved in `new`.
        unsafe { libc::epoll_wait(fd, at, EVENTS_MAX as libc::c_int, ms) }
    }

    /// The `index`-th edge of the last wait.
    pub fn ready(&self, index: usize) -> Ready {
        let event = self.events[index];
        let (bits, data) = (event.events as libc::c_int, event.u64);
        let file = FileId { slot: data as u32, generation: (data >> 32) as u32 };
        let hangup = bits & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) != 0;
        Ready {
            file: (data != WAKE).then_some(file),
            readable: hangup || bits & libc::EPOLLIN != 0,
            writable: hangup || bits & libc::EPOLLOUT != 0,
            hangup,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sys;

    #[test]
    fn both_ways_to_wait_see_the_wake_and_keep_time() {
        let mut epoll = Epoll::new().unwrap();
        let event = sys::eventfd(true).unwrap();
        epoll.watch_wake(event.as_raw_fd()).unwrap();
        for has_pwait2 in [true, false] {
            epoll.has_pwait2 = has_pwait2;
            let before = sys::now();
            assert_eq!(epoll.wait(Some(Duration::from_micros(2500))), Ok(0));
            assert!(sys::now().since(before).0 >= 2500);
            sys::eventfd_add(event.as_raw_fd());
            assert_eq!(epoll.wait(None), Ok(1));
            assert_eq!(epoll.ready(0).file, None);
            sys::eventfd_take(event.as_raw_fd()).unwrap();
        }
    }
}

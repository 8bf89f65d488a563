//! Asking the process to stop: SIGTERM and SIGINT, as a call on a thread of its own.
//!
//! Owns: the handler (one atomic store and one write to an eventfd, nothing else), the watcher
//! thread, and the descriptor limit. Never does: stop anything itself.
//! Left: `sys`, `kernel`. Right: `server`, `cli`.

use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::kernel::{self, Limit};
use super::op::Errno;
use super::sys;

/// The last signal that came, and how many did.
static LAST: AtomicI32 = AtomicI32::new(0);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The eventfd the handler writes to; never closed, as a handler may run at any time.
static EVENT: AtomicI32 = AtomicI32::new(-1);

/// A request to stop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// SIGTERM or SIGINT.
    pub signal: i32,
    /// 1 for the first. A second one comes from someone who has no patience.
    pub nth: u32,
}

/// Calls `on_stop` for each SIGTERM or SIGINT from now on, on a thread of its own, where it may
/// do anything (set a flag, wake the shards). Once in a process's life: EEXIST after that.
pub fn on_stop(on_stop: impl Fn(Stop) + Send + 'static) -> Result<(), Errno> {
    let event = sys::eventfd(false)?.into_raw_fd();
    if EVENT.compare_exchange(-1, event, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        drop(super::entries::own(event as u32));
        return Err(Errno::EEXIST);
    }
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(move || watch(event, &on_stop))
        .map_err(|error| sys::errno_of(&error))?;
    install(libc::SIGTERM)?;
    install(libc::SIGINT)
}

fn watch(event: RawFd, on_stop: &dyn Fn(Stop)) {
    let mut seen = 0;
    loop {
        match sys::eventfd_take(event) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(_) => return,
        }
        let (signal, count) = (LAST.load(Ordering::SeqCst), COUNT.load(Ordering::SeqCst));
        while seen < count {
            seen += 1;
            on_stop(Stop { signal, nth: seen });
        }
    }
}

/// Async-signal-safe: two atomics, one write(2), errno as it was.
extern "C" fn handle(signal: libc::c_int) {
    // SAFETY: __errno_location gives this thread's errno, valid for the thread's life.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    LAST.store(signal, Ordering::SeqCst);
    COUNT.fetch_add(1, Ordering::SeqCst);
    sys::eventfd_add(EVENT.load(Ordering::SeqCst));
    // SAFETY: as above.
    unsafe { *errno = saved };
}

fn install(signal: libc::c_int) -> Result<(), Errno> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero is a valid sigaction: no flags, an empty mask, the default handler.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` is a local whose handler is an extern "C" function of the one-argument
    // form (no SA_SIGINFO) that only does what a handler may.
    match unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

/// Raises the soft limit of open files to the hard one (R68) and gives what then holds.
pub fn raise_nofile() -> Result<Limit, Errno> {
    let now = kernel::nofile();
    let hard = now.hard.unwrap_or(libc::RLIM64_INFINITY);
    let wanted = libc::rlimit64 { rlim_cur: hard, rlim_max: hard };
    // SAFETY: `wanted` is a local of the type the call reads.
    match unsafe { libc::setrlimit64(libc::RLIMIT_NOFILE, &wanted) } {
        0 => Ok(kernel::nofile()),
        _ => Err(Errno::last()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn each_signal_is_told_once_and_in_order() {
        let (sender, stops) = channel();
        on_stop(move |stop| sender.send(stop).unwrap()).unwrap();
        for nth in 1..=2 {
            // SAFETY: raise(3) takes no memory; the handler above is installed for SIGTERM.
            assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
            let stop = stops.recv_timeout(Duration::from_secs(30)).unwrap();
            assert_eq!(stop, Stop { signal: libc::SIGTERM, nth });
        }
        assert_eq!(on_stop(|_| {}), Err(Errno::EEXIST));
    }

    #[test]
    fn the_soft_limit_reaches_the_hard_one() {
        let limit = raise_nofile().unwrap();
        assert_eq!(limit.soft, limit.hard);
    }
}

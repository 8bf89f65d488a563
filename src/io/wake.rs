//! Waking a sleeping engine from any thread.
//!
//! Owns: one eventfd and the state that spares writes to it. Never does: sleep.
//! Left: `sys`. Right: the engines, `pool`.
//!
//! An eventfd, not MSG_RING: wakers are signal watchers, control threads and worker pools, which
//! have no ring to send from, and the same waker then serves both engines. A wake that finds the
//! engine awake is one atomic swap.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::op::{Errno, Waker};
use super::sys;

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const WOKEN: u8 = 2;

pub struct Wake {
    event: OwnedFd,
    state: AtomicU8,
}

impl Wake {
    /// The ring reads a blocking eventfd, epoll a non-blocking one.
    pub fn new(nonblocking: bool) -> Result<Arc<Wake>, Errno> {
        Ok(Arc::new(Wake { event: sys::eventfd(nonblocking)?, state: AtomicU8::new(AWAKE) }))
    }

    pub fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub fn wake(&self) {
        if self.state.swap(WOKEN, Ordering::SeqCst) == ASLEEP {
            sys::eventfd_add(self.fd());
        }
    }

    /// Before a sleep: false when a wake-up came since the last one, so do not sleep.
    /// Every true is followed by [`Wake::awake`].
    pub fn may_sleep(&self) -> bool {
        let slept = self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        if slept.is_err() {
            self.state.store(AWAKE, Ordering::SeqCst);
        }
        slept.is_ok()
    }

    /// After a sleep: true when a wake-up came.
    pub fn awake(&self) -> bool {
        self.state.swap(AWAKE, Ordering::SeqCst) == WOKEN
    }

    pub fn waker(self: &Arc<Wake>) -> Waker {
        let wake = Arc::clone(self);
        Waker(Arc::new(move || wake.wake()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_between_two_sleeps_stops_the_next_one_only() {
        let wake = Wake::new(true).unwrap();
        wake.wake();
        wake.wake();
        assert!(!wake.may_sleep());
        assert!(wake.may_sleep());
        assert!(sys::eventfd_take(wake.fd()).is_err(), "nobody slept: no write");
        wake.wake();
        assert_eq!(sys::eventfd_take(wake.fd()), Ok(1));
        assert!(wake.awake());
        assert!(wake.may_sleep());
        assert!(!wake.awake());
    }
}

//! Durable direct writes at a queue depth, on a ring of their own.
//!
//! Owns: one small ring that keeps `depth` `RWF_DSYNC` writes in flight over a pre-written file.
//! Never does: timing policy (the caller says when to stop). Left: `io-uring`. Right:
//! `ceiling::flush`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};

use super::AlignedBuf;

/// A ring with one aligned block; every write sends the same bytes, as a ceiling may.
pub struct DsyncRing {
    ring: IoUring,
    block: AlignedBuf,
    depth: usize,
}

/// Whether a ring can be made here, and if not, the kernel's answer.
pub fn available() -> io::Result<()> {
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

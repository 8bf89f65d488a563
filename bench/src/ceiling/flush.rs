//! Durable writes as fast as the device takes them: fdatasync after each write, and
//! `RWF_DSYNC` direct writes at a depth.
//!
//! Owns: the loops and the choice of ring or threads for depth. Never does: group many writers
//! behind one flush (`produce` does). Left: `sys`. Right: `quick`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::append::Writes;
use super::{Bench, fresh, goes_on, pinned, prewritten};
use crate::meter::{Snapshot, Window};
use crate::row::Measured;
use crate::sys::{self, AlignedBuf, DsyncRing};

const PREWRITTEN_NAME: &str = "prewritten";

/// Who keeps several writes in flight.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Depth {
    Ring,
    Threads,
}

/// One buffered write, one fdatasync, and again: on a file that grows or on a pre-written one.
pub fn fdatasync(bench: &Bench<'_>, name: &str, batch: &[u8], grows: bool) -> io::Result<Measured> {
    let file = match grows {
        true => fresh(&bench.path(name))?,
        false => prewritten(&bench.path(PREWRITTEN_NAME), bench.prewritten_bytes)?,
    };
    let turn = if grows { u64::MAX } else { bench.prewritten_bytes / batch.len() as u64 };
    let begin = Snapshot::take(bench.device);
    let (writes, cpu) = pinned(bench.server_cpu, || {
        let mut writes = Writes::default();
        while goes_on(bench, begin.at, writes.bytes) {
            let pos = writes.count % turn * batch.len() as u64;
            let start = Instant::now();
            file.write_all_at(batch, pos)?;
            file.sync_data()?;
            writes.add(batch.len(), start);
        }
        Ok(writes)
    })?;
    let window = Window::between(&begin, &Snapshot::take(bench.device));
    Ok(writes.measured(window, cpu))
}

/// `depth` durable direct writes in flight, one after another over the pre-written file.
pub fn dsync(bench: &Bench<'_>, block: usize, depth: usize, how: Depth) -> io::Result<Measured> {
    let path = bench.path(PREWRITTEN_NAME);
    drop(prewritten(&path, bench.prewritten_bytes)?);
    let file = sys::open_direct(&path, true)?;
    let next = Positions::new(block);
    let before = sys::process_cpu();
    let begin = Snapshot::take(bench.device);
    let (writes, cpu) = match how {
        Depth::Ring => on_ring(bench, &file, block, depth, &next, begin.at)?,
        Depth::Threads => on_threads(bench, &file, block, depth, &next, begin.at)?,
    };
    let window = Window::between(&begin, &Snapshot::take(bench.device));
    let mut measured = writes.measured(window, cpu);
    if how == Depth::Ring {
        measured.engine = "uring".into();
        // What the ring hands to workers is the process's CPU time, not the thread's; no other
        // thread of it does anything meanwhile.
        measured.server_cpu = Some((sys::process_cpu() - before).as_secs_f64());
    }
    Ok(measured)
}

/// Positions of the next writes, shared by all writers; writing goes round in the file.
struct Positions {
    issued: AtomicU64,
    block: u64,
}

impl Positions {
    fn new(block: usize) -> Positions {
        Positions { issued: AtomicU64::new(0), block: block as u64 }
    }

    /// The next position, unless the loop must end.
    fn next(&self, bench: &Bench<'_>, start: Instant) -> Option<u64> {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let turn = bench.prewritten_bytes / self.block;
        goes_on(bench, start, number * self.block).then(|| number % turn * self.block)
    }
}

fn on_ring(
    bench: &Bench<'_>,
    file: &File,
    block: usize,
    depth: usize,
    next: &Positions,
    start: Instant,
) -> io::Result<(Writes, f64)> {
    pinned(bench.server_cpu, || {
        let mut ring = DsyncRing::new(AlignedBuf::zeroed(block), depth)?;
        let mut writes = Writes::default();
        ring.run(
            file,
            || next.next(bench, start),
            |took| {
                writes.latencies.record(took);
                writes.count += 1;
                writes.bytes += block as u64;
            },
        )?;
        Ok(writes)
    })
}

fn on_threads(
    bench: &Bench<'_>,
    file: &File,
    block: usize,
    depth: usize,
    next: &Positions,
    start: Instant,
) -> io::Result<(Writes, f64)> {
    let one = || {
        pinned(bench.server_cpu, || {
            let buf = AlignedBuf::zeroed(block);
            let mut writes = Writes::default();
            while let Some(pos) = next.next(bench, start) {
                let began = Instant::now();
                let n = sys::pwrite_dsync(file, &buf, pos)?;
                if n != block {
                    return Err(io::Error::other(format!("short write: {n} of {block}")));
                }
                writes.add(block, began);
            }
            Ok(writes)
        })
    };
    if depth <= 1 {
        return one();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..depth).map(|_| scope.spawn(one)).collect();
        let mut all = (Writes::default(), 0.0);
        for thread in threads {
            let joined = thread.join().map_err(|_| io::Error::other("a writer panicked"))?;
            let (writes, cpu) = joined?;
            all.0.count += writes.count;
            all.0.bytes += writes.bytes;
            all.0.latencies.merge(&writes.latencies);
            all.1 += cpu;
        }
        Ok(all)
    })
}

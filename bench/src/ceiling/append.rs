//! Raw appends to a new file, without a socket or a flush: buffered and direct.
//!
//! Owns: the two loops. Never does: durable writes (`flush` does). Left: `sys`, `meter`.
//! Right: `quick`.

use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::{Bench, fresh, goes_on, pinned};
use crate::histogram::Latencies;
use crate::load::batches::Batches;
use crate::meter::{Snapshot, Window};
use crate::row::Measured;
use crate::sys::{self, AlignedBuf};

/// Batches one after another, each in a `pwrite` of its own, then written back (M2).
pub fn buffered(bench: &Bench<'_>, name: &str, batches: &Batches) -> io::Result<Measured> {
    let file = fresh(&bench.path(name))?;
    let begin = Snapshot::take(bench.device);
    let (writes, cpu) = pinned(bench.server_cpu, || {
        let mut writes = Writes::default();
        while goes_on(bench, begin.at, writes.bytes) {
            let batch = &batches.all[writes.count as usize % batches.all.len()];
            let start = Instant::now();
            file.write_all_at(batch, writes.bytes)?;
            writes.add(batch.len(), start);
        }
        Ok(writes)
    })?;
    let end = Snapshot::take(bench.device);
    bench.device.syncfs()?;
    let drained = Window::between(&begin, &Snapshot::take(bench.device));
    let measured = writes.measured(Window::between(&begin, &end), cpu);
    Ok(Measured { drained: Some(drained), extents: sys::extents(&file), ..measured })
}

/// Aligned blocks one after another through `O_DIRECT`, extending the file; not flushed.
pub fn direct(bench: &Bench<'_>, name: &str, block: usize) -> io::Result<Measured> {
    let file = sys::open_direct(&bench.path(name), true)?;
    let buf = AlignedBuf::zeroed(block);
    let begin = Snapshot::take(bench.device);
    let (writes, cpu) = pinned(bench.server_cpu, || {
        let mut writes = Writes::default();
        while goes_on(bench, begin.at, writes.bytes) {
            let start = Instant::now();
            file.write_all_at(&buf, writes.bytes)?;
            writes.add(block, start);
        }
        Ok(writes)
    })?;
    let window = Window::between(&begin, &Snapshot::take(bench.device));
    Ok(writes.measured(window, cpu))
}

/// What a loop of writes has done.
#[derive(Default)]
pub struct Writes {
    pub count: u64,
    pub bytes: u64,
    pub latencies: Latencies,
}

impl Writes {
    pub fn add(&mut self, bytes: usize, start: Instant) {
        self.latencies.record(start.elapsed());
        self.count += 1;
        self.bytes += bytes as u64;
    }

    /// The records of a raw loop are its writes.
    pub fn measured(self, accepted: Window, cpu: f64) -> Measured {
        Measured {
            bytes: self.bytes,
            records: self.count,
            requests: self.count,
            latencies: self.latencies,
            accepted,
            drained: None,
            server_cpu: Some(cpu),
            server_cpu_ticked: false,
            client_cpu: 0.0,
            engine: "syscall".into(),

            extents: None,
            flags: Vec::new(),
            doubt: None,
        }
    }
}

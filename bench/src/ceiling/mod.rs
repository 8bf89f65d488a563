//! What this machine can do at most: each loop does the least that a row must do, and no more.
//!
//! Owns: the loops that rows are compared with (M4). Never does: the comparing (`row`, `quick`).
//! Left: `sys`, `load`, `meter`. Right: `quick`.
//!
//! Every loop uses the sizes, the depth and the geometry of the row it bounds: unaligned batches
//! that share tail blocks, files that grow as the server's do, or a pre-written file where said.

pub mod append;
pub mod fetch;
pub mod flush;
pub mod loopback;
pub mod produce;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::sys;

/// What every loop needs: where to write, for how long, how much, on which core.
#[derive(Copy, Clone)]
pub struct Bench<'a> {
    pub device: &'a Device,
    pub seconds: Duration,
    pub bytes_max: u64,
    /// Size of the pre-written file; writes go round in it.
    pub prewritten_bytes: u64,
    pub server_cpu: Option<usize>,
    pub client_cpu: Option<usize>,
}

impl Bench<'_> {
    /// A file of the run that no row has used before.
    pub fn path(&self, name: &str) -> PathBuf {
        self.device.dir().join(name)
    }
}

/// When a loop that started at `start` and has moved `bytes` must end.
fn goes_on(bench: &Bench<'_>, start: Instant, bytes: u64) -> bool {
    bytes < bench.bytes_max && start.elapsed() < bench.seconds && !sys::stopped()
}

/// Runs `body` in a thread pinned to `cpu`; its result and the CPU time it took.
fn pinned<T: Send>(
    cpu: Option<usize>,
    body: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<(T, f64)> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(cpu) = cpu {
                sys::pin_to(cpu)?;
            }
            let before = sys::thread_cpu();
            let result = body()?;
            Ok((result, (sys::thread_cpu() - before).as_secs_f64()))
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a ceiling loop panicked")))
    })
}

/// A file of `len` written, synced zeros: what a pre-written segment is.
pub fn prewritten(path: &Path, len: u64) -> io::Result<File> {
    const STEP: usize = 1 << 20;
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let zeros = vec![0; STEP];
    let mut pos = file.metadata()?.len() / STEP as u64 * STEP as u64;
    while pos < len && !sys::stopped() {
        file.write_all_at(&zeros, pos)?;
        pos += STEP as u64;
    }
    file.sync_all()?;
    Ok(file)
}

/// A new empty file.
fn fresh(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).open(path)
}

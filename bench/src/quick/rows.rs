//! How each kind of row is measured: which loop or which server, on which files.
//!
//! Owns: the dispatch, and what one row leaves for another (logs to fetch). Never does: judge.
//! Left: `ceiling`, `load`, `server`, `cold`. Right: `quick`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::plan::{BATCH, Budget, Flush, Kind};
use crate::ceiling::fetch::{Range, Via};
use crate::ceiling::flush::Depth;
use crate::ceiling::{self, Bench};
use crate::cli::Engine;
use crate::cold;
use crate::device::Device;
use crate::env::Cores;
use crate::load::batches::{self, Batches};
use crate::load::wire::{ANY_HANDLE, Cursor, Frames};
use crate::load::{CLOSED_LOOP, fetch, produce};
use crate::meter::{Snapshot, Window};
use crate::row::{Label, Measured};
use crate::server::{Server, Setup};
use crate::sys;

/// A cold row ends with its range, not with the clock; this only ends a hung one.
const COLD_SECONDS_MAX: Duration = Duration::from_secs(60);
/// Enough to see a cache below this kernel.
const LOOK_BELOW_BYTES: u64 = 128 << 20;

pub fn label(kind: Kind, pass: u32) -> Label {
    Label {
        name: kind.name(),
        arm: kind.arm(),
        work: kind.work(),
        pass,
        setup: kind.setup(),
        exposure: kind.exposure(),
    }
}

/// Carries rows out, and remembers the logs that fetch rows read.
pub struct Measure {
    engine: Engine,
    depth: Depth,
    cores: Cores,
    budget: Budget,
    /// The file of the first minimal loop under `os`, for the minimal fetch loops.
    bare_log: Option<PathBuf>,
    /// The data directory of the first server under `os`.
    data_dir: Option<PathBuf>,
}

impl Measure {
    pub fn new(engine: Engine, ring: bool, cores: Cores, budget: Budget) -> Measure {
        let depth = if ring { Depth::Ring } else { Depth::Threads };
        Measure { engine, depth, cores, budget, bare_log: None, data_dir: None }
    }

    pub fn run(&mut self, device: &Device, kind: Kind, pass: u32) -> io::Result<Measured> {
        let name = format!("p{pass}-{}", kind.name().replace(' ', "-"));
        let budget = self.budget.clone();
        let bench = Bench {
            device,
            seconds: Duration::from_secs_f64(budget.seconds(kind)),
            bytes_max: budget.bytes_max(kind),
            prewritten_bytes: budget.prewritten_bytes,
            server_cpu: self.cores.server,
            client_cpu: self.cores.client,
        };
        match kind {
            Kind::AppendBuffered => {
                ceiling::append::buffered(&bench, &name, &batches::build(BATCH))
            }
            Kind::AppendDirect => ceiling::append::direct(&bench, &name, BATCH),
            Kind::Fdatasync { block, grows } => {
                let batch = &batches::build(block).all[0];
                ceiling::flush::fdatasync(&bench, &name, batch, grows)
            }
            Kind::Dsync { block, depth } => ceiling::flush::dsync(&bench, block, depth, self.depth),
            Kind::Loopback => {
                ceiling::loopback::one_way(&Bench { bytes_max: u64::MAX, ..bench }, BATCH)
            }
            Kind::MinProduce { flush, batch } => self.min_produce(&bench, &name, flush, batch),
            Kind::MinFetch { via, cold } => self.min_fetch(&bench, via, cold),
            Kind::Produce { flush, batch } => self.produce(&bench, &name, flush, batch),
            Kind::Fetch { via, cold } => self.fetch(&bench, via, cold),
        }
    }

    fn min_produce(
        &mut self,
        bench: &Bench<'_>,
        name: &str,
        flush: Flush,
        batch: usize,
    ) -> io::Result<Measured> {
        let frames = Frames::new(ANY_HANDLE, &batches::build(batch));
        let measured = ceiling::produce::run(bench, name, &frames, flush.shape(), flush.settle())?;
        if flush == Flush::Os {
            self.bare_log.get_or_insert(bench.path(name));
        }
        Ok(measured)
    }

    fn min_fetch(&self, bench: &Bench<'_>, via: Via, cold: bool) -> io::Result<Measured> {
        let missing = || io::Error::other("no log: the minimal produce loop has not run");
        let path = self.bare_log.as_deref().ok_or_else(missing)?;
        let file = File::open(path)?;
        let len = file.metadata()?.len().min(self.budget.fetch_range_bytes);
        let heat = Heat::apply(cold, std::slice::from_ref(&file), path)?;
        let records_per_byte = records_per_byte(&batches::build(BATCH));
        let range = Range { file: &file, len, records_per_byte, once: cold };
        let seconds = if cold { COLD_SECONDS_MAX } else { bench.seconds };
        let measured = ceiling::fetch::run(&Bench { seconds, ..*bench }, range, via)?;
        Ok(heat.vouch(measured))
    }

    fn produce(
        &mut self,
        bench: &Bench<'_>,
        name: &str,
        flush: Flush,
        batch: usize,
    ) -> io::Result<Measured> {
        let data_dir = bench.path(name);
        let server = self.start(&data_dir, flush, Via::Send)?;
        let greeting = server.greet()?;
        let partition = server.create_topic()?;
        let frames = Frames::new(partition.handle, &batches::build(batch));
        let shape = flush.shape();
        let plan = produce::Plan {
            to: server.addr,
            connections: shape.connections,
            window: shape.window,
            frames: &frames,
            seconds: bench.seconds,
            bytes_max: bench.bytes_max,
            cpu: bench.client_cpu,
        };
        let before = server.cpu_seconds()?;
        let load = produce::run(&plan, bench.device)?;
        let drained = match flush {
            Flush::Os => {
                bench.device.syncfs()?;
                Some(Window::between(&load.begin, &Snapshot::take(bench.device)))
            }
            Flush::Each | Flush::Group => None,
        };
        let cpu = server.cpu_seconds()? - before;
        server.stop()?;
        let mut measured = from_load(load, cpu, greeting.engine);
        measured.drained = drained;
        measured.extents = extents_of_first(&data_dir);
        measured.flags.push(format!("the server promises: {}", greeting.promise));
        if flush == Flush::Os {
            self.data_dir.get_or_insert(data_dir);
        }
        Ok(measured)
    }

    fn fetch(&self, bench: &Bench<'_>, via: Via, cold: bool) -> io::Result<Measured> {
        let missing = || io::Error::other("no log: the produce row under os has not run");
        let data_dir = self.data_dir.as_deref().ok_or_else(missing)?;
        let server = self.start(data_dir, Flush::Os, via)?;
        let greeting = server.greet()?;
        let partition = server.find_topic()?;
        let per_byte = records_per_byte(&batches::build(BATCH));
        let range_records = (self.budget.fetch_range_bytes as f64 * per_byte) as i64;
        let end = partition.end.min(partition.start.saturating_add(range_records));
        let paths = log_files(data_dir)?;
        let files = paths.iter().map(File::open).collect::<io::Result<Vec<_>>>()?;
        let oldest = paths.first().ok_or_else(|| io::Error::other("no segment files"))?;
        let heat = Heat::apply(cold, &files, oldest)?;
        let bytes = ((end - partition.start).max(0) as f64 / per_byte) as u64;
        let plan = fetch::Plan {
            to: server.addr,
            seconds: if cold { COLD_SECONDS_MAX } else { bench.seconds },
            bytes_max: if cold { bytes } else { u64::MAX },
            records_per_byte: per_byte,
            cpu: bench.client_cpu,
        };
        let before = server.cpu_seconds()?;
        let mut cursor = Cursor::over(partition.handle, partition.start..end);
        let load = fetch::run(&plan, &mut cursor, bench.device)?;
        let cpu = server.cpu_seconds()? - before;
        server.stop()?;
        let measured = from_load(load, cpu, greeting.engine);
        Ok(heat.vouch(Measured { extents: extents_of_first(data_dir), ..measured }))
    }

    fn start(&self, data_dir: &Path, flush: Flush, via: Via) -> io::Result<Server> {
        Server::start(&Setup {
            data_dir,
            flush: flush.name(),
            fetch_path: via.name(),
            engine: self.engine.name(),
            cpu: self.cores.server,
        })
    }
}

/// What a client measured, with the server's share.
pub fn from_load(load: produce::Load, server_cpu: f64, engine: String) -> Measured {
    Measured {
        bytes: load.bytes,
        records: load.records,
        requests: load.requests,
        latencies: load.latencies,
        accepted: Window::between(&load.begin, &load.end),
        drained: None,
        server_cpu: Some(server_cpu),
        server_cpu_ticked: true,
        client_cpu: load.client_cpu,
        engine,

        extents: None,
        flags: vec![CLOSED_LOOP.into()],
        doubt: None,
    }
}

fn records_per_byte(batches: &Batches) -> f64 {
    batches.records_each as f64 / batches.bytes_each as f64
}

/// The segment files below a data directory, oldest first.
fn log_files(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for dir in std::fs::read_dir(data_dir)? {
        let dir = dir?;
        if !dir.file_type()?.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(dir.path())? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Extents of the oldest segment; rolled ones are alike.
fn extents_of_first(data_dir: &Path) -> Option<u32> {
    let first = log_files(data_dir).ok()?.into_iter().next()?;
    sys::extents(&File::open(first).ok()?)
}

/// What was done to the cache before a fetch, and what is known of it.
enum Heat {
    Hot { resident: Option<f64> },
    Cold { before: cold::Before, below: Option<cold::Below> },
}

impl Heat {
    /// `first` is one of the files, read directly to find a cache below.
    fn apply(cold: bool, files: &[File], first: &Path) -> io::Result<Heat> {
        if !cold {
            return Ok(Heat::Hot { resident: cold::warm(files)? });
        }
        let len = std::fs::metadata(first)?.len().min(LOOK_BELOW_BYTES);
        let below = cold::look_below(first, len);
        Ok(Heat::Cold { before: cold::make(files)?, below })
    }

    fn vouch(self, mut measured: Measured) -> Measured {
        match self {
            Heat::Hot { resident: None } => measured.flags.push("hot, residency unknown".into()),
            Heat::Hot { resident: Some(share) } if share < 0.999 => {
                let percent = share * 100.0;
                measured.doubt = Some(format!("not hot: only {percent:.0} % resident"));
            }
            Heat::Hot { .. } => {}
            Heat::Cold { before, below } => {
                let read = measured.accepted.disk.map(|disk| disk.read_bytes);
                measured.doubt = cold::doubt(&before, measured.bytes, read);
                let told = match below {
                    Some(below) if below.cached() => "cold in this kernel, cached below it",
                    Some(_) => "cold in this kernel; no cache seen below",
                    None => "cold in this kernel; below it unknown",
                };
                if measured.doubt.is_none() {
                    measured.flags.push(told.to_string());
                }
            }
        }
        measured
    }
}

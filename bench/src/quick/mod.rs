//! `quick`: in about two minutes, what this machine could do and what ringlog does on it.
//!
//! Question: how fast can a log append and be fetched here, under each flush policy, and how far
//! is that from the machine's own ceilings? Guess: `os` is bound by the serving core, `each` by
//! one flush a batch, `group` by flushes shared among its connections, cold fetch by the device.
//! Method: ceilings, then produce and fetch beside them, two passes in opposite order.
//! Command: `ringlog-bench quick`. Rows are too short and too few to call small differences real:
//! everything here is a screening (M10).
//!
//! Owns: the order of things, clean starts, judging after the run, output. Never does: a loop of
//! its own. Left: `plan`, `rows`, `device`. Right: `main`.

mod plan;
mod rows;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli;
use crate::device::{self, Device, Patience, median};
use crate::env::{Cores, Env};
use crate::meter::{self, Idle, Others};
use crate::row::{Arm, Row};
use crate::sys;
use crate::table;

use plan::{Budget, Kind, Room};
use rows::{Measure, label};

/// A flush faster than this never reached a medium that keeps it (M11).
const FREE_FLUSH_US: f64 = 8.0;
/// Sentinels that make a usual one to compare with.
const SENTINELS_MIN: usize = 3;

/// All that a run leaves behind.
#[derive(Serialize)]
struct Report<'a> {
    experiment: &'static str,
    label: &'static str,
    settings: &'a cli::Quick,
    budget: &'a Budget,
    env: &'a Env,
    cores: Cores,
    idle_busy_cores: Option<f64>,
    usual_sentinel_us: Option<f64>,
    interrupted: bool,
    rows: &'a [Row],
}

pub fn main(flags: &cli::Quick) -> Result<(), String> {
    let parent = flags.dir.clone().map_or_else(default_dir, Ok).map_err(|e| e.to_string())?;
    let why = |error: io::Error| format!("{}: {error}", parent.display());
    std::fs::create_dir_all(&parent).map_err(why)?;
    sys::catch_stop_signals().map_err(|error| format!("signals: {error}"))?;
    let folder =
        tempfile::Builder::new().prefix("ringlog-bench-").tempdir_in(&parent).map_err(why)?;
    let outcome = Run::new(flags, folder.path()).and_then(|run| run.whole());
    match flags.keep {
        true => eprintln!("kept: {}", folder.keep().display()),
        false => folder.close().map_err(why)?,
    }
    outcome
}

/// A folder below the build's `target`, where the binary itself lies.
pub fn default_dir() -> io::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let target = exe.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == "target"));
    Ok(target.map_or_else(|| PathBuf::from("target"), Path::to_path_buf).join("bench-data"))
}

struct Run<'a> {
    flags: &'a cli::Quick,
    device: Device,
    env: Env,
    cores: Cores,
    kinds: Vec<Kind>,
    budget: Budget,
    measure: Measure,
    sentinels: Vec<f64>,
    rows: Vec<Row>,
    /// Rows that ended in an error.
    failed: u32,
}

impl<'a> Run<'a> {
    fn new(flags: &'a cli::Quick, dir: &Path) -> Result<Run<'a>, String> {
        let patience = match flags.smoke {
            true => Patience { clean: Duration::from_millis(200), sentinel_tries: 1 },
            false => Patience { clean: Duration::from_secs(10), sentinel_tries: 4 },
        };
        let device = Device::open(dir, patience).map_err(|e| format!("{}: {e}", dir.display()))?;
        let uring = sys::ring_available().map_err(|error| error.to_string());
        if let (cli::Engine::Uring, Err(why)) = (flags.engine, &uring) {
            return Err(format!("--engine uring: io_uring cannot be used here ({why})"));
        }
        let allowed = sys::allowed_cpus().map_err(|error| error.to_string())?;
        let cores = Cores::choose(&allowed);
        let kinds = plan::rows(flags.ceilings, &flags.rows);
        let room = room(flags, dir).map_err(|error| error.to_string())?;
        let budget = Budget::fit(&kinds, flags.passes, flags.seconds_per_row, flags.smoke, room)?;
        let ring = flags.engine != cli::Engine::Syscall && uring.is_ok();
        let measure = Measure::new(flags.engine, ring, cores, budget.clone());
        let env = Env::collect(&device, cores, uring);
        let (sentinels, rows) = (Vec::new(), Vec::new());
        Ok(Run { flags, device, env, cores, kinds, budget, measure, sentinels, rows, failed: 0 })
    }

    fn whole(mut self) -> Result<(), String> {
        self.announce();
        let span = Duration::from_millis(if self.flags.smoke { 50 } else { 1000 });
        let idle = Idle::observe(&self.device, span);
        if idle.busy.is_none() {
            let gone = "other programs ran before the first row: no CPU figure of the machine";
            self.env.warnings.push(gone.to_string());
        }
        self.all_passes(&idle).map_err(|error| error.to_string())?;
        let usual = self.judge();
        self.print(&idle, usual).map_err(|error| error.to_string())?;
        match (sys::stopped(), self.failed) {
            (true, _) => Err("stopped by a signal: what was measured so far is above".into()),
            (false, 0) => Ok(()),
            (false, failed) => Err(format!("{failed} rows could not be measured: see the notes")),
        }
    }

    fn announce(&self) {
        let unknown = || "unknown".to_string();
        let fs = self.device.mount.as_ref().map_or_else(unknown, |mount| mount.fs.clone());
        let disk = self.device.disk.clone().unwrap_or_else(|| "none".to_string());
        eprintln!("directory  {}", self.device.dir().display());
        eprintln!("device     {disk} ({fs})");
        eprintln!("rows       {} in {} passes", self.kinds.len(), self.flags.passes);
        eprintln!("writes     up to {} MiB of payload", self.budget.total_bytes >> 20);
        if self.budget.scale < 1.0 {
            eprintln!("           (rows cut to {:.0} % to fit)", self.budget.scale * 100.0);
        }
        self.env.warnings.iter().for_each(|warning| eprintln!("warning    {warning}"));
    }

    fn all_passes(&mut self, idle: &Idle) -> io::Result<()> {
        let bar = ProgressBar::new(self.kinds.len() as u64 * u64::from(self.flags.passes));
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
        bar.set_style(style.map_err(io::Error::other)?);
        for pass in 1..=self.flags.passes {
            let mut kinds = self.kinds.clone();
            if pass % 2 == 0 {
                kinds.reverse();
            }
            for kind in kinds {
                if sys::stopped() {
                    bar.abandon();
                    return Ok(());
                }
                bar.set_message(format!("pass {pass}: {}", kind.name()));
                self.one_row(kind, pass, idle)?;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn one_row(&mut self, kind: Kind, pass: u32, idle: &Idle) -> io::Result<()> {
        let usual = (self.sentinels.len() >= SENTINELS_MIN)
            .then(|| median(&mut self.sentinels.clone()))
            .flatten();
        let start = self.device.clean_start(usual)?;
        self.sentinels.push(start.sentinel_us);
        let others = Others::watch();
        let mut row = match self.measure.run(&self.device, kind, pass) {
            Ok(measured) => Row::new(label(kind, pass), measured, idle),
            Err(error) => {
                // What this place cannot do is a finding; anything else is a failure.
                self.failed += u32::from(error.kind() != io::ErrorKind::Unsupported);
                Row::left_out(label(kind, pass), error.to_string())
            }
        };
        row.judge_others(others.share());
        row.sentinel_us = start.sentinel_us;
        row.invalid.extend(start.reason);
        row.cpu_pressure = meter::pressure_some("cpu");
        row.io_pressure = meter::pressure_some("io");
        if sys::stopped() {
            row.invalid.push("cut short by a signal".to_string());
        }
        if !self.device.is_disk() {
            row.flag("no verdict on a disk: see the file system");
        }
        if self.cores.shared() {
            row.flag("client and server share one core");
        }
        self.rows.push(row);
        Ok(())
    }

    /// After the run: sentinels against the usual one of all rows, then ratios of what is valid.
    fn judge(&mut self) -> Option<f64> {
        let usual = median(&mut self.sentinels.clone());
        // Without a disk the sentinel times memory, and its few microseconds say nothing.
        let known = self.sentinels.len() >= SENTINELS_MIN && self.device.is_disk();
        if let Some(usual) = usual.filter(|_| known) {
            self.rows.iter_mut().for_each(|row| row.judge_sentinel(usual));
        }
        let ceilings: Vec<Row> =
            self.rows.iter().filter(|row| row.arm == Arm::Ceiling).cloned().collect();
        for kind in &self.kinds {
            let (name, bounds) = (kind.name(), kind.ceilings());
            let names: Vec<String> = bounds.iter().map(|bound| bound.name()).collect();
            for row in self.rows.iter_mut().filter(|row| row.name == name) {
                if let Some(best) = best_ceiling(&ceilings, &names, row.pass) {
                    row.compare(best);
                }
            }
        }
        let free = self.rows.iter().find(|row| {
            row.name.starts_with("fdatasync pre")
                && row.latency.p50_us.is_some_and(|us| us < FREE_FLUSH_US)
        });
        if let Some(row) = free.filter(|_| self.device.is_disk()) {
            self.env.warnings.push(format!(
                "{}: a flush costs nothing here, so the device may not keep what it is given",
                row.name
            ));
        }
        usual
    }

    /// The engine asked for, and the one that the server said it runs on.
    fn engines(&self) -> String {
        let asked = self.flags.engine.name();
        let served = self.rows.iter().find(|row| row.arm == Arm::Server && row.bytes > 0);
        match served {
            Some(row) => format!("engine {asked}: the server ran on {}", row.engine),
            None => format!("engine {asked}: no server ran"),
        }
    }

    fn print(&self, idle: &Idle, usual: Option<f64>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.flags.json {
            let mut heading = self.env.heading();
            heading.push(self.engines());
            let text = table::render(&heading, &self.rows, &self.env.warnings);
            return out.write_all(text.as_bytes());
        }
        let report = Report {
            experiment: "quick",
            label: "screening",
            settings: self.flags,
            budget: &self.budget,
            env: &self.env,
            cores: self.cores,
            idle_busy_cores: idle.busy,
            usual_sentinel_us: usual,
            interrupted: sys::stopped(),
            rows: &self.rows,
        };
        serde_json::to_writer_pretty(&mut out, &report).map_err(io::Error::other)?;
        writeln!(out)
    }
}

/// The fastest of the named ceilings in a pass. All must be valid: the missing one may have been
/// the faster.
fn best_ceiling<'r>(ceilings: &'r [Row], names: &[String], pass: u32) -> Option<&'r Row> {
    let of_pass: Vec<&Row> =
        ceilings.iter().filter(|row| row.pass == pass && names.contains(&row.name)).collect();
    let complete = of_pass.len() == names.len() && of_pass.iter().all(|row| row.is_valid());
    complete.then(|| of_pass.into_iter().max_by(|a, b| a.rate().total_cmp(&b.rate()))).flatten()
}

fn room(flags: &cli::Quick, dir: &Path) -> io::Result<Room> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Ok(Room {
        max_write: flags.max_write,
        free_disk: sys::free_bytes(dir)?,
        free_memory: device::meminfo_bytes(&meminfo, "MemAvailable").unwrap_or(4 << 30),
    })
}

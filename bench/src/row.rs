//! One result: what was measured, at what cost, what bounded it, and whether it may be used.
//!
//! Owns: the fields of a row, its arithmetic (rates, CPU a GB, bounds, ratios), its validity.
//! Never does: measure, print. Left: `histogram`, `meter`. Right: `quick`, `table`.

use serde::{Deserialize, Serialize};

use crate::histogram::{Latencies, Summary};
use crate::meter::{Idle, OTHERS_CORE_MAX, Window};

/// Above this share of one core, or of the device's time, that resource bounds the row.
const SATURATED: f64 = 0.85;
/// Steal that makes a row invalid, in percent (M13).
const STEAL_PERCENT_MAX: f64 = 1.0;
/// CPU seconds below which a figure counted in ticks of 10 ms on each core is not printed.
const TICKED_CPU_MIN: f64 = 0.25;
/// Movement of the sentinel that makes a row invalid (M9).
const SENTINEL_MOVED_MAX: f64 = 0.2;

pub const GB: f64 = 1e9;

/// Whether a row is a bound to compare with or the thing compared.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    Ceiling,
    Server,
}

/// The resource that kept a row from being faster (M3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    Device,
    /// The loop's own core, busy copying into or out of memory.
    MemoryCopy,
    ServerCpu,
    ClientCpu,
    /// Both ends of a socket near saturation: the loopback itself.
    Network,
    /// Nothing was saturated: requests in flight, times how long one takes.
    Window,
    /// The device's counters cannot be read, and no core was saturated.
    Unknown,
}

impl Bound {
    pub fn short(self) -> &'static str {
        match self {
            Bound::Device => "device",
            Bound::MemoryCopy => "memcpy",
            Bound::ServerCpu => "server",
            Bound::ClientCpu => "client",
            Bound::Network => "socket",
            Bound::Window => "window",
            Bound::Unknown => "?",
        }
    }
}

/// Where a row's bytes go: decides what a saturated core is called.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// One thread and the file, no socket.
    File,
    /// Two threads and a socket, no file.
    Socket,
    /// A client and something that serves it from a file.
    Served,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub bytes_per_s: f64,
    pub records_per_s: f64,
}

impl Rate {
    pub fn of(bytes: u64, records: u64, seconds: f64) -> Rate {
        let seconds = seconds.max(1e-9);
        Rate { bytes_per_s: bytes as f64 / seconds, records_per_s: records as f64 / seconds }
    }
}

/// CPU seconds for each 10^9 payload bytes, twice (M3).
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuPerGb {
    /// The serving process or loop whole, ring workers included.
    pub server: Option<f64>,
    /// Machine busy less client less idle, through the drain: kernel threads are not free.
    pub machine: Option<f64>,
}

/// Shares of the resources that could have bounded the row, 1.0 being all of one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    pub server_core: Option<f64>,
    pub client_core: Option<f64>,
    pub device_time: Option<f64>,
}

/// This row's rate over the matching ceiling of the same pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CeilingShare {
    pub name: String,
    pub percent: f64,
}

/// What a row's body measured; [`Row::new`] makes the row of it.
pub struct Measured {
    pub bytes: u64,
    pub records: u64,
    pub requests: u64,
    pub latencies: Latencies,
    /// Begin to the last ack or byte.
    pub accepted: Window,
    /// Begin to the end of the drain, for buffered rows.
    pub drained: Option<Window>,
    /// CPU seconds of the serving process or loop, through the drain.
    pub server_cpu: Option<f64>,
    /// Whether that comes from `/proc`, in clock ticks, not from a thread's own clock.
    pub server_cpu_ticked: bool,
    pub client_cpu: f64,
    pub engine: String,
    /// Extents of the file written or read: how old and scattered it is.
    pub extents: Option<u32>,
    pub flags: Vec<String>,
    /// Why the body itself cannot vouch for its figure.
    pub doubt: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub arm: Arm,
    pub work: Work,
    pub pass: u32,
    pub engine: String,
    pub setup: String,
    pub seconds: f64,
    pub bytes: u64,
    pub records: u64,
    pub requests: u64,
    pub accepted: Rate,
    pub drained: Option<Rate>,
    pub drain_seconds: Option<f64>,
    pub latency: Summary,
    pub ceiling: Option<CeilingShare>,
    pub cpu_s_per_gb: CpuPerGb,
    pub shares: Shares,
    pub bound: Bound,
    pub device_written: Option<u64>,
    pub device_read: Option<u64>,
    pub device_flushes: Option<u64>,
    /// Device bytes written over payload bytes, after the drain, less the idle baseline.
    pub write_amplification: Option<f64>,
    /// What an ack leaves at risk (M1).
    pub exposure: Option<String>,
    /// Extents of the file written or read: how scattered it is.
    pub file_extents: Option<u32>,
    pub sentinel_us: f64,
    pub steal_percent: Option<f64>,
    pub cpu_pressure: Option<f64>,
    pub io_pressure: Option<f64>,
    /// User time of other programs during the row, in cores.
    pub others_core: Option<f64>,
    pub flags: Vec<String>,
    /// Reasons for which the row must not be used; empty means valid.
    pub invalid: Vec<String>,
}

/// What a row is, known before it runs.
#[derive(Clone, Debug)]
pub struct Label {
    pub name: String,
    pub arm: Arm,
    pub work: Work,
    pub pass: u32,
    pub setup: String,
    pub exposure: Option<String>,
}

impl Row {
    pub fn new(label: Label, measured: Measured, idle: &Idle) -> Row {
        let seconds = measured.accepted.wall.as_secs_f64();
        let whole = measured.drained.unwrap_or(measured.accepted);
        let shares = shares(&measured, seconds);
        let written = whole.disk.map(|disk| disk.written_bytes);
        let steal = whole.cpu.map(|cpu| cpu.steal_percent());
        let mut row = Row {
            name: label.name,
            arm: label.arm,
            work: label.work,
            pass: label.pass,
            engine: measured.engine.clone(),
            setup: label.setup,
            seconds,
            bytes: measured.bytes,
            records: measured.records,
            requests: measured.requests,
            accepted: Rate::of(measured.bytes, measured.records, seconds),
            drained: measured.drained.map(|window| {
                Rate::of(measured.bytes, measured.records, window.wall.as_secs_f64())
            }),
            drain_seconds: measured.drained.map(|window| window.wall.as_secs_f64() - seconds),
            latency: measured.latencies.summary(),
            ceiling: None,
            cpu_s_per_gb: cpu_per_gb(&measured, &whole, idle),
            shares,
            bound: bound(label.work, &shares),
            device_written: written,
            device_read: whole.disk.map(|disk| disk.read_bytes),
            device_flushes: whole.disk.map(|disk| disk.flushes),
            write_amplification: written
                .and_then(|written| amplification(written, &measured, &whole, idle)),
            exposure: label.exposure,
            file_extents: measured.extents,
            sentinel_us: 0.0,
            steal_percent: steal,
            cpu_pressure: None,
            io_pressure: None,
            others_core: None,
            flags: measured.flags.clone(),
            invalid: Vec::new(),
        };
        row.label_memory(&measured);
        row.judge(measured.doubt, steal);
        row
    }

    /// A row that could not be measured at all: listed with its reason, without figures.
    pub fn left_out(label: Label, reason: String) -> Row {
        let nothing = Measured {
            bytes: 0,
            records: 0,
            requests: 0,
            latencies: Latencies::default(),
            accepted: Window::default(),
            drained: None,
            server_cpu: None,
            server_cpu_ticked: false,
            client_cpu: 0.0,
            engine: String::from("-"),
            extents: None,
            flags: Vec::new(),
            doubt: Some(reason),
        };
        Row { bound: Bound::Unknown, ..Row::new(label, nothing, &Idle::default()) }
    }

    pub fn is_valid(&self) -> bool {
        self.invalid.is_empty()
    }

    /// The rate that stands for the row in a ratio: what was accepted.
    pub fn rate(&self) -> f64 {
        self.accepted.bytes_per_s
    }

    pub fn flag(&mut self, flag: impl Into<String>) {
        let flag = flag.into();
        if !self.flags.contains(&flag) {
            self.flags.push(flag);
        }
    }

    /// M2: a buffered row that left less than half its bytes on the device measured memory.
    fn label_memory(&mut self, measured: &Measured) {
        if measured.drained.is_none() || measured.bytes == 0 {
            return;
        }
        match measured.accepted.disk {
            Some(disk) if disk.written_bytes * 2 < measured.bytes => self.flag("into memory"),
            Some(_) => {}
            None => self.flag("unknown how much reached a device"),
        }
    }

    fn judge(&mut self, doubt: Option<String>, steal: Option<f64>) {
        self.invalid.extend(doubt);
        if let Some(steal) = steal.filter(|&steal| steal > STEAL_PERCENT_MAX) {
            self.invalid.push(format!("steal {steal:.1} %"));
        }
        if self.bytes == 0 && self.invalid.is_empty() {
            self.invalid.push("nothing was transferred".to_string());
        }
    }

    /// Rows that share the machine with other programs are no measurement of this one.
    pub fn judge_others(&mut self, share: Option<f64>) {
        self.others_core = share;
        if let Some(share) = share.filter(|&share| share > OTHERS_CORE_MAX) {
            self.invalid.push(format!("other programs used {:.0} % of a core", share * 100.0));
        }
    }

    /// M9: compares this row's sentinel with the usual one of the run.
    pub fn judge_sentinel(&mut self, usual_us: f64) {
        if usual_us <= 0.0 || self.sentinel_us <= 0.0 {
            return;
        }
        let moved = self.sentinel_us / usual_us - 1.0;
        if moved.abs() > SENTINEL_MOVED_MAX {
            self.invalid.push(format!("fdatasync sentinel moved by {:+.0} %", moved * 100.0));
        }
    }

    /// M4: sets the share of a ceiling of the same pass; only valid rows enter a ratio.
    pub fn compare(&mut self, ceiling: &Row) {
        let usable = self.is_valid() && ceiling.is_valid() && ceiling.rate() > 0.0;
        if !usable || ceiling.pass != self.pass {
            return;
        }
        let percent = 100.0 * self.rate() / ceiling.rate();
        if percent > 100.0 {
            self.flag("above its ceiling: the ceiling loop is not one here");
        }
        self.ceiling = Some(CeilingShare { name: ceiling.name.clone(), percent });
    }
}

fn shares(measured: &Measured, seconds: f64) -> Shares {
    let seconds = seconds.max(1e-9);
    // The server's CPU runs through the drain; nearly all of it falls before.
    Shares {
        server_core: measured.server_cpu.map(|cpu| cpu / seconds),
        client_core: (measured.client_cpu > 0.0).then_some(measured.client_cpu / seconds),
        device_time: measured.accepted.disk.map(|disk| disk.busy_ms as f64 / 1e3 / seconds),
    }
}

fn bound(work: Work, shares: &Shares) -> Bound {
    let server = shares.server_core.unwrap_or(0.0);
    let client = shares.client_core.unwrap_or(0.0);
    let device = shares.device_time.unwrap_or(0.0);
    let cores_full = server >= SATURATED || client >= SATURATED;
    match work {
        // A full core explains a row before a device that is merely busy in the background; a
        // loop over a file that does not compute waits for the device, whatever its counters say.
        Work::File if server >= SATURATED => Bound::MemoryCopy,
        Work::File if shares.device_time.is_some() => Bound::Device,
        Work::Socket if cores_full => Bound::Network,
        Work::Served if client >= SATURATED && client > server => Bound::ClientCpu,
        Work::Served if server >= SATURATED => Bound::ServerCpu,
        _ if device >= SATURATED => Bound::Device,
        Work::Socket => Bound::Window,
        _ if shares.device_time.is_none() => Bound::Unknown,
        _ => Bound::Window,
    }
}

/// A figure made of too few clock ticks is left out: it would be noise with a decimal point.
fn cpu_per_gb(measured: &Measured, whole: &Window, idle: &Idle) -> CpuPerGb {
    if measured.bytes == 0 {
        return CpuPerGb::default();
    }
    let gb = measured.bytes as f64 / GB;
    let machine = whole
        .cpu
        .zip(idle.busy)
        .map(|(cpu, idle)| cpu.busy - measured.client_cpu - idle * whole.wall.as_secs_f64())
        .filter(|own| *own >= TICKED_CPU_MIN)
        .map(|own| own / gb);
    let ticked = |cpu: &f64| !measured.server_cpu_ticked || *cpu >= TICKED_CPU_MIN;
    CpuPerGb { server: measured.server_cpu.filter(ticked).map(|cpu| cpu / gb), machine }
}

fn amplification(written: u64, measured: &Measured, whole: &Window, idle: &Idle) -> Option<f64> {
    let own = written as f64 - idle.written * whole.wall.as_secs_f64();
    (measured.bytes > 0).then(|| own.max(0.0) / measured.bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DiskCounters;
    use crate::meter::CpuTimes;
    use std::time::Duration;

    fn label(name: &str, arm: Arm, pass: u32) -> Label {
        let (name, setup) = (name.to_string(), String::new());
        Label { name, arm, work: Work::Served, pass, setup, exposure: None }
    }

    fn measured(bytes: u64, seconds: f64) -> Measured {
        let wall = Duration::from_secs_f64(seconds);
        let cpu = CpuTimes { busy: 1.5 * seconds, user: 0.5, idle: 0.5 * seconds, steal: 0.0 };
        let disk = DiskCounters { written_bytes: bytes, ..DiskCounters::default() };
        Measured {
            bytes,
            records: bytes / 1000,
            requests: bytes / 1000,
            latencies: Latencies::default(),
            accepted: Window { wall, cpu: Some(cpu), disk: Some(disk) },
            drained: None,
            server_cpu: Some(0.5 * seconds),
            server_cpu_ticked: true,
            client_cpu: 0.25 * seconds,
            engine: "syscall".into(),
            extents: None,
            flags: Vec::new(),
            doubt: None,
        }
    }

    fn row(bytes: u64) -> Row {
        Row::new(label("x", Arm::Server, 1), measured(bytes, 2.0), &Idle::default())
    }

    #[test]
    fn rates_cpu_and_amplification_of_known_numbers() {
        let idle = Idle { busy: Some(0.25), written: 5e8 };
        let row = Row::new(label("x", Arm::Server, 1), measured(4_000_000_000, 2.0), &idle);
        assert_eq!(row.accepted, Rate { bytes_per_s: 2e9, records_per_s: 2e6 });
        // 1.0 s of the server for 4 GB; machine 3.0 busy - 0.5 client - 0.5 idle.
        assert_eq!(row.cpu_s_per_gb, CpuPerGb { server: Some(0.25), machine: Some(0.5) });
        assert_eq!(row.write_amplification, Some(0.75));
        assert!(row.is_valid());
        // Without a baseline there is nothing to subtract, so there is no figure.
        let blind = Idle { busy: None, ..idle };
        let row = Row::new(label("x", Arm::Server, 1), measured(4_000_000_000, 2.0), &blind);
        assert_eq!(row.cpu_s_per_gb, CpuPerGb { server: Some(0.25), machine: None });
    }

    #[test]
    fn cpu_of_a_few_ticks_is_not_printed() {
        let mut short = measured(4_000_000_000, 0.1);
        let per_gb =
            |measured: &Measured| cpu_per_gb(measured, &measured.accepted, &Idle::default());
        assert_eq!(per_gb(&short), CpuPerGb::default());
        short.server_cpu_ticked = false;
        assert_eq!(per_gb(&short).server, Some(0.0125));
    }

    #[test]
    fn ratio_is_taken_within_a_pass_between_valid_rows_only() {
        let mut half = row(1_000_000);
        let whole =
            Row::new(label("c", Arm::Ceiling, 1), measured(2_000_000, 2.0), &Idle::default());
        half.compare(&whole);
        assert_eq!(half.ceiling, Some(CeilingShare { name: "c".into(), percent: 50.0 }));

        let mut other_pass = row(1_000_000);
        let pass_2 = label("c", Arm::Ceiling, 2);
        other_pass.compare(&Row::new(pass_2, measured(2_000_000, 2.0), &Idle::default()));
        assert_eq!(other_pass.ceiling, None);

        let mut against_invalid = row(1_000_000);
        let bad = Row { invalid: vec!["moved".into()], ..whole.clone() };
        against_invalid.compare(&bad);
        assert_eq!(against_invalid.ceiling, None);

        let mut invalid = Row { invalid: vec!["moved".into()], ..row(1_000_000) };
        invalid.compare(&whole);
        assert_eq!(invalid.ceiling, None);
    }

    #[test]
    fn above_its_ceiling_is_flagged() {
        let mut more = row(3_000_000);
        more.compare(&row(2_000_000));
        assert_eq!(more.ceiling.as_ref().unwrap().percent, 150.0);
        assert!(more.flags[0].contains("above its ceiling"));
    }

    #[test]
    fn steal_and_a_moved_sentinel_make_a_row_invalid_and_say_why() {
        let mut stolen = measured(1_000_000, 2.0);
        stolen.accepted.cpu = Some(CpuTimes { busy: 1.0, user: 0.5, idle: 0.9, steal: 0.1 });
        let stolen = Row::new(label("x", Arm::Server, 1), stolen, &Idle::default());
        assert_eq!(stolen.invalid, vec!["steal 5.0 %"]);

        let mut moved = Row { sentinel_us: 121.0, ..row(1_000_000) };
        moved.judge_sentinel(100.0);
        assert_eq!(moved.invalid, vec!["fdatasync sentinel moved by +21 %"]);
        let mut steady = Row { sentinel_us: 119.0, ..row(1_000_000) };
        steady.judge_sentinel(100.0);
        assert!(steady.is_valid());
        let mut faster = Row { sentinel_us: 79.0, ..row(1_000_000) };
        faster.judge_sentinel(100.0);
        assert!(!faster.is_valid());
    }

    #[test]
    fn other_programs_make_a_row_invalid() {
        let mut row = row(1_000_000);
        row.judge_others(Some(0.1));
        row.judge_others(None);
        assert!(row.is_valid());
        row.judge_others(Some(0.37));
        assert_eq!(row.invalid, vec!["other programs used 37 % of a core"]);
    }

    #[test]
    fn less_than_half_on_the_device_is_memory() {
        let with = |on_device: u64, drained: bool| {
            let mut measured = measured(1_000_000, 2.0);
            let disk = DiskCounters { written_bytes: on_device, ..DiskCounters::default() };
            measured.accepted.disk = Some(disk);
            measured.drained = drained.then_some(measured.accepted);
            Row::new(label("x", Arm::Server, 1), measured, &Idle::default()).flags
        };
        assert_eq!(with(499_999, true), vec!["into memory"]);
        assert!(with(500_000, true).is_empty());
        assert!(with(0, false).is_empty());
    }

    #[test]
    fn what_is_full_bounds_the_row() {
        let of = |server: f64, client: f64, device: f64| Shares {
            server_core: Some(server),
            client_core: Some(client),
            device_time: Some(device),
        };
        assert_eq!(bound(Work::Served, &of(0.95, 0.5, 0.99)), Bound::ServerCpu);
        assert_eq!(bound(Work::Served, &of(0.9, 0.95, 0.0)), Bound::ClientCpu);
        assert_eq!(bound(Work::Served, &of(0.3, 0.3, 0.9)), Bound::Device);
        assert_eq!(bound(Work::Served, &of(0.3, 0.3, 0.3)), Bound::Window);
        assert_eq!(bound(Work::File, &of(0.99, 0.0, 0.1)), Bound::MemoryCopy);
        assert_eq!(bound(Work::File, &of(0.3, 0.0, 0.7)), Bound::Device);
        assert_eq!(bound(Work::Socket, &of(0.99, 0.9, 0.0)), Bound::Network);
        let blind = Shares { device_time: None, ..of(0.3, 0.3, 0.0) };
        assert_eq!(bound(Work::Served, &blind), Bound::Unknown);
    }

    #[test]
    fn a_row_left_out_keeps_its_reason_and_no_rate() {
        let row = Row::left_out(label("x", Arm::Server, 1), "no server".into());
        assert_eq!(row.invalid, vec!["no server"]);
        assert_eq!(row.rate(), 0.0);
    }
}

//! What the machine did during a row: wall time, CPU, steal, the block device.
//!
//! Owns: snapshots of the counters and their differences. Never does: decide what they mean
//! (`row` does). Left: `/proc`, `device`, `sys`. Right: `quick`, `ceiling`, `server`.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use crate::device::{Device, DiskCounters};
use crate::sys;

/// What a few clock ticks of 10 ms can mistake: not held against other programs.
const OTHERS_SLACK: f64 = 0.03;

/// User time of other programs that spoils what is measured meanwhile, in cores.
pub const OTHERS_CORE_MAX: f64 = 0.1;

/// CPU time of the whole machine since boot, in seconds.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct CpuTimes {
    pub busy: f64,
    /// The part of `busy` outside the kernel.
    pub user: f64,
    pub idle: f64,
    pub steal: f64,
}

impl CpuTimes {
    pub fn since(&self, earlier: &CpuTimes) -> CpuTimes {
        CpuTimes {
            busy: (self.busy - earlier.busy).max(0.0),
            user: (self.user - earlier.user).max(0.0),
            idle: (self.idle - earlier.idle).max(0.0),
            steal: (self.steal - earlier.steal).max(0.0),
        }
    }

    /// Steal as a share of all time, in percent.
    pub fn steal_percent(&self) -> f64 {
        let all = self.busy + self.idle + self.steal;
        if all > 0.0 { 100.0 * self.steal / all } else { 0.0 }
    }
}

/// The `cpu` line of `/proc/stat`: user nice system idle iowait irq softirq steal guest...
pub fn parse_cpu(stat: &str, ticks_per_second: u64) -> Option<CpuTimes> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let seconds = |index: usize| {
        ticks.get(index).copied().unwrap_or(0) as f64 / ticks_per_second.max(1) as f64
    };
    (ticks.len() >= 4).then(|| CpuTimes {
        // Guest time is already inside user and nice.
        user: seconds(0) + seconds(1),
        busy: seconds(0) + seconds(1) + seconds(2) + seconds(5) + seconds(6),
        idle: seconds(3) + seconds(4),
        steal: seconds(7),
    })
}

/// User plus system time of a process with all its threads, ended ones and ring workers
/// included, from the text of `/proc/<pid>/stat`.
pub fn parse_process_cpu(stat: &str, ticks_per_second: u64) -> Option<f64> {
    // The name stands in brackets and may hold anything, brackets and blanks included.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace().skip(11);
    let user: u64 = words.next()?.parse().ok()?;
    let system: u64 = words.next()?.parse().ok()?;
    Some((user + system) as f64 / ticks_per_second.max(1) as f64)
}

/// User time of a process and of the children it has waited for, from `/proc/<pid>/stat` text.
pub fn parse_user_with_children(stat: &str, ticks_per_second: u64) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> =
        rest.split_whitespace().skip(11).take(3).map_while(|word| word.parse().ok()).collect();
    let [user, _system, children] = ticks.as_slice() else { return None };
    Some((user + children) as f64 / ticks_per_second.max(1) as f64)
}

/// What programs other than this benchmark and its server do outside the kernel: work that would
/// be measured as if it were the row's. (Kernel threads have no user time, and are the row's.)
pub struct Others {
    at: Instant,
    user: Option<f64>,
}

impl Others {
    pub fn watch() -> Others {
        Others { at: Instant::now(), user: Others::user_now() }
    }

    fn user_now() -> Option<f64> {
        let ticks = sys::ticks_per_second();
        let machine = parse_cpu(&fs::read_to_string("/proc/stat").ok()?, ticks)?.user;
        let own = fs::read_to_string("/proc/self/stat").ok()?;
        Some(machine - parse_user_with_children(&own, ticks)?)
    }

    /// Their share of one core since `watch`, at least; `None` when it cannot be read.
    pub fn share(&self) -> Option<f64> {
        let seconds = self.at.elapsed().as_secs_f64();
        let user = Others::user_now()? - self.user?;
        Some((user - OTHERS_SLACK).max(0.0) / seconds.max(1e-3))
    }
}

/// CPU seconds of a process so far.
pub fn process_cpu(pid: u32) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_process_cpu(&text, sys::ticks_per_second())
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not as expected")))
}

/// Share of the last ten seconds in which some task waited, from `/proc/pressure/<what>`.
pub fn pressure_some(what: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/pressure/{what}")).ok()?;
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("avg10=")?.parse().ok())
}

/// The counters at one moment.
#[derive(Copy, Clone, Debug)]
pub struct Snapshot {
    pub at: Instant,
    pub cpu: Option<CpuTimes>,
    pub disk: Option<DiskCounters>,
}

impl Snapshot {
    pub fn take(device: &Device) -> Snapshot {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Snapshot {
            at: Instant::now(),
            cpu: parse_cpu(&stat, sys::ticks_per_second()),
            disk: device.counters(),
        }
    }
}

/// The difference of two snapshots.
#[derive(Copy, Clone, Debug, Default)]
pub struct Window {
    pub wall: Duration,
    pub cpu: Option<CpuTimes>,
    pub disk: Option<DiskCounters>,
}

impl Window {
    pub fn between(begin: &Snapshot, end: &Snapshot) -> Window {
        Window {
            wall: end.at.duration_since(begin.at),
            cpu: end.cpu.zip(begin.cpu).map(|(end, begin)| end.since(&begin)),
            disk: end.disk.zip(begin.disk).map(|(end, begin)| end.since(&begin)),
        }
    }
}

/// What the machine does by itself: subtracted from what a row costs (M3).
#[derive(Copy, Clone, Debug, Default)]
pub struct Idle {
    /// Busy CPU seconds a second; `None` when other programs ran while it was taken.
    pub busy: Option<f64>,
    /// Device bytes written a second.
    pub written: f64,
}

impl Idle {
    /// Watches the machine at rest for `span`.
    pub fn observe(device: &Device, span: Duration) -> Idle {
        let others = Others::watch();
        let begin = Snapshot::take(device);
        std::thread::sleep(span);
        let window = Window::between(&begin, &Snapshot::take(device));
        let seconds = window.wall.as_secs_f64().max(1e-9);
        Idle {
            busy: window
                .cpu
                .filter(|_| others.share().is_some_and(|share| share <= OTHERS_CORE_MAX))
                .map(|cpu| cpu.busy / seconds),
            written: window.disk.map_or(0.0, |disk| disk.written_bytes as f64 / seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_line_of_new_and_old_kernels() {
        let new = parse_cpu("cpu  100 10 50 800 40 5 5 20 7 0\ncpu0 1 2 3 4\n", 100).unwrap();
        let near = |got: f64, want: f64| (got - want).abs() < 1e-9;
        assert!(near(new.busy, 1.7) && near(new.idle, 8.4) && near(new.steal, 0.2), "{new:?}");
        assert!((new.steal_percent() - 100.0 * 0.2 / 10.3).abs() < 1e-9);
        let old = parse_cpu("cpu 100 0 50 800\n", 100).unwrap();
        assert_eq!((old.busy, old.steal), (1.5, 0.0));
        assert_eq!(parse_cpu("intr 5\n", 100), None);
        assert_eq!(parse_cpu("cpu  a b c d\n", 100), None);
    }

    #[test]
    fn process_name_may_hold_brackets_and_blanks() {
        let stat = "42 (odd) name (x)) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 1 0";
        assert_eq!(parse_process_cpu(stat, 100), Some(2.0));
        assert_eq!(parse_process_cpu("42 (cut", 100), None);
        assert_eq!(parse_process_cpu("42 (x) S 1 2", 100), None);
    }

    #[test]
    fn user_time_counts_children_that_were_waited_for() {
        let stat = "42 (x) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 30 9 20 0 1 0";
        assert_eq!(parse_user_with_children(stat, 100), Some(1.8));
        assert_eq!(parse_user_with_children("42 (x) S 1 2 3", 100), None);
        assert_eq!(parse_user_with_children("", 100), None);
    }

    #[test]
    fn own_cpu_time_is_readable_and_grows() {
        let pid = std::process::id();
        let before = process_cpu(pid).unwrap();
        let mut sum = 0u64;
        while process_cpu(pid).unwrap() < before + 0.02 {
            sum = (0..1_000_000u64).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(process_cpu(pid).unwrap() > before);
    }
}

//! The rows of `quick`: what each is, what bounds it, how long it runs and how much it may write.
//!
//! Owns: the list, the names, the budget. Never does: measure. Left: `ceiling`. Right: `quick`.

use serde::Serialize;

use crate::ceiling::fetch::Via;
use crate::ceiling::produce::{Settle, Shape};
use crate::row::{Arm, Work};

const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;

/// Flush policies that `quick` compares.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Flush {
    Os,
    Each,
    Group,
}

impl Flush {
    /// The value of the server's `--flush`.
    pub fn name(self) -> &'static str {
        match self {
            Flush::Os => "os",
            Flush::Each => "each",
            Flush::Group => "group",
        }
    }

    /// What the minimal loop of the same promise waits for.
    pub fn settle(self) -> Settle {
        match self {
            Flush::Os => Settle::Write,
            Flush::Each => Settle::Each,
            Flush::Group => Settle::Round,
        }
    }

    /// One connection with many in flight for throughput, many connections for durable acks.
    pub fn shape(self) -> Shape {
        match self {
            Flush::Os => Shape { connections: 1, window: 16 },
            Flush::Each | Flush::Group => Shape { connections: 16, window: 1 },
        }
    }

    /// What an ack leaves at risk (M1).
    pub fn exposure(self) -> &'static str {
        match self {
            Flush::Os => "process kill: none; kernel crash, power cut: no bound",
            Flush::Each | Flush::Group => "none: durable before the ack",
        }
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    AppendBuffered,
    AppendDirect,
    Fdatasync { block: usize, grows: bool },
    Dsync { block: usize, depth: usize },
    Loopback,
    MinProduce { flush: Flush, batch: usize },
    MinFetch { via: Via, cold: bool },
    Produce { flush: Flush, batch: usize },
    Fetch { via: Via, cold: bool },
}

/// Payload of the batches of throughput rows.
pub const BATCH: usize = 64 * KIB;

impl Kind {
    /// Names are distinct, and short enough for the first column of the table.
    pub fn name(self) -> String {
        let size = |bytes: usize| format!("{}K", bytes / KIB);
        let heat = |cold: bool| if cold { "cold" } else { "hot" };
        match self {
            Kind::AppendBuffered => format!("raw append {}", size(BATCH)),
            Kind::AppendDirect => format!("raw direct {}", size(BATCH)),
            Kind::Fdatasync { block, grows: true } => format!("fdatasync grow {}", size(block)),
            Kind::Fdatasync { block, grows: false } => format!("fdatasync pre {}", size(block)),
            Kind::Dsync { block, depth } => format!("dsync pre {} qd{depth}", size(block)),
            Kind::Loopback => format!("loopback {}", size(BATCH)),
            Kind::MinProduce { flush, batch } => format!("min {} {}", flush.name(), size(batch)),
            Kind::MinFetch { via, cold } => format!("min {} {}", heat(cold), via.name()),
            Kind::Produce { flush, batch } => format!("produce {} {}", flush.name(), size(batch)),
            Kind::Fetch { via, cold } => format!("fetch {} {}", heat(cold), via.name()),
        }
    }

    pub fn arm(self) -> Arm {
        match self {
            Kind::Produce { .. } | Kind::Fetch { .. } => Arm::Server,
            _ => Arm::Ceiling,
        }
    }

    pub fn work(self) -> Work {
        match self {
            Kind::Loopback => Work::Socket,
            Kind::AppendBuffered | Kind::AppendDirect => Work::File,
            Kind::Fdatasync { .. } | Kind::Dsync { .. } => Work::File,
            _ => Work::Served,
        }
    }

    /// The loops that bound this row; the fastest of them counts (M4).
    pub fn ceilings(self) -> Vec<Kind> {
        match self {
            Kind::Produce { flush, batch } => vec![Kind::MinProduce { flush, batch }],
            Kind::Fetch { cold, .. } => {
                [Via::Send, Via::Sendfile].map(|via| Kind::MinFetch { via, cold }).to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// How it was set up, in words for the record.
    pub fn setup(self) -> String {
        match self {
            Kind::AppendBuffered => "pwrite of unaligned batches, new file".into(),
            Kind::AppendDirect => "O_DIRECT pwrite, depth 1, new file, not flushed".into(),
            Kind::Fdatasync { grows: true, .. } => "pwrite + fdatasync, new file that grows".into(),
            Kind::Fdatasync { grows: false, .. } => "pwrite + fdatasync, pre-written file".into(),
            Kind::Dsync { depth, .. } => {
                format!("O_DIRECT + RWF_DSYNC, pre-written file, depth {depth}")
            }
            Kind::Loopback => "one way, one connection, no file".into(),
            Kind::MinProduce { flush, .. } | Kind::Produce { flush, .. } => {
                let Shape { connections, window } = flush.shape();
                format!("{connections} connections, {window} in flight on each, file that grows")
            }
            Kind::MinFetch { .. } | Kind::Fetch { .. } => {
                "1 connection, 1 fetch of 1 MiB in flight".into()
            }
        }
    }

    pub fn exposure(self) -> Option<String> {
        match self {
            Kind::Produce { flush, .. } => Some(flush.exposure().to_string()),
            _ => None,
        }
    }

    fn writes(self) -> Writes {
        match self {
            Kind::AppendBuffered => Writes::Large,
            Kind::MinProduce { flush: Flush::Os, .. } => Writes::Large,
            Kind::Produce { flush: Flush::Os, .. } => Writes::Large,
            Kind::AppendDirect => Writes::Medium,
            Kind::Fdatasync { block, .. } | Kind::Dsync { block, .. } if block >= BATCH => {
                Writes::Medium
            }
            Kind::MinProduce { batch, .. } | Kind::Produce { batch, .. } if batch >= BATCH => {
                Writes::Medium
            }
            Kind::Loopback | Kind::MinFetch { .. } | Kind::Fetch { .. } => Writes::Nothing,
            _ => Writes::Small,
        }
    }

    /// Raw device loops settle fast and take half the time of the others.
    fn time_share(self) -> f64 {
        if matches!(self.work(), Work::File | Work::Socket) { 0.5 } else { 1.0 }
    }
}

/// All rows of a pass, in the order of its first one: what bounds a row stands before it, and
/// what is fetched has been produced.
/// `wanted`: parts of names; none keeps every row.
pub fn rows(ceilings_only: bool, wanted: &[String]) -> Vec<Kind> {
    let mut rows = vec![Kind::AppendBuffered, Kind::AppendDirect];
    for block in [4 * KIB, BATCH] {
        rows.extend([true, false].map(|grows| Kind::Fdatasync { block, grows }));
        rows.extend([1, 4].map(|depth| Kind::Dsync { block, depth }));
    }
    rows.push(Kind::Loopback);
    let produce = [
        (Flush::Os, BATCH),
        (Flush::Each, KIB),
        (Flush::Group, KIB),
        (Flush::Each, 4 * KIB),
        (Flush::Group, 4 * KIB),
        (Flush::Group, BATCH),
    ];
    for (flush, batch) in produce {
        rows.push(Kind::MinProduce { flush, batch });
        rows.push(Kind::Produce { flush, batch });
    }
    for cold in [false, true] {
        rows.extend([Via::Send, Via::Sendfile].map(|via| Kind::MinFetch { via, cold }));
        rows.extend([Via::Send, Via::Sendfile].map(|via| Kind::Fetch { via, cold }));
    }
    rows.retain(|kind| !ceilings_only || kind.arm() == Arm::Ceiling);
    let is_wanted = |kind: &Kind| {
        wanted.is_empty() || wanted.iter().any(|part| kind.name().contains(part.as_str()))
    };
    rows.retain(is_wanted);
    rows
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Writes {
    Nothing,
    Small,
    Medium,
    Large,
}

/// How much of everything: decided once, printed, recorded with the rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Budget {
    pub seconds_per_row: f64,
    pub small_bytes: u64,
    pub medium_bytes: u64,
    pub large_bytes: u64,
    pub prewritten_bytes: u64,
    /// Most of a log that is fetched.
    pub fetch_range_bytes: u64,
    /// Most payload that all rows together write.
    pub total_bytes: u64,
    /// Below 1 when `--max-write`, free space or memory shrank the rows.
    pub scale: f64,
}

/// What bounds the budget from outside.
#[derive(Copy, Clone, Debug)]
pub struct Room {
    pub max_write: u64,
    pub free_disk: u64,
    pub free_memory: u64,
}

impl Budget {
    /// Sizes at which every row of `kinds`, `passes` times, fits into `room`; an error names what
    /// is too small.
    pub fn fit(
        kinds: &[Kind],
        passes: u32,
        seconds_per_row: f64,
        smoke: bool,
        room: Room,
    ) -> Result<Budget, String> {
        let mut budget = Budget {
            seconds_per_row: if smoke { 0.1 } else { seconds_per_row },
            small_bytes: if smoke { MIB } else { 128 * MIB },
            medium_bytes: if smoke { 2 * MIB } else { 256 * MIB },
            large_bytes: if smoke { 4 * MIB } else { 1024 * MIB },
            prewritten_bytes: if smoke { 4 * MIB } else { 256 * MIB },
            fetch_range_bytes: if smoke { 4 * MIB } else { 512 * MIB },
            total_bytes: 0,
            scale: 1.0,
        };
        let whole = budget.total(kinds, passes);
        // Nothing is deleted between rows (M9), so all of it lies on the disk at the end.
        let disk = room.free_disk as f64 * 0.8 / whole as f64;
        let asked = room.max_write as f64 / whole as f64;
        let memory = room.free_memory as f64 / 4.0 / budget.large_bytes as f64;
        budget.scale = disk.min(asked).min(memory).min(1.0);
        for bytes in [
            &mut budget.small_bytes,
            &mut budget.medium_bytes,
            &mut budget.large_bytes,
            &mut budget.prewritten_bytes,
        ] {
            *bytes = (*bytes as f64 * budget.scale) as u64 / BATCH as u64 * BATCH as u64;
        }
        budget.total_bytes = budget.total(kinds, passes);
        if budget.small_bytes < 4 * BATCH as u64 || budget.prewritten_bytes < MIB {
            let limits = [(disk, "free disk space"), (asked, "--max-write"), (memory, "memory")];
            let least = limits.iter().min_by(|a, b| a.0.total_cmp(&b.0)).map_or("", |one| one.1);
            let (want, have) = (whole >> 20, (whole as f64 * budget.scale) as u64 >> 20);
            return Err(format!("{least} leaves {have} MiB of the {want} MiB that rows may write"));
        }
        Ok(budget)
    }

    fn total(&self, kinds: &[Kind], passes: u32) -> u64 {
        let rows: u64 = kinds.iter().map(|kind| self.bytes_max(*kind)).sum();
        rows * u64::from(passes) + self.prewritten_bytes
    }

    /// Most bytes a row may write.
    pub fn bytes_max(&self, kind: Kind) -> u64 {
        match kind.writes() {
            Writes::Nothing => 0,
            Writes::Small => self.small_bytes,
            Writes::Medium => self.medium_bytes,
            Writes::Large => self.large_bytes,
        }
    }

    pub fn seconds(&self, kind: Kind) -> f64 {
        self.seconds_per_row * kind.time_share()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const PLENTY: Room = Room { max_write: 16 << 30, free_disk: 1 << 40, free_memory: 64 << 30 };

    #[test]
    fn names_are_distinct_and_short() {
        let rows = rows(false, &[]);
        let names: HashSet<String> = rows.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), rows.len());
        assert!(names.iter().all(|name| name.len() <= 19), "{names:?}");
    }

    #[test]
    fn what_bounds_a_row_is_measured_in_the_same_pass_and_before_it() {
        let rows = rows(false, &[]);
        for (index, kind) in rows.iter().enumerate() {
            let before = &rows[..index];
            assert!(kind.ceilings().iter().all(|ceiling| before.contains(ceiling)), "{kind:?}");
            assert_eq!(kind.ceilings().is_empty(), kind.arm() == Arm::Ceiling);
        }
    }

    #[test]
    fn the_budget_shrinks_to_each_limit_and_refuses_too_little() {
        let rows = rows(false, &[]);
        let fit = |room| Budget::fit(&rows, 2, 2.0, false, room);
        let plenty = fit(PLENTY).unwrap();
        assert!(plenty.scale == 1.0 && plenty.total_bytes <= 16 << 30, "{plenty:?}");
        let capped = fit(Room { max_write: 1 << 30, ..PLENTY }).unwrap();
        assert!(capped.total_bytes <= 1 << 30 && capped.scale < 0.1, "{capped:?}");
        let full = fit(Room { free_disk: 4 << 30, ..PLENTY }).unwrap();
        assert!(full.total_bytes <= 4 << 30);
        let small = fit(Room { free_memory: 1 << 30, ..PLENTY }).unwrap();
        assert!(small.large_bytes <= 256 << 20);
        assert!(fit(Room { max_write: 1 << 20, ..PLENTY }).unwrap_err().contains("--max-write"));
    }
}

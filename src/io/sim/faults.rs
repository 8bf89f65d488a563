//! What goes wrong in a simulated world, and how slow it is: plain configuration.
//!
//! Owns: planned faults (this op on that path, the n-th time), chances, delays, limits, and the
//! choice of one for each op. Never does: carry anything out. Left: `prng`, `op`. Right:
//! `machine`.

use std::path::Path;

use super::prng::Prng;
use crate::io::op::{Errno, Op};

/// The kinds of op that a fault can be planned for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum On {
    Open,
    Read,
    Write,
    Fdatasync,
    SyncDir,
    Truncate,
    Rename,
    Unlink,
    CreateDir,
}

impl On {
    pub(super) fn of(op: &Op) -> Option<On> {
        Some(match op {
            Op::Open { .. } => On::Open,
            Op::Read { .. } => On::Read,
            Op::Write { .. } => On::Write,
            Op::Fdatasync { .. } => On::Fdatasync,
            Op::SyncDir { .. } => On::SyncDir,
            Op::Truncate { .. } => On::Truncate,
            Op::Rename { .. } => On::Rename,
            Op::Unlink { .. } => On::Unlink,
            Op::CreateDir { .. } => On::CreateDir,
            _ => return None,
        })
    }
}

/// What a fault does to its op.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Fail(Errno),
    /// A write or read that moves at most this many bytes; 0 is "no progress".
    Short(u32),
    /// Goes well, this many microseconds later than usual.
    DelayUs(u64),
}

/// The order in which ops that are in flight together take effect.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// As submitted, one after the other (planned delays and waiting sockets excepted).
    Fifo,
    /// By seed.
    Shuffled,
}

#[derive(Clone, Debug)]
struct Planned {
    on: On,
    path_part: String,
    /// Matching ops that still go by before it strikes.
    skip: u32,
    effect: Effect,
}

/// The faults of a world; everything off by default but the shuffled order.
#[derive(Clone, Debug)]
pub struct Faults {
    pub order: Order,
    /// Chance that a write moves only a part.
    pub short_write_per_mille: u32,
    /// Chance that a read moves only a part.
    pub short_read_per_mille: u32,
    /// Chance that a read or write ends in EINTR, nothing done.
    pub eintr_per_mille: u32,
    /// Chance that a read or write ends in EAGAIN, nothing done.
    pub eagain_per_mille: u32,
    /// Bytes by which files may still grow; `None` is a disk without end. Shrinking a file and
    /// unlinking one give bytes back.
    pub space_bytes: Option<u64>,
    pub write_us: u64,
    pub fdatasync_us: u64,
    /// Every other op.
    pub other_us: u64,
    /// Ops an engine takes before it refuses.
    pub queue_max: usize,
    /// Open files, sockets and listeners of one engine; past it EMFILE.
    pub files_max: usize,
    planned: Vec<Planned>,
    denied: Vec<String>,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            order: Order::Shuffled,
            short_write_per_mille: 0,
            short_read_per_mille: 0,
            eintr_per_mille: 0,
            eagain_per_mille: 0,
            space_bytes: None,
            write_us: 20,
            fdatasync_us: 200,
            other_us: 10,
            queue_max: 4096,
            files_max: 4096,
            planned: Vec::new(),
            denied: Vec::new(),
        }
    }
}

impl Faults {
    /// Plans `effect` for the `nth` op (from 1) of this kind, counted from now, whose file was
    /// opened by a path that contains `path_part`. Several plans may wait for the same op: each
    /// op takes the first that is due, so a script is a row of plans with the same `nth`.
    pub fn plan(&mut self, on: On, path_part: &str, nth: u32, effect: Effect) {
        assert!(nth > 0, "the first op is number 1");
        let path_part = path_part.to_owned();
        self.planned.push(Planned { on, path_part, skip: nth - 1, effect });
    }

    pub fn fail_write(&mut self, path_part: &str, nth: u32, errno: Errno) {
        self.plan(On::Write, path_part, nth, Effect::Fail(errno));
    }

    pub fn fail_fdatasync(&mut self, path_part: &str, nth: u32, errno: Errno) {
        self.plan(On::Fdatasync, path_part, nth, Effect::Fail(errno));
    }

    /// The next writes move these many bytes at most, one each.
    pub fn script_writes(&mut self, path_part: &str, moved: &[u32]) {
        moved.iter().for_each(|&n| self.plan(On::Write, path_part, 1, Effect::Short(n)));
    }

    /// The `nth` fdatasync hangs for so long, then goes well.
    pub fn stall_fdatasync(&mut self, path_part: &str, nth: u32, us: u64) {
        self.plan(On::Fdatasync, path_part, nth, Effect::DelayUs(us));
    }

    /// Opening or listing what has this in its path gives EACCES.
    pub fn deny(&mut self, path_part: &str) {
        self.denied.push(path_part.to_owned());
    }

    /// Takes back every plan and denial; chances, delays and limits stay.
    pub fn forget_plans(&mut self) {
        self.planned.clear();
        self.denied.clear();
    }

    pub(super) fn denies(&self, path: &Path) -> bool {
        let path = path.to_string_lossy();
        self.denied.iter().any(|part| path.contains(part.as_str()))
    }

    /// What happens to this op, if anything: a plan that is due, else by chance.
    pub(super) fn draw(&mut self, op: &Op, path: &Path, prng: &mut Prng) -> Option<Effect> {
        let on = On::of(op)?;
        self.due(on, path).or_else(|| self.by_chance(op, prng))
    }

    fn due(&mut self, on: On, path: &Path) -> Option<Effect> {
        let path = path.to_string_lossy();
        let mut strikes = None;
        for (i, plan) in self.planned.iter_mut().enumerate() {
            if plan.on != on || !path.contains(plan.path_part.as_str()) {
                continue;
            }
            if plan.skip > 0 {
                plan.skip -= 1;
            } else if strikes.is_none() {
                strikes = Some(i);
            }
        }
        strikes.map(|i| self.planned.remove(i).effect)
    }

    fn by_chance(&self, op: &Op, prng: &mut Prng) -> Option<Effect> {
        let (len, short_per_mille) = match op {
            Op::Write { bufs, .. } => (bufs.len() as u64, self.short_write_per_mille),
            Op::Read { max, into, .. } => {
                (u64::from(*max).min(into.room() as u64), self.short_read_per_mille)
            }
            _ => return None,
        };
        if prng.per_mille(self.eintr_per_mille) {
            return Some(Effect::Fail(Errno::EINTR));
        }
        if prng.per_mille(self.eagain_per_mille) {
            return Some(Effect::Fail(Errno::EAGAIN));
        }
        (len > 1 && prng.per_mille(short_per_mille))
            .then(|| Effect::Short(1 + prng.below(len - 1) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::op::FileId;

    #[test]
    fn plans_strike_by_number_and_a_script_in_its_order() {
        let mut faults = Faults::default();
        faults.fail_fdatasync("a/", 2, Errno::EIO);
        faults.stall_fdatasync("a/", 2, 7);
        let op = Op::Fdatasync { file: FileId { slot: 0, generation: 0 } };
        let mut prng = Prng::new(0);
        let mut draw = |path: &str| faults.draw(&op, Path::new(path), &mut prng);
        assert_eq!(draw("/a/x"), None);
        assert_eq!(draw("/b/x"), None);
        assert_eq!(draw("/a/x"), Some(Effect::Fail(Errno::EIO)));
        assert_eq!(draw("/a/x"), Some(Effect::DelayUs(7)));
        assert_eq!(draw("/a/x"), None);
    }
}

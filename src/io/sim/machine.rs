//! The simulated machine: clock, processes, ops in flight, and what each op does when its time
//! has come.
//!
//! Owns: the event queue, open-file tables, the count of steps, kill and cut. Never does: byte
//! models (`file`, `tree`, `net`). Left: `tree`, `net`, `faults`, `prng`. Right: `sim`.
//!
//! An op takes effect at one instant between its submit and its `Done`, drawn from the seed. A
//! flush has two: it covers the changes that had taken effect when it started, and they are durable
//! when it ends.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::faults::{Effect, Faults, Order};
use super::file::sectors;
use super::prng::Prng;
use super::tree::{Inode, Tree};
use crate::io::op::{
    Done, Errno, FileId, IoCounters, Op, OpenHow, Outcome, Refused, Tag, Token, Wait,
};
use crate::types::{Micros, WallMs};

/// Direct I/O wants positions, lengths and memory in multiples of this.
const DIRECT_ALIGN: usize = 512;

/// What a slot of the table stands for.
#[derive(Debug)]
pub enum Open {
    File { inode: Inode, path: PathBuf, write: bool, direct: bool },
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    open: Option<Rc<Open>>,
}

/// One engine's open files: slots and generations.
#[derive(Debug, Default)]
struct Table(Vec<Slot>);

impl Table {
    fn get(&self, id: FileId) -> Result<&Rc<Open>, Errno> {
        let slot = self.0.get(id.slot as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.open.as_ref()).ok_or(Errno::EBADF)
    }

    fn insert(&mut self, open: Open, files_max: usize) -> Result<FileId, Errno> {
        let slot = match self.0.iter().position(|slot| slot.open.is_none()) {
            Some(slot) => slot,
            None => {
                self.0.push(Slot::default());
                self.0.len() - 1
            }
        };
        if slot >= files_max {
            return Err(Errno(libc::EMFILE));
        }
        self.0[slot].open = Some(Rc::new(open));
        Ok(FileId { slot: slot as u32, generation: self.0[slot].generation })
    }

    fn remove(&mut self, id: FileId) -> Result<Rc<Open>, Errno> {
        self.get(id)?;
        let slot = &mut self.0[id.slot as usize];
        slot.generation += 1;
        Ok(slot.open.take().expect("checked above"))
    }
}

struct Engine {
    process: u32,
    table: Table,
    ready: VecDeque<Done>,
    in_flight: usize,
    /// When the last op of a fifo ends.
    last_due: Micros,
    wake: Arc<AtomicBool>,
    counters: IoCounters,
}

struct Flight {
    engine: usize,
    tag: Tag,
    op: Op,
    /// What the op's ids named when it was submitted; they keep it open.
    file: Option<Rc<Open>>,
    /// Decided at submit: a stale id, a planned failure.
    refusal: Option<Errno>,
    short: Option<u32>,
    /// For flushes: they cover what took effect before this.
    until: Option<u64>,
    cancelled: bool,
}

#[derive(Copy, Clone)]
enum Phase {
    Start,
    Finish,
}

pub struct Machine {
    pub now: Micros,
    pub wall_offset_ms: WallMs,
    pub prng: Prng,
    pub faults: Faults,
    pub tree: Tree,
    pub steps: u64,
    pub stopped: bool,
    stop_at: Option<u64>,
    process: u32,
    engines: Vec<Engine>,
    flights: BTreeMap<u64, Flight>,
    events: BTreeMap<(Micros, u64), (u64, Phase)>,
    next_token: u64,
    next_event: u64,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        Machine {
            now: Micros(0),
            wall_offset_ms: 0,
            prng: Prng::new(seed),
            faults: Faults::default(),
            tree: Tree::new(),
            steps: 0,
            stopped: false,
            stop_at: None,
            process: 0,
            engines: Vec::new(),
            flights: BTreeMap::new(),
            events: BTreeMap::new(),
            next_token: 0,
            next_event: 0,
        }
    }

    pub fn wall_ms(&self) -> WallMs {
        self.wall_offset_ms + (self.now.0 / 1000) as i64
    }

    // Engines and processes.

    pub fn new_engine(&mut self) -> usize {
        self.engines.push(Engine {
            process: self.process,
            table: Table::default(),
            ready: VecDeque::new(),
            in_flight: 0,
            last_due: Micros(0),
            wake: Arc::default(),
            counters: IoCounters::default(),
        });
        self.engines.len() - 1
    }

    pub fn is_alive(&self, engine: usize) -> bool {
        self.engines[engine].process == self.process
    }

    pub fn in_flight(&self, engine: usize) -> usize {
        self.engines[engine].in_flight
    }

    pub fn counters(&self, engine: usize) -> IoCounters {
        self.engines[engine].counters
    }

    pub fn wake_flag(&self, engine: usize) -> Arc<AtomicBool> {
        self.engines[engine].wake.clone()
    }

    /// kill -9: each op in flight has happened, or a part of it, or nothing.
    pub fn kill(&mut self) {
        for engine in 0..self.engines.len() {
            if self.is_alive(engine) {
                self.retire(engine);
            }
        }
        self.events.clear();
        self.process += 1;
        self.stopped = false;
        self.stop_at = None;
    }

    pub fn power_cut(&mut self) {
        self.kill();
        self.tree.cut(&mut self.prng);
    }

    pub fn stop_after(&mut self, steps: u64) {
        self.stop_at = Some(self.steps + steps);
        self.stopped = steps == 0;
    }

    /// One engine goes, with all that it had in flight.
    pub fn retire(&mut self, engine: usize) {
        let mut tokens: Vec<u64> = self.flights.keys().copied().collect();
        tokens.retain(|token| self.flights[token].engine == engine);
        self.prng.shuffle(&mut tokens);
        for token in tokens {
            let flight = self.flights.remove(&token).expect("listed above");
            self.abandon(flight);
        }
        let gone = &mut self.engines[engine];
        gone.ready.clear();
        gone.in_flight = 0;
        gone.table.0.clear();
    }

    /// Nobody will hear of this op; it happened wholly, partly or not.
    fn abandon(&mut self, mut flight: Flight) {
        let Flight { op, file, .. } = &flight;
        if let (Op::Write { pos, bufs, .. }, Some(open)) = (op, file)
            && self.prng.coin()
        {
            let Open::File { inode, .. } = **open;
            let bytes = joined(bufs.remaining());
            let chance = self.prng.chance();
            for (pos, piece) in sectors(*pos, &bytes).filter(|_| flight.refusal.is_none()) {
                if self.prng.per_mille(chance) {
                    self.tree.write(inode, pos, piece, self.wall_ms());
                }
            }
        } else if self.prng.coin() && is_step(&flight.op) {
            let _ = self.perform(&mut flight);
        }
    }

    // Submit and reap.

    pub fn submit(&mut self, engine: usize, op: Op, tag: Tag) -> Result<Token, Refused> {
        let full = self.engines[engine].in_flight >= self.faults.queue_max;
        if full || !self.is_alive(engine) {
            self.engines[engine].counters.refused += 1;
            return Err(Refused { op });
        }
        let token = self.next_token;
        self.next_token += 1;
        self.engines[engine].in_flight += 1;
        self.engines[engine].counters.submitted += 1;
        let mut flight = self.prepare(engine, op, tag);
        let delay = self.draw_fault(&mut flight);
        if !self.stopped {
            self.schedule(token, &flight, delay);
            self.flights.insert(token, flight);
        }
        Ok(Token(token))
    }

    fn prepare(&self, engine: usize, op: Op, tag: Tag) -> Flight {
        let named = file_of(&op).map(|id| self.engines[engine].table.get(id).cloned());
        let (file, refusal) = match named {
            Some(Ok(open)) => (Some(open), None),
            Some(Err(errno)) => (None, Some(errno)),
            None => (None, None),
        };
        Flight { engine, tag, op, file, refusal, short: None, until: None, cancelled: false }
    }

    fn draw_fault(&mut self, flight: &mut Flight) -> u64 {
        let path = match (flight.file.as_deref(), path_of(&flight.op)) {
            (Some(Open::File { path, .. }), _) => path.as_path(),
            (None, Some(path)) => path,
            (None, None) => return 0,
        };
        match self.faults.draw(&flight.op, path, &mut self.prng) {
            Some(Effect::Fail(errno)) => {
                flight.refusal = flight.refusal.or(Some(errno));
                0
            }
            Some(Effect::Short(n)) => {
                flight.short = Some(n);
                0
            }
            Some(Effect::DelayUs(us)) => us,
            None => 0,
        }
    }

    fn schedule(&mut self, token: u64, flight: &Flight, delay_us: u64) {
        let now = self.now;
        let engine = &mut self.engines[flight.engine];
        let usual = match flight.op {
            Op::Write { .. } => self.faults.write_us,
            Op::Fdatasync { .. } | Op::SyncDir { .. } => self.faults.fdatasync_us,
            _ => self.faults.other_us,
        };
        let (start, due) = match (&flight.op, self.faults.order) {
            (Op::Timeout { at }, _) => (now, now.max(*at)),
            (_, Order::Fifo) => {
                let start = engine.last_due.max(now);
                engine.last_due = start.plus(Micros(usual));
                (start, engine.last_due.plus(Micros(delay_us)))
            }
            (_, Order::Shuffled) => {
                let took = usual / 4 + self.prng.below(usual * 4);
                let start = now.plus(Micros(self.prng.below(took + 1)));
                (start, now.plus(Micros(took + delay_us)))
            }
        };
        if matches!(flight.op, Op::Fdatasync { .. } | Op::SyncDir { .. }) {
            self.push_event(start, token, Phase::Start);
        }
        self.push_event(due, token, Phase::Finish);
    }

    fn push_event(&mut self, due: Micros, token: u64, phase: Phase) {
        self.events.insert((due, self.next_event), (token, phase));
        self.next_event += 1;
    }

    pub fn reap(&mut self, engine: usize, wait: Wait, done: &mut Vec<Done>) -> Result<(), Errno> {
        if !self.is_alive(engine) {
            return Err(Errno::EBADF);
        }
        self.engines[engine].counters.enters += 1;
        self.run_due();
        let limit = match wait {
            Wait::No => self.now,
            Wait::Until(at) => at,
            Wait::Forever => Micros::NEVER,
        };
        loop {
            let woken = self.engines[engine].wake.swap(false, Ordering::AcqRel);
            if self.hand_out(engine, done) || woken || wait == Wait::No {
                return Ok(());
            }
            match self.events.first_key_value() {
                Some((&(due, _), _)) if due <= limit && !self.stopped => self.advance_to(due),
                _ if limit < Micros::NEVER => {
                    self.now = self.now.max(limit);
                    return Ok(());
                }
                _ if self.stopped => return Err(Errno::ECANCELED),
                _ => self.panic_deadlock(engine),
            }
        }
    }

    fn panic_deadlock(&self, engine: usize) -> ! {
        let waiting = self.flights.values().filter(|flight| flight.engine == engine);
        let waiting: Vec<_> = waiting.map(|flight| &flight.op).collect();
        panic!(
            "deadlock: a reap without end, and nothing that could end it; in flight: {waiting:?}"
        )
    }

    pub fn advance_to(&mut self, at: Micros) {
        self.now = self.now.max(at);
        self.run_due();
    }

    fn hand_out(&mut self, engine: usize, done: &mut Vec<Done>) -> bool {
        let engine = &mut self.engines[engine];
        let some = !engine.ready.is_empty();
        engine.in_flight -= engine.ready.len();
        done.extend(engine.ready.drain(..));
        some
    }

    /// Lets every event happen whose time has come, in the order of time.
    fn run_due(&mut self) {
        while let Some(event) = self.events.first_entry() {
            if event.key().0 > self.now || self.stopped {
                return;
            }
            let (token, phase) = event.remove();
            match phase {
                Phase::Start => {
                    let seq = self.tree.seq();
                    if let Some(flight) = self.flights.get_mut(&token) {
                        flight.until = Some(seq);
                    }
                }
                Phase::Finish => self.finish(token),
            }
        }
    }

    fn finish(&mut self, token: u64) {
        let Some(mut flight) = self.flights.remove(&token) else { return };
        let result = match flight.cancelled {
            true => Err(Errno::ECANCELED),
            false => self.perform(&mut flight),
        };
        self.steps += u64::from(is_step(&flight.op));
        let done = Done { tag: flight.tag, op: flight.op, result };
        self.engines[flight.engine].ready.push_back(done);
        self.stopped |= self.stop_at == Some(self.steps);
    }

    // What the ops do.

    fn perform(&mut self, flight: &mut Flight) -> Result<Outcome, Errno> {
        let wall = self.wall_ms();
        if let Some(errno) = flight.refusal {
            self.perform_failing(flight);
            return Err(errno);
        }
        match &mut flight.op {
            Op::Open { path, how } => {
                let (path, how) = (path.clone(), *how);
                return self.open(flight.engine, path, how);
            }
            Op::Close { file } => {
                let file = *file;
                self.engines[flight.engine].table.remove(file)?;
            }
            Op::SyncDir { path } => {
                let dir = self.tree.lookup_dir(path)?;
                self.tree.sync_dir(dir, flight.until.unwrap_or(self.tree.seq()));
            }
            Op::Rename { from, to } => {
                let freed = self.tree.rename(from, to)?;
                self.give_space(freed);
            }
            Op::Unlink { path } => {
                let freed = self.tree.unlink(path)?;
                self.give_space(freed);
            }
            Op::CreateDir { path } => self.tree.create_dir(path, wall)?,
            Op::RemoveDir { path } => self.tree.remove_dir(path)?,
            Op::List { path } => {
                self.check_access(path)?;
                return Ok(Outcome::Entries(self.tree.list(path)?));
            }
            Op::Stat { path } => return Ok(Outcome::Stat(self.tree.stat(path)?)),
            Op::Timeout { .. } => {}
            Op::Cancel { token } => {
                let token = *token;
                self.cancel(flight.engine, token)?;
            }
            _ => return self.perform_on_file(flight),
        }
        Ok(Outcome::Nothing)
    }

    /// A flush that fails still does harm: its pages count as clean from here on.
    fn perform_failing(&mut self, flight: &Flight) {
        if let (Op::Fdatasync { .. }, Some(open)) = (&flight.op, &flight.file) {
            let Open::File { inode, .. } = **open;
            let until = flight.until.unwrap_or(self.tree.seq());
            self.tree.file_mut(inode).fail_flush(until, &mut self.prng);
        }
    }

    fn perform_on_file(&mut self, flight: &mut Flight) -> Result<Outcome, Errno> {
        let wall = self.wall_ms();
        let open = flight.file.clone().ok_or(Errno::EBADF)?;
        let Open::File { inode, write, direct, .. } = *open;
        match &mut flight.op {
            Op::Read { pos, max, into, .. } => {
                let max = (*max as usize).min(into.room()).min(short_of(flight.short));
                check_direct(direct, *pos, &[into.spare_mut()])?;
                let file = self.tree.file(inode);
                let bytes = match direct {
                    true => Cow::Owned(file.uncached()),
                    false => Cow::Borrowed(file.bytes()),
                };
                let from = bytes.len().min(*pos as usize);
                let found = &bytes[from..bytes.len().min(from + max)];
                into.extend_from_slice(found);
                return Ok(Outcome::Bytes(found.len() as u32));
            }
            Op::Write { pos, bufs, .. } => {
                if !write {
                    return Err(Errno::EBADF);
                }
                check_direct(direct, *pos, &bufs.remaining().collect::<Vec<_>>())?;
                let mut bytes = joined(bufs.remaining());
                bytes.truncate(short_of(flight.short));
                let moved = self.take_space(inode, *pos, bytes.len())?;
                self.tree.write(inode, *pos, &bytes[..moved], wall);
                return Ok(Outcome::Bytes(moved as u32));
            }
            Op::Fdatasync { .. } => {
                let until = flight.until.unwrap_or(self.tree.seq());
                self.tree.file_mut(inode).flush(until);
            }
            Op::Truncate { len, .. } => {
                if !write {
                    return Err(Errno::EINVAL);
                }
                let freed = self.tree.file(inode).len().saturating_sub(*len);
                self.tree.truncate(inode, *len, wall);
                self.give_space(freed);
            }
            Op::Len { .. } => return Ok(Outcome::Len(self.tree.file(inode).len())),
            Op::DropCache { .. } => self.tree.file_mut(inode).drop_cache(),
            // A cut already takes or leaves each sector: early write-back changes nothing.
            Op::SyncRange { .. } => {}
            _ => return Err(Errno(libc::ENOTSOCK)),
        }
        Ok(Outcome::Nothing)
    }

    fn open(&mut self, engine: usize, path: PathBuf, how: OpenHow) -> Result<Outcome, Errno> {
        self.check_access(&path)?;
        let files_max = self.faults.files_max;
        if self.engines[engine].table.0.iter().filter(|s| s.open.is_some()).count() >= files_max {
            return Err(Errno(libc::EMFILE));
        }
        let inode = self.tree.open(&path, how, self.wall_ms())?;
        let open = Open::File { inode, path, write: how.write, direct: how.direct };
        self.engines[engine].table.insert(open, files_max).map(Outcome::File)
    }

    fn check_access(&self, path: &Path) -> Result<(), Errno> {
        if self.faults.denies(path) { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// How many of these bytes the disk has room for.
    fn take_space(&mut self, inode: Inode, pos: u64, len: usize) -> Result<usize, Errno> {
        let size = self.tree.file(inode).len();
        let Some(space) = &mut self.faults.space_bytes else { return Ok(len) };
        let inside = (size.saturating_sub(pos) as usize).min(len);
        let grows = ((len - inside) as u64).min(*space);
        *space -= grows;
        match inside + grows as usize {
            0 if len > 0 => Err(Errno::ENOSPC),
            moved => Ok(moved),
        }
    }

    fn give_space(&mut self, bytes: u64) {
        if let Some(space) = &mut self.faults.space_bytes {
            *space += bytes;
        }
    }

    /// An op that has not taken effect ends now, or runs on: as the seed says.
    fn cancel(&mut self, engine: usize, token: Token) -> Result<(), Errno> {
        let coin = self.prng.coin();
        let found = self.flights.get_mut(&token.0).filter(|flight| flight.engine == engine);
        let flight = found.ok_or(Errno::ENOENT)?;
        if matches!(flight.op, Op::Timeout { .. }) || coin {
            flight.cancelled = true;
            self.push_event(self.now, token.0, Phase::Finish);
        }
        Ok(())
    }
}

/// The ops that can change what a power cut leaves.
fn is_step(op: &Op) -> bool {
    match op {
        Op::Open { how, .. } => how.create || how.truncate,
        Op::Write { .. }
        | Op::Fdatasync { .. }
        | Op::Truncate { .. }
        | Op::SyncDir { .. }
        | Op::Rename { .. }
        | Op::Unlink { .. }
        | Op::CreateDir { .. }
        | Op::RemoveDir { .. } => true,
        _ => false,
    }
}

fn file_of(op: &Op) -> Option<FileId> {
    match op {
        Op::Close { file }
        | Op::Read { file, .. }
        | Op::Write { file, .. }
        | Op::Fdatasync { file }
        | Op::SyncRange { file, .. }
        | Op::DropCache { file }
        | Op::Truncate { file, .. }
        | Op::Len { file } => Some(*file),
        _ => None,
    }
}

fn path_of(op: &Op) -> Option<&Path> {
    match op {
        Op::Open { path, .. }
        | Op::SyncDir { path }
        | Op::Unlink { path }
        | Op::CreateDir { path }
        | Op::RemoveDir { path }
        | Op::List { path }
        | Op::Stat { path }
        | Op::Rename { from: path, .. } => Some(path),
        _ => None,
    }
}

fn short_of(short: Option<u32>) -> usize {
    short.map_or(usize::MAX, |n| n as usize)
}

fn joined<'a>(slices: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    slices.fold(Vec::new(), |mut all, slice| {
        all.extend_from_slice(slice);
        all
    })
}

fn check_direct<S: AsRef<[u8]>>(direct: bool, pos: u64, memory: &[S]) -> Result<(), Errno> {
    let aligned = |slice: &[u8]| {
        slice.len().is_multiple_of(DIRECT_ALIGN)
            && slice.as_ptr().addr().is_multiple_of(DIRECT_ALIGN)
    };
    let fits = pos.is_multiple_of(DIRECT_ALIGN as u64)
        && memory.iter().all(|slice| aligned(slice.as_ref()));
    if direct && !fits { Err(Errno::EINVAL) } else { Ok(()) }
}

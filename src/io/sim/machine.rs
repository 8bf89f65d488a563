//! The simulated machine: clock, processes, ops in flight, and when each of them happens.
//!
//! Owns: the event queue, the engines, the count of steps, kill and cut. Never does: what an op
//! does (`perform`), bytes and names (`file`, `tree`, `net`). Left: `perform`, `faults`, `prng`.
//! Right: `sim`.
//!
//! An op takes effect at one instant between its submit and its `Done`, drawn from the seed. A
//! flush has two: it covers the changes that had taken effect when it started, and they are durable
//! when it ends.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::faults::{Effect, Faults, Order};
use super::file::sectors;
use super::net::{ConnId, ListenerId, Net};
use super::perform::joined;
use super::prng::Prng;
use super::table::{Open, Table};
use super::tree::{Inode, Tree};
use crate::io::op::{Done, Errno, FileId, IoCounters, Op, Refused, Tag, Token, Wait};
use crate::types::{Micros, WallMs};

pub(super) struct Engine {
    process: u32,
    pub(super) table: Table,
    ready: VecDeque<Done>,
    in_flight: usize,
    /// When the last op of a fifo ends.
    last_due: Micros,
    wake: Arc<AtomicBool>,
    counters: IoCounters,
}

/// An op from submit to its `Done`.
pub(super) struct Flight {
    pub engine: usize,
    tag: Tag,
    pub op: Op,
    /// What the op's id named when it was submitted; kept open by it.
    pub open: Option<Rc<Open>>,
    /// The file that a sendfile reads.
    pub source: Option<Rc<Open>>,
    /// Decided at submit: a stale id, a planned failure.
    pub refusal: Option<Errno>,
    pub short: Option<u32>,
    /// For flushes: they cover what took effect before this.
    pub until: Option<u64>,
    /// Its socket has to move first.
    pub waiting: bool,
    pub cancelled: bool,
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
    pub net: Net,
    pub steps: u64,
    pub stopped: bool,
    stop_at: Option<u64>,
    process: u32,
    pub(super) engines: Vec<Engine>,
    pub(super) flights: BTreeMap<u64, Flight>,
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
            net: Net::default(),
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

    /// The kernel writes the file's dirty pages back by itself, and fails.
    pub fn fail_writeback(&mut self, inode: Inode) {
        let until = self.tree.seq();
        self.tree.file_mut(inode).fail_flush(until, &mut self.prng);
        let tables = self.engines.iter().flat_map(|engine| engine.table.files());
        let flying = self.flights.values().filter_map(|flight| flight.open.as_ref()?.file());
        for file in tables.chain(flying).filter(|file| file.inode == inode) {
            file.write_error.set(true);
        }
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
        gone.table.drain().into_iter().for_each(|open| self.release(open));
    }

    /// Nobody will hear of this op; it happened wholly, partly or not.
    fn abandon(&mut self, mut flight: Flight) {
        if is_step(&flight.op) && self.prng.coin() {
            let file = flight.open.as_ref().and_then(|open| open.file());
            match (&flight.op, file) {
                (Op::Write { pos, bufs, .. }, Some(file)) if flight.refusal.is_none() => {
                    let (bytes, inode) = (joined(bufs.remaining(), usize::MAX), file.inode);
                    self.write_partly(inode, *pos, &bytes);
                }
                _ => drop(self.perform(&mut flight)),
            }
        }
        self.release_all(flight.open, flight.source);
    }

    fn write_partly(&mut self, inode: Inode, pos: u64, bytes: &[u8]) {
        let (wall, arrive) = (self.wall_ms(), self.prng.chance());
        for (pos, piece) in sectors(pos, bytes) {
            if self.prng.per_mille(arrive) {
                self.tree.write(inode, pos, piece, wall);
            }
        }
    }

    fn release_all(&mut self, open: Option<Rc<Open>>, source: Option<Rc<Open>>) {
        open.into_iter().chain(source).for_each(|one| self.release(one));
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
        let table = &self.engines[engine].table;
        let (main, source) = ids_of(&op);
        let named = |id: Option<FileId>| id.map(|id| table.get(id).cloned()).transpose();
        let (open, source, refusal) = match (named(main), named(source)) {
            (Ok(open), Ok(source)) => (open, source, None),
            (Err(errno), _) | (_, Err(errno)) => (None, None, Some(errno)),
        };
        Flight {
            engine,
            tag,
            op,
            open,
            source,
            refusal,
            short: None,
            until: None,
            waiting: false,
            cancelled: false,
        }
    }

    /// Gives the delay, in microseconds, that the faults add.
    fn draw_fault(&mut self, flight: &mut Flight) -> u64 {
        let file = flight.open.as_ref().and_then(|open| open.file());
        let path = file.map(|file| file.path.as_path()).or(path_of(&flight.op));
        let Some(path) = path else { return 0 };
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
            true => Some(Err(Errno::ECANCELED)),
            false => self.perform(&mut flight),
        };
        let Some(result) = result else {
            flight.waiting = true;
            self.flights.insert(token, flight);
            return;
        };
        self.steps += u64::from(is_step(&flight.op));
        let done = Done { tag: flight.tag, op: flight.op, result };
        self.engines[flight.engine].ready.push_back(done);
        self.release_all(flight.open, flight.source);
        self.stopped |= self.stop_at == Some(self.steps);
    }

    pub(super) fn finish_at(&mut self, at: Micros, token: u64) {
        self.push_event(at, token, Phase::Finish);
    }

    /// Something changed on a connection: whoever waits for it tries again soon.
    pub fn rouse_socket(&mut self, conn: ConnId) {
        self.rouse(|open| matches!(open, Open::Socket(other) if *other == conn));
    }

    pub fn rouse_listener(&mut self, listener: ListenerId) {
        self.rouse(|open| matches!(open, Open::Listener(other) if *other == listener));
    }

    fn rouse(&mut self, concerns: impl Fn(&Open) -> bool) {
        let waits =
            |flight: &Flight| flight.waiting && flight.open.as_deref().is_some_and(&concerns);
        let tokens: Vec<u64> = self
            .flights
            .iter()
            .filter(|(_, flight)| waits(flight))
            .map(|(&token, _)| token)
            .collect();
        for token in tokens {
            let soon = match self.faults.order {
                Order::Fifo => self.faults.other_us,
                Order::Shuffled => self.prng.below(self.faults.other_us * 4),
            };
            self.finish_at(self.now.plus(Micros(soon)), token);
        }
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

/// What an op works on, and what a sendfile reads from. A close holds nothing open.
fn ids_of(op: &Op) -> (Option<FileId>, Option<FileId>) {
    match op {
        Op::Sendfile { socket, file, .. } => (Some(*socket), Some(*file)),
        Op::Accept { listener: id }
        | Op::Recv { socket: id, .. }
        | Op::Send { socket: id, .. }
        | Op::Shutdown { socket: id }
        | Op::Read { file: id, .. }
        | Op::Write { file: id, .. }
        | Op::Fdatasync { file: id }
        | Op::SyncRange { file: id, .. }
        | Op::DropCache { file: id }
        | Op::Truncate { file: id, .. }
        | Op::Len { file: id } => (Some(*id), None),
        _ => (None, None),
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

//! A small shard for tests: drives one log over the simulator, through public doors only.
#![allow(dead_code, reason = "each test file uses its part of this")]

use std::path::{Path, PathBuf};

use ringlog::format::batch::{Codec, scan};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::codec::{Workspace, decompress};
use ringlog::format::record::records;
use ringlog::io::blocking::Blocking;
use ringlog::io::buffers::Pool;
use ringlog::io::sim::{SimIo, World};
use ringlog::io::{Done, Errno, FileId, Io, Op, Outcome, Tag, Wait};
use ringlog::log::datadir::{Checkpoint, DataDir};
use ringlog::log::{
    Ack, Batches, LocalTag, Located, LogConfig, OffsetLookup, OpSink, OpenError, OpenParams,
    OpenReport, Partition, PartitionState, Refusal, Staged, Step, TimeLookup, Timed, View, Waiter,
    When, create, open,
};
use ringlog::types::{AckLevel, Micros, Offset, WallMs};
use uuid::Uuid;

pub const DATA: &str = "/data";
pub const TOPIC: &str = "t";
const READ_TAG: Tag = Tag(1 << 40);

pub fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

/// One batch of these values, as a producer sends it.
pub fn batch(values: &[&[u8]], codec: Codec, timestamp: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (i, value) in values.iter().enumerate() {
        builder.append(None, Some(value), &[], timestamp + i as i64);
    }
    builder.finish(codec, None).unwrap().to_vec()
}

/// One batch of an idempotent producer.
pub fn sequenced(id: i64, epoch: i16, sequence: i32, values: &[&[u8]], timestamp: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.producer(id, epoch, sequence);
    for value in values {
        builder.append(None, Some(value), &[], timestamp);
    }
    builder.finish(Codec::None, None).unwrap().to_vec()
}

/// Why a drive ended before what it waited for.
#[derive(Debug, PartialEq, Eq)]
pub struct Stopped;

pub struct Driver {
    pub world: World,
    pub io: SimIo,
    pub pool: Pool,
    pub log: Partition,
    pub report: OpenReport,
    pub acks: Vec<Ack>,
    sink: OpSink,
    done: Vec<Done>,
    next_waiter: u64,
}

pub fn log_dir() -> PathBuf {
    DataDir::new(DATA).log_dir(TOPIC, 0)
}

pub fn create_topic(world: &World, io: &mut SimIo) -> bool {
    let mut b = Blocking::new(io, Pool::new(8 << 20));
    let created = create(&mut b, &log_dir(), Uuid::from_u128(7), 0);
    assert!(created.is_ok() || world.stopped(), "{created:?}");
    created.is_ok()
}

/// A world with a data directory.
pub fn world(seed: u64) -> World {
    let world = World::new(seed);
    world.make_dir_durably(DATA);
    world
}

impl Driver {
    /// A fresh log.
    pub fn fresh(world: &World, config: LogConfig) -> Driver {
        let mut io = world.engine();
        assert!(create_topic(world, &mut io));
        Driver::open_with(world, io, params(config)).unwrap()
    }

    /// Starts a process on what is there, as a server does: marker, checkpoints, log.
    pub fn start(world: &World, config: LogConfig) -> Result<Driver, OpenError> {
        let mut io = world.engine();
        let data = DataDir::new(DATA);
        let params = {
            let mut b = Blocking::new(&mut io, Pool::new(8 << 20));
            let stop = |error| OpenError::Io { what: "starting", path: DATA.into(), errno: error };
            let clean = data.take_clean_marker(&mut b).map_err(|_| stop(Errno::EIO))?;
            let read = |b: &mut Blocking<'_, SimIo>, which| {
                data.read_checkpoint(b, which).map_err(|_| stop(Errno::EIO))
            };
            let points = read(&mut b, Checkpoint::RecoveryPoint)?;
            let starts = read(&mut b, Checkpoint::LogStart)?;
            let key = (TOPIC.to_string(), 0);
            OpenParams {
                clean,
                recovery_point: points.get(&key).copied(),
                log_start: starts.get(&key).copied(),
                ..params(config)
            }
        };
        Driver::open_with(world, io, params)
    }

    pub fn open_with(
        world: &World,
        mut io: SimIo,
        params: OpenParams,
    ) -> Result<Driver, OpenError> {
        let pool = Pool::new(64 << 20);
        let mut b = Blocking::new(&mut io, pool.clone());
        let (log, report) = open(&mut b, &log_dir(), &params, &pool)?;
        Ok(Driver {
            world: world.clone(),
            io,
            pool,
            log,
            report,
            acks: Vec::new(),
            sink: OpSink::new(),
            done: Vec::new(),
            next_waiter: 0,
        })
    }

    /// Stages batches (whole, adjacent, as produced).
    pub fn append(&mut self, bytes: &[u8], level: AckLevel) -> Result<(Waiter, Staged), Refusal> {
        let batches = Batches::from_headers(self.pool.copied(bytes).unwrap()).unwrap();
        let waiter = self.waiter();
        let (now, wall) = (self.io.now(), self.io.wall_ms());
        self.log.append(batches, level, waiter, now, wall).map(|staged| (waiter, staged))
    }

    pub fn flush(&mut self) -> Waiter {
        let waiter = self.waiter();
        self.log.flush(waiter, self.io.now());
        waiter
    }

    /// A flush request whose waiter counts no records.
    pub fn flush_counted(&mut self) -> Waiter {
        self.next_waiter += 1;
        let waiter = Waiter(self.next_waiter << 16);
        self.log.flush(waiter, self.io.now());
        waiter
    }

    /// As `append`, with a waiter that carries `flags` in its low bits.
    pub fn append_flagged(
        &mut self,
        bytes: &[u8],
        level: AckLevel,
        flags: u64,
    ) -> Result<Staged, Refusal> {
        let batches = Batches::from_headers(self.pool.copied(bytes).unwrap()).unwrap();
        self.next_waiter += 1;
        let waiter = Waiter(self.next_waiter << 16 | flags);
        let (now, wall) = (self.io.now(), self.io.wall_ms());
        self.log.append(batches, level, waiter, now, wall)
    }

    pub fn waiter(&mut self) -> Waiter {
        self.next_waiter += 1;
        Waiter(self.next_waiter)
    }

    /// Hands out what is planned.
    pub fn submit(&mut self) {
        let now = self.io.now();
        if self.log.has_work() || self.log.next_deadline() <= now {
            self.log.plan(now, &mut self.sink);
        }
        for (tag, op) in self.sink.drain() {
            self.io.submit(op, Tag(u64::from(tag.0))).expect("room in the queue");
        }
    }

    /// One tick; what completes moves the log. Err when the world has stopped.
    pub fn tick(&mut self) -> Result<(), Stopped> {
        self.submit();
        let wait = match (self.log.has_work(), self.log.next_deadline()) {
            (true, _) => Wait::No,
            (false, Micros::NEVER) if self.io.in_flight() == 0 => Wait::No,
            (false, Micros::NEVER) => Wait::Forever,
            (false, at) => Wait::Until(at),
        };
        self.reap(wait)
    }

    /// A tick that does not wait.
    pub fn poll(&mut self) -> Result<(), Stopped> {
        self.submit();
        self.reap(Wait::No)
    }

    /// Appends as a producer that tries again while there is no space.
    pub fn append_retrying(&mut self, bytes: &[u8], level: AckLevel) -> Ack {
        for _ in 0..20 {
            match self.append(bytes, level) {
                Ok((waiter, _)) => {
                    self.tick_until(|d| d.ack_of(waiter).is_some()).unwrap();
                    return self.ack_of(waiter).unwrap();
                }
                Err(Refusal::NoSpace) => {
                    self.world.advance(Micros(500_000));
                    self.settle().unwrap();
                }
                Err(other) => panic!("{other}"),
            }
        }
        panic!("appends never went on by themselves");
    }

    fn reap(&mut self, wait: Wait) -> Result<(), Stopped> {
        let reaped = self.io.reap(wait, &mut self.done);
        let now = self.io.now();
        for done in self.done.drain(..) {
            let tag =
                LocalTag(u32::try_from(done.tag.0).expect("only the log's ops are in flight"));
            self.log.on_done(tag, done.op, done.result, now);
        }
        self.log.drain_acks(&mut self.acks);
        match reaped.is_err() || self.world.stopped() {
            true => Err(Stopped),
            false => Ok(()),
        }
    }

    /// Ticks until the log has nothing in flight and nothing to do before a deadline.
    pub fn settle(&mut self) -> Result<(), Stopped> {
        for _ in 0..100_000 {
            self.tick()?;
            if !self.log.has_work() && self.io.in_flight() == 0 {
                return Ok(());
            }
        }
        panic!("the log never came to rest");
    }

    /// As `settle`, but no time passes without an op in flight: deadlines stay ahead.
    pub fn rest(&mut self) -> Result<(), Stopped> {
        for _ in 0..100_000 {
            self.submit();
            let busy = self.log.has_work();
            let is_over = !busy && self.io.in_flight() == 0;
            self.reap(if busy || is_over { Wait::No } else { Wait::Forever })?;
            if is_over {
                return Ok(());
            }
        }
        panic!("the log never came to rest");
    }

    pub fn tick_until(&mut self, mut met: impl FnMut(&Driver) -> bool) -> Result<(), Stopped> {
        for _ in 0..100_000 {
            if met(self) {
                return Ok(());
            }
            self.tick()?;
        }
        panic!("what was waited for never came");
    }

    pub fn ack_of(&self, waiter: Waiter) -> Option<Ack> {
        self.acks.iter().find(|ack| ack.waiter == waiter).copied()
    }

    pub fn append_acked(&mut self, bytes: &[u8], level: AckLevel) -> Result<Ack, Stopped> {
        let (waiter, _) = self.append(bytes, level).expect("accepted");
        self.tick_until(|d| d.ack_of(waiter).is_some())?;
        Ok(self.ack_of(waiter).unwrap())
    }

    /// A graceful stop of the process: log closed, checkpoints, marker.
    pub fn stop(mut self) -> Result<(), Stopped> {
        self.log.close(self.io.now());
        self.tick_until(|d| d.log.is_closed())?;
        if matches!(self.log.state(), PartitionState::Poisoned { .. }) {
            return Err(Stopped); // never a clean marker (D9)
        }
        assert!(self.log.closed_clean(), "{:?}", self.log);
        self.checkpoint()?;
        let mut b = Blocking::new(&mut self.io, self.pool.clone());
        DataDir::new(DATA).write_clean_marker(&mut b).map_err(|_| Stopped)
    }

    /// Writes the recovery point down, as a server does now and then.
    pub fn checkpoint(&mut self) -> Result<(), Stopped> {
        let key = (TOPIC.to_string(), 0);
        let points = [(key.clone(), self.log.recovery_point())].into();
        let start = self.log.log_start();
        // As a server: a start that the files say by themselves has no row.
        let starts = match start > self.log.first_base() {
            true => [(key, start)].into(),
            false => Default::default(),
        };
        let data = DataDir::new(DATA);
        let mut b = Blocking::new(&mut self.io, self.pool.clone());
        let written = data
            .replace_checkpoint(&mut b, Checkpoint::RecoveryPoint, &points)
            .and_then(|()| data.replace_checkpoint(&mut b, Checkpoint::LogStart, &starts));
        let foreign = std::mem::take(&mut b.foreign);
        let now = self.io.now();
        for done in foreign {
            let tag = LocalTag(u32::try_from(done.tag.0).expect("the log's"));
            self.log.on_done(tag, done.op, done.result, now);
        }
        written.map_err(|_| Stopped)
    }

    /// Writes the log start down if somebody waits for that, as a server does.
    pub fn save_start(&mut self) -> Result<(), Stopped> {
        let start = self.log.start_to_save(self.io.now());
        self.log.drain_acks(&mut self.acks);
        let Some(start) = start else { return Ok(()) };
        let starts = [((TOPIC.to_string(), 0), start)].into();
        let data = DataDir::new(DATA);
        let mut b = Blocking::new(&mut self.io, self.pool.clone());
        let written = data.replace_checkpoint(&mut b, Checkpoint::LogStart, &starts);
        let foreign = std::mem::take(&mut b.foreign);
        let now = self.io.now();
        for done in foreign {
            let tag = LocalTag(u32::try_from(done.tag.0).expect("the log's"));
            self.log.on_done(tag, done.op, done.result, now);
        }
        written.map_err(|_| Stopped)?;
        self.log.start_saved(Some(start), now);
        self.log.drain_acks(&mut self.acks);
        Ok(())
    }

    /// Runs one op that a lookup asked for; the log's own completions go on meanwhile.
    fn run(&mut self, op: Op) -> Result<(Op, Result<Outcome, Errno>), Stopped> {
        self.io.submit(op, READ_TAG).expect("room in the queue");
        for _ in 0..100_000 {
            let reaped = self.io.reap(Wait::Forever, &mut self.done);
            let now = self.io.now();
            let mut mine = None;
            for done in self.done.drain(..) {
                match done.tag {
                    READ_TAG => mine = Some((done.op, done.result)),
                    Tag(tag) => self.log.on_done(LocalTag(tag as u32), done.op, done.result, now),
                }
            }
            if let Some(mine) = mine {
                return Ok(mine);
            }
            if reaped.is_err() || self.world.stopped() {
                return Err(Stopped);
            }
        }
        panic!("an op never came back");
    }

    pub fn read(&mut self, file: FileId, pos: u64, max: u32) -> Result<Vec<u8>, Stopped> {
        let into = self.pool.window(max as usize).unwrap();
        let (op, result) = self.run(Op::Read { file, pos, max, into })?;
        let Op::Read { into, .. } = op else { unreachable!() };
        match result {
            Ok(_) => Ok(into.bytes().to_vec()),
            Err(errno) if errno.is_transient() => self.read(file, pos, max),
            Err(errno) => panic!("read failed: {errno}"),
        }
    }

    fn open_file(
        &mut self,
        path: &Path,
        how: ringlog::io::op::OpenHow,
    ) -> Result<Result<FileId, Errno>, Stopped> {
        let (_, result) = self.run(Op::Open { path: path.to_path_buf(), how })?;
        Ok(result.map(|outcome| match outcome {
            Outcome::File(file) => file,
            other => unreachable!("{other:?}"),
        }))
    }

    pub fn locate(&mut self, at: Offset, bytes_max: u32) -> Result<Located, Stopped> {
        self.locate_in(View::Uncommitted, at, bytes_max)
    }

    pub fn locate_in(
        &mut self,
        view: View,
        at: Offset,
        bytes_max: u32,
    ) -> Result<Located, Stopped> {
        let mut lookup = OffsetLookup::new(at, bytes_max, true).with_view(view);
        let mut bytes: Option<Vec<u8>> = None;
        loop {
            match lookup.step(&mut self.log, bytes.take().as_deref()) {
                Step::Ready(located) => return Ok(located),
                Step::Read { file, pos, max } => bytes = Some(self.read(file, pos, max)?),
                Step::Open { path, how } => {
                    let result = self.open_file(&path, how)?;
                    lookup.opened(&mut self.log, result);
                }
                Step::Failed { path, errno } => panic!("{}: {errno}", path.display()),
            }
        }
    }

    pub fn by_time(&mut self, when: When) -> Result<Option<(Offset, WallMs)>, Stopped> {
        let found = self.timed(when, View::Uncommitted)?;
        Ok(found.map(|found| (found.offset, found.timestamp)))
    }

    pub fn timed(&mut self, when: When, view: View) -> Result<Option<Timed>, Stopped> {
        let mut lookup = TimeLookup::new(when, view);
        let mut bytes: Option<Vec<u8>> = None;
        loop {
            match lookup.step(&mut self.log, bytes.take().as_deref()) {
                Step::Ready(found) => return Ok(found),
                Step::Read { file, pos, max } => bytes = Some(self.read(file, pos, max)?),
                Step::Open { path, how } => {
                    let result = self.open_file(&path, how)?;
                    lookup.opened(&mut self.log, result);
                }
                Step::Failed { path, errno } => panic!("{}: {errno}", path.display()),
            }
        }
    }

    /// The bytes a consumer gets at an offset; empty at the end.
    pub fn fetch(&mut self, at: Offset, bytes_max: u32) -> Result<Vec<u8>, Stopped> {
        let Located::Range(range) = self.locate(at, bytes_max)? else { return Ok(Vec::new()) };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < range.len {
            let left = range.len - bytes.len() as u64;
            let more = self.read(range.file.id(), range.pos + bytes.len() as u64, left as u32)?;
            assert!(!more.is_empty(), "a range ends early");
            bytes.extend(more);
        }
        Ok(bytes)
    }

    /// Everything a consumer reads from `from` on: offsets and values.
    pub fn consume(
        &mut self,
        from: Offset,
        bytes_max: u32,
    ) -> Result<Vec<(i64, Vec<u8>)>, Stopped> {
        let mut got: Vec<(i64, Vec<u8>)> = Vec::new();
        let mut at = from;
        while at < self.log.high_watermark() {
            let bytes = self.fetch(at, bytes_max)?;
            let mut next = None;
            for found in scan(&bytes) {
                assert!(found.crc_ok(), "a batch that is not sound was served");
                let mut plain = Vec::new();
                let codec = found.header.codec().unwrap();
                let mut workspace = Workspace::new();
                decompress(codec, found.payload(), 1 << 20, &mut workspace, &mut plain).unwrap();
                for record in records(&plain, &found.header) {
                    let record = record.unwrap();
                    if record.offset >= at.get() {
                        got.push((record.offset, record.value.unwrap().to_vec()));
                    }
                }
                next = Some(offset(found.header.next_offset()));
            }
            at = next.expect("the first batch is whole");
        }
        Ok(got)
    }
}

pub fn params(config: LogConfig) -> OpenParams {
    OpenParams::unknown(config)
}

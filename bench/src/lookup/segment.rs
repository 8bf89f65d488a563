//! The segment under test: written through the library's log, then asked through its lookups.
//!
//! Owns: driving one log on plain system calls, on this thread; counting what a lookup reads. Never
//! does: time anything. Left: `ringlog::log`, `ringlog::io`. Right: `lookup`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use ringlog::format::batch::{self, BASE_TIMESTAMP, Codec, MAX_TIMESTAMP};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::identity::parse_uuid;
use ringlog::io::blocking::Blocking;
use ringlog::io::buffers::{Pool, Window};
use ringlog::io::syscall::{SyscallIo, SyscallOptions};
use ringlog::io::{Done, Errno, FileId, Io, Op, Outcome, Tag, Wait};
use ringlog::log::{
    Batches, LocalTag, Located, LogConfig, OffsetLookup, OpSink, OpenParams, Partition, Refusal,
    Step, TimeLookup, Timed, View, Waiter, When, create, open,
};
use ringlog::policy::FlushPolicy;
use ringlog::types::{AckLevel, Offset};

/// The time of record 0; record n is n milliseconds later.
pub const FIRST_TIME_MS: i64 = 1_700_000_000_000;
const TOPIC_ID: &str = "bG9va3VwLWJlbmNobWFyaw";
const POOL_BYTES: usize = 64 << 20;
/// What a fetch would ask for.
const FETCH_BYTES: u32 = 1 << 20;

/// How large.
#[derive(Copy, Clone, Debug)]
pub struct Shape {
    pub segment_bytes: u64,
    pub record_bytes: usize,
    pub batch_bytes: usize,
}

/// What one lookup read to find its answer.
#[derive(Copy, Clone, Debug, Default)]
pub struct Reads {
    pub reads: u64,
    pub bytes: u64,
}

/// A log whose first segment, sealed, is the one under test.
pub struct Segment {
    io: SyscallIo,
    pool: Pool,
    log: Partition,
    dir: PathBuf,
    config: LogConfig,
    sink: OpSink,
    done: Vec<Done>,
    records: i64,
}

fn other(what: impl std::fmt::Display) -> io::Error {
    io::Error::other(what.to_string())
}

impl Segment {
    /// Writes the segment, seals it behind a small one, and opens the log anew.
    pub fn write(dir: &Path, shape: Shape, wrote: impl Fn(u64)) -> io::Result<Segment> {
        let config = LogConfig {
            segment_bytes: shape.segment_bytes,
            flush: FlushPolicy::Os,
            retention_ms: -1,
            segment_ms: i64::MAX,
            ..LogConfig::default()
        };
        let mut io = SyscallIo::new(SyscallOptions::inline()).map_err(other)?;
        let pool = Pool::new(POOL_BYTES);
        let dir = dir.join("lookup-0");
        let id = parse_uuid(TOPIC_ID).ok_or_else(|| other("no topic id"))?;
        create(&mut Blocking::new(&mut io, pool.clone()), &dir, id, 0).map_err(other)?;
        let log = opened(&mut io, &pool, &dir, &config, false)?;
        let (sink, done) = (OpSink::new(), Vec::new());
        let mut segment = Segment { io, pool, log, dir, config, sink, done, records: 0 };
        segment.fill(shape, wrote)?;
        segment.reopen()?;
        Ok(segment)
    }

    fn fill(&mut self, shape: Shape, wrote: impl Fn(u64)) -> io::Result<()> {
        let mut batch = template(shape);
        let count = i64::from(batch::verify(&batch).map_err(other)?.records_count);
        let in_segment = shape.segment_bytes / batch.len() as u64;
        // One more: it begins the next segment, and seals the one under test.
        for number in 0..=in_segment as i64 {
            let first = FIRST_TIME_MS + number * count;
            stamp(&mut batch, BASE_TIMESTAMP, first);
            stamp(&mut batch, MAX_TIMESTAMP, first + count - 1);
            batch::reseal(&mut batch).map_err(other)?;
            self.append(&batch)?;
            wrote(batch.len() as u64);
        }
        self.records = in_segment as i64 * count;
        Ok(())
    }

    fn append(&mut self, batch: &[u8]) -> io::Result<()> {
        loop {
            let bytes = self.pool.copied(batch).ok_or_else(|| other("no room for a batch"))?;
            let batches = Batches::from_headers(bytes).map_err(other)?;
            let (now, wall) = (self.io.now(), self.io.wall_ms());
            let taken = self.log.append(batches, AckLevel::None, Waiter(0), now, wall);
            self.tick()?;
            match taken {
                Ok(_) => return Ok(()),
                Err(Refusal::Backpressure) => {}
                Err(refusal) => return Err(other(refusal)),
            }
        }
    }

    /// Closes the log and opens it as after a clean stop: nothing of it is in memory.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.log.close(self.io.now());
        while !self.log.is_closed() {
            self.tick()?;
        }
        if !self.log.closed_clean() {
            return Err(other(format!("the log did not close cleanly: {:?}", self.log.state())));
        }
        self.log = opened(&mut self.io, &self.pool, &self.dir, &self.config, true)?;
        Ok(())
    }

    fn tick(&mut self) -> io::Result<()> {
        let now = self.io.now();
        self.log.plan(now, &mut self.sink);
        for (tag, op) in self.sink.drain() {
            let refused = self.io.submit(op, Tag(u64::from(tag.0))).is_err();
            assert!(!refused, "a log has few ops at once");
        }
        self.io.reap(Wait::No, &mut self.done).map_err(other)?;
        for done in self.done.drain(..) {
            let tag = LocalTag(done.tag.0 as u32);
            self.log.on_done(tag, done.op, done.result, now);
        }
        self.log.drain_acks(&mut Vec::new());
        Ok(())
    }

    /// Records of the segment under test: offsets from 0, a millisecond apart.
    pub fn records(&self) -> i64 {
        self.records
    }

    /// The segment's files: log, offset index, time index.
    pub fn files(&self) -> io::Result<Vec<File>> {
        let base = self.dir.join("0".repeat(20));
        let open = |kind: &str| File::open(base.with_extension(kind));
        ["log", "index", "timeindex"].into_iter().map(open).collect()
    }

    pub fn log_path(&self) -> PathBuf {
        self.dir.join("0".repeat(20)).with_extension("log")
    }

    /// Finds the bytes at an offset.
    pub fn by_offset(&mut self, offset: i64) -> io::Result<Reads> {
        let at = Offset::new(offset).ok_or_else(|| other("an offset below 0"))?;
        match self.find(OffsetLookup::new(at, FETCH_BYTES, true))? {
            (Located::Range(range), reads) if range.segment == Offset::ZERO => Ok(reads),
            (wrong, _) => Err(other(format!("offset {offset}: {wrong:?}"))),
        }
    }

    /// Finds the first record at or after a time.
    pub fn by_time(&mut self, time_ms: i64) -> io::Result<Reads> {
        match self.find(TimeLookup::new(When::AtOrAfter(time_ms), View::Uncommitted))? {
            (Some(found), reads) if found.offset.get() == time_ms - FIRST_TIME_MS => Ok(reads),
            (wrong, _) => Err(other(format!("time {time_ms}: {wrong:?}"))),
        }
    }

    fn find<L: Lookup>(&mut self, mut lookup: L) -> io::Result<(L::Found, Reads)> {
        let (mut reads, mut answer) = (Reads::default(), None);
        loop {
            let bytes = answer.as_ref().map(Window::bytes);
            match lookup.step(&mut self.log, bytes) {
                Step::Ready(found) => return Ok((found, reads)),
                Step::Read { file, pos, max } => {
                    let into = self.window(max)?;
                    answer = Some(self.read(Op::Read { file, pos, max, into }, &mut reads)?);
                }
                Step::Open { path, how } => {
                    let opened = Blocking::new(&mut self.io, self.pool.clone()).open(&path, how);
                    lookup.opened(&mut self.log, opened);
                    answer = None;
                }
                Step::Failed { path, errno } => {
                    return Err(other(format!("{}: {errno}", path.display())));
                }
            }
        }
    }

    fn window(&self, max: u32) -> io::Result<Window> {
        self.pool.window(max as usize).ok_or_else(|| other("no room for a read"))
    }

    fn read(&mut self, op: Op, reads: &mut Reads) -> io::Result<Window> {
        match Blocking::new(&mut self.io, self.pool.clone()).run(op) {
            Ok((Outcome::Bytes(bytes), Op::Read { into, .. })) => {
                reads.reads += 1;
                reads.bytes += u64::from(bytes);
                Ok(into)
            }
            Ok((outcome, _)) => unreachable!("a read gave {outcome:?}"),
            Err(errno) => Err(other(errno)),
        }
    }
}

/// Both lookups, as their driver sees them.
trait Lookup {
    type Found: std::fmt::Debug;
    fn step(&mut self, log: &mut Partition, bytes: Option<&[u8]>) -> Step<Self::Found>;
    fn opened(&mut self, log: &mut Partition, result: Result<FileId, Errno>);
}

impl Lookup for OffsetLookup {
    type Found = Located;

    fn step(&mut self, log: &mut Partition, bytes: Option<&[u8]>) -> Step<Located> {
        OffsetLookup::step(self, log, bytes)
    }

    fn opened(&mut self, log: &mut Partition, result: Result<FileId, Errno>) {
        OffsetLookup::opened(self, log, result);
    }
}

impl Lookup for TimeLookup {
    type Found = Option<Timed>;

    fn step(&mut self, log: &mut Partition, bytes: Option<&[u8]>) -> Step<Self::Found> {
        TimeLookup::step(self, log, bytes)
    }

    fn opened(&mut self, log: &mut Partition, result: Result<FileId, Errno>) {
        TimeLookup::opened(self, log, result);
    }
}

fn opened(
    io: &mut SyscallIo,
    pool: &Pool,
    dir: &Path,
    config: &LogConfig,
    clean: bool,
) -> io::Result<Partition> {
    let params = OpenParams { clean, ..OpenParams::unknown(config.clone()) };
    let mut blocking = Blocking::new(io, pool.clone());
    open(&mut blocking, dir, &params, pool).map(|(log, _)| log).map_err(other)
}

/// As many records as fit, a millisecond apart.
fn template(shape: Shape) -> Vec<u8> {
    let value: Vec<u8> = (0..shape.record_bytes).map(|at| (at * 131 + 17) as u8).collect();
    let mut builder = BatchBuilder::new();
    let more = BatchBuilder::record_len_max(None, Some(&value), &[]);
    while builder.is_empty() || builder.plain_len() + more <= shape.batch_bytes {
        let time = FIRST_TIME_MS + i64::from(builder.records_count());
        builder.append(None, Some(&value), &[], time);
    }
    builder.finish(Codec::None, None).expect("not compressed").to_vec()
}

fn stamp(batch: &mut [u8], at: usize, time_ms: i64) {
    batch[at..at + 8].copy_from_slice(&time_ms.to_be_bytes());
}

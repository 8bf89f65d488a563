//! Requests that take several steps: fetches and time lookups, driven by completions.
//!
//! Owns: the slots of running jobs, their deadlines, carrying a lookup's reads out. Never does:
//! decide what is read (the lookups do). Left: `fetch`, `offsets`, `log`. Right: `tick`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::conn::{Answer, ConnId, Piece, State};
use super::fetch::{AskPart, Fetch, Found, Phase};
use super::histograms::Stage;
use super::offsets::OffsetsJob;
use super::tick::Label;
use super::{FetchPath, Shard};
use crate::errors::ErrorCode;
use crate::io::{Errno, FileId, Io, Op, Outcome};
use crate::log::{Diverged, Located, OffsetLookup, Partition, Step, TimeLookup, Timed};
use crate::protocol::error::Detail;
use crate::types::{Handle, Micros, Offset};

const SLOT_BITS: u32 = 20;
/// Deadlines of jobs that are no more, before they are swept out.
const DEAD_DEADLINES_MAX: usize = 1024;

#[derive(Debug)]
pub enum Job {
    Fetch(Box<Fetch>),
    Offsets(Box<OffsetsJob>),
}

/// The slots; an id carries its slot's generation.
#[derive(Debug, Default)]
pub struct Jobs {
    slots: Vec<(u32, Option<Job>)>,
    free: Vec<u32>,
    deadlines: BinaryHeap<Reverse<(Micros, u32)>>,
}

impl Jobs {
    pub fn add(&mut self, job: Job) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        assert!(slot < 1 << SLOT_BITS, "job slot {slot} beyond its bits");
        let entry = &mut self.slots[slot as usize];
        entry.1 = Some(job);
        entry.0 << SLOT_BITS | slot
    }

    fn entry(&mut self, id: u32) -> Option<&mut (u32, Option<Job>)> {
        let entry = self.slots.get_mut((id & ((1 << SLOT_BITS) - 1)) as usize)?;
        (entry.0 == id >> SLOT_BITS).then_some(entry)
    }

    pub fn peek(&mut self, id: u32) -> Option<&Job> {
        self.entry(id)?.1.as_ref()
    }

    /// Every job that asks for this partition.
    pub fn under_way_on(&self, handle: Handle) -> Vec<u32> {
        let asks = |job: &Job| match job {
            Job::Fetch(fetch) => fetch.ask.parts.iter().any(|part| part.handle == handle),
            Job::Offsets(job) => job.handle == handle,
        };
        let ids = self.slots.iter().zip(0u32..).filter_map(|((generation, job), slot)| {
            job.as_ref().is_some_and(asks).then_some(generation << SLOT_BITS | slot)
        });
        ids.collect()
    }

    fn take(&mut self, id: u32) -> Option<Job> {
        self.entry(id)?.1.take()
    }

    fn put_back(&mut self, id: u32, job: Job) {
        if let Some(entry) = self.entry(id) {
            entry.1 = Some(job);
        }
    }

    fn remove(&mut self, id: u32) -> Option<Job> {
        let entry = self.entry(id)?;
        let job = entry.1.take();
        entry.0 = (entry.0 + 1) & ((1 << (32 - SLOT_BITS)) - 1);
        self.free.push(id & ((1 << SLOT_BITS) - 1));
        job
    }

    fn is_live(&self, id: u32) -> bool {
        let slot = self.slots.get((id & ((1 << SLOT_BITS) - 1)) as usize);
        slot.is_some_and(|(generation, job)| *generation == id >> SLOT_BITS && job.is_some())
    }

    /// Deadlines of jobs that ended early are forgotten before they outnumber the jobs that run.
    fn wake_at(&mut self, at: Micros, id: u32) {
        if self.deadlines.len() > 2 * self.slots.len() + DEAD_DEADLINES_MAX {
            let mut deadlines = std::mem::take(&mut self.deadlines);
            deadlines.retain(|Reverse((_, id))| self.is_live(*id));
            self.deadlines = deadlines;
        }
        self.deadlines.push(Reverse((at, id)));
    }

    pub fn next_deadline(&self) -> Micros {
        self.deadlines.peek().map_or(Micros::NEVER, |Reverse((at, _))| *at)
    }

    pub fn pop_due(&mut self, now: Micros) -> Option<u32> {
        let Reverse((at, id)) = *self.deadlines.peek()?;
        if at > now {
            return None;
        }
        self.deadlines.pop();
        Some(id)
    }
}

impl<I: Io> Shard<I> {
    /// Starts the fetch at the front of a connection's requests.
    pub(super) fn start_fetch(&mut self, id: ConnId) {
        let now = self.now;
        let Some(conn) = self.conns.get(id) else { return };
        let sequence = conn.front_sequence();
        let Some(request) = conn.pending_mut(sequence) else { return };
        let ask = match std::mem::replace(&mut request.state, State::Control) {
            State::FetchQueued(ask) => ask,
            other => {
                request.state = other;
                return;
            }
        };
        let fetch = Fetch::new(id, sequence, request.correlation, ask, now);
        let job = self.jobs.add(Job::Fetch(Box::new(fetch)));
        if let Some(conn) = self.conns.get(id)
            && let Some(request) = conn.pending_mut(sequence)
        {
            request.state = State::Job(job);
        }
        self.drive(job, None);
    }

    /// Forgets a job; reads still in the kernel find nothing when they end.
    pub(super) fn drop_job(&mut self, id: u32) {
        self.jobs.remove(id);
    }

    /// New bytes, memory or the deadline: a waiting job looks again.
    pub(super) fn wake_job(&mut self, id: u32) {
        let now = self.now;
        let Some(entry) = self.jobs.entry(id) else { return };
        if let Some(Job::Fetch(fetch)) = &mut entry.1 {
            match fetch.phase {
                Phase::Parked => fetch.restart(now),
                Phase::Starved => {}
                Phase::Locating | Phase::Reading { .. } => return,
            }
            self.drive(id, None);
        }
    }

    pub(super) fn job_done(&mut self, id: u32, op: Op, result: Result<Outcome, Errno>) {
        self.drive(id, Some((op, result)));
    }

    pub(super) fn drive(&mut self, id: u32, came: Option<Came>) {
        match self.jobs.take(id) {
            // The job ended early; a file that was opened for it has no other owner.
            None => {
                if let Some((Op::Open { .. }, Ok(Outcome::File(file)))) = came {
                    self.submit(Op::Close { file }, Label::Ignore);
                }
            }
            Some(Job::Fetch(mut fetch)) => {
                let done = self.step_fetch(id, &mut fetch, came);
                self.jobs.put_back(id, Job::Fetch(fetch));
                if let Some(answer) = done {
                    self.finish_job(id, answer);
                }
            }
            Some(Job::Offsets(mut job)) => {
                let done = self.step_offsets(id, &mut job, came);
                self.jobs.put_back(id, Job::Offsets(job));
                if let Some(answer) = done {
                    self.finish_job(id, answer);
                }
            }
        }
    }

    pub(super) fn finish_job(&mut self, id: u32, answer: Answer) {
        let (conn, sequence) = match self.jobs.remove(id) {
            Some(Job::Fetch(fetch)) => (fetch.conn, fetch.sequence),
            Some(Job::Offsets(job)) => (job.conn, job.sequence),
            None => return,
        };
        if let Some(known) = self.conns.get(conn) {
            known.answer(sequence, answer);
            self.conns.reply.push(conn);
        }
    }

    /// Carries a lookup's step out; gives the op's bytes to the next step when they come. An error
    /// says which file and why.
    pub(super) fn submit_step<T>(&mut self, id: u32, step: Step<T>) -> Option<Result<T, String>> {
        match step {
            Step::Ready(found) => return Some(Ok(found)),
            Step::Failed { path, errno } => {
                return Some(Err(format!("{}: {errno}", path.display())));
            }
            Step::Read { file, pos, max } => {
                // Lookups read a few KiB: the reserve below the bound is for replies.
                let into = self.pool.window_past_bound(max as usize);
                self.submit(Op::Read { file, pos, max, into }, Label::Job(id));
            }
            Step::Open { path, how } => self.submit(Op::Open { path, how }, Label::Job(id)),
        }
        None
    }

    fn step_fetch(&mut self, id: u32, fetch: &mut Fetch, came: Option<Came>) -> Option<Answer> {
        if matches!(fetch.phase, Phase::Reading { .. }) {
            return self.fill(id, fetch, came?);
        }
        let mut came = came;
        while let Some((part, max, whole_first)) = fetch.next_part() {
            let found = self.locate(id, fetch, part, (max, whole_first), came.take())?;
            fetch.push(found);
        }
        if !fetch.is_enough(self.now) {
            return self.park(id, fetch);
        }
        if !matches!(fetch.phase, Phase::Starved) {
            fetch.located = self.now;
            self.stages.record(Stage::Lookup, fetch.located.since(fetch.began));
        }
        self.respond(id, fetch)
    }

    fn locate(
        &mut self,
        id: u32,
        fetch: &mut Fetch,
        part: AskPart,
        (max, whole_first): (u32, bool),
        came: Option<Came>,
    ) -> Option<Found> {
        let fail = |code, message, detail, (start, high_watermark)| {
            Some(Found::Error { code, message, detail, start, high_watermark })
        };
        let Some(slot) = self.parts.find(part.handle) else {
            let (code, message, _) = self.not_here(part.handle);
            return fail(code, message, Detail::None, (-1, -1));
        };
        let known = self.parts.get(slot)?;
        known.used = true;
        let partition = &mut known.partition;
        let range = (partition.log_start().get(), partition.high_watermark().get());
        let Some(offset) = Offset::new(part.offset) else {
            return Some(out_of_range(part.offset, range));
        };
        if let Some(cut) = partition.diverged(offset, part.last_epoch) {
            return Some(cut_off(part, &cut, range));
        }
        let (ask, lookup) = (&fetch.ask, &mut fetch.lookup);
        let asked = || OffsetLookup::new(offset, max, whole_first).with_view(ask.view);
        let lookup = lookup.get_or_insert_with(asked);
        let step = match advance(lookup, partition, came) {
            Ok(step) => step,
            Err(why) => return fail(ErrorCode::KafkaStorageError, why, Detail::None, range),
        };
        self.parts.touch_if_work(slot);
        let (start, high_watermark) = range;
        let located = match self.submit_step(id, step)? {
            Ok(located) => located,
            Err(why) => return fail(ErrorCode::KafkaStorageError, why, Detail::None, range),
        };
        Some(match located {
            Located::Range(range) => {
                let limited = !range.at_end;
                Found::Range { range, start, high_watermark, limited }
            }
            Located::AtEnd => Found::Empty { start, high_watermark, limited: false },
            Located::NoRoom => Found::Empty { start, high_watermark, limited: true },
            Located::OutOfRange { start, end } => {
                out_of_range(part.offset, (start.get(), end.get()))
            }
            Located::Corrupt { path, pos, first, next } => {
                let message = format!(
                    "{}: damaged at byte {pos}: offsets {first} to {next} (exclusive) are lost; \
                     `ringlog verify` says more, reading goes on at {next}",
                    path.display()
                );
                let detail = Detail::Damage { first: first.get(), next: next.get() };
                return fail(ErrorCode::CorruptMessage, message, detail, range);
            }
        })
    }

    fn park(&mut self, id: u32, fetch: &mut Fetch) -> Option<Answer> {
        self.counters.fetches_parked += 1;
        fetch.forget_found();
        fetch.phase = Phase::Parked;
        for part in &fetch.ask.parts {
            if let Some(slot) = self.parts.find(part.handle)
                && let Some(known) = self.parts.get(slot)
            {
                // Fetches that ended by their deadline or with their connection go here.
                known.parked.retain(|&job| job != id && self.jobs.is_live(job));
                known.parked.push(id);
            }
        }
        self.jobs.wake_at(fetch.deadline, id);
        None
    }

    fn respond(&mut self, id: u32, fetch: &mut Fetch) -> Option<Answer> {
        let pool = self.pool.clone();
        let bytes = fetch.total_bytes();
        if bytes == 0 || self.config.fetch_path == FetchPath::Sendfile {
            self.counters.fetch_bytes += bytes;
            let pieces = fetch.pieces(|bytes| pool.copied_past_bound(bytes));
            return Some(Answer::Pieces { pieces, began: fetch.began });
        }
        let Some(mut window) = pool.window(fetch.reply_len()) else {
            // No memory now: replies on their way out will bring some back.
            self.counters.backpressure += 1;
            self.hungry = true;
            fetch.phase = Phase::Starved;
            self.jobs.wake_at(self.now.plus(Micros(200)), id);
            return None;
        };
        self.counters.fetch_bytes += bytes;
        window.extend_from_slice(&fetch.frame_head());
        fetch.phase = Phase::Reading { at: 0, have: 0 };
        self.read_on(id, fetch, window, 0)
    }

    /// Puts heads into the window until a part has record bytes to read; ends with the reply.
    fn read_on(
        &mut self,
        id: u32,
        fetch: &mut Fetch,
        mut window: crate::io::buffers::Window,
        from: usize,
    ) -> Option<Answer> {
        let mut head = std::mem::take(&mut self.encoded);
        for at in from..fetch.parts_found() {
            head.clear();
            fetch.part_bytes(at, &mut head);
            window.extend_from_slice(&head);
            if let Some(range) = fetch.range(at) {
                let op = Op::Read {
                    file: range.file.id(),
                    pos: range.pos,
                    max: range.len as u32,
                    into: window,
                };
                fetch.phase = Phase::Reading { at, have: 0 };
                self.encoded = head;
                self.submit(op, Label::Job(id));
                return None;
            }
        }
        self.encoded = head;
        self.stages.record(Stage::Read, self.now.since(fetch.located));
        let len = window.len();
        let pieces = vec![Piece::Bytes(window.take(len))];
        Some(Answer::Pieces { pieces, began: fetch.began })
    }

    /// A read of the reply's bytes came back.
    fn fill(&mut self, id: u32, fetch: &mut Fetch, (op, result): Came) -> Option<Answer> {
        let (Op::Read { file, pos, into, .. }, Phase::Reading { at, have }) = (op, &fetch.phase)
        else {
            unreachable!("only reads fill a reply");
        };
        let (at, have) = (*at, *have);
        let len = fetch.range(at).map_or(0, |range| range.len as u32);
        let got = match result {
            Ok(Outcome::Bytes(0)) => {
                return Some(self.read_failed(fetch, at, pos, "the file ends here"));
            }
            Ok(Outcome::Bytes(bytes)) => bytes,
            Err(errno) if errno.is_transient() => 0,
            other => return Some(self.read_failed(fetch, at, pos, &format!("{other:?}"))),
        };
        let have = have + got;
        if have < len {
            fetch.phase = Phase::Reading { at, have };
            let (pos, max) = (pos + u64::from(got), len - have);
            self.submit(Op::Read { file, pos, max, into }, Label::Job(id));
            return None;
        }
        self.read_on(id, fetch, into, at + 1)
    }

    /// Nothing of the reply has left yet: the whole request gets the error.
    fn read_failed(&self, fetch: &Fetch, at: usize, pos: u64, why: &str) -> Answer {
        let handle = fetch.ask.parts[at].handle;
        let message = format!("reading handle {:#x} at byte {pos}: {why}", handle.0);
        tracing::error!("fetch: {message}");
        super::control::error_answer(
            crate::protocol::api::Api::Fetch.to_wire(),
            fetch.correlation,
            ErrorCode::KafkaStorageError,
            &message,
            Detail::None,
        )
    }
}

fn out_of_range(offset: i64, (start, high_watermark): (i64, i64)) -> Found {
    let message = format!("offset {offset} is outside {start}..={high_watermark}");
    tracing::info!("fetch: {message}");
    Found::Error {
        code: ErrorCode::OffsetOutOfRange,
        message,
        detail: Detail::Range { start, high_watermark },
        start,
        high_watermark,
    }
}

/// What a reader is told whose history the log no longer shares (R11).
fn cut_off(part: AskPart, cut: &Diverged, (start, high_watermark): (i64, i64)) -> Found {
    let Diverged { epoch, end, unknown } = *cut;
    let (code, why) = match unknown {
        true => (ErrorCode::UnknownLeaderEpoch, "this log never had that epoch"),
        false => (ErrorCode::FencedLeaderEpoch, "the log was cut"),
    };
    let message = format!(
        "offset {} was read up to in leader epoch {}: {why}; what was read from offset {end} on \
         is lost",
        part.offset, part.last_epoch
    );
    tracing::info!("fetch of handle {:#x}: {message}", part.handle.0);
    let detail = Detail::Diverged { epoch, end: end.get() };
    Found::Error { code, message, detail, start, high_watermark }
}

/// What came back for a job: its op, and how it went.
pub(super) type Came = (Op, Result<Outcome, Errno>);

/// The two searches, driven alike.
pub(super) trait Lookup {
    type Found;
    fn step(&mut self, partition: &mut Partition, bytes: Option<&[u8]>) -> Step<Self::Found>;
    fn opened(&mut self, partition: &mut Partition, result: Result<FileId, Errno>);
}

impl Lookup for OffsetLookup {
    type Found = Located;

    fn step(&mut self, partition: &mut Partition, bytes: Option<&[u8]>) -> Step<Located> {
        OffsetLookup::step(self, partition, bytes)
    }

    fn opened(&mut self, partition: &mut Partition, result: Result<FileId, Errno>) {
        OffsetLookup::opened(self, partition, result);
    }
}

impl Lookup for TimeLookup {
    type Found = Option<Timed>;

    fn step(&mut self, partition: &mut Partition, bytes: Option<&[u8]>) -> Step<Self::Found> {
        TimeLookup::step(self, partition, bytes)
    }

    fn opened(&mut self, partition: &mut Partition, result: Result<FileId, Errno>) {
        TimeLookup::opened(self, partition, result);
    }
}

/// Gives a lookup what its last step asked for and takes the next; an error says what failed.
pub(super) fn advance<L: Lookup>(
    lookup: &mut L,
    partition: &mut Partition,
    came: Option<Came>,
) -> Result<Step<L::Found>, String> {
    match came {
        None => Ok(lookup.step(partition, None)),
        Some((Op::Read { into, .. }, Ok(_))) => Ok(lookup.step(partition, Some(into.bytes()))),
        Some((Op::Read { .. }, Err(errno))) if errno.is_transient() => {
            Ok(lookup.step(partition, None))
        }
        Some((Op::Open { .. }, opened)) => {
            lookup.opened(partition, opened.map(file_of));
            Ok(lookup.step(partition, None))
        }
        Some((op, result)) => Err(format!("{op:?}: {result:?}")),
    }
}

/// The file that an open gave.
fn file_of(outcome: Outcome) -> FileId {
    match outcome {
        Outcome::File(file) => file,
        other => unreachable!("open gave {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fetch::Ask;
    use super::*;
    use crate::log::View;

    #[test]
    fn deadlines_of_fetches_that_ended_early_are_swept_out() {
        let mut jobs = Jobs::default();
        let fetch = || {
            let ask = Ask {
                max_bytes: 1,
                min_bytes: 1,
                max_wait: Micros(1),
                view: View::Uncommitted,
                parts: Vec::new(),
            };
            Job::Fetch(Box::new(Fetch::new(ConnId::new(0, 0), 0, 0, Box::new(ask), Micros(0))))
        };
        let kept = jobs.add(fetch());
        jobs.wake_at(Micros(7), kept);
        for _ in 0..100_000 {
            let id = jobs.add(fetch());
            jobs.wake_at(Micros(300_000_000), id);
            jobs.remove(id);
        }
        assert!(jobs.deadlines.len() < 2 * DEAD_DEADLINES_MAX, "{}", jobs.deadlines.len());
        assert_eq!(jobs.pop_due(Micros(7)), Some(kept), "a running job keeps its deadline");
    }
}

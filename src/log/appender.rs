//! Staged appends to writes: groups of neighbours, the contiguous prefix of what has finished.
//!
//! Owns: the staged queue, the writes in flight, short-write resume. Never does: deciding where an
//! append goes (`partition` stages it at a known position) or what a finished write settles.
//! Left: `io`, `policy::group`. Right: `partition`.

use std::collections::VecDeque;

use super::op_sink::{OpSink, Task};
use super::segment::IndexPoint;
use super::segments::Segments;
use super::watermarks::Mark;
use crate::io::buffers::{Group, Slice};
use crate::io::{Errno, Op, Outcome};
use crate::policy::FlushPolicy;
use crate::policy::group::{GroupLimits, takes};
use crate::types::Offset;

/// A write that made no progress is tried again at most this often in a row (R63).
const STALLS_MAX: u8 = 16;

/// One append with its place.
#[derive(Debug)]
pub(super) struct StagedAppend {
    pub bytes: Slice,
    pub segment: u32,
    pub pos: u64,
    /// Behind its last record and byte.
    pub end: Mark,
    pub index: IndexPoint,
}

#[derive(Debug)]
enum FlightState {
    Flying,
    /// To be submitted again from where it stopped.
    Resume(Group),
    Finished,
    /// Landed without its bytes: nothing behind it counts.
    Failed,
}

#[derive(Debug)]
struct Flight {
    number: u32,
    segment: u32,
    /// Where the next byte goes.
    pos: u64,
    end: Mark,
    index: IndexPoint,
    state: FlightState,
    stalls: u8,
}

/// A finished write, in the order of the log.
#[derive(Debug)]
pub(super) struct Finished {
    pub segment: u32,
    pub end: Mark,
    pub index: IndexPoint,
}

/// A write that failed, and where.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct WriteFailed {
    pub segment: u32,
    pub pos: u64,
    pub errno: Errno,
}

#[derive(Debug, Default)]
pub(super) struct Appender {
    staged: VecDeque<StagedAppend>,
    staged_bytes: u64,
    flights: VecDeque<Flight>,
    next_number: u32,
    /// Empty groups with their capacity, to be filled again.
    spare: Vec<Group>,
}

impl Appender {
    pub fn stage(&mut self, append: StagedAppend) {
        self.staged_bytes += append.bytes.len() as u64;
        self.staged.push_back(append);
    }

    /// Nothing staged, nothing in flight.
    pub fn is_idle(&self) -> bool {
        self.staged.is_empty() && self.flights.is_empty()
    }

    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Writes that the engine holds.
    pub fn flying(&self) -> usize {
        self.flights.iter().filter(|f| matches!(f.state, FlightState::Flying)).count()
    }

    /// Submits again what stopped short. Says how many.
    pub fn plan_resumes(&mut self, segments: &Segments, out: &mut OpSink) {
        for flight in &mut self.flights {
            if !matches!(flight.state, FlightState::Resume(_)) {
                continue;
            }
            let segment = segments.get(flight.segment).expect("a flight's segment is live");
            let file = segment.open_file().expect("a flight's file is open");
            let state = std::mem::replace(&mut flight.state, FlightState::Flying);
            let FlightState::Resume(bufs) = state else { unreachable!("checked above") };
            out.push(Task::Write(flight.number), Op::Write { file, pos: flight.pos, bufs });
        }
    }

    /// One write of what may leave together. Gives the end of the group, or `None` when nothing
    /// can leave: nothing is staged, or the segment's file is not there yet (R42: it queues).
    pub fn plan_write(
        &mut self,
        policy: FlushPolicy,
        limits: &GroupLimits,
        segments: &Segments,
        out: &mut OpSink,
    ) -> Option<Offset> {
        let first = self.staged.front()?;
        let (number, pos) = (first.segment, first.pos);
        let file = segments.get(number).expect("a staged segment is live").open_file()?;
        let mut bufs = self.spare.pop().unwrap_or_default();
        let mut last: Option<(Mark, IndexPoint)> = None;
        while let Some(next) = self.staged.front() {
            let fits = takes(policy, limits, bufs.len(), bufs.slices(), next.bytes.len());
            if next.segment != number || !fits {
                break;
            }
            let next = self.staged.pop_front().expect("looked at above");
            self.staged_bytes -= next.bytes.len() as u64;
            bufs.push(next.bytes);
            last = Some((next.end, next.index));
        }
        let (end, index) = last.expect("the first append always fits");
        assert_eq!(pos + bufs.len() as u64, end.pos, "a group is contiguous");
        let flight = Flight {
            number: self.next_number,
            segment: number,
            pos,
            end,
            index,
            state: FlightState::Flying,
            stalls: 0,
        };
        self.next_number = self.next_number.wrapping_add(1);
        out.push(Task::Write(flight.number), Op::Write { file, pos, bufs });
        self.flights.push_back(flight);
        Some(end.end)
    }

    /// Takes a completion in. A short write goes on where it stopped; no progress is an error
    /// unless it may be tried again (R63).
    pub fn on_write(
        &mut self,
        id: u32,
        op: Op,
        result: Result<Outcome, Errno>,
    ) -> Result<(), WriteFailed> {
        let Op::Write { mut bufs, .. } = op else { unreachable!("a write's op is a write") };
        let flight = self.flights.iter_mut().find(|flight| Task::is(id, flight.number));
        let flight = flight.expect("a completion belongs to a flight");
        assert!(matches!(flight.state, FlightState::Flying), "one completion a submit");
        let mut failed = |errno| {
            flight.state = FlightState::Failed;
            Err(WriteFailed { segment: flight.segment, pos: flight.pos, errno })
        };
        match result {
            Ok(Outcome::Bytes(0)) => return failed(Errno::EIO),
            Ok(Outcome::Bytes(n)) => {
                flight.pos += u64::from(n);
                flight.stalls = 0;
                bufs.advance(n as usize);
            }
            Ok(other) => unreachable!("a write gave {other:?}"),
            Err(errno) if errno.is_transient() && flight.stalls < STALLS_MAX => flight.stalls += 1,
            Err(errno) => return failed(errno),
        }
        if bufs.is_empty() {
            assert_eq!(flight.pos, flight.end.pos, "a finished write ends where it should");
            flight.state = FlightState::Finished;
            bufs.clear();
            self.spare.push(bufs);
        } else {
            flight.state = FlightState::Resume(bufs);
        }
        Ok(())
    }

    /// The next finished write of the contiguous prefix: one that finished ahead of an older one
    /// waits for it.
    pub fn next_finished(&mut self) -> Option<Finished> {
        if !matches!(self.flights.front()?.state, FlightState::Finished) {
            return None;
        }
        let flight = self.flights.pop_front().expect("looked at above");
        Some(Finished { segment: flight.segment, end: flight.end, index: flight.index })
    }

    /// Drops everything that is not under a write: staged appends, flights that landed.
    pub fn abandon(&mut self) {
        self.staged.clear();
        self.staged_bytes = 0;
        self.flights.retain(|flight| matches!(flight.state, FlightState::Flying));
    }
}

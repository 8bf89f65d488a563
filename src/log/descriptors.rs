//! Which files of a log are open: on demand, least recently used ones closed first, none while a
//! reader holds it.
//!
//! Owns: the count, the bound on sealed files, files that wait for their last reader. Never does:
//! deciding for the whole server (the shard knows its budget). Left: `held`, `segments`. Right:
//! `partition`, `step`, `shard`.

use super::closing::Closing;
use super::held::HeldFile;
use super::op_sink::{OpSink, Task};
use super::partition::Partition;
use super::segment::{LogFile, Phase};
use crate::io::{FileId, Op};
use crate::types::Micros;

/// A file that a reader still holds is looked at again this much later.
const LOOK_AGAIN_US: u64 = 20_000;

#[derive(Debug, Default)]
pub(super) struct Descriptors {
    /// Files of segments.
    pub open: usize,
    /// No segment's any more: closed once nobody holds them.
    pub retiring: Vec<HeldFile>,
    /// Counts lookups, so that the segments know when they were last used.
    uses: u64,
}

impl Descriptors {
    pub fn new(open: usize) -> Descriptors {
        Descriptors { open, ..Descriptors::default() }
    }
}

impl Partition {
    /// Descriptors that this log has open.
    pub fn open_files(&self) -> usize {
        self.files.open + self.files.retiring.len()
    }

    /// Those of its segments and of what is being sealed: the others only wait for their readers.
    pub fn files_in_use(&self) -> usize {
        self.files.open + usize::from(!self.sealer.is_idle())
    }

    /// A segment's file was opened.
    pub(super) fn attach(&mut self, number: u32, file: FileId) {
        match self.segments.get_mut(number) {
            Some(segment) if segment.open_file().is_none() => {
                segment.file = LogFile::Open(HeldFile::new(file));
                self.files.open += 1;
            }
            // Another lookup was faster, or the segment is gone.
            _ => drop(self.lend(file)),
        }
        self.note_use(number);
        self.bound_sealed_files(number);
    }

    /// A file that only its holders need: closed when they have let go.
    pub(super) fn lend(&mut self, file: FileId) -> HeldFile {
        let held = HeldFile::new(file);
        self.files.retiring.push(held.clone());
        self.wake();
        held
    }

    pub(super) fn note_use(&mut self, number: u32) {
        self.files.uses += 1;
        let uses = self.files.uses;
        if let Some(segment) = self.segments.get_mut(number) {
            segment.used = uses;
        }
    }

    /// Takes a segment's file away from it.
    pub(super) fn detach(&mut self, number: u32) {
        let Some(segment) = self.segments.get_mut(number) else { return };
        if let LogFile::Open(file) = std::mem::replace(&mut segment.file, LogFile::Closed) {
            self.files.open -= 1;
            self.files.retiring.push(file);
            self.wake();
        }
    }

    /// Closes the sealed files that were not used for longest, beyond the bound (R70).
    pub(super) fn bound_sealed_files(&mut self, spared: u32) {
        let keep = self.config.sealed_files_max;
        if self.files.open > keep {
            self.close_least_used(keep, Some(spared));
        }
    }

    /// Closes sealed files but the `keep` last used ones; a later lookup opens them again.
    pub fn close_sealed(&mut self, keep: usize) {
        self.close_least_used(keep, None);
    }

    fn close_least_used(&mut self, keep: usize, spared: Option<u32>) {
        let mut open: Vec<(u64, u32)> = Vec::new();
        for number in self.segments.numbers() {
            let segment = self.segments.get(number).expect("numbers are of segments");
            let sealed = segment.phase == Phase::Sealed && Some(number) != spared;
            if sealed && segment.open_file().is_some() {
                open.push((segment.used, number));
            }
        }
        open.sort_unstable();
        let many = open.len().saturating_sub(keep);
        for (_, number) in open.into_iter().take(many) {
            self.detach(number);
        }
    }

    /// Closes every file of a log where nothing goes on and everything is flushed (D11); the next
    /// append or lookup opens what it needs. Says whether it could.
    pub fn close_idle(&mut self) -> bool {
        let idle = self.in_flight == 0
            && self.closing == Closing::No
            && self.appender.is_idle()
            && self.sealer.is_idle()
            && self.space.lets_work()
            && !self.is_poisoned()
            && self.segments.iter().all(|segment| segment.flushed == segment.staged);
        if idle {
            for number in self.segments.numbers() {
                if self.segments.get(number).is_some_and(|segment| segment.named) {
                    self.detach(number);
                }
            }
        }
        idle
    }

    /// Closes what nobody holds any more.
    pub(super) fn plan_closes(&mut self, now: Micros, out: &mut OpSink) {
        if self.files.retiring.is_empty() {
            return;
        }
        self.files.retiring.retain(|held| {
            if !held.is_shared() {
                out.push(Task::Close, Op::Close { file: held.id() });
            }
            held.is_shared()
        });
        if !self.files.retiring.is_empty() {
            self.before(now.plus(Micros(LOOK_AGAIN_US)));
        }
    }
}

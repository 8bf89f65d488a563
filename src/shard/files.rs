//! The shard's share of the process's descriptors: the files of logs that were not used for longest
//! are closed when there are too many (R68).
//!
//! Owns: the count over all partitions, and whose turn it is to close (second chance: a partition
//! used since the last look is passed over once). Never does: closing what is in use (`log`
//! refuses). Left: `log`. Right: `parts`, `jobs` and `produce`, which say what is used.

use super::Shard;
use super::parts::Parts;
use crate::io::Io;

/// Partitions looked at in one turn.
const LOOKS_PER_TURN: usize = 1024;

/// What is open, and where the next look is.
#[derive(Debug, Default)]
pub struct OpenFiles {
    total: usize,
    hand: u32,
}

impl OpenFiles {
    pub fn change(&mut self, before: usize, now: usize) {
        assert!(self.total >= before, "more files closed than were open");
        self.total = self.total - before + now;
    }
}

impl Parts {
    /// Takes note of how many files a partition has open.
    pub(super) fn recount(&mut self, slot: u32) {
        let Some(known) = self.get(slot) else { return };
        let (before, now) = (known.files_counted, known.partition.files_in_use());
        known.files_counted = now;
        self.files.change(before, now);
    }
}

impl<I: Io> Shard<I> {
    pub(super) fn has_too_many_files(&self) -> bool {
        self.parts.files.total > self.config.files_max
    }

    /// Closes files of partitions that nobody used for a while, down to the shard's share.
    pub(super) fn bound_files(&mut self) {
        let slots = self.parts.slot_count();
        let mut looks = LOOKS_PER_TURN.min(2 * slots as usize);
        while self.has_too_many_files() && looks > 0 {
            looks -= 1;
            let slot = self.parts.files.hand;
            self.parts.files.hand = (slot + 1) % slots;
            let Some(known) = self.parts.get(slot) else { continue };
            if std::mem::take(&mut known.used) || known.files_counted == 0 {
                continue;
            }
            if !known.partition.close_idle() {
                known.partition.close_sealed(0);
            }
            self.parts.recount(slot);
            self.parts.touch(slot);
        }
    }
}

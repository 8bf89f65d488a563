//! The entries of an index file, a window at a time; which of its slots are used.
//!
//! Owns: where the used entries end (a live index is as long as it may become), and what is wrong
//! with them as numbers. Never does: ask the log (`index_check` and `verify` do).
//! Left: `source`, `format::index`. Right: `index_check`, `verify`, `lookup`, the CLI's dump.

use std::io;

use super::source::{Source, Window, read_full};
use crate::format::index::{
    COLUMN_MAX, IndexFault, OFFSET_ENTRY_LEN, OffsetEntry, TIME_ENTRY_LEN, TimeEntry,
};

/// Bytes of space not used yet that are looked at together.
const STEP_BYTES: usize = 64 << 10;

/// An entry of either index.
pub trait Entry: Copy {
    const LEN: usize;
    fn decode(bytes: &[u8]) -> Option<Self>;
    fn relative_offset(&self) -> u32;
    /// What a slot looks like that was never written.
    fn is_blank(&self) -> bool;
    /// Why no entry can say this behind `last`.
    fn fault(&self, last: Option<Self>, number: usize) -> Option<IndexFault>;
}

impl Entry for OffsetEntry {
    const LEN: usize = OFFSET_ENTRY_LEN;

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|entry| OffsetEntry::decode(*entry))
    }

    fn relative_offset(&self) -> u32 {
        self.relative_offset
    }

    fn is_blank(&self) -> bool {
        (self.relative_offset, self.pos) == (0, 0)
    }

    fn fault(&self, last: Option<Self>, entry: usize) -> Option<IndexFault> {
        if self.relative_offset > COLUMN_MAX || self.pos > COLUMN_MAX {
            return Some(IndexFault::Column { entry });
        }
        let behind = |l: Self| self.relative_offset > l.relative_offset && self.pos > l.pos;
        last.is_some_and(|last| !behind(last)).then_some(IndexFault::Order { entry })
    }
}

impl Entry for TimeEntry {
    const LEN: usize = TIME_ENTRY_LEN;

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|entry| TimeEntry::decode(*entry))
    }

    fn relative_offset(&self) -> u32 {
        self.relative_offset
    }

    fn is_blank(&self) -> bool {
        (self.relative_offset, self.timestamp) == (0, 0)
    }

    fn fault(&self, last: Option<Self>, entry: usize) -> Option<IndexFault> {
        if self.relative_offset > COLUMN_MAX {
            return Some(IndexFault::Column { entry });
        }
        let behind =
            |l: Self| self.timestamp > l.timestamp && self.relative_offset >= l.relative_offset;
        last.is_some_and(|last| !behind(last)).then_some(IndexFault::Order { entry })
    }
}

/// Reads an index from its first entry on.
#[derive(Debug)]
pub struct Entries<S, E> {
    window: Window<S>,
    len: u64,
    /// Entries read so far.
    number: usize,
    last: Option<E>,
    fault: Option<IndexFault>,
}

impl<S: Source, E: Entry> Entries<S, E> {
    pub fn new(source: S) -> io::Result<Entries<S, E>> {
        let len = source.size()?;
        Ok(Entries { window: Window::new(source), len, number: 0, last: None, fault: None })
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// Entries read so far.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Up to the first slot that was never written; the very first slot is always one, as Kafka's
    /// tool has it.
    pub fn next_entry(&mut self) -> io::Result<Option<E>> {
        let pos = (self.number * E::LEN) as u64;
        if pos + E::LEN as u64 > self.len {
            return Ok(None);
        }
        let Some(entry) = E::decode(self.window.get(pos, E::LEN, self.len)?) else {
            return Ok(None);
        };
        if entry.is_blank() && self.number > 0 {
            return Ok(None);
        }
        if self.fault.is_none() {
            let last = self.last.filter(|last| !last.is_blank() || self.number > 1);
            self.fault = entry.fault(last, self.number);
        }
        self.number += 1;
        self.last = Some(entry);
        Ok(Some(entry))
    }

    /// The first thing wrong with the numbers of the entries read so far.
    pub fn fault(&self) -> Option<IndexFault> {
        self.fault
    }

    /// What lies behind the used entries: how many bytes, and where the first of them that is not
    /// zero is.
    pub fn unused(&mut self) -> io::Result<(u64, Option<u64>)> {
        let from = (self.number * E::LEN) as u64;
        let mut pos = from;
        while pos < self.len {
            let bytes = self.window.get(pos, STEP_BYTES, self.len)?;
            if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
                return Ok((self.len - from, Some(pos + at as u64)));
            }
            if bytes.is_empty() {
                break;
            }
            pos += bytes.len() as u64;
        }
        Ok((self.len.saturating_sub(from), None))
    }
}

/// What a search in an index found, and what it cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Floor<E> {
    pub entry: Option<E>,
    /// Which entry it is, counted from 0.
    pub number: u64,
    /// Entries looked at.
    pub probes: u32,
}

/// The last used entry for which `is_floor` holds; entries for which it holds stand before those
/// for which it does not. Reads an entry at a time: a few dozen of them, however large the file.
pub fn floor<E: Entry>(
    source: &impl Source,
    is_floor: impl Fn(&E) -> bool,
) -> io::Result<Floor<E>> {
    let mut found = Floor { entry: None, number: 0, probes: 0 };
    let (mut low, mut high) = (0, source.size()? / E::LEN as u64);
    let mut bytes = [0; TIME_ENTRY_LEN];
    let bytes = &mut bytes[..E::LEN];
    while low < high {
        let middle = low + (high - low) / 2;
        let read = read_full(source, bytes, middle * E::LEN as u64)?;
        found.probes += 1;
        let entry = E::decode(&bytes[..read]);
        match entry.filter(|entry| !(entry.is_blank() && middle > 0) && is_floor(entry)) {
            Some(entry) => {
                (found.entry, found.number) = (Some(entry), middle);
                low = middle + 1;
            }
            None => high = middle,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::index;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_search_in_memory_finds(
            steps in prop::collection::vec((1u32..5, 1u32..5), 0..40), target in 0u32..200,
            spare in 0usize..5,
        ) {
            let (mut relative_offset, mut pos, mut bytes) = (0, 0, Vec::new());
            for (offset_step, pos_step) in steps {
                (relative_offset, pos) = (relative_offset + offset_step, pos + pos_step);
                bytes.extend(OffsetEntry { relative_offset, pos }.encode());
            }
            let wanted = index::floor_offset(&bytes, target);
            bytes.resize(bytes.len() + spare * OFFSET_ENTRY_LEN, 0);
            let found = floor(&bytes.as_slice(), |entry: &OffsetEntry| {
                entry.relative_offset <= target
            });
            let found = found.expect("a slice").entry.filter(|entry| !entry.is_blank());
            prop_assert_eq!(found, wanted);
        }
    }
}

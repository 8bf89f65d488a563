//! What a produce request brings to the log: validated batches, and a short summary of each.
//!
//! Owns: the bytes until they are staged. Never does: validation (`format` did it).
//! Left: `format::batch`, `io::buffers`. Right: `partition`.

use crate::format::batch::{self, BatchError, BatchHeader, Stop};
use crate::io::buffers::Slice;
use crate::types::WallMs;

/// Summaries kept without an allocation; a request seldom has more batches for one partition.
const INLINE: usize = 4;

/// What the log needs to know of a batch, from its checked header.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct BatchSummary {
    pub len: u32,
    pub records: u32,
    pub last_offset_delta: u32,
    pub max_timestamp: WallMs,
    /// -1: none.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub transactional: bool,
}

impl BatchSummary {
    /// `None` for counts that no sound header has.
    pub fn of(header: &BatchHeader) -> Option<BatchSummary> {
        Some(BatchSummary {
            len: u32::try_from(header.total_len()).ok()?,
            records: u32::try_from(header.records_count).ok()?,
            last_offset_delta: u32::try_from(header.last_offset_delta).ok()?,
            max_timestamp: header.max_timestamp,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            transactional: header.is_transactional(),
        })
    }
}

/// The summaries of adjacent batches, the first few in place.
#[derive(Clone, Debug, Default)]
pub struct Summaries {
    inline: [BatchSummary; INLINE],
    len: usize,
    spilled: Vec<BatchSummary>,
}

impl Summaries {
    pub fn push(&mut self, summary: BatchSummary) {
        match self.inline.get_mut(self.len) {
            Some(slot) => *slot = summary,
            None => self.spilled.push(summary),
        }
        self.len += 1;
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = &BatchSummary> {
        self.inline.iter().take(self.len).chain(&self.spilled)
    }
}

/// One or more whole, validated v2 batches, adjacent: appended together or not at all.
#[derive(Debug)]
pub struct Batches {
    pub(super) bytes: Slice,
    pub(super) checked: Summaries,
}

impl Batches {
    /// # Panics
    /// When the summaries are not exactly of these bytes.
    pub fn new(bytes: Slice, checked: Summaries) -> Batches {
        let sum: usize = checked.iter().map(|summary| summary.len as usize).sum();
        assert!(!checked.is_empty(), "an append has at least one batch");
        assert_eq!(sum, bytes.len(), "summaries cover the bytes");
        Batches { bytes, checked }
    }

    /// Summarises batches that were validated before, from their headers.
    ///
    /// # Errors
    /// When the bytes are not whole v2 batches with possible counts.
    pub fn from_headers(bytes: Slice) -> Result<Batches, BatchError> {
        let mut checked = Summaries::default();
        let mut scan = batch::scan(&bytes);
        for found in scan.by_ref() {
            let header = found.header;
            let summary = BatchSummary::of(&header).ok_or(BatchError::Count {
                records_count: header.records_count,
                last_offset_delta: header.last_offset_delta,
            })?;
            checked.push(summary);
        }
        match scan.stop() {
            Some(Stop::Bad { error, .. }) => Err(error),
            Some(Stop::Incomplete { have, need, .. }) => Err(BatchError::NeedMore { have, need }),
            _ if checked.is_empty() => {
                Err(BatchError::NeedMore { have: 0, need: batch::HEADER_LEN })
            }
            _ => Ok(Batches::new(bytes, checked)),
        }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn summaries(&self) -> &Summaries {
        &self.checked
    }

    pub(super) fn max_timestamp(&self) -> WallMs {
        self.checked.iter().map(|summary| summary.max_timestamp).max().unwrap_or(-1)
    }

    /// Offsets that the append takes.
    pub(super) fn offsets(&self) -> i64 {
        self.checked.iter().map(|summary| i64::from(summary.last_offset_delta) + 1).sum()
    }
}

//! Who wrote with sequences, and how far: what idempotence is judged by, and what `.snapshot` files
//! keep of it.
//!
//! Owns: the newest batches of each idempotent producer, as of what is staged; how to take staged
//! ones back (D12); forgetting producers that are silent. Never does: judging (`idempotence`).
//! Left: `format::snapshot`. Right: `idempotence`, `partition`, `recovery`.
//!
//! Of every producer Kafka's five newest batches are remembered. One that sent more has up to
//! [`REMEMBERED_MAX`], for a pipeline that deep; a bounded number of producers has that, and the
//! one that wrote longest ago declines to five first.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use super::batches::BatchSummary;
use crate::format::batch::{BatchHeader, NO_SEQUENCE, sequence_add, sequence_sub};
use crate::format::record::records;
use crate::format::snapshot::{ProducerEntry, render};
use crate::types::{Micros, Offset, WallMs};

/// Batches remembered of every producer, as in Kafka.
pub(super) const REMEMBERED: usize = 5;
/// Batches remembered of a producer whose pipeline is deeper.
pub const REMEMBERED_MAX: usize = 64;
/// Producers of one partition that may have more than [`REMEMBERED`].
const DEEP_MAX: usize = 32;
/// Entries looked at in one step of the expiry.
const EXPIRY_STEP: usize = 512;
/// Record type of a marker's key: abort, commit.
const MARKERS: [u16; 2] = [0, 1];

/// A batch that was appended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    pub last_sequence: i32,
    /// Last offset minus first, and last sequence minus first.
    pub offset_delta: i32,
    pub last_offset: i64,
    pub timestamp: WallMs,
}

impl Remembered {
    pub fn first_sequence(&self) -> i32 {
        sequence_sub(self.last_sequence, self.offset_delta)
    }

    pub fn first_offset(&self) -> i64 {
        self.last_offset.saturating_sub(i64::from(self.offset_delta))
    }
}

/// One producer.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub epoch: i16,
    coordinator_epoch: i32,
    /// Of its last batch, or of its last marker.
    timestamp: WallMs,
    /// -1: no transaction is open.
    pub txn_first_offset: i64,
    /// From the oldest to the newest.
    pub window: VecDeque<Remembered>,
    /// When it was last heard of, in milliseconds of the clock that does not jump.
    heard_ms: i64,
    /// It may have more than [`REMEMBERED`], and stands in `deep`.
    deep: bool,
    /// It wrote since the eviction last came by.
    wrote: bool,
}

impl Known {
    fn new(heard_ms: i64) -> Known {
        Known {
            epoch: -1,
            coordinator_epoch: -1,
            timestamp: -1,
            txn_first_offset: -1,
            window: VecDeque::new(),
            heard_ms,
            deep: false,
            wrote: false,
        }
    }

    /// The sequence that follows its last batch.
    pub fn next_sequence(&self) -> i32 {
        let last = self.window.back().map_or(NO_SEQUENCE, |batch| batch.last_sequence);
        sequence_add(last, 1)
    }

    fn is_silent(&self, now_ms: i64, expiration_ms: i64) -> bool {
        self.txn_first_offset < 0 && now_ms.saturating_sub(self.heard_ms) >= expiration_ms
    }

    fn entry(&self, producer_id: i64) -> ProducerEntry {
        let last = self.window.back();
        ProducerEntry {
            producer_id,
            producer_epoch: self.epoch,
            last_sequence: last.map_or(NO_SEQUENCE, |batch| batch.last_sequence),
            last_offset: last.map_or(-1, |batch| batch.last_offset),
            offset_delta: last.map_or(0, |batch| batch.offset_delta),
            timestamp: self.timestamp,
            coordinator_epoch: self.coordinator_epoch,
            current_txn_first_offset: self.txn_first_offset,
        }
    }

    fn decline(&mut self) {
        self.deep = false;
        let surplus = self.window.len().saturating_sub(REMEMBERED);
        self.window.drain(..surplus);
        self.window.shrink_to(REMEMBERED);
    }
}

/// What a staged batch changed, to be put back if it is never written (D12).
#[derive(Debug)]
struct Change {
    producer_id: i64,
    last_offset: i64,
    epoch: i16,
    timestamp: WallMs,
    was: Was,
}

#[derive(Debug)]
enum Was {
    Unknown,
    /// Known with this epoch; the batch pushed this one out.
    Known {
        pushed_out: Option<Remembered>,
    },
    /// Known with an older epoch, and these batches of it.
    Older {
        window: VecDeque<Remembered>,
    },
}

#[derive(Debug, Default)]
pub(super) struct Producers {
    known: BTreeMap<i64, Known>,
    /// Staged and not written, in order.
    staged: VecDeque<Change>,
    /// Ids that may remember more than [`REMEMBERED`], and perhaps some that no longer do.
    deep: VecDeque<i64>,
    /// The greatest id ever seen here; ids are handed out above it (D13).
    greatest: i64,
    /// Where an expiry goes on.
    expiring: Option<i64>,
}

fn ms(now: Micros) -> i64 {
    i64::try_from(now.0 / 1000).unwrap_or(i64::MAX)
}

impl Producers {
    pub fn new() -> Producers {
        Producers { greatest: -1, ..Producers::default() }
    }

    /// From a snapshot, without those that have been silent for too long. It tells the time of
    /// their records, which may be any: who loads an archive is not silent. So the last write to
    /// the file that holds a producer's last batch counts, too (`written_ms`, by offset).
    pub fn from_snapshot(
        entries: &[ProducerEntry],
        written_ms: impl Fn(i64) -> WallMs,
        (wall, now): (WallMs, Micros),
        expiration_ms: i64,
    ) -> Producers {
        let mut producers = Producers::new();
        for entry in entries {
            producers.greatest = producers.greatest.max(entry.producer_id);
            let heard = entry.timestamp.max(written_ms(entry.last_offset));
            let age_ms = wall.saturating_sub(heard).max(0);
            let mut known = Known::new(ms(now).saturating_sub(age_ms));
            known.epoch = entry.producer_epoch;
            known.coordinator_epoch = entry.coordinator_epoch;
            known.timestamp = entry.timestamp;
            known.txn_first_offset = entry.current_txn_first_offset;
            if entry.last_offset >= 0 {
                known.window.push_back(Remembered {
                    last_sequence: entry.last_sequence,
                    offset_delta: entry.offset_delta,
                    last_offset: entry.last_offset,
                    timestamp: entry.timestamp,
                });
            }
            if !known.is_silent(ms(now), expiration_ms) {
                producers.known.insert(entry.producer_id, known);
            }
        }
        producers
    }

    pub fn get(&self, producer_id: i64) -> Option<&Known> {
        self.known.get(&producer_id)
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn greatest_id(&self) -> i64 {
        self.greatest
    }

    /// A batch of a producer was given `last` as its last offset.
    pub fn stage(&mut self, summary: &BatchSummary, last: Offset, now: Micros) {
        if summary.producer_id < 0 {
            return;
        }
        let offset_delta = i32::try_from(summary.last_offset_delta).unwrap_or(i32::MAX);
        let last_sequence = match summary.base_sequence {
            NO_SEQUENCE => NO_SEQUENCE,
            base => sequence_add(base, offset_delta),
        };
        let (last_offset, timestamp) = (last.get(), summary.max_timestamp);
        let batch = Remembered { last_sequence, offset_delta, last_offset, timestamp };
        let change = self.push(summary.producer_id, summary.producer_epoch, batch, ms(now));
        self.staged.push_back(change);
    }

    fn push(&mut self, producer_id: i64, epoch: i16, batch: Remembered, heard_ms: i64) -> Change {
        self.greatest = self.greatest.max(producer_id);
        let is_new = !self.known.contains_key(&producer_id);
        let known = self.known.entry(producer_id).or_insert_with(|| Known::new(heard_ms));
        let before = (known.epoch, known.timestamp);
        (known.epoch, known.timestamp) = (epoch, batch.timestamp);
        (known.heard_ms, known.wrote) = (heard_ms, true);
        let was = match is_new {
            true => Was::Unknown,
            false if before.0 != epoch => Was::Older { window: std::mem::take(&mut known.window) },
            false => {
                let is_full = known.window.len() >= REMEMBERED_MAX;
                Was::Known { pushed_out: is_full.then(|| known.window.pop_front()).flatten() }
            }
        };
        let goes_deep = !known.deep && known.window.len() >= REMEMBERED;
        known.deep |= goes_deep;
        known.window.push_back(batch);
        if goes_deep {
            self.went_deep(producer_id);
        }
        let last_offset = batch.last_offset;
        Change { producer_id, last_offset, epoch: before.0, timestamp: before.1, was }
    }

    /// One more remembers deeply: if they are too many, one that has not written for a while (a
    /// second chance to those that have) declines to five.
    fn went_deep(&mut self, producer_id: i64) {
        self.deep.push_back(producer_id);
        while self.deep.len() > DEEP_MAX {
            let Some(id) = self.deep.pop_front() else { return };
            match self.known.get_mut(&id).filter(|known| known.deep) {
                Some(known) if known.wrote => {
                    known.wrote = false;
                    self.deep.push_back(id);
                }
                Some(known) => known.decline(),
                None => {}
            }
        }
    }

    /// Everything before `written` is written.
    pub fn advance(&mut self, written: Offset) {
        while self.staged.pop_front_if(|change| change.last_offset < written.get()).is_some() {}
    }

    /// How many staged batches could be taken back.
    pub fn staged(&self) -> usize {
        self.staged.len()
    }

    /// Takes back what was staged behind the first `keep` batches that are not written: as if
    /// they had never come (D12).
    pub fn unstage(&mut self, keep: usize) {
        while self.staged.len() > keep {
            let Some(change) = self.staged.pop_back() else { return };
            self.put_back(change);
        }
    }

    fn put_back(&mut self, change: Change) {
        if matches!(change.was, Was::Unknown) {
            self.known.remove(&change.producer_id);
            return;
        }
        // One that has expired meanwhile stays forgotten.
        let Some(known) = self.known.get_mut(&change.producer_id) else { return };
        (known.epoch, known.timestamp) = (change.epoch, change.timestamp);
        known.window.pop_back();
        match change.was {
            Was::Known { pushed_out: Some(batch) } => known.window.push_front(batch),
            Was::Older { window } => known.window = window,
            Was::Known { pushed_out: None } | Was::Unknown => {}
        }
        if !known.deep {
            known.decline();
        }
    }

    /// A batch found in the log; `payload` is that of a control batch, else it may be empty.
    pub fn replay(&mut self, header: &BatchHeader, payload: &[u8], now: Micros) {
        if !header.has_producer() {
            return;
        }
        if header.is_control() {
            return self.mark(header, payload, now);
        }
        let batch = Remembered {
            last_sequence: header.last_sequence(),
            offset_delta: header.last_offset_delta,
            last_offset: header.last_offset(),
            timestamp: header.max_timestamp,
        };
        self.push(header.producer_id, header.producer_epoch, batch, ms(now));
        if header.is_transactional()
            && let Some(known) = self.known.get_mut(&header.producer_id)
            && known.txn_first_offset < 0
        {
            known.txn_first_offset = batch.first_offset();
        }
    }

    /// The end of a transaction: clears it, and the batches of an older epoch.
    fn mark(&mut self, header: &BatchHeader, payload: &[u8], now: Micros) {
        let Some(Ok(record)) = records(payload, header).next() else { return };
        let kind = record.key.and_then(|key| key.get(2..4)?.first_chunk().copied());
        if !kind.is_some_and(|kind| MARKERS.contains(&u16::from_be_bytes(kind))) {
            return;
        }
        let coordinator = record.value.and_then(|value| value.get(2..6)?.first_chunk().copied());
        self.greatest = self.greatest.max(header.producer_id);
        let known = self.known.entry(header.producer_id).or_insert_with(|| Known::new(ms(now)));
        if known.epoch != header.producer_epoch {
            known.window.clear();
        }
        known.epoch = header.producer_epoch;
        known.coordinator_epoch = coordinator.map_or(-1, i32::from_be_bytes);
        known.timestamp = header.max_timestamp;
        known.txn_first_offset = -1;
        known.heard_ms = ms(now);
    }

    /// Forgets producers that have been silent for `expiration_ms` and have no transaction open. A
    /// step of a round: how many it forgot, and whether the round is over.
    pub fn expire(&mut self, now: Micros, expiration_ms: i64) -> (u64, bool) {
        let from = self.expiring.map_or(Unbounded, Excluded);
        let mut silent = [0; EXPIRY_STEP];
        let (mut count, mut last, mut seen) = (0, None, 0);
        for (id, known) in self.known.range((from, Unbounded)).take(EXPIRY_STEP) {
            if known.is_silent(ms(now), expiration_ms) {
                silent[count] = *id;
                count += 1;
            }
            (last, seen) = (Some(*id), seen + 1);
        }
        silent[..count].iter().for_each(|id| drop(self.known.remove(id)));
        let is_over = seen < EXPIRY_STEP;
        self.expiring = if is_over { None } else { last };
        (count as u64, is_over)
    }

    /// The first offset of a producer's transaction that has not ended.
    pub fn open_transaction(&self, producer_id: i64) -> Option<i64> {
        let known = self.known.get(&producer_id)?;
        Some(known.txn_first_offset).filter(|first| *first >= 0)
    }

    /// The first offset of the oldest open transaction, that of one producer left out.
    pub fn first_unstable(&self, except: Option<i64>) -> Option<i64> {
        let others = self.known.keys().filter(|id| Some(**id) != except);
        others.filter_map(|id| self.open_transaction(*id)).min()
    }

    /// The state as a `.snapshot` file: as of what is staged.
    pub fn snapshot(&self) -> Vec<u8> {
        let entries: Vec<ProducerEntry> =
            self.known.iter().map(|(id, known)| known.entry(*id)).collect();
        render(&entries)
    }
}

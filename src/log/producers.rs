//! Who wrote with sequences, and how far: the state that `.snapshot` files keep.
//!
//! Owns: the last batch of each idempotent producer, as of what is written; staged ones wait until
//! then, so that a write that never happened leaves no trace (D12). Never does: judging sequences.
//! Left: `format::snapshot`. Right: `partition`, `recovery`.

use std::collections::{BTreeMap, VecDeque};

use super::batches::BatchSummary;
use crate::format::batch::{BatchHeader, NO_SEQUENCE, sequence_add};
use crate::format::record::records;
use crate::format::snapshot::{ProducerEntry, render};
use crate::types::{Offset, WallMs};

/// Kafka's `producer.id.expiration.ms`.
const EXPIRATION_MS: i64 = 24 * 3600 * 1000;
/// Record type of a marker's key: abort, commit.
const MARKERS: [u16; 2] = [0, 1];

/// One data batch.
#[derive(Copy, Clone, Debug)]
struct DataBatch {
    producer_id: i64,
    producer_epoch: i16,
    last_sequence: i32,
    last_offset: i64,
    offset_delta: i32,
    timestamp: WallMs,
    transactional: bool,
}

#[derive(Debug, Default)]
pub(super) struct Producers {
    entries: BTreeMap<i64, ProducerEntry>,
    staged: VecDeque<DataBatch>,
}

impl Producers {
    /// From a snapshot, without those that have been silent for too long.
    pub fn from_snapshot(entries: Vec<ProducerEntry>, now: WallMs) -> Producers {
        let silent = |entry: &ProducerEntry| {
            entry.current_txn_first_offset < 0
                && now.saturating_sub(entry.timestamp) >= EXPIRATION_MS
        };
        let kept = entries.into_iter().filter(|entry| !silent(entry));
        let entries = kept.map(|entry| (entry.producer_id, entry)).collect();
        Producers { entries, staged: VecDeque::new() }
    }

    /// A batch of a producer was given `last` as its last offset.
    pub fn stage(&mut self, summary: &BatchSummary, last: Offset) {
        if summary.producer_id < 0 {
            return;
        }
        let offset_delta = i32::try_from(summary.last_offset_delta).unwrap_or(i32::MAX);
        self.staged.push_back(DataBatch {
            producer_id: summary.producer_id,
            producer_epoch: summary.producer_epoch,
            last_sequence: match summary.base_sequence {
                NO_SEQUENCE => NO_SEQUENCE,
                base => sequence_add(base, offset_delta),
            },
            last_offset: last.get(),
            offset_delta,
            timestamp: summary.max_timestamp,
            transactional: false,
        });
    }

    /// Everything before `written` is written.
    pub fn advance(&mut self, written: Offset) {
        while let Some(batch) = self.staged.pop_front_if(|b| b.last_offset < written.get()) {
            self.apply(&batch);
        }
    }

    pub fn unstage(&mut self) {
        self.staged.clear();
    }

    /// A batch found in the log; `payload` is that of a control batch, else it may be empty.
    pub fn replay(&mut self, header: &BatchHeader, payload: &[u8]) {
        if !header.has_producer() {
            return;
        }
        if header.is_control() {
            return self.mark(header, payload);
        }
        self.apply(&DataBatch {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
            transactional: header.is_transactional(),
        });
    }

    fn apply(&mut self, batch: &DataBatch) {
        let entry = self.entry(batch.producer_id);
        entry.producer_epoch = batch.producer_epoch;
        entry.last_sequence = batch.last_sequence;
        entry.last_offset = batch.last_offset;
        entry.offset_delta = batch.offset_delta;
        entry.timestamp = batch.timestamp;
        if batch.transactional && entry.current_txn_first_offset < 0 {
            entry.current_txn_first_offset = batch.last_offset - i64::from(batch.offset_delta);
        }
    }

    /// The end of a transaction: clears it, and the batches of an older epoch.
    fn mark(&mut self, header: &BatchHeader, payload: &[u8]) {
        let Some(Ok(record)) = records(payload, header).next() else { return };
        let kind = record.key.and_then(|key| key.get(2..4)?.first_chunk().copied());
        if !kind.is_some_and(|kind| MARKERS.contains(&u16::from_be_bytes(kind))) {
            return;
        }
        let coordinator = record.value.and_then(|value| value.get(2..6)?.first_chunk().copied());
        let entry = self.entry(header.producer_id);
        if entry.producer_epoch != header.producer_epoch {
            (entry.last_sequence, entry.last_offset, entry.offset_delta) = (NO_SEQUENCE, -1, 0);
        }
        entry.producer_epoch = header.producer_epoch;
        entry.coordinator_epoch = coordinator.map_or(-1, i32::from_be_bytes);
        entry.timestamp = header.max_timestamp;
        entry.current_txn_first_offset = -1;
    }

    fn entry(&mut self, producer_id: i64) -> &mut ProducerEntry {
        self.entries.entry(producer_id).or_insert(ProducerEntry {
            producer_id,
            producer_epoch: -1,
            last_sequence: NO_SEQUENCE,
            last_offset: -1,
            offset_delta: 0,
            timestamp: -1,
            coordinator_epoch: -1,
            current_txn_first_offset: -1,
        })
    }

    /// The first offset of a producer's transaction that has not ended.
    pub fn open_transaction(&self, producer_id: i64) -> Option<i64> {
        let entry = self.entries.get(&producer_id)?;
        Some(entry.current_txn_first_offset).filter(|first| *first >= 0)
    }

    /// The first offset of the oldest open transaction, that of one producer left out.
    pub fn first_unstable(&self, except: Option<i64>) -> Option<i64> {
        let others = self.entries.keys().filter(|id| Some(**id) != except);
        others.filter_map(|id| self.open_transaction(*id)).min()
    }

    /// The state as of what is written.
    pub fn snapshot(&self) -> Vec<u8> {
        let entries: Vec<ProducerEntry> = self.entries.values().copied().collect();
        render(&entries)
    }
}

//! Who wrote with sequences or in transactions, read back from the batches.
//!
//! Owns: the state that snapshots and the transaction index are made from. Never does: judge
//! sequences; forget a producer (only a server knows how long one may be silent).
//! Left: `format::snapshot`, `walk`. Right: `rebuild`.

use std::collections::BTreeMap;

use super::walk::Batch;
use crate::format::batch::NO_SEQUENCE;
use crate::format::record::records;
use crate::format::snapshot::{ProducerEntry, render};
use crate::format::txn_index::AbortedTxn;

/// What ends a transaction: its outcome, and who coordinated it.
struct Marker {
    aborts: bool,
    coordinator_epoch: i32,
}

#[derive(Debug, Default)]
pub struct Producers {
    entries: BTreeMap<i64, ProducerEntry>,
}

impl Producers {
    pub fn from_snapshot(entries: Vec<ProducerEntry>) -> Producers {
        Producers { entries: entries.into_iter().map(|entry| (entry.producer_id, entry)).collect() }
    }

    /// Takes a batch in; the transaction that it aborts, if it does.
    pub fn see(&mut self, batch: &Batch<'_>) -> Option<AbortedTxn> {
        let header = &batch.header;
        if !header.has_producer() {
            return None;
        }
        if header.is_control() {
            return self.end(batch);
        }
        let entry = self.entry(header.producer_id);
        entry.producer_epoch = header.producer_epoch;
        entry.last_sequence = header.last_sequence();
        entry.last_offset = header.last_offset();
        entry.offset_delta = header.last_offset_delta;
        entry.timestamp = header.max_timestamp;
        if header.is_transactional() && entry.current_txn_first_offset < 0 {
            entry.current_txn_first_offset = header.base_offset;
        }
        None
    }

    fn end(&mut self, batch: &Batch<'_>) -> Option<AbortedTxn> {
        let header = &batch.header;
        let marker = marker(batch)?;
        let entry = self.entry(header.producer_id);
        if entry.producer_epoch != header.producer_epoch {
            (entry.last_sequence, entry.last_offset, entry.offset_delta) = (NO_SEQUENCE, -1, 0);
        }
        entry.producer_epoch = header.producer_epoch;
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.timestamp = header.max_timestamp;
        let first_offset = std::mem::replace(&mut entry.current_txn_first_offset, -1);
        let last_offset = header.base_offset;
        let open = self.entries.values().map(|entry| entry.current_txn_first_offset);
        let last_stable_offset =
            open.filter(|first| *first >= 0).min().unwrap_or(last_offset.saturating_add(1));
        let producer_id = header.producer_id;
        (marker.aborts && first_offset >= 0).then_some(AbortedTxn {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset,
        })
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

    /// The file's bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        render(&self.entries.values().copied().collect::<Vec<_>>())
    }
}

fn marker(batch: &Batch<'_>) -> Option<Marker> {
    let record = records(batch.payload(), &batch.header).next()?.ok()?;
    let kind = record.key?.get(2..4)?;
    let aborts = match kind {
        [0, 0] => true,
        [0, 1] => false,
        _ => return None,
    };
    let epoch = record.value.and_then(|value| value.get(2..6)?.first_chunk().copied());
    Some(Marker { aborts, coordinator_epoch: epoch.map_or(-1, i32::from_be_bytes) })
}

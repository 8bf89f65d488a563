//! The dump as JSON lines that lose nothing (R57): an object a line, its `type` first.
//!
//! Owns: the shape. A batch's line has every field of its header and, when records are asked for,
//! each of them, so that the batch (without its compression) can be rebuilt; one whose records
//! cannot be read, or whose checksum is wrong, brings its bytes. Never does: hold more than a
//! record. Left: `serde_json`, [`super::json`]. Right: `dump_log`, `dump_index`, `dump_small`.

use serde::Serialize;
use serde_json::json;

use super::json::{Base64, StoredRecord};
use super::output::Output;
use crate::format::batch::{BatchHeader, TimestampType};
use crate::format::checkpoint::OffsetRow;
use crate::format::record::Record;
use crate::format::snapshot::ProducerEntry;
use crate::format::txn_index::AbortedTxn;
use crate::format::unpack::UnpackError;
use crate::tools::records::RecordReader;
use crate::tools::walk::{Bad, Batch};

fn line(out: &mut Output, value: &impl Serialize) {
    out.json(value);
    out.bytes(b"\n");
}

pub fn file(out: &mut Output, path: &str, name: &str, base_offset: Option<i64>) {
    line(out, &json!({"type": "file", "path": path, "name": name, "base_offset": base_offset}));
}

pub fn bad(out: &mut Output, bad: &Bad) {
    let Bad { pos, len, why, at_end, .. } = bad;
    let why = why.to_string();
    let value = json!({"type": "invalid", "position": pos, "size": len, "error": why,
        "at_end": at_end});
    line(out, &value);
}

#[derive(Serialize)]
struct BatchJson<'a> {
    r#type: &'a str,
    position: u64,
    size: usize,
    base_offset: i64,
    last_offset: i64,
    leader_epoch: i32,
    magic: i8,
    crc: u32,
    valid: bool,
    attributes: i16,
    codec: Option<&'a str>,
    timestamp_type: &'a str,
    transactional: bool,
    control: bool,
    delete_horizon: Option<i64>,
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    records_count: i32,
}

fn head<'a>(batch: &Batch<'_>) -> BatchJson<'a> {
    let header = &batch.header;
    BatchJson {
        r#type: "batch",
        position: batch.pos,
        size: header.total_len(),
        base_offset: header.base_offset,
        last_offset: header.last_offset(),
        leader_epoch: header.leader_epoch,
        magic: header.magic,
        crc: header.crc,
        valid: batch.fault.is_none(),
        attributes: header.attributes.0,
        codec: header.codec().map(|codec| codec.name()),
        timestamp_type: header.timestamp_type().name(),
        transactional: header.is_transactional(),
        control: header.is_control(),
        delete_horizon: header.delete_horizon_ms(),
        last_offset_delta: header.last_offset_delta,
        base_timestamp: header.base_timestamp,
        max_timestamp: header.max_timestamp,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        records_count: header.records_count,
    }
}

/// One line; with records if there is a reader for them.
pub fn batch(
    out: &mut Output,
    batch: &Batch<'_>,
    reader: Option<&mut RecordReader>,
    see: &mut dyn FnMut(&Record<'_>),
) -> Result<(), UnpackError> {
    let text = serde_json::to_string(&head(batch)).unwrap_or_default(); // plain fields all
    out.bytes(text.strip_suffix('}').unwrap_or(&text).as_bytes());
    let mut read = Ok(());
    if let Some(reader) = reader {
        out.bytes(b",\"records\":[");
        read = records(out, batch, reader, see);
        out.bytes(b"]");
    }
    if let Err(error) = &read {
        out.bytes(b",\"records_error\":");
        out.json(&error.to_string());
    }
    if let Some(fault) = batch.fault {
        out.bytes(b",\"error\":");
        out.json(&fault.to_string());
    }
    if batch.fault.is_some() || read.is_err() {
        out.bytes(b",\"bytes\":");
        out.json(&Base64(batch.bytes));
    }
    out.bytes(b"}\n");
    read
}

/// What was stored, and beside it what a reader is told of a record's time.
fn records(
    out: &mut Output,
    batch: &Batch<'_>,
    reader: &mut RecordReader,
    see: &mut dyn FnMut(&Record<'_>),
) -> Result<(), UnpackError> {
    let told = &batch.header;
    let attributes = told.attributes.with_timestamp_type(TimestampType::CreateTime);
    let stored = BatchHeader { attributes, ..*told };
    let mut first = true;
    reader.each_as(&stored, batch.bytes, &mut |unpacked| {
        let record = &unpacked.record;
        see(record);
        if !std::mem::take(&mut first) {
            out.bytes(b",");
        }
        let append_time = told.timestamp_type() == TimestampType::LogAppendTime;
        out.json(&StoredRecord {
            record,
            append_time: append_time.then_some(told.max_timestamp),
            is_control: told.is_control(),
            own_crc: unpacked.own_crc,
        });
    })
}

pub fn offset_entry(out: &mut Output, offset: i64, pos: u32) {
    line(out, &json!({"type": "index", "offset": offset, "position": pos}));
}

pub fn time_entry(out: &mut Output, timestamp: i64, offset: i64) {
    line(out, &json!({"type": "timeindex", "timestamp": timestamp, "offset": offset}));
}

pub fn producer(out: &mut Output, entry: &ProducerEntry) {
    let ProducerEntry {
        producer_id,
        producer_epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp,
        coordinator_epoch,
        current_txn_first_offset,
    } = entry;
    line(
        out,
        &json!({"type": "producer", "producer_id": producer_id, "producer_epoch": producer_epoch,
            "last_sequence": last_sequence, "last_offset": last_offset,
            "offset_delta": offset_delta, "timestamp": timestamp,
            "coordinator_epoch": coordinator_epoch,
            "current_txn_first_offset": current_txn_first_offset}),
    );
}

pub fn aborted(out: &mut Output, txn: &AbortedTxn) {
    let AbortedTxn { producer_id, first_offset, last_offset, last_stable_offset } = txn;
    line(
        out,
        &json!({"type": "aborted", "producer_id": producer_id, "first_offset": first_offset,
            "last_offset": last_offset, "last_stable_offset": last_stable_offset}),
    );
}

pub fn checkpoint(out: &mut Output, row: &OffsetRow) {
    let OffsetRow { topic, partition, offset } = row;
    let kind = "checkpoint";
    line(out, &json!({"type": kind, "topic": topic, "partition": partition, "offset": offset}));
}

pub fn epoch(out: &mut Output, epoch: i32, start_offset: i64) {
    line(out, &json!({"type": "epoch", "epoch": epoch, "start_offset": start_offset}));
}

//! What is in a log directory's files, as the lines that `kafka-dump-log` prints.
//!
//! Owns the text. Never finds its way through a file: `tools` walks it, the CLI prints.

use std::borrow::Cow;
use std::fmt::Write;

use super::batch::{self, BatchHeader};
use super::record::Record;
use super::snapshot::ProducerEntry;
use super::txn_index::AbortedTxn;
use super::unpack::Unpacked;

/// The line that a dump of any file begins with.
pub fn title_line(path: &str) -> String {
    format!("Dumping {path}")
}

/// The second line of a `.log`'s dump.
pub fn start_line(base_offset: i64) -> String {
    format!("Log starting offset: {base_offset}")
}

/// What an `.index` without entries prints.
pub fn empty_line(path: &str) -> String {
    format!("{path} is empty.")
}

/// Text as Java shows it. It differs from `String::from_utf8_lossy` in one thing: an encoded
/// surrogate (ED A0..BF, and what continues it) becomes one U+FFFD, not one a byte.
fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    let mut continues = 0;
    for chunk in bytes.utf8_chunks() {
        if !chunk.valid().is_empty() {
            continues = 0;
            text.push_str(chunk.valid());
        }
        match chunk.invalid() {
            [] => {}
            [0x80..=0xbf] if continues > 0 => continues -= 1,
            broken => {
                continues = if broken == [0xed] { 2 } else { 0 };
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }
    Cow::Owned(text)
}

fn optional_long(value: Option<i64>) -> String {
    value.map_or("OptionalLong.empty".into(), |value| format!("OptionalLong[{value}]"))
}

pub fn batch_line(header: &BatchHeader, pos: u64, crc_ok: bool) -> String {
    let codec = header.codec().map_or("unknown", |codec| codec.name());
    if header.is_legacy() {
        return format!(
            "offset: {} position: {pos} {}: {} size: {} magic: {} compresscodec: {codec} crc: {} \
             isvalid: {crc_ok}",
            header.last_offset(),
            header.timestamp_type().name(),
            header.max_timestamp,
            header.total_len(),
            header.magic,
            header.crc,
        );
    }
    format!(
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} \
         producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} isControl: {} \
         deleteHorizonMs: {} position: {pos} {}: {} size: {} magic: {} compresscodec: {codec} \
         crc: {} isvalid: {crc_ok}",
        header.base_offset,
        header.last_offset(),
        header.records_count,
        header.base_sequence,
        header.last_sequence(),
        header.producer_id,
        header.producer_epoch,
        header.leader_epoch,
        header.is_transactional(),
        header.is_control(),
        optional_long(header.delete_horizon_ms()),
        header.timestamp_type().name(),
        header.max_timestamp,
        header.total_len(),
        batch::MAGIC_V2,
        header.crc,
    )
}

pub fn record_line(unpacked: &Unpacked<'_>, header: &BatchHeader, data: bool) -> String {
    let record = &unpacked.record;
    let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
    let mut line = format!(
        "| offset: {} {}: {} keySize: {} valueSize: {}",
        record.offset,
        header.timestamp_type().name(),
        record.timestamp,
        size(record.key),
        size(record.value),
    );
    let _ = match unpacked.own_crc {
        Some((crc, holds)) => write!(line, " isValid: {holds} crc: {crc}"),
        None => {
            let keys: Vec<Cow<'_, str>> = record.headers.map(|header| lossy(header.key)).collect();
            write!(line, " sequence: {} headerKeys: [{}]", record.sequence, keys.join(","))
        }
    }; // a String takes all
    if header.is_control() {
        line.push(' ');
        line.push_str(&control_text(record));
    } else if data {
        line.push_str(&data_text(record));
    }
    line
}

/// A record's line without its metadata: key and payload alone. What begins the line when there is
/// no key is Kafka's way.
pub fn data_line(record: &Record<'_>, header: &BatchHeader, data: bool) -> String {
    if header.is_control() || !data {
        return String::new();
    }
    let bar = if record.key.is_some() { "|" } else { "" };
    format!("{bar}{}", data_text(record))
}

fn data_text(record: &Record<'_>) -> String {
    let mut text = String::new();
    for (name, bytes) in [("key", record.key), ("payload", record.value)] {
        if let Some(bytes) = bytes {
            let _ = write!(text, " {name}: {}", lossy(bytes)); // a String takes all
        }
    }
    text
}

const CONTROL_TYPES: [&str; 7] = [
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
];

/// What a control record says: key `version i16, type i16`, value of a marker `version i16,
/// coordinatorEpoch i32`.
pub fn control_text(record: &Record<'_>) -> String {
    let Some([_, _, a, b]) = record.key.and_then(|key| key.first_chunk::<4>()) else {
        return "controlType: UNKNOWN(-1)".to_owned();
    };
    let number = i16::from_be_bytes([*a, *b]);
    let name = usize::try_from(number).ok().and_then(|number| CONTROL_TYPES.get(number));
    let marker = record.value.and_then(|value| value.first_chunk::<6>()).filter(|_| number < 2);
    match (name, marker) {
        (Some(name), Some([_, _, c, d, e, f])) => {
            let coordinator_epoch = i32::from_be_bytes([*c, *d, *e, *f]);
            format!("endTxnMarker: {name} coordinatorEpoch: {coordinator_epoch}")
        }
        (Some(name), None) => format!("controlType: {name}({number})"),
        (None, _) => format!("controlType: UNKNOWN({number})"),
    }
}

pub fn index_line(offset: i64, pos: u32) -> String {
    format!("offset: {offset} position: {pos}")
}

pub fn time_index_line(timestamp: i64, offset: i64) -> String {
    format!("timestamp: {timestamp} offset: {offset}")
}

pub fn snapshot_line(entry: &ProducerEntry) -> String {
    let txn = Some(entry.current_txn_first_offset).filter(|offset| *offset >= 0);
    let mut line = format!(
        "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} \
         lastTimestamp: {}",
        entry.producer_id,
        entry.producer_epoch,
        entry.coordinator_epoch,
        optional_long(txn),
        entry.timestamp,
    );
    if entry.last_offset >= 0 {
        let _ = write!(
            line,
            " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
            entry.first_sequence(),
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp,
        ); // a String takes all
    }
    line
}

pub fn txn_line(txn: &AbortedTxn) -> String {
    format!(
        "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
        txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset
    )
}

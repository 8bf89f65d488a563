//! What is in a log directory's files, as the lines that `kafka-dump-log` prints.
//!
//! Owns the text, and the way through damaged bytes: a bad stretch is named and stepped over, and
//! the dump goes on at the next batch that can be trusted. Never opens a file: the CLI brings the
//! bytes a window at a time, and prints what comes back.

use std::borrow::Cow;
use std::fmt::Write;

use super::batch::{self, BatchError, BatchHeader, Found, HEADER_LEN};
use super::index::{self, OffsetEntry, TimeEntry};
use super::record::Record;
use super::snapshot::ProducerEntry;
use super::stored::{self, STORED_LEN_MIN};
use super::txn_index::AbortedTxn;
use super::unpack::{Unpacked, Unpacker};

/// What a dump of a `.log` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// A line a record.
    pub records: bool,
    /// Keys and values too; implies nothing by itself.
    pub data: bool,
    /// What one batch may decompress to before its records are given up (R88).
    pub decompressed_bytes_max: u64,
    /// A batch that declares more is taken for damage: what a window may have to grow to.
    pub batch_bytes_max: usize,
}

/// What a dump of a `.log` found, for the closing remarks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    pub batches: u64,
    /// Of them, those whose checksum does not hold.
    pub corrupt_batches: u64,
    /// Record lines printed.
    pub records: u64,
    /// Bytes that belong to no batch, in the middle of the file.
    pub skipped_bytes: u64,
    /// Bytes at the end that are no whole batch.
    pub invalid_tail_bytes: u64,
    /// Where record offsets are not consecutive: (offset, the next one). Only with
    /// `Options::records`.
    pub gaps: Vec<(i64, i64)>,
}

/// How far a window was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fed {
    /// Bytes of the window that are dealt with.
    pub consumed: usize,
    /// The next window begins behind them, and should have at least this many bytes (if the file
    /// has).
    pub want: usize,
}

/// A dump of one `.log`, from its first byte on.
#[derive(Debug)]
pub struct LogDump {
    options: Options,
    /// Byte in the file that the next window begins with.
    pos: u64,
    /// A bad stretch that has begun: where, and why.
    lost: Option<(u64, BatchError)>,
    /// The next offset that a trusted batch may have.
    offset_min: i64,
    /// Formats only get newer: what looks like an older message behind a newer one is chance.
    magic_min: i8,
    last_record_offset: Option<i64>,
    summary: Summary,
    unpacker: Unpacker,
}

impl LogDump {
    pub fn new(options: Options) -> LogDump {
        LogDump {
            options,
            pos: 0,
            lost: None,
            offset_min: 0,
            magic_min: batch::MAGIC_V0,
            last_record_offset: None,
            summary: Summary::default(),
            unpacker: Unpacker::new(options.decompressed_bytes_max),
        }
    }

    /// Prints the whole batches in `window`, the bytes that follow those consumed so far. `at_end`
    /// says that the file ends with the window; then all of it is consumed.
    pub fn feed(&mut self, window: &[u8], at_end: bool, out: &mut dyn FnMut(&str)) -> Fed {
        let mut used = 0;
        let want = loop {
            let rest = window.get(used..).unwrap_or_default();
            let step = if self.lost.is_some() {
                self.search(rest, at_end, out)
            } else {
                self.batches(rest, at_end, out)
            };
            used += step.consumed;
            self.pos += step.consumed as u64;
            if step.want > 0 || used == window.len() {
                break step.want.max(HEADER_LEN);
            }
        };
        if at_end && used < window.len() {
            self.end(window.len() - used, out);
            used = window.len();
        }
        Fed { consumed: used, want }
    }

    /// Where the bad stretch began that is not over yet.
    pub fn lost_from(&self) -> Option<u64> {
        self.lost.map(|(pos, _)| pos)
    }

    /// The closing remarks.
    pub fn finish(self) -> Summary {
        self.summary
    }

    /// Batches up to the first thing that is none. `want` 0: go on (in the other manner).
    fn batches(&mut self, rest: &[u8], at_end: bool, out: &mut dyn FnMut(&str)) -> Fed {
        let mut scan = stored::scan(rest);
        for found in scan.by_ref() {
            self.batch(&found, out);
        }
        let consumed = scan.pos();
        match scan.stop() {
            Some(batch::Stop::Bad { error, .. }) => {
                self.lost = Some((self.pos + consumed as u64, error));
                Fed { consumed, want: 0 }
            }
            // A size beyond the end of the file may be damage, with sound batches behind it.
            Some(batch::Stop::Incomplete { have, need, .. })
                if have >= STORED_LEN_MIN && (at_end || need > self.options.batch_bytes_max) =>
            {
                let error = BatchError::NeedMore { have, need };
                self.lost = Some((self.pos + consumed as u64, error));
                Fed { consumed, want: 0 }
            }
            Some(batch::Stop::Incomplete { need, .. }) => Fed { consumed, want: need },
            _ => Fed { consumed, want: 0 },
        }
    }

    /// Steps over bytes until a batch begins that can be trusted: possible in all its numbers, not
    /// before what was read already, its checksum true.
    fn search(&mut self, rest: &[u8], at_end: bool, out: &mut dyn FnMut(&str)) -> Fed {
        // The first byte of the stretch is known to begin nothing.
        let begins = self.lost.is_some_and(|(pos, _)| pos == self.pos);
        for at in usize::from(begins)..rest.len() {
            let tail = rest.get(at..).unwrap_or_default();
            // The shortest messages are shorter than a header, and may end the file.
            if tail.len() < if at_end { STORED_LEN_MIN } else { HEADER_LEN } {
                return Fed { consumed: at, want: HEADER_LEN };
            }
            let Ok(header) = stored::parse_header(tail) else { continue };
            let back = header.base_offset < self.offset_min || header.magic < self.magic_min;
            if back || !stored::plausible(tail, &header) {
                continue;
            }
            match stored::verify(tail) {
                Ok(_) => {
                    self.resume(at, out);
                    return Fed { consumed: at, want: 0 };
                }
                Err(BatchError::NeedMore { need, .. })
                    if !at_end && need <= self.options.batch_bytes_max =>
                {
                    return Fed { consumed: at, want: need };
                }
                Err(_) => {}
            }
        }
        Fed { consumed: rest.len(), want: HEADER_LEN }
    }

    /// The bad stretch ends `at` bytes on.
    fn resume(&mut self, at: usize, out: &mut dyn FnMut(&str)) {
        if let Some((pos, error)) = self.lost.take() {
            let len = self.pos + at as u64 - pos;
            self.summary.skipped_bytes += len;
            out(&format!("Skipped {len} invalid bytes at position: {pos} ({error})"));
        }
    }

    /// The file ends, and these bytes with it.
    fn end(&mut self, left: usize, out: &mut dyn FnMut(&str)) {
        let end = self.pos + left as u64;
        let (pos, error) = match self.lost.take() {
            Some(lost) => lost,
            None => (self.pos, BatchError::NeedMore { have: left, need: HEADER_LEN }),
        };
        self.summary.invalid_tail_bytes = end - pos;
        out(&format!("Invalid bytes from position: {pos} to the end ({error})"));
        self.pos = end;
    }

    fn batch(&mut self, found: &Found<'_>, out: &mut dyn FnMut(&str)) {
        let header = &found.header;
        let pos = self.pos + found.pos as u64;
        let crc_ok = found.crc_ok();
        self.summary.batches += 1;
        self.summary.corrupt_batches += u64::from(!crc_ok);
        if crc_ok {
            self.offset_min = header.next_offset();
            self.magic_min = header.magic;
        }
        out(&batch_line(header, pos, crc_ok));
        if self.options.records {
            self.records(found, out);
        }
    }

    fn records(&mut self, found: &Found<'_>, out: &mut dyn FnMut(&str)) {
        let mut records = match self.unpacker.open(found) {
            Ok(records) => records,
            Err(error) => return out(&format!("| {error}")),
        };
        while let Some(unpacked) = records.next() {
            match unpacked {
                Ok(unpacked) => {
                    let offset = unpacked.record.offset;
                    self.summary.record(offset, &mut self.last_record_offset);
                    out(&record_line(&unpacked, &found.header, self.options.data));
                }
                Err(error) => out(&format!("| {error}")),
            }
        }
    }
}

impl Summary {
    fn record(&mut self, offset: i64, last: &mut Option<i64>) {
        self.records += 1;
        if let Some(last) = *last
            && offset != last.saturating_add(1)
        {
            self.gaps.push((last, offset));
        }
        *last = Some(offset);
    }
}

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
        control(record, &mut line);
    } else if data {
        let mut put = |name: &str, bytes: Option<&[u8]>| {
            if let Some(bytes) = bytes {
                let _ = write!(line, " {name}: {}", lossy(bytes)); // a String takes all
            }
        };
        put("key", record.key);
        put("payload", record.value);
    }
    line
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
fn control(record: &Record<'_>, line: &mut String) {
    let Some([_, _, a, b]) = record.key.and_then(|key| key.first_chunk::<4>()) else {
        line.push_str(" controlType: UNKNOWN(-1)");
        return;
    };
    let number = i16::from_be_bytes([*a, *b]);
    let name = usize::try_from(number).ok().and_then(|number| CONTROL_TYPES.get(number));
    let marker = record.value.and_then(|value| value.first_chunk::<6>()).filter(|_| number < 2);
    let _ = match (name, marker) {
        (Some(name), Some([_, _, c, d, e, f])) => {
            let coordinator_epoch = i32::from_be_bytes([*c, *d, *e, *f]);
            write!(line, " endTxnMarker: {name} coordinatorEpoch: {coordinator_epoch}")
        }
        (Some(name), None) => write!(line, " controlType: {name}({number})"),
        (None, _) => write!(line, " controlType: UNKNOWN({number})"),
    }; // a String takes all
}

/// The lines of an `.index`, up to the zeros of space not used yet.
pub fn index_lines(base_offset: i64, bytes: &[u8]) -> impl Iterator<Item = String> + '_ {
    let unused = OffsetEntry { relative_offset: 0, pos: 0 };
    let used =
        index::offset_entries(bytes).enumerate().take_while(move |(i, e)| *i == 0 || *e != unused);
    used.map(move |(_, entry)| {
        let offset = base_offset.saturating_add(i64::from(entry.relative_offset));
        format!("offset: {offset} position: {}", entry.pos)
    })
}

/// The lines of a `.timeindex`, up to the zeros of space not used yet.
pub fn time_index_lines(base_offset: i64, bytes: &[u8]) -> impl Iterator<Item = String> + '_ {
    let unused = TimeEntry { timestamp: 0, relative_offset: 0 };
    let used =
        index::time_entries(bytes).enumerate().take_while(move |(i, e)| *i == 0 || *e != unused);
    used.map(move |(_, entry)| {
        let offset = base_offset.saturating_add(i64::from(entry.relative_offset));
        format!("timestamp: {} offset: {offset}", entry.timestamp)
    })
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

//! What the server asks of a client's batch before it appends it, in Kafka's order, with Kafka's
//! errors.
//!
//! Owns the rules of produce. Never assigns offsets (`batch::assign` does, once the partition is
//! known to take the batch) and knows no producer state. Changes bytes only where Kafka does: a
//! wrong maximum timestamp, or append time.

use super::batch::{
    self, ATTRIBUTES, BatchError, BatchHeader, Codec, NO_TIMESTAMP, RECORDS, TimestampType,
};
use super::codec::{CodecError, Decoder, Workspace};
use super::record::{self, RecordError, RecordFault, Source, Walked};
use super::varint;
use crate::errors::ErrorCode;

/// How far compressed batches are looked into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// Decompressed in bounded steps and walked, as Kafka does.
    Deep,
    /// By header and CRC only: the client's maximum timestamp is believed.
    Records,
}

/// What the topic and the server's configuration allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `max.message.bytes`: of the whole batch, header included, as stored.
    pub message_bytes_max: usize,
    pub depth: Depth,
    /// What one compressed batch may expand to (R88).
    pub decompressed_bytes_max: u64,
    pub now_ms: i64,
    /// `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`.
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    /// `message.timestamp.type` is LogAppendTime: `now_ms` becomes every record's time.
    pub log_append_time: bool,
    /// The topic is compacted: records need keys.
    pub key_required: bool,
}

/// Buffers for `Depth::Deep`, made once and used for every batch.
#[derive(Debug)]
pub struct Scratch {
    window: Box<[u8]>,
    pub(super) workspace: Workspace,
}

/// Decompressed bytes held at a time.
const WINDOW_LEN: usize = 64 * 1024;

impl Scratch {
    pub fn new() -> Scratch {
        Scratch { window: vec![0; WINDOW_LEN].into_boxed_slice(), workspace: Workspace::new() }
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

/// A batch that may be appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checked {
    /// As it stands in the bytes now.
    pub header: BatchHeader,
    /// The lowest offset delta that has the maximum timestamp; the last one where the records were
    /// not looked at or all have the same time (append time).
    pub offset_delta_of_max: i32,
    /// Whether the maximum timestamp, its type and the CRC were rewritten.
    pub rewritten: bool,
}

/// Why a batch is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    #[error("no whole batch: {0}")]
    NoBatch(BatchError),
    #[error("more than one batch, or bytes behind it")]
    SeveralBatches,
    #[error("base offset {0}: a client's batch begins at 0")]
    BaseOffset(i64),
    #[error("a batch of {len} bytes, max.message.bytes is {max}")]
    TooLarge { len: usize, max: usize },
    /// R35: what counts is what is stored.
    #[error(
        "a batch of {len} bytes once stored as {} (compression.type), max.message.bytes is {max}",
        codec.name()
    )]
    StoredTooLarge { codec: Codec, len: usize, max: usize },
    #[error("{} could not compress the batch", codec.name())]
    Compress { codec: Codec },
    #[error("{0}")]
    Corrupt(BatchError),
    #[error("{records_count} records, last offset delta {last_offset_delta}: they must agree")]
    Count { records_count: i32, last_offset_delta: i32 },
    #[error("a client may not write control batches")]
    Control,
    #[error("producer id {producer_id} without a sequence")]
    NoSequence { producer_id: i64 },
    #[error("a client may not set append time")]
    AppendTimeBit,
    #[error("{0}")]
    Codec(CodecError),
    #[error("{0}")]
    Record(RecordError),
    #[error("record {index} has no key, and the topic is compacted")]
    NoKey { index: i32 },
    #[error("timestamp {timestamp} is out of range at {now_ms}")]
    Timestamp { timestamp: i64, now_ms: i64 },
}

impl Refused {
    pub fn code(&self) -> ErrorCode {
        match self {
            Refused::Corrupt(_) => ErrorCode::CorruptMessage,
            Refused::TooLarge { .. } | Refused::StoredTooLarge { .. } => ErrorCode::MessageTooLarge,
            Refused::Compress { .. } => ErrorCode::UnknownServerError,
            Refused::AppendTimeBit | Refused::Timestamp { .. } => ErrorCode::InvalidTimestamp,
            // Kafka has no such bound. A producer that gets this code splits its batch and tries
            // again, which is what an honest one should do.
            Refused::Codec(CodecError::TooLarge { .. }) => ErrorCode::MessageTooLarge,
            // For these two an exception escapes Kafka, and it answers UNKNOWN_SERVER_ERROR(-1).
            // The client is at fault, so it gets a code that says so, and is no more retried than
            // -1.
            Refused::Codec(CodecError::Unknown { .. }) => ErrorCode::UnsupportedCompressionType,
            Refused::Codec(CodecError::Broken { .. }) => ErrorCode::InvalidRecord,
            Refused::NoBatch(_)
            | Refused::SeveralBatches
            | Refused::BaseOffset(_)
            | Refused::Count { .. }
            | Refused::Control
            | Refused::NoSequence { .. }
            | Refused::Record(_)
            | Refused::NoKey { .. } => ErrorCode::InvalidRecord,
        }
    }
}

/// Checks `bytes`, which must be exactly one batch, and makes its maximum timestamp true. Allocates
/// nothing for an uncompressed batch.
pub fn check_produce(
    bytes: &mut [u8],
    limits: &Limits,
    scratch: &mut Scratch,
) -> Result<Checked, Refused> {
    let header = check_envelope(bytes, limits)?;
    check_header(&header)?;
    let codec = header.codec().ok_or(CodecError::Unknown { id: header.attributes.codec_id() });
    let codec = codec.map_err(Refused::Codec)?;
    let payload = bytes.get(RECORDS..).unwrap_or_default();
    let walked = match (codec, limits.depth) {
        (Codec::None, _) => record::walk(payload, header.records_count, header.base_timestamp)
            .map_err(Refused::Record)?,
        (_, Depth::Deep) => walk_compressed(codec, payload, &header, limits, scratch)?,
        (_, Depth::Records) => believed(&header),
    };
    // Where records have faults of both kinds, Kafka answers with the one of time.
    if !limits.log_append_time {
        check_times(&walked, limits)?;
    }
    if let (Some(index), true) = (walked.first_null_key, limits.key_required) {
        return Err(Refused::NoKey { index });
    }
    if limits.log_append_time {
        let walked = Walked { max_timestamp: limits.now_ms, ..walked };
        return settle(bytes, header, TimestampType::LogAppendTime, &walked);
    }
    settle(bytes, header, TimestampType::CreateTime, &walked)
}

/// The bytes as such: one batch, whole, not too large, sound.
fn check_envelope(bytes: &[u8], limits: &Limits) -> Result<BatchHeader, Refused> {
    let header = batch::parse_header(bytes).map_err(|error| match error {
        BatchError::NeedMore { .. } | BatchError::Legacy { .. } => Refused::NoBatch(error),
        _ => Refused::Corrupt(error),
    })?;
    let (have, need) = (bytes.len(), header.total_len());
    if have < need {
        return Err(Refused::NoBatch(BatchError::NeedMore { have, need }));
    }
    if have > need {
        return Err(Refused::SeveralBatches);
    }
    if header.base_offset != 0 {
        return Err(Refused::BaseOffset(header.base_offset));
    }
    if need > limits.message_bytes_max {
        return Err(Refused::TooLarge { len: need, max: limits.message_bytes_max });
    }
    batch::verify(bytes).map_err(Refused::Corrupt)
}

/// What the header says, before the records are looked at.
fn check_header(header: &BatchHeader) -> Result<(), Refused> {
    let (records_count, last_offset_delta) = (header.records_count, header.last_offset_delta);
    if records_count <= 0 || i64::from(last_offset_delta) + 1 != i64::from(records_count) {
        return Err(Refused::Count { records_count, last_offset_delta });
    }
    if header.is_control() {
        return Err(Refused::Control);
    }
    if header.has_producer() && header.base_sequence < 0 {
        return Err(Refused::NoSequence { producer_id: header.producer_id });
    }
    // Kafka lets the bit pass on a create-time topic, by an else-branch; R36 refuses it on both.
    match header.timestamp_type() {
        TimestampType::LogAppendTime => Err(Refused::AppendTimeBit),
        TimestampType::CreateTime | TimestampType::NoTimestamp => Ok(()),
    }
}

/// What the header says of the times of records that nobody looks at.
fn believed(header: &BatchHeader) -> Walked {
    let times = [header.base_timestamp, header.max_timestamp];
    let stamped = times.into_iter().filter(|timestamp| *timestamp != NO_TIMESTAMP);
    Walked {
        max_timestamp: header.max_timestamp,
        min_timestamp: stamped.min().unwrap_or(i64::MAX),
        offset_delta_of_max: header.last_offset_delta,
        first_null_key: None,
    }
}

fn check_times(walked: &Walked, limits: &Limits) -> Result<(), Refused> {
    let now_ms = limits.now_ms;
    let (min, max) = (walked.min_timestamp, walked.max_timestamp);
    if min != i64::MAX && now_ms.saturating_sub(min) > limits.timestamp_before_max_ms {
        return Err(Refused::Timestamp { timestamp: min, now_ms });
    }
    if max != NO_TIMESTAMP && max.saturating_sub(now_ms) > limits.timestamp_after_max_ms {
        return Err(Refused::Timestamp { timestamp: max, now_ms });
    }
    Ok(())
}

/// Makes the header say what is true, if it does not yet (R34).
fn settle(
    bytes: &mut [u8],
    header: BatchHeader,
    timestamp_type: TimestampType,
    walked: &Walked,
) -> Result<Checked, Refused> {
    let max_timestamp = walked.max_timestamp;
    let rewritten =
        header.timestamp_type() != timestamp_type || header.max_timestamp != max_timestamp;
    let offset_delta_of_max = match timestamp_type {
        TimestampType::LogAppendTime => header.last_offset_delta,
        _ => walked.offset_delta_of_max,
    };
    if !rewritten {
        return Ok(Checked { header, offset_delta_of_max, rewritten });
    }
    batch::set_max_timestamp(bytes, timestamp_type, max_timestamp).map_err(Refused::Corrupt)?;
    let header = batch::parse_header(bytes).map_err(Refused::Corrupt)?;
    Ok(Checked { header, offset_delta_of_max, rewritten })
}

fn walk_compressed(
    codec: Codec,
    payload: &[u8],
    header: &BatchHeader,
    limits: &Limits,
    scratch: &mut Scratch,
) -> Result<Walked, Refused> {
    let bytes_max = limits.decompressed_bytes_max;
    let decoder = Decoder::new(codec, payload, bytes_max, &mut scratch.workspace);
    let mut source = StreamSource {
        decoder: decoder.map_err(Refused::Codec)?,
        window: &mut scratch.window,
        begin: 0,
        end: 0,
        taken: 0,
    };
    let walked = record::walk_source(&mut source, header.records_count, header.base_timestamp);
    walked.map_err(|RecordError { index, fault }| match fault {
        StreamFault::Record(fault) => Refused::Record(RecordError { index, fault }),
        StreamFault::Codec(error) => Refused::Codec(error),
    })
}

/// What can go wrong with records that come out of a decoder.
#[derive(Debug, thiserror::Error)]
enum StreamFault {
    #[error(transparent)]
    Record(#[from] RecordFault),
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// A walk's bytes, decompressed a window at a time.
struct StreamSource<'a> {
    decoder: Decoder<'a>,
    window: &'a mut [u8],
    /// The part of the window that is decompressed and not taken yet.
    begin: usize,
    end: usize,
    taken: u64,
}

impl StreamSource<'_> {
    /// The next bytes: at least `want` of them, or all there are.
    fn ahead(&mut self, want: usize) -> Result<&[u8], CodecError> {
        while self.end - self.begin < want {
            if self.fill()? == 0 {
                break;
            }
        }
        Ok(self.window.get(self.begin..self.end).unwrap_or_default())
    }

    fn fill(&mut self) -> Result<usize, CodecError> {
        if self.begin > 0 {
            self.window.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
        let len = self.decoder.read_some(self.window.get_mut(self.end..).unwrap_or_default())?;
        self.end += len;
        Ok(len)
    }

    fn advance(&mut self, len: usize) {
        self.begin += len;
        self.taken += len as u64;
    }
}

impl Source for StreamSource<'_> {
    type Error = StreamFault;

    fn varint(&mut self) -> Result<i32, StreamFault> {
        let ahead = self.ahead(varint::VARINT_LEN_MAX)?;
        let (value, len) = varint::decode_i32(ahead).map_err(RecordFault::from)?;
        self.advance(len);
        Ok(value)
    }

    fn varlong(&mut self) -> Result<i64, StreamFault> {
        let ahead = self.ahead(varint::VARLONG_LEN_MAX)?;
        let (value, len) = varint::decode_i64(ahead).map_err(RecordFault::from)?;
        self.advance(len);
        Ok(value)
    }

    fn skip(&mut self, len: u64) -> Result<(), StreamFault> {
        let mut left = len;
        while left > 0 {
            let ahead = self.ahead(1)?.len();
            if ahead == 0 {
                return Err(RecordFault::Truncated.into());
            }
            let step = left.min(ahead as u64) as usize;
            self.advance(step);
            left -= step as u64;
        }
        Ok(())
    }

    fn taken(&self) -> u64 {
        self.taken
    }

    fn at_end(&mut self) -> Result<bool, StreamFault> {
        Ok(self.ahead(1)?.is_empty())
    }
}

const _: () = assert!(WINDOW_LEN >= varint::VARLONG_LEN_MAX && ATTRIBUTES < RECORDS);

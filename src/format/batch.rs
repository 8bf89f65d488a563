//! The header of a record batch, magic v2: layout, parsing, checking, and the few fields that the
//! server writes in place.
//!
//! Owns bytes 0..61 and where one batch ends and the next begins. Never looks inside the records:
//! `record` walks them, `validate` decides what a client may send, `builder` makes batches;
//! `stored` reads messages of the older formats too, into the same header.

use super::checksum::crc32c;
use super::stored;

/// Where each field lies, from the start of the batch.
pub const BASE_OFFSET: usize = 0; // i64: ours to set
pub const BATCH_LENGTH: usize = BASE_OFFSET + 8; // i32: bytes after this field
pub const LEADER_EPOCH: usize = BATCH_LENGTH + 4; // i32: ours to set; the CRC starts later
pub const MAGIC: usize = LEADER_EPOCH + 4; // i8: 2
pub const CRC: usize = MAGIC + 1; // u32: CRC-32C of everything behind it
pub const ATTRIBUTES: usize = CRC + 4; // i16: the first byte that the CRC covers
pub const LAST_OFFSET_DELTA: usize = ATTRIBUTES + 2; // i32
pub const BASE_TIMESTAMP: usize = LAST_OFFSET_DELTA + 4; // i64: or the delete horizon
pub const MAX_TIMESTAMP: usize = BASE_TIMESTAMP + 8; // i64
pub const PRODUCER_ID: usize = MAX_TIMESTAMP + 8; // i64: -1 none
pub const PRODUCER_EPOCH: usize = PRODUCER_ID + 8; // i16: -1 none
pub const BASE_SEQUENCE: usize = PRODUCER_EPOCH + 2; // i32: -1 none
pub const RECORDS_COUNT: usize = BASE_SEQUENCE + 4; // i32: records present
pub const RECORDS: usize = RECORDS_COUNT + 4; // the records, or one compressed stream of them

pub const HEADER_LEN: usize = RECORDS;
/// `batchLength` does not count the base offset and itself.
pub const LENGTH_PREFIX: usize = LEADER_EPOCH;
/// The least `batchLength` of a v2 batch: a header without records.
pub const BATCH_LENGTH_MIN: i32 = (HEADER_LEN - LENGTH_PREFIX) as i32;
/// The least size field of a message of any age: less than this is no message at all.
pub const LEGACY_LENGTH_MIN: i32 = 14;
/// No record is shorter: seven fields of a byte each.
pub const RECORD_LEN_MIN: usize = 7;

const _: () = assert!(MAGIC == 16 && CRC == 17 && ATTRIBUTES == 21 && BASE_TIMESTAMP == 27);
const _: () = assert!(PRODUCER_ID == 43 && BASE_SEQUENCE == 53 && RECORDS == 61);
const _: () = assert!(BATCH_LENGTH_MIN == 49);

pub const MAGIC_V0: i8 = 0;
pub const MAGIC_V1: i8 = 1;
pub const MAGIC_V2: i8 = 2;
pub const NO_TIMESTAMP: i64 = -1;
pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_PRODUCER_EPOCH: i16 = -1;
pub const NO_SEQUENCE: i32 = -1;
pub const NO_LEADER_EPOCH: i32 = -1;

const CODEC_MASK: i16 = 0b0000_0111;
const APPEND_TIME_BIT: i16 = 0b0000_1000;
const TRANSACTIONAL_BIT: i16 = 0b0001_0000;
const CONTROL_BIT: i16 = 0b0010_0000;
const HORIZON_BIT: i16 = 0b0100_0000;
pub(super) const KNOWN_BITS: i16 =
    CODEC_MASK | APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | HORIZON_BIT;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Codec {
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Codec {
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    pub const fn id(self) -> u8 {
        self as u8
    }

    pub const fn from_id(id: u8) -> Option<Codec> {
        match id {
            0 => Some(Codec::None),
            1 => Some(Codec::Gzip),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Lz4),
            4 => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// The name that configurations and Kafka's tools use.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    pub fn from_name(name: &str) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.name() == name)
    }
}

/// Whose clock stamped the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimestampType {
    /// Messages of magic 0 have no time.
    NoTimestamp,
    CreateTime,
    LogAppendTime,
}

impl TimestampType {
    pub const fn name(self) -> &'static str {
        match self {
            TimestampType::NoTimestamp => "NoTimestampType",
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        }
    }
}

/// The attributes field. Unknown bits are kept as they came.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Attributes(pub i16);

impl Attributes {
    pub const fn codec_id(self) -> u8 {
        (self.0 & CODEC_MASK) as u8
    }

    /// None for the ids 5 to 7, which no codec has.
    pub const fn codec(self) -> Option<Codec> {
        Codec::from_id(self.codec_id())
    }

    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    pub const fn is_transactional(self) -> bool {
        self.0 & TRANSACTIONAL_BIT != 0
    }

    pub const fn is_control(self) -> bool {
        self.0 & CONTROL_BIT != 0
    }

    pub const fn has_horizon(self) -> bool {
        self.0 & HORIZON_BIT != 0
    }

    #[must_use]
    pub const fn with_codec(self, codec: Codec) -> Attributes {
        Attributes(self.0 & !CODEC_MASK | codec as i16)
    }

    #[must_use]
    pub const fn with_timestamp_type(self, timestamp_type: TimestampType) -> Attributes {
        match timestamp_type {
            TimestampType::NoTimestamp | TimestampType::CreateTime => {
                Attributes(self.0 & !APPEND_TIME_BIT)
            }
            TimestampType::LogAppendTime => Attributes(self.0 | APPEND_TIME_BIT),
        }
    }

    #[must_use]
    pub const fn with_transactional(self, on: bool) -> Attributes {
        Attributes(if on { self.0 | TRANSACTIONAL_BIT } else { self.0 & !TRANSACTIONAL_BIT })
    }

    #[must_use]
    pub const fn with_control(self, on: bool) -> Attributes {
        Attributes(if on { self.0 | CONTROL_BIT } else { self.0 & !CONTROL_BIT })
    }
}

/// Why bytes are not a whole, sound batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    #[error("{have} bytes where {need} are needed")]
    NeedMore { have: usize, need: usize },
    #[error("batch length {batch_length}: no batch is that short")]
    Length { batch_length: i32 },
    #[error("message format v{magic}, older than record batches: read from logs, never taken in")]
    Legacy { magic: i8 },
    #[error("magic {magic} is no known message format")]
    Magic { magic: i8 },
    #[error("checksum {computed:#010x}, the header says {stored:#010x}")]
    Crc { stored: u32, computed: u32 },
    #[error("{records_count} records, last offset delta {last_offset_delta}: impossible here")]
    Count { records_count: i32, last_offset_delta: i32 },
}

/// A header, parsed: every field of it, and `batch_length` known to be at least 49. Of a message of
/// magic 0 or 1, which `stored` alone makes: what it has (its offset is that of its last record,
/// in both `base_offset` and `last_offset`), and -1 for what it has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    pub magic: i8,
    pub base_offset: i64,
    pub batch_length: i32,
    pub leader_epoch: i32,
    pub crc: u32,
    pub attributes: Attributes,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records_count: i32,
}

impl BatchHeader {
    /// Older than record batches: a message of magic 0 or 1, perhaps a compressed set of them.
    pub const fn is_legacy(&self) -> bool {
        self.magic < MAGIC_V2
    }

    /// Bytes on disk, header and prefix included: at least 61, or 26 of a message.
    pub const fn total_len(&self) -> usize {
        LENGTH_PREFIX + self.batch_length as usize
    }

    /// The offset of the last record ever in the batch; compaction may have removed that record.
    pub const fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(self.last_offset_delta as i64)
    }

    pub const fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// None for the ids 5 to 7, which no codec has.
    pub const fn codec(&self) -> Option<Codec> {
        self.attributes.codec()
    }

    pub const fn timestamp_type(&self) -> TimestampType {
        match self.magic {
            MAGIC_V0 => TimestampType::NoTimestamp,
            _ => self.attributes.timestamp_type(),
        }
    }

    pub const fn is_transactional(&self) -> bool {
        self.attributes.is_transactional()
    }

    pub const fn is_control(&self) -> bool {
        self.attributes.is_control()
    }

    pub const fn has_horizon(&self) -> bool {
        self.attributes.has_horizon()
    }

    /// When tombstones and markers of this batch may go, if compaction has set it.
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        self.has_horizon().then_some(self.base_timestamp)
    }

    pub const fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// The sequence of the last record, -1 if the batch has none.
    pub const fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            NO_SEQUENCE
        } else {
            sequence_add(self.base_sequence, self.last_offset_delta)
        }
    }

    /// The sequence of the record at `offset_delta`, -1 if the batch has none.
    pub const fn sequence_at(&self, offset_delta: i32) -> i32 {
        if self.base_sequence < 0 {
            NO_SEQUENCE
        } else {
            sequence_add(self.base_sequence, offset_delta)
        }
    }
}

/// `sequence + delta`, where i32::MAX is followed by 0.
pub const fn sequence_add(sequence: i32, delta: i32) -> i32 {
    if sequence > i32::MAX.wrapping_sub(delta) {
        delta.wrapping_sub(i32::MAX.wrapping_sub(sequence)).wrapping_sub(1)
    } else {
        sequence.wrapping_add(delta)
    }
}

/// `sequence - delta`, where 0 is preceded by i32::MAX.
pub const fn sequence_sub(sequence: i32, delta: i32) -> i32 {
    if sequence < delta {
        i32::MAX.wrapping_sub(delta.wrapping_sub(sequence)).wrapping_add(1)
    } else {
        sequence.wrapping_sub(delta)
    }
}

type Head = [u8; HEADER_LEN];

#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "AT + N <= HEADER_LEN is checked when compiling")]
fn field<const AT: usize, const N: usize>(head: &Head) -> [u8; N] {
    const { assert!(AT + N <= HEADER_LEN) };
    std::array::from_fn(|i| head[AT + i])
}

#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "AT + N <= HEADER_LEN is checked when compiling")]
fn put<const AT: usize, const N: usize>(head: &mut Head, value: [u8; N]) {
    const { assert!(AT + N <= HEADER_LEN) };
    head[AT..AT + N].copy_from_slice(&value);
}

fn head_of(batch: &mut [u8]) -> Result<&mut Head, BatchError> {
    let have = batch.len();
    batch.first_chunk_mut().ok_or(BatchError::NeedMore { have, need: HEADER_LEN })
}

/// What the first 17 bytes of any message format say: (size field, magic).
pub(super) fn parse_prefix(bytes: &[u8]) -> Result<(i32, i8), BatchError> {
    let need_more = BatchError::NeedMore { have: bytes.len(), need: HEADER_LEN };
    let prefix: &[u8; MAGIC + 1] = bytes.first_chunk().ok_or(need_more)?;
    let [_, _, _, _, _, _, _, _, a, b, c, d, _, _, _, _, magic] = *prefix;
    Ok((i32::from_be_bytes([a, b, c, d]), magic as i8))
}

/// Reads the header at the start of `bytes`. Says what is wrong as early as the bytes allow: a size
/// or a magic that cannot be is told from 17 bytes on.
pub fn parse_header(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let Some(head) = bytes.first_chunk::<HEADER_LEN>() else {
        let (batch_length, magic) = parse_prefix(bytes)?;
        check_prefix(batch_length, magic)?;
        return Err(BatchError::NeedMore { have: bytes.len(), need: HEADER_LEN });
    };
    let header = decode(head);
    check_prefix(header.batch_length, field::<MAGIC, 1>(head)[0] as i8)?;
    Ok(header)
}

fn check_prefix(batch_length: i32, magic: i8) -> Result<(), BatchError> {
    match magic {
        _ if batch_length < LEGACY_LENGTH_MIN => Err(BatchError::Length { batch_length }),
        0 | 1 => Err(BatchError::Legacy { magic }),
        MAGIC_V2 if batch_length < BATCH_LENGTH_MIN => Err(BatchError::Length { batch_length }),
        MAGIC_V2 => Ok(()),
        _ => Err(BatchError::Magic { magic }),
    }
}

fn decode(head: &Head) -> BatchHeader {
    BatchHeader {
        magic: MAGIC_V2,
        base_offset: i64::from_be_bytes(field::<BASE_OFFSET, 8>(head)),
        batch_length: i32::from_be_bytes(field::<BATCH_LENGTH, 4>(head)),
        leader_epoch: i32::from_be_bytes(field::<LEADER_EPOCH, 4>(head)),
        crc: u32::from_be_bytes(field::<CRC, 4>(head)),
        attributes: Attributes(i16::from_be_bytes(field::<ATTRIBUTES, 2>(head))),
        last_offset_delta: i32::from_be_bytes(field::<LAST_OFFSET_DELTA, 4>(head)),
        base_timestamp: i64::from_be_bytes(field::<BASE_TIMESTAMP, 8>(head)),
        max_timestamp: i64::from_be_bytes(field::<MAX_TIMESTAMP, 8>(head)),
        producer_id: i64::from_be_bytes(field::<PRODUCER_ID, 8>(head)),
        producer_epoch: i16::from_be_bytes(field::<PRODUCER_EPOCH, 2>(head)),
        base_sequence: i32::from_be_bytes(field::<BASE_SEQUENCE, 4>(head)),
        records_count: i32::from_be_bytes(field::<RECORDS_COUNT, 4>(head)),
    }
}

/// Writes all 61 bytes, magic 2; `header.crc` goes in as it stands, `reseal` makes it true. Older
/// formats are never written.
pub fn write_header(batch: &mut [u8], header: &BatchHeader) -> Result<(), BatchError> {
    if header.is_legacy() {
        return Err(BatchError::Legacy { magic: header.magic });
    }
    let head = head_of(batch)?;
    put::<BASE_OFFSET, 8>(head, header.base_offset.to_be_bytes());
    put::<BATCH_LENGTH, 4>(head, header.batch_length.to_be_bytes());
    put::<LEADER_EPOCH, 4>(head, header.leader_epoch.to_be_bytes());
    put::<MAGIC, 1>(head, MAGIC_V2.to_be_bytes());
    put::<CRC, 4>(head, header.crc.to_be_bytes());
    put::<ATTRIBUTES, 2>(head, header.attributes.0.to_be_bytes());
    put::<LAST_OFFSET_DELTA, 4>(head, header.last_offset_delta.to_be_bytes());
    put::<BASE_TIMESTAMP, 8>(head, header.base_timestamp.to_be_bytes());
    put::<MAX_TIMESTAMP, 8>(head, header.max_timestamp.to_be_bytes());
    put::<PRODUCER_ID, 8>(head, header.producer_id.to_be_bytes());
    put::<PRODUCER_EPOCH, 2>(head, header.producer_epoch.to_be_bytes());
    put::<BASE_SEQUENCE, 4>(head, header.base_sequence.to_be_bytes());
    put::<RECORDS_COUNT, 4>(head, header.records_count.to_be_bytes());
    Ok(())
}

/// The one batch at the start of `bytes`, cut to its length.
pub(super) fn whole<'a>(bytes: &'a [u8], header: &BatchHeader) -> Result<&'a [u8], BatchError> {
    let need = header.total_len();
    bytes.get(..need).ok_or(BatchError::NeedMore { have: bytes.len(), need })
}

/// Parses the batch at the start of `bytes`, and checks that all of it is there and its CRC holds.
pub fn verify(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = parse_header(bytes)?;
    let computed = crc32c(whole(bytes, &header)?.get(ATTRIBUTES..).unwrap_or_default());
    if computed != header.crc {
        return Err(BatchError::Crc { stored: header.crc, computed });
    }
    Ok(header)
}

/// `verify`, and the counts must be possible: what a reader of a log asks of a batch before it
/// trusts its numbers (R01). Compaction may leave fewer records than offsets, never more.
pub fn verify_stored(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = verify(bytes)?;
    if !counts_possible(&header) {
        return Err(BatchError::Count {
            records_count: header.records_count,
            last_offset_delta: header.last_offset_delta,
        });
    }
    Ok(header)
}

/// Whether the numbers of records and offsets can be true of a batch of this size.
pub fn counts_possible(header: &BatchHeader) -> bool {
    if header.is_legacy() {
        return (0..i64::MAX).contains(&header.base_offset);
    }
    let count = i64::from(header.records_count);
    let offsets = i64::from(header.last_offset_delta) + 1;
    let room = header.total_len() - HEADER_LEN;
    let fits = match header.codec() {
        Some(Codec::None) => count <= (room / RECORD_LEN_MIN) as i64,
        _ => true,
    };
    header.last_offset_delta >= 0
        && header.base_offset >= 0
        && header.base_offset.checked_add(offsets).is_some()
        && (0..=offsets).contains(&count)
        && fits
}

/// Sets the two fields that the server owns; the CRC covers neither (R06).
#[inline]
pub fn assign(batch: &mut [u8], base_offset: i64, leader_epoch: i32) -> Result<(), BatchError> {
    let head = head_of(batch)?;
    put::<BASE_OFFSET, 8>(head, base_offset.to_be_bytes());
    put::<LEADER_EPOCH, 4>(head, leader_epoch.to_be_bytes());
    Ok(())
}

/// Sets the maximum timestamp and its type, and makes the CRC true again. As in Kafka, attribute
/// bits without a meaning are cleared by this.
pub fn set_max_timestamp(
    batch: &mut [u8],
    timestamp_type: TimestampType,
    max_timestamp: i64,
) -> Result<(), BatchError> {
    let head = head_of(batch)?;
    let attributes = Attributes(i16::from_be_bytes(field::<ATTRIBUTES, 2>(head)) & KNOWN_BITS)
        .with_timestamp_type(timestamp_type);
    put::<ATTRIBUTES, 2>(head, attributes.0.to_be_bytes());
    put::<MAX_TIMESTAMP, 8>(head, max_timestamp.to_be_bytes());
    reseal(batch)
}

/// Makes the CRC true again after bytes behind it changed. `batch` is exactly one batch.
pub fn reseal(batch: &mut [u8]) -> Result<(), BatchError> {
    let crc = crc32c(batch.get(ATTRIBUTES..).unwrap_or_default());
    put::<CRC, 4>(head_of(batch)?, crc.to_be_bytes());
    Ok(())
}

/// Makes a finished batch one of an idempotent producer, and seals it again.
pub fn set_producer(
    batch: &mut [u8],
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
) -> Result<(), BatchError> {
    let head = head_of(batch)?;
    put::<PRODUCER_ID, 8>(head, producer_id.to_be_bytes());
    put::<PRODUCER_EPOCH, 2>(head, producer_epoch.to_be_bytes());
    put::<BASE_SEQUENCE, 4>(head, base_sequence.to_be_bytes());
    reseal(batch)
}

/// A whole batch found by `scan`; its CRC is not checked yet.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Where it begins in the scanned slice.
    pub pos: usize,
    pub header: BatchHeader,
    /// The batch, header included.
    pub bytes: &'a [u8],
}

impl<'a> Found<'a> {
    pub fn crc_ok(&self) -> bool {
        stored::checksum_of(self.bytes, &self.header) == self.header.crc
    }

    /// The records, or the compressed stream of them. Only of magic 2.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(RECORDS..).unwrap_or_default()
    }
}

/// Why a scan ended, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The slice ends where a batch ends.
    End { pos: usize },
    /// A batch begins at `pos` and goes on for `need` bytes (61 if even that is not known yet).
    Incomplete { pos: usize, have: usize, need: usize },
    /// What begins at `pos` is no batch of a format that is read here.
    Bad { pos: usize, error: BatchError },
}

impl Stop {
    /// The end of the last whole batch.
    pub const fn pos(&self) -> usize {
        match *self {
            Stop::End { pos } | Stop::Incomplete { pos, .. } | Stop::Bad { pos, .. } => pos,
        }
    }
}

/// Consecutive batches of a slice; after the last one `stop` says why there are no more.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    bytes: &'a [u8],
    pos: usize,
    stop: Option<Stop>,
    parse: fn(&[u8]) -> Result<BatchHeader, BatchError>,
}

/// Begins a scan at the first byte of `bytes`, which must be the first byte of a batch. Anything
/// but magic 2 ends it; `stored::scan` goes on over older messages.
pub fn scan(bytes: &[u8]) -> Scan<'_> {
    scan_with(bytes, parse_header)
}

pub(super) fn scan_with(
    bytes: &[u8],
    parse: fn(&[u8]) -> Result<BatchHeader, BatchError>,
) -> Scan<'_> {
    Scan { bytes, pos: 0, stop: None, parse }
}

impl Scan<'_> {
    /// Why the scan ended; None while it has not.
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// Where the next batch begins.
    pub fn pos(&self) -> usize {
        self.pos
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Found<'a>;

    fn next(&mut self) -> Option<Found<'a>> {
        if self.stop.is_some() {
            return None;
        }
        let pos = self.pos;
        let rest = self.bytes.get(pos..).unwrap_or_default();
        if rest.is_empty() {
            self.stop = Some(Stop::End { pos });
            return None;
        }
        let found = (self.parse)(rest).and_then(|header| Ok((header, whole(rest, &header)?)));
        match found {
            Ok((header, bytes)) => {
                self.pos += bytes.len();
                Some(Found { pos, header, bytes })
            }
            Err(BatchError::NeedMore { have, need }) => {
                self.stop = Some(Stop::Incomplete { pos, have, need });
                None
            }
            Err(error) => {
                self.stop = Some(Stop::Bad { pos, error });
                None
            }
        }
    }
}

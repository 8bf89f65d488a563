//! The records inside a batch: the validating walk of produce, and full decoding for readers.
//!
//! Owns the encoding of a record. Never decompresses by itself: the walk takes a slice or, through
//! `Source`, a stream of decompressed bytes; `validate` calls it with what it may expect.

use super::batch::{BatchHeader, NO_TIMESTAMP, TimestampType};
use super::varint::{self, VarintError};

/// What is wrong with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordFault {
    #[error("the records end inside it")]
    Truncated,
    #[error("a varint is longer than its type allows")]
    Varint,
    #[error("its length is {length}")]
    Length { length: i32 },
    #[error("it declares {declared} bytes and has {actual}")]
    LengthMismatch { declared: u64, actual: u64 },
    #[error("its offset delta is {got}, {want} was due")]
    OffsetDelta { want: i32, got: i32 },
    #[error("it declares {count} headers in {room} bytes")]
    HeaderCount { count: i32, room: u64 },
    #[error("a header has no key")]
    HeaderKey,
    #[error("bytes are left over behind the last declared record")]
    LeftOver,
    #[error("the batch declares {count} records")]
    Count { count: i32 },
}

impl From<VarintError> for RecordFault {
    fn from(error: VarintError) -> RecordFault {
        match error {
            VarintError::Truncated => RecordFault::Truncated,
            VarintError::TooLong => RecordFault::Varint,
        }
    }
}

/// A fault, and the record that has it (counted from 0 in its batch).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record {index}: {fault}")]
pub struct RecordError<F: std::error::Error = RecordFault> {
    pub index: i32,
    pub fault: F,
}

/// What the walk learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walked {
    /// The greatest record timestamp, at least -1.
    pub max_timestamp: i64,
    /// The least record timestamp that is not -1; i64::MAX if there is none.
    pub min_timestamp: i64,
    /// Of the first record that has the greatest timestamp; 0 if none has any.
    pub offset_delta_of_max: i32,
    /// The first record without a key.
    pub first_null_key: Option<i32>,
}

/// Where the walk takes its bytes from. `E` is what can go wrong with the bytes themselves, a
/// `RecordFault` included.
pub(super) trait Source {
    type Error: std::error::Error + From<RecordFault>;
    fn varint(&mut self) -> Result<i32, Self::Error>;
    fn varlong(&mut self) -> Result<i64, Self::Error>;
    fn skip(&mut self, len: u64) -> Result<(), Self::Error>;
    /// Bytes taken so far.
    fn taken(&self) -> u64;
    /// Whether there are no more bytes at all.
    fn at_end(&mut self) -> Result<bool, Self::Error>;
}

struct SliceSource<'a> {
    rest: &'a [u8],
    len: usize,
}

impl SliceSource<'_> {
    #[inline(always)]
    fn advance(&mut self, len: usize) {
        self.rest = self.rest.get(len..).unwrap_or_default();
    }
}

impl Source for SliceSource<'_> {
    type Error = RecordFault;

    #[inline(always)]
    fn varint(&mut self) -> Result<i32, RecordFault> {
        let (value, len) = varint::decode_i32(self.rest)?;
        self.advance(len);
        Ok(value)
    }

    #[inline(always)]
    fn varlong(&mut self) -> Result<i64, RecordFault> {
        let (value, len) = varint::decode_i64(self.rest)?;
        self.advance(len);
        Ok(value)
    }

    #[inline(always)]
    fn skip(&mut self, len: u64) -> Result<(), RecordFault> {
        if len > self.rest.len() as u64 {
            return Err(RecordFault::Truncated);
        }
        self.advance(len as usize);
        Ok(())
    }

    #[inline(always)]
    fn taken(&self) -> u64 {
        (self.len - self.rest.len()) as u64
    }

    fn at_end(&mut self) -> Result<bool, RecordFault> {
        Ok(self.rest.is_empty())
    }
}

/// Walks the `count` records of an uncompressed batch without keeping anything of them: lengths
/// exact, offset deltas 0, 1, 2.., header counts sane, nothing left over. Allocates nothing.
pub fn walk(records: &[u8], count: i32, base_timestamp: i64) -> Result<Walked, RecordError> {
    walk_source(&mut SliceSource { rest: records, len: records.len() }, count, base_timestamp)
}

pub(super) fn walk_source<S: Source>(
    source: &mut S,
    count: i32,
    base_timestamp: i64,
) -> Result<Walked, RecordError<S::Error>> {
    let mut walked = Walked {
        max_timestamp: NO_TIMESTAMP,
        min_timestamp: i64::MAX,
        offset_delta_of_max: 0,
        first_null_key: None,
    };
    let at = |index| move |fault| RecordError { index, fault };
    if count < 0 {
        return Err(at(0)(RecordFault::Count { count }.into()));
    }
    for index in 0..count {
        let seen = walk_record(source, index).map_err(at(index))?;
        let timestamp = base_timestamp.wrapping_add(seen.timestamp_delta);
        if timestamp > walked.max_timestamp {
            walked.max_timestamp = timestamp;
            walked.offset_delta_of_max = index;
        }
        if timestamp < walked.min_timestamp && timestamp != NO_TIMESTAMP {
            walked.min_timestamp = timestamp;
        }
        if seen.key_is_null && walked.first_null_key.is_none() {
            walked.first_null_key = Some(index);
        }
    }
    if !source.at_end().map_err(at(count))? {
        return Err(at(count)(RecordFault::LeftOver.into()));
    }
    Ok(walked)
}

struct Seen {
    timestamp_delta: i64,
    key_is_null: bool,
}

/// One record. A field that runs past the record's end shows at the end, as a length that does not
/// agree.
#[inline(always)]
fn walk_record<S: Source>(source: &mut S, index: i32) -> Result<Seen, S::Error> {
    let length = source.varint()?;
    let declared = u64::try_from(length).map_err(|_| RecordFault::Length { length })?;
    let begin = source.taken();
    source.skip(1)?; // attributes: no bit of them is used
    let timestamp_delta = source.varlong()?;
    let offset_delta = source.varint()?;
    if offset_delta != index {
        return Err(RecordFault::OffsetDelta { want: index, got: offset_delta }.into());
    }
    let key_len = source.varint()?;
    source.skip(u64::try_from(key_len).unwrap_or(0))?;
    let value_len = source.varint()?;
    source.skip(u64::try_from(value_len).unwrap_or(0))?;
    let headers = source.varint()?;
    if headers != 0 {
        let room = (begin + declared).saturating_sub(source.taken());
        walk_headers(source, headers, room)?;
    }
    let actual = source.taken() - begin;
    if actual != declared {
        return Err(RecordFault::LengthMismatch { declared, actual }.into());
    }
    Ok(Seen { timestamp_delta, key_is_null: key_len < 0 })
}

/// R02: a count is believed only as far as the bytes behind it reach, and costs no memory.
fn walk_headers<S: Source>(source: &mut S, count: i32, room: u64) -> Result<(), S::Error> {
    if count < 0 || count as u64 > room {
        return Err(RecordFault::HeaderCount { count, room }.into());
    }
    for _ in 0..count {
        let key_len = source.varint()?;
        source.skip(u64::try_from(key_len).map_err(|_| RecordFault::HeaderKey)?)?;
        let value_len = source.varint()?;
        source.skip(u64::try_from(value_len).unwrap_or(0))?;
    }
    Ok(())
}

/// One record, borrowed. Null and empty are different things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    pub offset: i64,
    pub timestamp: i64,
    /// -1 if the batch has no sequences.
    pub sequence: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The headers of a record, in order, repeated names included. Checked when the record was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers<'a> {
    rest: &'a [u8],
    left: i32,
}

impl Headers<'_> {
    /// Messages older than record batches have no headers.
    pub(super) const NONE: Headers<'static> = Headers { rest: &[], left: 0 };
}

/// One header: its key is UTF-8 by convention only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        let mut reader = Reader { rest: self.rest };
        let header = reader.header().ok()?;
        self.rest = reader.rest;
        Some(header)
    }
}

/// Cuts fields off the front of a slice.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], RecordFault> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(RecordFault::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<i32, RecordFault> {
        let (value, len) = varint::decode_i32(self.rest)?;
        self.take(len)?;
        Ok(value)
    }

    fn varlong(&mut self) -> Result<i64, RecordFault> {
        let (value, len) = varint::decode_i64(self.rest)?;
        self.take(len)?;
        Ok(value)
    }

    /// Any negative length reads as null.
    fn bytes(&mut self) -> Result<Option<&'a [u8]>, RecordFault> {
        match usize::try_from(self.varint()?) {
            Ok(len) => self.take(len).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn header(&mut self) -> Result<Header<'a>, RecordFault> {
        let key = self.bytes()?.ok_or(RecordFault::HeaderKey)?;
        Ok(Header { key, value: self.bytes()? })
    }

    fn headers(&mut self) -> Result<Headers<'a>, RecordFault> {
        let count = self.varint()?;
        let room = self.rest.len() as u64;
        if count < 0 || count as u64 > room {
            return Err(RecordFault::HeaderCount { count, room });
        }
        let headers = Headers { rest: self.rest, left: count };
        for _ in 0..count {
            self.header()?;
        }
        Ok(headers)
    }
}

/// The records of a batch, decoded one by one; ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    header: BatchHeader,
    index: i32,
    done: bool,
}

/// Decodes `payload`, the decompressed records of the batch that `header` heads. Offsets may have
/// holes: what compaction left is read too.
pub fn records<'a>(payload: &'a [u8], header: &BatchHeader) -> Records<'a> {
    Records { rest: payload, header: *header, index: 0, done: false }
}

impl<'a> Records<'a> {
    fn read(&mut self) -> Result<Option<Record<'a>>, RecordFault> {
        let count = self.header.records_count;
        if count < 0 {
            return Err(RecordFault::Count { count });
        }
        if self.index == count {
            return if self.rest.is_empty() { Ok(None) } else { Err(RecordFault::LeftOver) };
        }
        let mut outer = Reader { rest: self.rest };
        let length = outer.varint()?;
        let len = usize::try_from(length).map_err(|_| RecordFault::Length { length })?;
        let body = outer.take(len)?;
        self.rest = outer.rest;
        decode_record(body, &self.header).map(Some)
    }
}

pub(super) fn decode_record<'a>(
    body: &'a [u8],
    header: &BatchHeader,
) -> Result<Record<'a>, RecordFault> {
    let mut reader = Reader { rest: body };
    reader.take(1)?; // attributes: no bit of them is used
    let timestamp_delta = reader.varlong()?;
    let offset_delta = reader.varint()?;
    let key = reader.bytes()?;
    let value = reader.bytes()?;
    let headers = reader.headers()?;
    if !reader.rest.is_empty() {
        let declared = body.len() as u64;
        let actual = declared - reader.rest.len() as u64;
        return Err(RecordFault::LengthMismatch { declared, actual });
    }
    let timestamp = match header.timestamp_type() {
        TimestampType::LogAppendTime => header.max_timestamp,
        _ => header.base_timestamp.wrapping_add(timestamp_delta),
    };
    Ok(Record {
        offset: header.base_offset.saturating_add(i64::from(offset_delta)),
        timestamp,
        sequence: header.sequence_at(offset_delta),
        key,
        value,
        headers,
    })
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let index = self.index;
        match self.read() {
            Ok(Some(record)) => {
                self.index += 1;
                Some(Ok(record))
            }
            Ok(None) => {
                self.done = true;
                None
            }
            Err(fault) => {
                self.done = true;
                Some(Err(RecordError { index, fault }))
            }
        }
    }
}

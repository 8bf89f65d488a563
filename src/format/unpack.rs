//! The records of what stands in a log, one at a time: of any magic, through any codec, in bounded
//! memory.
//!
//! Owns the way from a batch's bytes to its records: a window of decompressed bytes that holds one
//! record and grows only by what a codec has really produced; the inner messages of compressed
//! sets, their offsets and times. Never judges what a client sent (`validate` does). `dump`,
//! the time lookup and the client stand right; `stored`, `codec`, `record`, `legacy` left.

use super::batch::{
    BatchError, BatchHeader, Codec, Found, MAGIC_V0, MAGIC_V1, RECORDS, TimestampType,
};
use super::codec::{CodecError, Decoder, Workspace};
use super::legacy;
use super::record::{self, Headers, Record, RecordError, RecordFault};
use super::stored;
use super::varint;

/// Decompressed bytes asked for at a time.
const STEP_BYTES: usize = 64 << 10;
/// A window that grew beyond this is given back after its batch.
const WINDOW_KEPT_MAX: usize = 1 << 20;
/// Offset and size, before an inner message.
const ENTRY_HEAD: usize = 12;

/// What is wrong with a message of magic 0 or 1, or with the set that it wraps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageFault {
    #[error("{0}")]
    Header(BatchError),
    #[error("its key or value is longer than itself")]
    Body,
    #[error("a compressed message without a value")]
    NoValue,
    #[error("a compressed message that holds no messages")]
    Empty,
    #[error("a compressed message inside a compressed message")]
    Nested,
    #[error("its last offset is {wrapper}, below the {inner} of the last message inside")]
    Offsets { wrapper: i64, inner: i64 },
}

/// Why the records of a batch cannot be had, or no more of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnpackFault {
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Record(#[from] RecordFault),
    #[error(transparent)]
    Message(#[from] MessageFault),
}

impl From<varint::VarintError> for UnpackFault {
    fn from(error: varint::VarintError) -> UnpackFault {
        UnpackFault::Record(error.into())
    }
}

/// The fault, and the record that has it (counted from 0 in its batch).
pub type UnpackError = RecordError<UnpackFault>;

/// A record, and what only messages of magic 0 and 1 have of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unpacked<'a> {
    pub record: Record<'a>,
    /// The checksum of this very message, and whether it holds.
    pub own_crc: Option<(u32, bool)>,
}

/// Buffers that outlive one batch, and the bound of what one may expand to (R88).
#[derive(Debug)]
pub struct Unpacker {
    bytes_max: u64,
    workspace: Workspace,
    window: Vec<u8>,
}

impl Unpacker {
    pub fn new(bytes_max: u64) -> Unpacker {
        Unpacker { bytes_max, workspace: Workspace::new(), window: Vec::new() }
    }

    /// Opens a batch or message that a scan found. Its checksum is the caller's business.
    pub fn open<'a>(&'a mut self, found: &Found<'a>) -> Result<Records<'a>, UnpackError> {
        self.open_bytes(found.bytes, &found.header)
    }

    /// The same, from the bytes of one whole batch and its header.
    pub fn open_bytes<'a>(
        &'a mut self,
        bytes: &'a [u8],
        header: &BatchHeader,
    ) -> Result<Records<'a>, UnpackError> {
        if self.window.capacity() > WINDOW_KEPT_MAX {
            self.window = Vec::new();
        }
        let layout = self.layout(bytes, header).map_err(at(0))?;
        Ok(Records { header: *header, layout, index: 0, done: false })
    }

    fn layout<'a>(
        &'a mut self,
        bytes: &'a [u8],
        header: &BatchHeader,
    ) -> Result<Layout<'a>, UnpackFault> {
        let id = header.attributes.codec_id();
        let codec = header.codec().ok_or(CodecError::Unknown { id })?;
        let payload = match (header.is_legacy(), codec) {
            (false, _) => bytes.get(RECORDS..).unwrap_or_default(),
            (true, Codec::None) => return Ok(Layout::Message(Some(bytes))),
            (true, _) => legacy::body(bytes, header.magic)
                .ok_or(MessageFault::Body)?
                .1
                .ok_or(MessageFault::NoValue)?,
        };
        let relative_to = match header.magic {
            MAGIC_V1 => self.relative_to(codec, payload, header)?,
            _ => 0,
        };
        let bytes = self.bytes(codec, payload, header.magic)?;
        Ok(match header.is_legacy() {
            true => Layout::Messages { bytes, relative_to },
            false => Layout::Batch(bytes),
        })
    }

    fn bytes<'a>(
        &'a mut self,
        codec: Codec,
        payload: &'a [u8],
        magic: i8,
    ) -> Result<Bytes<'a>, CodecError> {
        if codec == Codec::None {
            return Ok(Bytes::Plain(payload));
        }
        let (bytes_max, workspace) = (self.bytes_max, &mut self.workspace);
        let decoder = Decoder::of_magic(magic, codec, payload, bytes_max, workspace)?;
        Ok(Bytes::Stream { decoder, window: &mut self.window, begin: 0, end: 0 })
    }

    /// What the offsets inside a set of magic 1 are relative to. Only its end tells, so the set is
    /// read once for that, and nothing of it kept.
    fn relative_to(
        &mut self,
        codec: Codec,
        payload: &[u8],
        header: &BatchHeader,
    ) -> Result<i64, UnpackFault> {
        let mut bytes = self.bytes(codec, payload, header.magic)?;
        let mut last = None;
        while let Some((offset, size)) = bytes.entry_head()? {
            if !bytes.skip(ENTRY_HEAD + size)? {
                break;
            }
            last = Some(offset);
        }
        let (wrapper, inner) = (header.base_offset, last.ok_or(MessageFault::Empty)?);
        // Some producers (librdkafka) left 0 in the outer message: then they are not relative.
        match wrapper.checked_sub(inner) {
            _ if wrapper == 0 => Ok(0),
            Some(base) if base >= 0 => Ok(base),
            _ => Err(MessageFault::Offsets { wrapper, inner }.into()),
        }
    }
}

fn at<F: Into<UnpackFault>>(index: i32) -> impl FnOnce(F) -> UnpackError {
    move |fault| RecordError { index, fault: fault.into() }
}

enum Layout<'a> {
    /// One message that is not compressed; None when it was handed out.
    Message(Option<&'a [u8]>),
    /// A compressed set of messages.
    Messages {
        bytes: Bytes<'a>,
        relative_to: i64,
    },
    Batch(Bytes<'a>),
}

/// The records of one batch, in order; ends after the first error.
pub struct Records<'a> {
    header: BatchHeader,
    layout: Layout<'a>,
    index: i32,
    done: bool,
}

impl Records<'_> {
    /// The next record, which lasts until the one after is asked for.
    #[expect(clippy::should_implement_trait, reason = "what it lends does not outlive the call")]
    pub fn next(&mut self) -> Option<Result<Unpacked<'_>, UnpackError>> {
        if self.done {
            return None;
        }
        let index = self.index;
        self.index = index.saturating_add(1);
        let (header, done) = (&self.header, &mut self.done);
        let read = match &mut self.layout {
            Layout::Message(message) => message.take().map(|bytes| plain_message(bytes, header)),
            Layout::Messages { bytes, relative_to } => {
                next_message(bytes, header, *relative_to, index).transpose()
            }
            Layout::Batch(bytes) => next_record(bytes, header, index).transpose(),
        };
        *done = !matches!(read, Some(Ok(_)));
        read.map(|read| read.map_err(at(index)))
    }
}

fn next_record<'w>(
    bytes: &'w mut Bytes<'_>,
    header: &BatchHeader,
    index: i32,
) -> Result<Option<Unpacked<'w>>, UnpackFault> {
    let count = header.records_count;
    if count < 0 {
        return Err(RecordFault::Count { count }.into());
    }
    if index == count {
        let left_over = !bytes.ahead(1)?.is_empty();
        return if left_over { Err(RecordFault::LeftOver.into()) } else { Ok(None) };
    }
    let (length, prefix) = varint::decode_i32(bytes.ahead(varint::VARINT_LEN_MAX)?)?;
    let len = usize::try_from(length).map_err(|_| RecordFault::Length { length })?;
    let body = bytes.take(prefix, len)?.ok_or(RecordFault::Truncated)?;
    Ok(Some(Unpacked { record: record::decode_record(body, header)?, own_crc: None }))
}

fn plain_message<'a>(bytes: &'a [u8], header: &BatchHeader) -> Result<Unpacked<'a>, UnpackFault> {
    message(bytes, header, header.base_offset, header.max_timestamp)
}

/// The next message of a compressed set. A set that ends inside one ends before it, as in Kafka.
fn next_message<'w>(
    bytes: &'w mut Bytes<'_>,
    wrapper: &BatchHeader,
    relative_to: i64,
    index: i32,
) -> Result<Option<Unpacked<'w>>, UnpackFault> {
    let end = match index {
        0 => Err(MessageFault::Empty.into()),
        _ => Ok(None),
    };
    let Some((_, size)) = bytes.entry_head()? else { return end };
    let Some(bytes) = bytes.take(0, ENTRY_HEAD + size)? else { return end };
    // By its own magic: some brokers wrapped messages of another one (KAFKA-4298).
    let inner = stored::parse_header(bytes).map_err(MessageFault::Header)?;
    if !inner.is_legacy() {
        return Err(MessageFault::Header(BatchError::Magic { magic: inner.magic }).into());
    }
    if inner.codec() != Some(Codec::None) {
        return Err(MessageFault::Nested.into());
    }
    let timestamp = match wrapper.timestamp_type() {
        TimestampType::LogAppendTime if inner.magic != MAGIC_V0 => wrapper.max_timestamp,
        _ => inner.max_timestamp,
    };
    let offset = relative_to.saturating_add(inner.base_offset);
    message(bytes, &inner, offset, timestamp).map(Some)
}

fn message<'a>(
    bytes: &'a [u8],
    header: &BatchHeader,
    offset: i64,
    timestamp: i64,
) -> Result<Unpacked<'a>, UnpackFault> {
    let (key, value) = legacy::body(bytes, header.magic).ok_or(MessageFault::Body)?;
    let (sequence, headers) = (header.base_sequence, Headers::NONE);
    let record = Record { offset, timestamp, sequence, key, value, headers };
    let own_crc = Some((header.crc, legacy::checksum(bytes) == header.crc));
    Ok(Unpacked { record, own_crc })
}

/// Decompressed bytes, of which only a window is held.
enum Bytes<'a> {
    /// Not compressed: all of them.
    Plain(&'a [u8]),
    Stream {
        decoder: Decoder<'a>,
        window: &'a mut Vec<u8>,
        /// The part of the window that is decompressed and not taken yet.
        begin: usize,
        end: usize,
    },
}

impl Bytes<'_> {
    /// The next bytes: at least `want` of them, or all there are.
    fn ahead(&mut self, want: usize) -> Result<&[u8], CodecError> {
        match self {
            Bytes::Plain(rest) => Ok(rest),
            Bytes::Stream { decoder, window, begin, end } => {
                while *end - *begin < want {
                    window.copy_within(*begin..*end, 0);
                    (*begin, *end) = (0, *end - *begin);
                    if window.len() < *end + STEP_BYTES {
                        window.resize(*end + STEP_BYTES, 0);
                    }
                    match decoder.read_some(window.get_mut(*end..).unwrap_or_default())? {
                        0 => break,
                        len => *end += len,
                    }
                }
                Ok(window.get(*begin..*end).unwrap_or_default())
            }
        }
    }

    fn advance(&mut self, len: usize) {
        match self {
            Bytes::Plain(rest) => *rest = rest.get(len..).unwrap_or_default(),
            Bytes::Stream { begin, .. } => *begin += len,
        }
    }

    /// Takes `len` bytes behind `prefix` ones; None when there are not so many.
    fn take(&mut self, prefix: usize, len: usize) -> Result<Option<&[u8]>, CodecError> {
        let end = prefix.saturating_add(len);
        if self.ahead(end)?.len() < end {
            return Ok(None);
        }
        Ok(match self {
            Bytes::Plain(rest) => {
                let taken = rest.get(prefix..end);
                *rest = rest.get(end..).unwrap_or_default();
                taken
            }
            Bytes::Stream { window, begin, .. } => {
                *begin += end;
                window.get(*begin - len..*begin)
            }
        })
    }

    /// Offset and size of the next inner message; None where the set ends.
    fn entry_head(&mut self) -> Result<Option<(i64, usize)>, UnpackFault> {
        let Some(head) = self.ahead(ENTRY_HEAD)?.first_chunk::<ENTRY_HEAD>() else {
            return Ok(None);
        };
        let [o0, o1, o2, o3, o4, o5, o6, o7, sizes @ ..] = *head;
        let batch_length = i32::from_be_bytes(sizes);
        match usize::try_from(batch_length) {
            Ok(size) if size + ENTRY_HEAD >= stored::STORED_LEN_MIN => {
                Ok(Some((i64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]), size)))
            }
            _ => Err(MessageFault::Header(BatchError::Length { batch_length }).into()),
        }
    }

    /// Leaves `len` bytes out; false when there are not so many.
    fn skip(&mut self, len: usize) -> Result<bool, CodecError> {
        let mut left = len;
        while left > 0 {
            let step = self.ahead(1)?.len().min(left);
            if step == 0 {
                return Ok(false);
            }
            self.advance(step);
            left -= step;
        }
        Ok(true)
    }
}

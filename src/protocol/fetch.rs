//! Fetch: the hot message out. Heads of fixed size, so that a server interleaves them with file
//! ranges and copies nothing.
//!
//! Owns: the two bodies of api 7, the heads, and a parser that takes a response as it arrives.
//! Never does: look into batches, wait.
//! Left: [`super::cursor`], [`super::api`]. Right: `shard::fetch`, `client::consumer`.
//!
//! ```text
//! request   u32 max bytes | u32 min bytes | u32 max wait ms | u8 isolation | u8 reserved, zero
//!           | u16 count | count x (u32 handle | i64 offset | i32 last epoch | u32 max bytes)
//! response  u16 count | count x (u32 handle | u16 error | i64 log start | i64 high watermark
//!           | u32 len | len bytes)
//! ```

use super::api::{Api, BODY_AT, CONTROL_BYTES_MAX, Message, Request, ResponseHeader, VERSION};
use super::cursor::{Head, Reader, WireError, Writer};
use crate::types::Handle;

/// Bytes of a response frame before its first part.
pub const FRAME_HEAD: usize = BODY_AT + 2;
/// Bytes of a part before its batches.
pub const PART_HEAD: usize = 4 + 2 + 8 + 8 + 4;
/// Bytes of a part in a request.
const PART: usize = 4 + 8 + 4 + 4;
/// As many parts as a request can name.
const _: () = assert!(16 + u16::MAX as usize * PART <= CONTROL_BYTES_MAX as usize);

/// What a consumer may see of transactions. None are served, but logs that a broker wrote may hold
/// them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    #[default]
    ReadUncommitted,
    /// Nothing from the first offset of the oldest open transaction on.
    ReadCommitted,
}

impl Isolation {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Isolation, WireError> {
        Ok(match reader.bool("isolation")? {
            false => Isolation::ReadUncommitted,
            true => Isolation::ReadCommitted,
        })
    }

    pub(super) fn write(self, writer: &mut Writer<'_>) {
        writer.bool(self == Isolation::ReadCommitted);
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FetchPart {
    pub handle: Handle,
    /// Raw: out of range is the partition's to answer, with the range (R28).
    pub offset: i64,
    /// Leader epoch of the batch that the reader read last, which ends at or below `offset`; below
    /// 0: it does not know. One that does is told when what it read was cut (R11).
    pub last_epoch: i32,
    pub max_bytes: u32,
}

/// The parts of a request: as they lie in the frame, or a list to send. Reading allocates nothing.
#[derive(Copy, Clone, Debug)]
pub enum Parts<'a> {
    /// Whole parts, back to back, as received.
    Wire(&'a [[u8; PART]]),
    List(&'a [FetchPart]),
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest<'a> {
    pub max_bytes: u32,
    pub min_bytes: u32,
    pub max_wait_ms: u32,
    pub isolation: Isolation,
    pub parts: Parts<'a>,
}

/// A part of a response, without its bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PartHead {
    pub handle: Handle,
    /// Raw. Not 0: the bytes are an error body ([`super::error::ErrorBody`]) or none.
    pub error: i16,
    /// -1 when not known. Together with the high watermark the valid range (R28).
    pub start: i64,
    pub high_watermark: i64,
    pub len: u32,
}

/// A part with its bytes: whole batches, the last one perhaps cut, the first of the first
/// non-empty part never (R22).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PartData<'a> {
    pub head: PartHead,
    pub bytes: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse<'a> {
    pub parts: Vec<PartData<'a>>,
}

/// What opens a response of `count` parts whose heads and bytes take `parts_len` bytes together.
pub fn frame_head(correlation: u32, count: u16, parts_len: usize) -> [u8; FRAME_HEAD] {
    let header =
        ResponseHeader { api: Api::Fetch.to_wire(), version: VERSION, error: 0, correlation };
    Head::new().put(header.head(2 + parts_len)).put(count.to_be_bytes()).done()
}

pub fn part_head(part: &PartHead) -> [u8; PART_HEAD] {
    Head::new()
        .put(part.handle.0.to_be_bytes())
        .put(part.error.to_be_bytes())
        .put(part.start.to_be_bytes())
        .put(part.high_watermark.to_be_bytes())
        .put(part.len.to_be_bytes())
        .done()
}

impl FetchPart {
    fn read(reader: &mut Reader<'_>) -> Result<FetchPart, WireError> {
        Ok(FetchPart {
            handle: Handle(reader.u32("handle")?),
            offset: reader.i64("fetch offset")?,
            last_epoch: reader.i32("last epoch")?,
            max_bytes: reader.u32("partition max bytes")?,
        })
    }

    fn bytes(&self) -> [u8; PART] {
        Head::new()
            .put(self.handle.0.to_be_bytes())
            .put(self.offset.to_be_bytes())
            .put(self.last_epoch.to_be_bytes())
            .put(self.max_bytes.to_be_bytes())
            .done()
    }
}

impl<'a> Parts<'a> {
    pub fn len(&self) -> usize {
        match self {
            Parts::Wire(raw) => raw.len(),
            Parts::List(list) => list.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = FetchPart> + use<'a> {
        let (raw, list) = match *self {
            Parts::Wire(raw) => (raw, [].as_slice()),
            Parts::List(list) => ([].as_slice(), list),
        };
        // A part of full size always reads; `flatten` only drops what cannot be there.
        let read = raw.iter().flat_map(|part| FetchPart::read(&mut Reader::new(part)));
        read.chain(list.iter().copied())
    }
}

impl PartialEq for Parts<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Parts<'_> {}

impl<'a> Message<'a> for FetchRequest<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let max_bytes = reader.u32("max bytes")?;
        let min_bytes = reader.u32("min bytes")?;
        let max_wait_ms = reader.u32("max wait ms")?;
        let isolation = Isolation::read(&mut reader)?;
        reader.reserved::<1>("reserved")?;
        let count = reader.u16("partitions")?;
        let len = reader.fits("partitions", u32::from(count), PART)?;
        let (parts, _) = reader.take("partitions", len * PART)?.as_chunks::<PART>();
        reader.end("fetch request")?;
        let parts = Parts::Wire(parts);
        Ok(FetchRequest { max_bytes, min_bytes, max_wait_ms, isolation, parts })
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.u32(self.max_bytes);
        writer.u32(self.min_bytes);
        writer.u32(self.max_wait_ms);
        self.isolation.write(&mut writer);
        writer.u8(0);
        writer.u16(short("partitions", self.parts.len())?);
        self.parts.iter().for_each(|part| writer.raw(&part.bytes()));
        Ok(())
    }
}

impl<'a> Request<'a> for FetchRequest<'a> {
    const API: Api = Api::Fetch;
    type Response<'r> = FetchResponse<'r>;
}

impl PartHead {
    fn read(reader: &mut Reader<'_>) -> Result<PartHead, WireError> {
        Ok(PartHead {
            handle: Handle(reader.u32("handle")?),
            error: reader.i16("partition error")?,
            start: reader.i64("log start")?,
            high_watermark: reader.i64("high watermark")?,
            len: reader.u32("bytes")?,
        })
    }
}

impl<'a> Message<'a> for FetchResponse<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let count = reader.u16("partitions")?;
        let len = reader.fits("partitions", u32::from(count), PART_HEAD)?;
        let mut parts = Vec::with_capacity(len);
        for _ in 0..len {
            let head = PartHead::read(&mut reader)?;
            let bytes = reader.take("bytes", head.len as usize)?;
            parts.push(PartData { head, bytes });
        }
        reader.end("fetch response")?;
        Ok(FetchResponse { parts })
    }

    /// For tests and tools: the server sends heads and ranges. The heads' `len` is the bytes'.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut writer = Writer::new(out);
        writer.u16(short("partitions", self.parts.len())?);
        for PartData { head, bytes } in &self.parts {
            let (len, max) = (bytes.len(), u32::MAX as usize);
            let short =
                u32::try_from(len).map_err(|_| WireError::TooLong { field: "bytes", len, max })?;
            writer.raw(&part_head(&PartHead { len: short, ..*head }));
            writer.raw(bytes);
        }
        Ok(())
    }
}

fn short(field: &'static str, len: usize) -> Result<u16, WireError> {
    u16::try_from(len).map_err(|_| WireError::TooLong { field, len, max: usize::from(u16::MAX) })
}

/// Takes a response's body as it arrives, in pieces of any size, and holds none of it.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Body bytes not yet taken.
    body_left: usize,
    stage: Stage,
}

#[derive(Copy, Clone, Debug)]
enum Stage {
    Count,
    Head { parts_left: u16 },
    Bytes { parts_left: u16, left: usize },
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// This many bytes more before the next event, at least.
    NeedMore(usize),
    Part(PartHead),
    /// The next bytes of the part that was announced last.
    Bytes(&'a [u8]),
    End,
}

impl Progress {
    /// `body_len`: what the frame says comes behind its header.
    pub fn new(body_len: usize) -> Progress {
        Progress { body_left: body_len, stage: Stage::Count }
    }

    /// The next event in `input`, and how many bytes of it are used up.
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Event<'a>), WireError> {
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            match self.stage {
                Stage::Count => {
                    let Some(mut reader) = self.window(rest, "partitions", 2)? else {
                        return Ok((used, Event::NeedMore(2 - rest.len())));
                    };
                    self.stage = Stage::Head { parts_left: reader.u16("partitions")? };
                    self.body_left -= 2;
                    used += 2;
                }
                Stage::Bytes { parts_left, left: 0 } => self.stage = Stage::Head { parts_left },
                Stage::Bytes { .. } if rest.is_empty() => return Ok((used, Event::NeedMore(1))),
                Stage::Bytes { parts_left, left } => {
                    let bytes = rest.get(..left).unwrap_or(rest);
                    self.stage = Stage::Bytes { parts_left, left: left - bytes.len() };
                    self.body_left -= bytes.len();
                    return Ok((used + bytes.len(), Event::Bytes(bytes)));
                }
                Stage::Head { parts_left } => {
                    let (more, event) = self.head(rest, parts_left)?;
                    return Ok((used + more, event));
                }
            }
        }
    }

    /// A reader over the next `len` bytes: `None` when they have not come, an error when the body
    /// does not hold them.
    fn window<'a>(
        &self,
        input: &'a [u8],
        field: &'static str,
        len: usize,
    ) -> Result<Option<Reader<'a>>, WireError> {
        if self.body_left < len {
            return Err(WireError::Truncated { field, want: len, got: self.body_left });
        }
        Ok(input.get(..len).map(Reader::new))
    }

    fn head<'a>(&mut self, rest: &[u8], parts: u16) -> Result<(usize, Event<'a>), WireError> {
        let Some(parts_left) = parts.checked_sub(1) else {
            return match self.body_left {
                0 => Ok((0, Event::End)),
                bytes => Err(WireError::Trailing { message: "fetch response", bytes }),
            };
        };
        let Some(mut reader) = self.window(rest, "partition", PART_HEAD)? else {
            return Ok((0, Event::NeedMore(PART_HEAD - rest.len())));
        };
        let head = PartHead::read(&mut reader)?;
        self.body_left -= PART_HEAD;
        let left = head.len as usize;
        if left > self.body_left {
            return Err(WireError::Truncated { field: "bytes", want: left, got: self.body_left });
        }
        self.stage = Stage::Bytes { parts_left, left };
        Ok((PART_HEAD, Event::Part(head)))
    }
}

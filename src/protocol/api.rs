//! The apis, their versions, and the two headers.
//!
//! Owns: [`Api`], [`RequestHeader`], [`ResponseHeader`], what an unknown api or version is
//! answered, and the framing of any [`Message`]. Never does: read bodies.
//! Left: [`super::cursor`], [`super::frame`]. Right: every message, `shard`, `client`.
//!
//! ```text
//! request   u32 length | u8 api | u8 version | u16 flags | u32 correlation | body
//! response  u32 length | u8 api | u8 version | u16 error | u32 correlation | body
//! ```

use super::cursor::{Head, Reader, WireError, Writer};
use super::error::{Detail, encode_error};
use super::frame::{Frame, HEADER, PREFIX};
use crate::errors::ErrorCode;

/// Bytes before a body: the prefix and a header.
pub const BODY_AT: usize = PREFIX + HEADER;
/// No request but produce needs more than this behind its prefix: the widest fetch does not.
pub const CONTROL_BYTES_MAX: u32 = 2 << 20;

#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    Hello,
    Metadata,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    AlterTopic,
    Produce,
    Fetch,
    ListOffsets,
    InitProducer,
    Flush,
    DeleteRecords,
    Stats,
    EpochEnd,
    LogDirs = 14,
    Roll = 15,
}

impl Api {
    /// In the order of their numbers.
    pub const ALL: [Api; 16] = [
        Api::Hello,
        Api::Metadata,
        Api::CreateTopic,
        Api::DeleteTopic,
        Api::DescribeTopic,
        Api::AlterTopic,
        Api::Produce,
        Api::Fetch,
        Api::ListOffsets,
        Api::InitProducer,
        Api::Flush,
        Api::DeleteRecords,
        Api::Stats,
        Api::EpochEnd,
        Api::LogDirs,
        Api::Roll,
    ];

    pub const fn to_wire(self) -> u8 {
        self as u8
    }

    /// Numbers have gaps: not every build has every api.
    pub fn from_wire(raw: u8) -> Option<Api> {
        Api::ALL.into_iter().find(|api| api.to_wire() == raw)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Api::Hello => "hello",
            Api::Metadata => "metadata",
            Api::CreateTopic => "create topic",
            Api::DeleteTopic => "delete topic",
            Api::DescribeTopic => "describe topic",
            Api::AlterTopic => "alter topic",
            Api::Produce => "produce",
            Api::Fetch => "fetch",
            Api::ListOffsets => "list offsets",
            Api::InitProducer => "init producer",
            Api::Flush => "flush",
            Api::DeleteRecords => "delete records",
            Api::Stats => "stats",
            Api::Roll => "roll",
            Api::EpochEnd => "end offset for epoch",
            Api::LogDirs => "describe log dirs",
        }
    }

    /// The most a request of this api may say in its length field.
    pub fn request_bytes_max(self, frame_bytes_max: u32) -> u32 {
        match self {
            Api::Produce => frame_bytes_max,
            _ => frame_bytes_max.min(CONTROL_BYTES_MAX),
        }
    }
}

/// The version that this build speaks, of every api.
pub const VERSION: u8 = 0;

/// The header of a request, as it came: nothing in it is trusted before [`Self::admit`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    pub api: u8,
    pub version: u8,
    pub flags: u16,
    pub correlation: u32,
}

/// A request that will not be served: what to answer, and whether to close behind the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub header: RequestHeader,
    pub code: ErrorCode,
    pub detail: Detail,
    pub message: String,
    pub close: bool,
}

impl RequestHeader {
    /// The header and the body behind it.
    pub fn split<'a>(frame: &Frame<'a>) -> Result<(RequestHeader, &'a [u8]), WireError> {
        let mut reader = Reader::new(frame.content);
        let header = RequestHeader {
            api: reader.u8("api")?,
            version: reader.u8("version")?,
            flags: reader.u16("flags")?,
            correlation: reader.u32("correlation")?,
        };
        Ok((header, reader.rest()))
    }

    /// The api to serve, or the refusal to send.
    pub fn admit(&self, body_len: usize) -> Result<Api, Refusal> {
        let Some(api) = Api::from_wire(self.api) else {
            return Err(self.unknown_api());
        };
        if self.version != VERSION {
            let message = format!("{}: version {} is not {VERSION}", api.name(), self.version);
            let detail = Detail::Versions { min: VERSION, max: VERSION };
            return Err(self.refuse(ErrorCode::UnsupportedVersion, detail, message, false));
        }
        if self.flags != 0 {
            let message =
                format!("{}: request flags {:#06x} are not known", api.name(), self.flags);
            return Err(self.refuse(ErrorCode::InvalidRequest, Detail::None, message, false));
        }
        if api != Api::Produce && body_len > CONTROL_BYTES_MAX as usize {
            let message =
                format!("{}: {body_len} bytes; the limit is {CONTROL_BYTES_MAX}", api.name());
            return Err(self.refuse(ErrorCode::InvalidRequest, Detail::None, message, false));
        }
        Ok(api)
    }

    fn unknown_api(&self) -> Refusal {
        let as_kafka = u16::from_be_bytes([self.api, self.version]);
        let message = format!(
            "unknown api {} (the first two bytes, read as a Kafka key: {as_kafka}); closing",
            self.api
        );
        self.refuse(ErrorCode::InvalidRequest, Detail::None, message, true)
    }

    /// A refusal of this request; also for the server's own reasons.
    pub fn refuse(&self, code: ErrorCode, detail: Detail, message: String, close: bool) -> Refusal {
        Refusal { header: *self, code, detail, message, close }
    }
}

impl Refusal {
    /// Appends the response frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let RequestHeader { api, version, correlation, .. } = self.header;
        encode_error(api, version, self.code, correlation, &self.message, self.detail, out);
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    pub api: u8,
    pub version: u8,
    /// Raw: a newer server may know numbers that this build does not.
    pub error: i16,
    pub correlation: u32,
}

impl ResponseHeader {
    pub fn split<'a>(frame: &Frame<'a>) -> Result<(ResponseHeader, &'a [u8]), WireError> {
        let mut reader = Reader::new(frame.content);
        let header = ResponseHeader {
            api: reader.u8("api")?,
            version: reader.u8("version")?,
            error: reader.i16("error")?,
            correlation: reader.u32("correlation")?,
        };
        Ok((header, reader.rest()))
    }

    pub fn is_ok(&self) -> bool {
        self.error == ErrorCode::None.code()
    }

    /// Prefix and header of a response whose body has `body_len` bytes.
    ///
    /// # Panics
    /// When the body is longer than a frame can say; the server bounds its answers far below.
    pub fn head(&self, body_len: usize) -> [u8; BODY_AT] {
        let length = u32::try_from(HEADER + body_len).unwrap_or(u32::MAX);
        assert!(length < u32::MAX, "a body of {body_len} bytes does not fit a frame");
        Head::new()
            .put(length.to_be_bytes())
            .put([self.api, self.version])
            .put(self.error.to_be_bytes())
            .put(self.correlation.to_be_bytes())
            .done()
    }
}

/// A body, in either direction.
pub trait Message<'a>: Sized {
    fn parse(body: &'a [u8]) -> Result<Self, WireError>;
    /// Appends the body alone. What was appended before an error is the caller's to cut.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError>;
}

/// A request's body: it knows its api and what answers it.
pub trait Request<'a>: Message<'a> {
    const API: Api;
    type Response<'r>: Message<'r>;
}

/// Appends a whole request frame; on an error `out` is as it was.
pub fn encode_request<'a, R: Request<'a>>(
    request: &R,
    correlation: u32,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    framed(out, |out| {
        let mut writer = Writer::new(out);
        writer.raw(&[R::API.to_wire(), VERSION, 0, 0]);
        writer.u32(correlation);
        request.encode(out)
    })
}

/// Appends a whole response frame of an accepted request; on an error `out` is as it was.
pub fn encode_response<'a, M: Message<'a>>(
    api: Api,
    correlation: u32,
    response: &M,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    framed(out, |out| {
        let mut writer = Writer::new(out);
        writer.raw(&[api.to_wire(), VERSION, 0, 0]);
        writer.u32(correlation);
        response.encode(out)
    })
}

/// Runs `content` behind a prefix that is filled in afterwards.
pub(super) fn framed(
    out: &mut Vec<u8>,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    let done = content(out).and_then(|()| {
        let len = out.len() - start - PREFIX;
        let max = u32::MAX as usize;
        let length =
            u32::try_from(len).map_err(|_| WireError::TooLong { field: "frame", len, max })?;
        if let Some(prefix) = out.get_mut(start..start + PREFIX) {
            prefix.copy_from_slice(&length.to_be_bytes());
        }
        Ok(())
    });
    if done.is_err() {
        out.truncate(start);
    }
    done
}

//! The length prefix: received bytes to a whole frame, or how many more are needed.
//!
//! Owns: the prefix, its limits, and telling a foreign protocol by its first bytes (R83).
//! Never does: allocate, read headers, keep state.
//! Left: [`super::cursor`]. Right: `shard` (requests), `client` (responses).
//!
//! A prefix is judged as soon as its four bytes are there, so nobody waits, or makes room, for a
//! frame that will be refused (R85).

use std::fmt;

/// Bytes of the length prefix.
pub const PREFIX: usize = 4;
/// Bytes of either header behind the prefix: the least a prefix may say.
pub const HEADER: usize = 8;
/// No limit may be set above this: every foreign protocol we can name reads as a length beyond
/// it, so a configured limit can never swallow one.
pub const FRAME_BYTES_CEILING: u32 = 1 << 28;
/// The default of the configured limit.
pub const FRAME_BYTES_DEFAULT: u32 = 64 << 20;

/// A whole frame: the bytes behind the prefix, at least [`HEADER`] of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub content: &'a [u8],
}

impl Frame<'_> {
    /// Bytes the frame takes in the stream, its prefix included.
    pub fn wire_len(&self) -> usize {
        PREFIX + self.content.len()
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scan<'a> {
    Frame(Frame<'a>),
    /// At least this many bytes are missing; of a known prefix, exactly this many.
    NeedMore(usize),
}

/// Whom the peer seems to take us for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    Tls,
    Http,
    Ssh,
    Kafka,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Foreign::Tls => "TLS on a plain port",
            Foreign::Http => "HTTP",
            Foreign::Ssh => "SSH",
            Foreign::Kafka => "the Kafka protocol (ringlog keeps Kafka's files, not its protocol)",
        })
    }
}

/// Why the stream cannot go on: nothing behind such a prefix can be trusted, so close.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {length} bytes; the limit is {max}")]
    TooLong { length: u32, max: u32 },
    #[error("a frame of {length} bytes cannot hold a header of {HEADER}")]
    TooShort { length: u32 },
    #[error("the peer speaks {0}")]
    Foreign(Foreign),
}

/// The next request in `received`. `bytes_max` bounds the length field; exactly it is accepted.
pub fn scan_request(received: &[u8], bytes_max: u32) -> Result<Scan<'_>, FrameError> {
    if looks_like_kafka(received) {
        return Err(FrameError::Foreign(Foreign::Kafka));
    }
    scan(received, bytes_max)
}

/// The next response in `received`.
pub fn scan_response(received: &[u8], bytes_max: u32) -> Result<Scan<'_>, FrameError> {
    scan(received, bytes_max)
}

fn scan(received: &[u8], bytes_max: u32) -> Result<Scan<'_>, FrameError> {
    let Some((&prefix, behind)) = received.split_first_chunk::<PREFIX>() else {
        return Ok(Scan::NeedMore(PREFIX - received.len()));
    };
    let len = judge(prefix, bytes_max)?;
    Ok(match behind.get(..len) {
        Some(content) => Scan::Frame(Frame { content }),
        None => Scan::NeedMore(len - behind.len()),
    })
}

/// What a prefix says, or why it is refused. Bytes behind the prefix as a usize.
pub fn judge(prefix: [u8; PREFIX], bytes_max: u32) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(prefix);
    if length > FRAME_BYTES_CEILING
        && let Some(foreign) = foreign(prefix)
    {
        return Err(FrameError::Foreign(foreign));
    }
    if length > bytes_max.min(FRAME_BYTES_CEILING) {
        return Err(FrameError::TooLong { length, max: bytes_max.min(FRAME_BYTES_CEILING) });
    }
    let len = length as usize;
    if len < HEADER { Err(FrameError::TooShort { length }) } else { Ok(len) }
}

/// The protocol whose stream opens with these bytes. All of them read as more than the ceiling.
fn foreign(prefix: [u8; PREFIX]) -> Option<Foreign> {
    const HTTP: [&[u8; PREFIX]; 11] = [
        b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ",
        b"HTTP",
    ];
    match prefix {
        // A handshake or an alert record of SSL 3.0 up to TLS 1.3.
        [0x16 | 0x15, 0x03, 0..=4, _] => Some(Foreign::Tls),
        [b'S', b'S', b'H', b'-'] => Some(Foreign::Ssh),
        _ => HTTP.contains(&&prefix).then_some(Foreign::Http),
    }
}

/// A Kafka client opens with ApiVersions (18), SaslHandshake (17) or Metadata (3): to us a hello
/// of version 18, 17 or 3 whose body is a client id. Hello has version 0 only.
fn looks_like_kafka(received: &[u8]) -> bool {
    const OPENERS: [u8; 3] = [3, 17, 18];
    // length, key, version, correlation, length of the client id
    let Some((&[l0, l1, l2, l3, key_high, key, 0, 0..=20, _, _, _, _, c0, c1], _)) =
        received.split_first_chunk::<14>()
    else {
        return false;
    };
    let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    let client_id = i16::from_be_bytes([c0, c1]);
    let client_id_fits = match usize::try_from(client_id) {
        Ok(len) => 10 + len <= length,
        Err(_) => client_id == -1 && length >= 10,
    };
    key_high == 0 && OPENERS.contains(&key) && client_id_fits
}

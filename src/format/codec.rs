//! The four codecs of record batches, in the framing that Kafka gives them.
//!
//! Owns decompression in bounded steps and compression into a vector. Nothing is ever allocated
//! because a stream declares a size: a block's buffer is bounded by what its compressed bytes can
//! expand to, zstd's window by `ZSTD_WINDOW_LOG_MAX`, and the output by the caller's `bytes_max`
//! (R88). `validate` and the readers decompress, `builder` compresses.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use zstd::zstd_safe::DCtx;

use super::batch::{Codec, MAGIC_V0, MAGIC_V2};
use super::gzip::GzipReader;
use super::lz4::{self, Lz4Reader};
use super::snappy::{self, SnappyReader};

/// The largest window a zstd frame may ask for: zstd's own limit, which every level stays below.
/// The memory behind it is touched only as far as data is really produced.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// A block buffer that grew beyond this is given back after its batch.
const BLOCK_KEPT_MAX: usize = 1 << 20;

/// Why a compressed payload cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    #[error("compression id {id} is no codec")]
    Unknown { id: u8 },
    #[error("the {} stream is broken or cut short", codec.name())]
    Broken { codec: Codec },
    #[error("decompresses to more than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
}

impl From<CodecError> for io::Error {
    fn from(error: CodecError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Likewise the buffers of a zstd context.
const ZSTD_KEPT_MAX: usize = 16 << 20;

/// Buffers that outlive one batch. One a shard (or a reader) is enough.
#[derive(Default)]
pub struct Workspace {
    block: Vec<u8>,
    zstd: Option<DCtx<'static>>,
}

impl Workspace {
    pub fn new() -> Workspace {
        Workspace::default()
    }
}

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workspace({} bytes)", self.block.capacity())
    }
}

/// A reader over the decompressed bytes of one payload. Fails rather than hand out more than
/// `bytes_max`.
pub struct Decoder<'a> {
    codec: Codec,
    stream: Stream<'a>,
    bytes_max: u64,
    produced: u64,
}

enum Stream<'a> {
    Plain(&'a [u8]),
    Gzip(GzipReader<'a>),
    Snappy(SnappyReader<'a>),
    Lz4(Lz4Reader<'a>),
    Zstd(Box<zstd::stream::read::Decoder<'a, &'a [u8]>>),
}

impl<'a> Decoder<'a> {
    /// For the payload of a record batch.
    pub fn new(
        codec: Codec,
        payload: &'a [u8],
        bytes_max: u64,
        workspace: &'a mut Workspace,
    ) -> Result<Decoder<'a>, CodecError> {
        Decoder::of_magic(MAGIC_V2, codec, payload, bytes_max, workspace)
    }

    /// For the payload of a batch or message of `magic`: the oldest ones have LZ4 frames with a
    /// wrong header checksum (KAFKA-3160), and zstd came with record batches.
    pub fn of_magic(
        magic: i8,
        codec: Codec,
        payload: &'a [u8],
        bytes_max: u64,
        workspace: &'a mut Workspace,
    ) -> Result<Decoder<'a>, CodecError> {
        if workspace.block.capacity() > BLOCK_KEPT_MAX {
            workspace.block = Vec::new();
        }
        let block = &mut workspace.block;
        let stream = match codec {
            Codec::None => Stream::Plain(payload),
            Codec::Gzip => Stream::Gzip(GzipReader::new(payload)),
            Codec::Snappy => Stream::Snappy(SnappyReader::new(payload, block, bytes_max)?),
            Codec::Lz4 => Stream::Lz4(Lz4Reader::new(payload, magic != MAGIC_V0, block)?),
            Codec::Zstd if magic < MAGIC_V2 => return Err(CodecError::Unknown { id: codec.id() }),
            Codec::Zstd => Stream::Zstd(Box::new(open_zstd(payload, &mut workspace.zstd)?)),
        };
        Ok(Decoder { codec, stream, bytes_max, produced: 0 })
    }

    /// Some of the next bytes; 0 only at the end of the payload (or into an empty `out`).
    pub fn read_some(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        let broken = |_| CodecError::Broken { codec: self.codec };
        let len = match &mut self.stream {
            Stream::Plain(rest) => rest.read(out).map_err(broken)?,
            Stream::Gzip(gzip) => gzip.read_some(out)?,
            Stream::Snappy(snappy) => snappy.read_some(out)?,
            Stream::Lz4(lz4) => lz4.read_some(out)?,
            Stream::Zstd(zstd) => zstd.read(out).map_err(broken)?,
        };
        self.produced += len as u64;
        if self.produced > self.bytes_max {
            return Err(CodecError::TooLarge { bytes_max: self.bytes_max });
        }
        Ok(len)
    }
}

impl Read for Decoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_some(out)?)
    }
}

fn open_zstd<'a>(
    payload: &'a [u8],
    context: &'a mut Option<DCtx<'static>>,
) -> Result<zstd::stream::read::Decoder<'a, &'a [u8]>, CodecError> {
    let broken = CodecError::Broken { codec: Codec::Zstd };
    if context.as_ref().is_some_and(|context| context.sizeof() > ZSTD_KEPT_MAX) {
        *context = None;
    }
    if context.is_none() {
        *context = DCtx::try_create();
    }
    // `with_context` resets it: what an abandoned batch left is gone.
    let context = context.as_mut().ok_or(broken)?;
    let mut decoder = zstd::stream::read::Decoder::with_context(payload, context);
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|_| broken)?;
    Ok(decoder)
}

/// Appends all decompressed bytes to `out`, which grows in steps, by what has really been produced.
pub fn decompress(
    codec: Codec,
    payload: &[u8],
    bytes_max: u64,
    workspace: &mut Workspace,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let mut step = [0; 8192];
    let mut decoder = Decoder::new(codec, payload, bytes_max, workspace)?;
    loop {
        let len = decoder.read_some(&mut step)?;
        if len == 0 {
            return Ok(());
        }
        out.extend_from_slice(step.get(..len).unwrap_or_default());
    }
}

/// Appends `bytes`, compressed, to `out`. `level` is the codec's own scale, None its usual level;
/// snappy has none, and lz4 knows only the fast one here.
pub fn compress(
    codec: Codec,
    level: Option<i32>,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    match codec {
        Codec::None => out.extend_from_slice(bytes),
        Codec::Gzip => {
            let level = level.and_then(|level| u32::try_from(level).ok());
            let level = level.map_or(Compression::default(), |l| Compression::new(l.min(9)));
            let mut encoder = GzEncoder::new(out, level);
            encoder.write_all(bytes)?;
            encoder.finish()?;
        }
        Codec::Snappy => snappy::compress(bytes, out)?,
        Codec::Lz4 => lz4::compress(bytes, out)?,
        Codec::Zstd => {
            let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
            let mut encoder = zstd::stream::write::Encoder::new(out, level)?;
            encoder.write_all(bytes)?;
            encoder.finish()?;
        }
    }
    Ok(())
}

//! Snappy as Kafka's clients write it: xerial's blocks, or one raw block.
//!
//! Owns that framing alone; it is not the official snappy framing. `codec` stands left, `snap` does
//! the compression itself.

use std::io::{self, Read};

use super::batch::Codec;
use super::codec::CodecError;

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const VERSION: i32 = 1;
const HEADER_LEN: usize = 16;
/// Uncompressed bytes a block when writing.
const BLOCK_LEN: usize = 32 * 1024;
/// Raw snappy's densest element makes 64 bytes of 3.
const EXPANSION_MAX: u64 = 22;

const BROKEN: CodecError = CodecError::Broken { codec: Codec::Snappy };

pub(super) struct SnappyReader<'a> {
    rest: &'a [u8],
    /// Without xerial's header the whole payload is one block.
    raw: bool,
    block: &'a mut Vec<u8>,
    /// The part of `block` that is not handed out yet.
    begin: usize,
    end: usize,
    bytes_max: u64,
}

impl<'a> SnappyReader<'a> {
    pub(super) fn new(
        payload: &'a [u8],
        block: &'a mut Vec<u8>,
        bytes_max: u64,
    ) -> Result<SnappyReader<'a>, CodecError> {
        if payload.is_empty() {
            return Err(BROKEN);
        }
        let raw = payload.len() < HEADER_LEN || !payload.starts_with(&MAGIC);
        Ok(SnappyReader { rest: payload, raw, block, begin: 0, end: 0, bytes_max })
    }

    pub(super) fn read_some(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        while self.begin == self.end {
            match self.next_block()? {
                Some(compressed) => self.inflate(compressed)?,
                None => return Ok(0),
            }
        }
        let mut ready = self.block.get(self.begin..self.end).unwrap_or_default();
        let len = ready.read(out).map_err(|_| BROKEN)?;
        self.begin += len;
        Ok(len)
    }

    /// The next compressed block. Headers may stand between blocks, where streams were joined.
    fn next_block(&mut self) -> Result<Option<&'a [u8]>, CodecError> {
        if self.raw {
            let all = std::mem::take(&mut self.rest);
            return Ok((!all.is_empty()).then_some(all));
        }
        while self.rest.starts_with(&MAGIC) {
            let (header, rest) = self.rest.split_first_chunk::<HEADER_LEN>().ok_or(BROKEN)?;
            let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *header;
            if i32::from_be_bytes([a, b, c, d]) < VERSION {
                return Err(BROKEN);
            }
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (len, rest) = self.rest.split_first_chunk::<4>().ok_or(BROKEN)?;
        let len = usize::try_from(i32::from_be_bytes(*len)).map_err(|_| BROKEN)?;
        let (block, rest) = rest.split_at_checked(len).ok_or(BROKEN)?;
        self.rest = rest;
        Ok(Some(block))
    }

    /// The declared size is believed only as far as the compressed bytes can expand to it.
    fn inflate(&mut self, compressed: &[u8]) -> Result<(), CodecError> {
        let declared = snap::raw::decompress_len(compressed).map_err(|_| BROKEN)?;
        if declared as u64 > self.bytes_max {
            return Err(CodecError::TooLarge { bytes_max: self.bytes_max });
        }
        if declared as u64 > compressed.len() as u64 * EXPANSION_MAX {
            return Err(BROKEN);
        }
        if self.block.len() < declared {
            self.block.resize(declared, 0);
        }
        let room = self.block.get_mut(..declared).unwrap_or_default();
        self.begin = 0;
        self.end = snap::raw::Decoder::new().decompress(compressed, room).map_err(|_| BROKEN)?;
        Ok(())
    }
}

pub(super) fn compress(bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in bytes.chunks(BLOCK_LEN) {
        let at = out.len();
        out.resize(at + 4 + snap::raw::max_compress_len(block.len()), 0);
        let room = out.get_mut(at + 4..).unwrap_or_default();
        let len = encoder.compress(block, room).map_err(io::Error::other)?;
        out.truncate(at + 4 + len);
        if let Some(prefix) = out.get_mut(at..).and_then(|tail| tail.first_chunk_mut()) {
            *prefix = (len as u32).to_be_bytes();
        }
    }
    Ok(())
}

//! LZ4 frames as Kafka reads and writes them: independent blocks only, the header checksum must be
//! right (but in the oldest messages, where brokers and clients agreed on a wrong one).
//!
//! Owns that subset of the frame format; `lz4_flex` does the blocks themselves. Not its frame
//! reader: that one takes linked blocks, and takes a frame cut at a block's end for a whole one.
//! `codec` stands left.

use std::io::{self, Read};

use twox_hash::XxHash32;

use super::batch::Codec;
use super::codec::CodecError;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// What the writer's frames begin with: version 1, independent blocks of 64 KiB, no checksums.
const HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const BLOCK_LEN: usize = 64 * 1024;
const END_MARK: [u8; 4] = [0; 4];
/// In a block's size field: the block is stored, not compressed.
const STORED_BIT: u32 = 1 << 31;
/// No block of LZ4 makes more than 255 bytes of one.
const EXPANSION_MAX: usize = 255;

const VERSION_MASK: u8 = 0b1100_0000;
const VERSION_1: u8 = 0b0100_0000;
const INDEPENDENT: u8 = 0b0010_0000;
const BLOCK_CHECKSUM: u8 = 0b0001_0000;
const CONTENT_SIZE: u8 = 0b0000_1000;
const CONTENT_CHECKSUM: u8 = 0b0000_0100;
const RESERVED_OR_DICTIONARY: u8 = 0b0000_0011;

const BROKEN: CodecError = CodecError::Broken { codec: Codec::Lz4 };

pub(super) struct Lz4Reader<'a> {
    rest: &'a [u8],
    block_len_max: usize,
    block_checksum: bool,
    content_checksum: bool,
    finished: bool,
    block: &'a mut Vec<u8>,
    /// What is not handed out yet: a part of `block`, or of a stored block in place.
    ready: Ready<'a>,
}

enum Ready<'a> {
    Inflated { begin: usize, end: usize },
    Stored(&'a [u8]),
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], CodecError> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(BROKEN)?;
    *rest = tail;
    Ok(*head)
}

impl<'a> Lz4Reader<'a> {
    /// `check_header`: the header's checksum must be right. In messages of magic 0 it never is.
    pub(super) fn new(
        payload: &'a [u8],
        check_header: bool,
        block: &'a mut Vec<u8>,
    ) -> Result<Self, CodecError> {
        let mut rest = payload;
        if take::<4>(&mut rest)? != MAGIC {
            return Err(BROKEN);
        }
        let descriptor = rest;
        let [flags, sizes] = take::<2>(&mut rest)?;
        let legal = flags & VERSION_MASK == VERSION_1
            && flags & INDEPENDENT != 0
            && flags & RESERVED_OR_DICTIONARY == 0
            && sizes & 0b1000_1111 == 0;
        let block_len_max = match sizes >> 4 {
            id @ 4..=7 if legal => 1usize << (8 + 2 * id),
            _ => return Err(BROKEN),
        };
        let mut described = 2;
        if flags & CONTENT_SIZE != 0 {
            take::<8>(&mut rest)?; // a promise that nothing here relies on
            described += 8;
        }
        let hash = XxHash32::oneshot(0, descriptor.get(..described).ok_or(BROKEN)?);
        let [checksum] = take::<1>(&mut rest)?;
        if check_header && checksum != (hash >> 8) as u8 {
            return Err(BROKEN);
        }
        Ok(Lz4Reader {
            rest,
            block_len_max,
            block_checksum: flags & BLOCK_CHECKSUM != 0,
            content_checksum: flags & CONTENT_CHECKSUM != 0,
            finished: false,
            block,
            ready: Ready::Stored(&[]),
        })
    }

    pub(super) fn read_some(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        loop {
            let mut ready = match &self.ready {
                Ready::Inflated { begin, end } => self.block.get(*begin..*end).unwrap_or_default(),
                Ready::Stored(bytes) => bytes,
            };
            if !ready.is_empty() {
                let len = ready.read(out).map_err(|_| BROKEN)?;
                self.consume(len);
                return Ok(len);
            }
            if self.finished {
                return Ok(0);
            }
            self.next_block()?;
        }
    }

    fn consume(&mut self, len: usize) {
        match &mut self.ready {
            Ready::Inflated { begin, .. } => *begin += len,
            Ready::Stored(bytes) => *bytes = bytes.get(len..).unwrap_or_default(),
        }
    }

    /// Bytes behind the end mark are not looked at, as in Kafka.
    fn next_block(&mut self) -> Result<(), CodecError> {
        let size = u32::from_le_bytes(take::<4>(&mut self.rest)?);
        if size == 0 {
            if self.content_checksum {
                // Taken, not checked, as in Kafka: the batch has its own CRC.
                take::<4>(&mut self.rest)?;
            }
            self.finished = true;
            return Ok(());
        }
        let len = (size & !STORED_BIT) as usize;
        if len > self.block_len_max {
            return Err(BROKEN);
        }
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(BROKEN)?;
        self.rest = rest;
        if self.block_checksum {
            let checksum = u32::from_le_bytes(take::<4>(&mut self.rest)?);
            if checksum != XxHash32::oneshot(0, bytes) {
                return Err(BROKEN);
            }
        }
        self.ready =
            if size & STORED_BIT != 0 { Ready::Stored(bytes) } else { self.inflate(bytes)? };
        Ok(())
    }

    fn inflate(&mut self, bytes: &[u8]) -> Result<Ready<'a>, CodecError> {
        let room = self.block_len_max.min(bytes.len().saturating_mul(EXPANSION_MAX));
        if self.block.len() < room {
            self.block.resize(room, 0);
        }
        let room = self.block.get_mut(..room).unwrap_or_default();
        let end = lz4_flex::block::decompress_into(bytes, room).map_err(|_| BROKEN)?;
        Ok(Ready::Inflated { begin: 0, end })
    }
}

pub(super) fn compress(bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&HEADER);
    for block in bytes.chunks(BLOCK_LEN) {
        let at = out.len();
        out.resize(at + 4 + lz4_flex::block::get_maximum_output_size(block.len()), 0);
        let room = out.get_mut(at + 4..).unwrap_or_default();
        let len = lz4_flex::block::compress_into(block, room).map_err(io::Error::other)?;
        let size = if len < block.len() {
            out.truncate(at + 4 + len);
            len as u32
        } else {
            out.truncate(at + 4);
            out.extend_from_slice(block);
            block.len() as u32 | STORED_BIT
        };
        if let Some(prefix) = out.get_mut(at..).and_then(|tail| tail.first_chunk_mut()) {
            *prefix = size.to_le_bytes();
        }
    }
    out.extend_from_slice(&END_MARK);
    Ok(())
}

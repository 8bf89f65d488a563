//! What may stand in a `.log`: record batches, and the messages of magic 0 and 1 that brokers wrote
//! before there were any. Also both in one file.
//!
//! Owns the choice by magic: parsing, checksum, scan. The older formats are read through this door
//! only; `batch` alone judges what clients send and what is appended. `log`, `dump` and the client
//! stand right, `batch` and `legacy` left.

use super::batch::{
    self, ATTRIBUTES, BatchError, BatchHeader, LEGACY_LENGTH_MIN, MAGIC_V0, MAGIC_V1,
};
use super::checksum::{Crc32c, crc32c};
use super::legacy;

/// No batch or message is shorter.
pub const STORED_LEN_MIN: usize = legacy::HEADER_LEN_MIN;

/// Reads the header at the start of `bytes`, whatever its magic. 61 bytes are enough for any; near
/// the end of a file fewer may do.
#[inline]
pub fn parse_header(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    match batch::parse_header(bytes) {
        Err(BatchError::Legacy { .. }) => parse_message(bytes),
        parsed => parsed,
    }
}

#[cold]
fn parse_message(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    match batch::parse_prefix(bytes)? {
        (length, _) if length < LEGACY_LENGTH_MIN => {
            Err(BatchError::Length { batch_length: length })
        }
        (length, magic @ (MAGIC_V0 | MAGIC_V1)) => legacy::parse_header(bytes, length, magic),
        (_, magic) => Err(BatchError::Magic { magic }),
    }
}

/// The checksum of one whole batch or message.
pub(super) fn checksum_of(bytes: &[u8], header: &BatchHeader) -> u32 {
    match header.is_legacy() {
        true => legacy::checksum(bytes),
        false => crc32c(bytes.get(ATTRIBUTES..).unwrap_or_default()),
    }
}

/// The checksum of a batch or message that comes piece by piece.
#[derive(Debug)]
pub enum Checksum {
    Batch(Crc32c),
    Message(Box<flate2::Crc>),
}

impl Checksum {
    pub fn new(header: &BatchHeader) -> Checksum {
        match header.is_legacy() {
            true => Checksum::Message(Box::default()),
            false => Checksum::Batch(Crc32c::new()),
        }
    }

    /// The first byte that it covers, counted from the batch's first.
    pub fn from(header: &BatchHeader) -> usize {
        if header.is_legacy() { legacy::CRC_FROM } else { ATTRIBUTES }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Checksum::Batch(crc) => crc.update(bytes),
            Checksum::Message(crc) => crc.update(bytes),
        }
    }

    pub fn value(&self) -> u32 {
        match self {
            Checksum::Batch(crc) => crc.value(),
            Checksum::Message(crc) => crc.sum(),
        }
    }
}

/// Parses what stands at the start of `bytes`, and checks that all of it is there and its checksum
/// holds.
pub fn verify(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = parse_header(bytes)?;
    let computed = checksum_of(batch::whole(bytes, &header)?, &header);
    if computed != header.crc {
        return Err(BatchError::Crc { stored: header.crc, computed });
    }
    Ok(header)
}

/// Begins a scan over batches and messages of any magic.
pub fn scan(bytes: &[u8]) -> batch::Scan<'_> {
    batch::scan_with(bytes, parse_header)
}

/// Whether a header found where nobody knows what begins is worth a look at its checksum: its
/// numbers are possible, and it has no bit or length that nothing writes.
pub fn plausible(bytes: &[u8], header: &BatchHeader) -> bool {
    let bits_known = match header.is_legacy() {
        true => legacy::plausible(bytes, header),
        false => header.attributes.0 & !batch::KNOWN_BITS == 0,
    };
    bits_known && header.codec().is_some() && batch::counts_possible(header)
}

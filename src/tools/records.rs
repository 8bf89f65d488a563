//! The records of one batch or message, one at a time.
//!
//! Owns: the bound of what one batch may decompress to. Never does: print.
//! Left: `format::unpack`, `walk`. Right: `verify`, `lookup`, the CLI's dump.

use super::walk::Batch;
use crate::format::batch::BatchHeader;
use crate::format::unpack::{UnpackError, Unpacked, Unpacker};

/// What one batch may decompress to before its records are given up (R88). Only one record of it
/// is held at a time.
const DECOMPRESSED_BYTES_MAX: u64 = 256 << 20;

/// Buffers that outlive one batch.
#[derive(Debug)]
pub struct RecordReader(Unpacker);

impl Default for RecordReader {
    fn default() -> RecordReader {
        RecordReader(Unpacker::new(DECOMPRESSED_BYTES_MAX))
    }
}

impl RecordReader {
    /// Shows each record of a batch; says where they end too soon.
    pub fn each(
        &mut self,
        batch: &Batch<'_>,
        show: &mut dyn FnMut(&Unpacked<'_>),
    ) -> Result<(), UnpackError> {
        self.each_as(&batch.header, batch.bytes, show)
    }

    /// The same under another header, which says how times are to be read.
    pub fn each_as(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        show: &mut dyn FnMut(&Unpacked<'_>),
    ) -> Result<(), UnpackError> {
        let mut records = self.0.open_bytes(bytes, header)?;
        while let Some(unpacked) = records.next() {
            show(&unpacked?);
        }
        Ok(())
    }
}

//! Gzip as Java reads it: members one after the other, each with its checksum and length; what
//! follows the last one is not looked at.
//!
//! Owns where a member ends and whether another begins; `flate2` does the members themselves. Not
//! its reader of several: that one fails on bytes behind them, which Kafka reads over. `codec`
//! stands left.

use std::io::Read;

use flate2::bufread::GzDecoder;

use super::batch::Codec;
use super::codec::CodecError;

/// What a member begins with: the magic, and deflate as its method.
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

const BROKEN: CodecError = CodecError::Broken { codec: Codec::Gzip };

pub(super) struct GzipReader<'a> {
    /// None behind the last member.
    member: Option<Box<GzDecoder<&'a [u8]>>>,
}

impl<'a> GzipReader<'a> {
    pub(super) fn new(payload: &'a [u8]) -> GzipReader<'a> {
        GzipReader { member: Some(Box::new(GzDecoder::new(payload))) }
    }

    pub(super) fn read_some(&mut self, out: &mut [u8]) -> Result<usize, CodecError> {
        while let Some(member) = &mut self.member {
            let len = member.read(out).map_err(|_| BROKEN)?;
            if len > 0 || out.is_empty() {
                return Ok(len);
            }
            // Its trailer was read, and is right.
            let rest: &'a [u8] = member.get_ref();
            self.member = rest.starts_with(&MAGIC).then(|| Box::new(GzDecoder::new(rest)));
        }
        Ok(0)
    }
}

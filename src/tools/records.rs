//! The records of one batch, decompressed through a bounded window.
//!
//! Owns: the window, which grows to the largest record and not to the batch. Never does: print.
//! Left: `format::codec`, `format::record`. Right: the CLI's dump, `lookup`.

use crate::format::batch::BatchHeader;
use crate::format::codec::{CodecError, Decoder, Workspace};
use crate::format::record::{self, Record, RecordError, RecordFault};
use crate::format::varint::{self, VarintError};

/// What one batch may decompress to before its records are given up (R88): more than any client
/// can put in one.
const DECOMPRESSED_BYTES_MAX: u64 = 2 << 30;
/// A record that is longer is given up, and the rest of its batch with it.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// Bytes decompressed at once.
const STEP_BYTES: usize = 64 << 10;
/// A window that grew beyond this is given back behind its batch.
const KEPT_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordsError {
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("record {index}: {len} bytes, more than the {RECORD_BYTES_MAX} that are read of one")]
    TooLong { index: i32, len: usize },
}

/// Buffers that outlive one batch.
#[derive(Debug, Default)]
pub struct RecordReader {
    workspace: Workspace,
    window: Vec<u8>,
    step: Vec<u8>,
}

impl RecordReader {
    /// Shows each record of the batch that `header` heads; says where they end too soon.
    pub fn each(
        &mut self,
        header: &BatchHeader,
        payload: &[u8],
        show: &mut dyn FnMut(&Record<'_>),
    ) -> Result<(), RecordsError> {
        let id = header.attributes.codec_id();
        let codec = header.codec().ok_or(CodecError::Unknown { id })?;
        self.window.clear();
        self.window.shrink_to(KEPT_BYTES);
        self.step.resize(STEP_BYTES, 0);
        let RecordReader { workspace, window, step } = self;
        let decoder = Decoder::new(codec, payload, DECOMPRESSED_BYTES_MAX, workspace)?;
        Stream { decoder, window, used: 0, step }.each(header, show)
    }
}

struct Stream<'a> {
    decoder: Decoder<'a>,
    window: &'a mut Vec<u8>,
    /// Bytes of the window that are dealt with.
    used: usize,
    step: &'a mut Vec<u8>,
}

impl Stream<'_> {
    fn each(
        mut self,
        header: &BatchHeader,
        show: &mut dyn FnMut(&Record<'_>),
    ) -> Result<(), RecordsError> {
        let count = header.records_count;
        if count < 0 {
            return Err(RecordError { index: 0, fault: RecordFault::Count { count } }.into());
        }
        let one = BatchHeader { records_count: 1, ..*header };
        for index in 0..count {
            let len = self.have_record(index)?;
            let end = self.used + len;
            let bytes = self.window.get(self.used..end).unwrap_or_default();
            let read = record::records(bytes, &one).next();
            let at = |fault| RecordError { index, fault };
            let read = read.ok_or(at(RecordFault::Truncated))?;
            show(&read.map_err(|error| at(error.fault))?);
            self.used = end;
        }
        if self.used < self.window.len() || self.fill()? {
            return Err(RecordError { index: count, fault: RecordFault::LeftOver }.into());
        }
        Ok(())
    }

    /// Brings the next record into the window; its length, with that of its length field.
    fn have_record(&mut self, index: i32) -> Result<usize, RecordsError> {
        let at = |fault| RecordError { index, fault };
        let len = loop {
            match varint::decode_i32(self.window.get(self.used..).unwrap_or_default()) {
                Ok((length, prefix)) => {
                    let body = usize::try_from(length);
                    break prefix + body.map_err(|_| at(RecordFault::Length { length }))?;
                }
                Err(VarintError::Truncated) if self.fill()? => {}
                Err(error) => return Err(at(error.into()).into()),
            }
        };
        if len > RECORD_BYTES_MAX {
            return Err(RecordsError::TooLong { index, len });
        }
        while self.window.len() - self.used < len {
            if !self.fill()? {
                return Err(at(RecordFault::Truncated).into());
            }
        }
        Ok(len)
    }

    /// False at the end of the stream.
    fn fill(&mut self) -> Result<bool, CodecError> {
        if self.used > 0 {
            self.window.drain(..self.used);
            self.used = 0;
        }
        let len = self.decoder.read_some(self.step)?;
        self.window.extend_from_slice(self.step.get(..len).unwrap_or_default());
        Ok(len > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::{self, Codec, HEADER_LEN};
    use crate::format::builder::BatchBuilder;
    use proptest::prelude::*;

    proptest! {
        /// The streaming reader and the one that has everything in memory agree, on sound batches
        /// and on cut ones.
        #[test]
        fn reads_what_its_whole_twin_reads(
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100_000), 0..5),
            codec in prop::sample::select(&Codec::ALL[..]), cut in any::<prop::sample::Index>(),
        ) {
            let mut builder = BatchBuilder::new();
            for value in &values {
                builder.append(None, Some(value), &[], 5);
            }
            let made = builder.finish(codec, None).expect("made").to_vec();
            let header = batch::verify(&made).expect("sound");
            let mut seen = Vec::new();
            let mut reader = RecordReader::default();
            let whole = reader.each(&header, &made[HEADER_LEN..], &mut |record| {
                seen.push(record.value.map(<[u8]>::to_vec));
            });
            prop_assert_eq!(whole, Ok(()));
            let wanted: Vec<_> = values.iter().map(|value| Some(value.clone())).collect();
            prop_assert_eq!(seen, wanted);
            let cut = HEADER_LEN + cut.index(made.len() - HEADER_LEN + 1);
            let mut count = 0;
            let short = reader.each(&header, &made[HEADER_LEN..cut], &mut |_| count += 1);
            prop_assert!(cut == made.len() || short.is_err() || count == values.len());
        }
    }
}

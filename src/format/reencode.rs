//! A batch as its topic stores it, where `compression.type` is another codec than the producer's.
//!
//! Owns: what is kept of such a batch and what is made anew (Kafka's rules). Never assigns offsets,
//! and knows no topic: `validate` checks first, the caller says codec and level. Left: `validate`,
//! `record`, `codec`, `builder`. Right: the shard's produce, off its fast path.
//!
//! Kept: the producer's id, epoch and sequence, the transactional bit, every record with its time.
//! Anew: codec, offset deltas 0, 1, 2.., base timestamp (the first record's), maximum timestamp.

use super::batch::{self, Attributes, Codec, RECORDS, TimestampType};
use super::builder::{BatchBuilder, NewHeader};
use super::codec;
use super::record::{self, RecordError, RecordFault};
use super::validate::{Checked, Depth, Limits, Refused, Scratch, check_produce};

/// Buffers that grew beyond this are given back after their batch.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The codec that a topic's batches are stored in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    pub codec: Codec,
    /// On the codec's own scale; None for its usual one.
    pub level: Option<i32>,
}

/// Whether a batch of a produce request came in another codec. Of a batch in the right one only
/// the level may differ, and that is no reason to touch it.
pub fn differs(batches: &[u8], target: Target) -> bool {
    batch::scan(batches).any(|found| found.header.codec() != Some(target.codec))
}

/// Buffers of the work, made once a shard.
#[derive(Debug, Default)]
pub struct Reencoder {
    sent: Vec<u8>,
    plain: Vec<u8>,
    builder: BatchBuilder,
}

impl Reencoder {
    /// Checks one batch as `check_produce` does and appends it to `out` as it is to be stored. Both
    /// sizes are held against `max.message.bytes`, the sent one before anything is decompressed
    /// (R35). On an error `out` is as it was.
    pub fn reencode(
        &mut self,
        sent: &[u8],
        target: Target,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Checked, Refused> {
        self.sent.clear();
        self.sent.extend_from_slice(sent);
        // Every record is read below anyway: then all of them are checked.
        let limits = Limits { depth: Depth::Deep, ..*limits };
        let checked = check_produce(&mut self.sent, &limits, scratch)?;
        if checked.header.codec() == Some(target.codec) {
            out.extend_from_slice(&self.sent);
            return Ok(checked);
        }
        let done = self.rebuild(&checked, target, &limits, scratch, out);
        self.give_back();
        done
    }

    fn rebuild(
        &mut self,
        checked: &Checked,
        target: Target,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Checked, Refused> {
        let header = &checked.header;
        let codec = header.codec().unwrap_or(Codec::None);
        let payload = self.sent.get(RECORDS..).unwrap_or_default();
        self.plain.clear();
        let bytes_max = limits.decompressed_bytes_max;
        codec::decompress(codec, payload, bytes_max, &mut scratch.workspace, &mut self.plain)
            .map_err(Refused::Codec)?;
        self.builder.reset();
        self.builder.producer(header.producer_id, header.producer_epoch, header.base_sequence);
        // Bits without a meaning go, as wherever Kafka writes the attributes anew.
        let kept = Attributes(0).with_transactional(header.is_transactional());
        self.builder.attributes(kept);
        // Append time may stand in the header by now; the deltas are still the producer's.
        let attributes = header.attributes.with_timestamp_type(TimestampType::CreateTime);
        let as_sent = batch::BatchHeader { attributes, ..*header };
        copy_records(&self.plain, &as_sent, &mut self.builder)?;
        let built = self.builder.finish(target.codec, target.level);
        let built = built.map_err(|_| Refused::Compress { codec: target.codec })?;
        let (len, max) = (built.len(), limits.message_bytes_max);
        if len > max {
            return Err(Refused::StoredTooLarge { codec: target.codec, len, max });
        }
        let at = out.len();
        out.extend_from_slice(built);
        let stored = out.get_mut(at..).unwrap_or_default();
        if header.timestamp_type() == TimestampType::LogAppendTime {
            batch::set_max_timestamp(stored, TimestampType::LogAppendTime, header.max_timestamp)
                .map_err(Refused::Corrupt)?;
        }
        let header = batch::parse_header(stored).map_err(Refused::Corrupt)?;
        Ok(Checked { header, rewritten: true, ..*checked })
    }

    fn give_back(&mut self) {
        if self.plain.capacity() > KEPT_BYTES_MAX {
            self.plain = Vec::new();
        }
        if self.sent.capacity() > KEPT_BYTES_MAX {
            self.sent = Vec::new();
        }
        if self.builder.capacity() > KEPT_BYTES_MAX {
            self.builder = BatchBuilder::new();
        }
    }
}

fn copy_records(
    plain: &[u8],
    header: &batch::BatchHeader,
    builder: &mut BatchBuilder,
) -> Result<(), Refused> {
    let mut headers: Vec<NewHeader<'_>> = Vec::new();
    for record in record::records(plain, header) {
        let record = record.map_err(Refused::Record)?;
        headers.clear();
        headers.extend(record.headers.map(|header| (header.key, header.value)));
        builder.append(record.key, record.value, &headers, record.timestamp);
    }
    let (want, got) = (header.records_count, builder.records_count());
    if want != got {
        let fault = RecordFault::Count { count: want };
        return Err(Refused::Record(RecordError { index: got, fault }));
    }
    Ok(())
}

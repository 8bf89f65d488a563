//! Makes record batches: what the client, the load generator and the tests send.
//!
//! Owns the encoding side of `record` and `batch`. Never assigns a broker's fields: base offset 0
//! and leader epoch -1, as a producer sends them, unless a test says otherwise.

use std::io;

use super::batch::{
    self, Attributes, BatchHeader, Codec, HEADER_LEN, LENGTH_PREFIX, NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP,
};
use super::codec;
use super::varint;

/// A record's fields beside its key and value, at their longest.
const RECORD_OVERHEAD_MAX: usize = 21;

/// A header to be written: key, and value or null.
pub type NewHeader<'a> = (&'a [u8], Option<&'a [u8]>);

/// Collects records and turns them into one batch. Uncompressed batches are made in one pass over
/// one buffer; `reset` keeps the buffers.
#[derive(Debug)]
pub struct BatchBuilder {
    /// Header and records, uncompressed.
    plain: Vec<u8>,
    /// Header and compressed stream.
    packed: Vec<u8>,
    header: BatchHeader,
}

impl Default for BatchBuilder {
    fn default() -> BatchBuilder {
        BatchBuilder::new()
    }
}

const EMPTY: BatchHeader = BatchHeader {
    magic: batch::MAGIC_V2,
    base_offset: 0,
    batch_length: batch::BATCH_LENGTH_MIN,
    leader_epoch: NO_LEADER_EPOCH,
    crc: 0,
    attributes: Attributes(0),
    last_offset_delta: 0,
    base_timestamp: NO_TIMESTAMP,
    max_timestamp: NO_TIMESTAMP,
    producer_id: NO_PRODUCER_ID,
    producer_epoch: NO_PRODUCER_EPOCH,
    base_sequence: NO_SEQUENCE,
    records_count: 0,
};

impl BatchBuilder {
    pub fn new() -> BatchBuilder {
        BatchBuilder { plain: vec![0; HEADER_LEN], packed: Vec::new(), header: EMPTY }
    }

    /// Forgets the records, and what `producer` and `attributes` set; keeps the memory.
    pub fn reset(&mut self) {
        self.plain.truncate(HEADER_LEN);
        self.packed.clear();
        self.header = EMPTY;
    }

    /// Marks the batch as one of an idempotent producer.
    pub fn producer(&mut self, producer_id: i64, producer_epoch: i16, base_sequence: i32) {
        self.header.producer_id = producer_id;
        self.header.producer_epoch = producer_epoch;
        self.header.base_sequence = base_sequence;
    }

    /// Sets attribute bits other than the codec, which `finish` sets.
    pub fn attributes(&mut self, attributes: Attributes) {
        self.header.attributes = attributes;
    }

    pub fn records_count(&self) -> i32 {
        self.header.records_count
    }

    pub fn is_empty(&self) -> bool {
        self.header.records_count == 0
    }

    /// Bytes of memory that `reset` keeps.
    pub fn capacity(&self) -> usize {
        self.plain.capacity() + self.packed.capacity()
    }

    /// What the batch takes if it is not compressed.
    pub fn plain_len(&self) -> usize {
        self.plain.len()
    }

    /// At least as much as `plain_len` grows by with this record.
    pub fn record_len_max(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[NewHeader<'_>],
    ) -> usize {
        let field = |bytes: Option<&[u8]>| varint::VARINT_LEN_MAX + bytes.map_or(0, <[u8]>::len);
        let headers: usize =
            headers.iter().map(|(key, value)| field(Some(key)) + field(*value)).sum();
        RECORD_OVERHEAD_MAX + varint::VARINT_LEN_MAX + field(key) + field(value) + headers
    }

    /// Adds a record. The caller ends the batch before its bytes or records exceed what i32 counts.
    pub fn append(
        &mut self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[NewHeader<'_>],
        timestamp: i64,
    ) {
        let offset_delta = self.header.records_count;
        if offset_delta == 0 {
            self.header.base_timestamp = timestamp;
        }
        let timestamp_delta = timestamp.wrapping_sub(self.header.base_timestamp);
        let length = 1
            + varint::len_i64(timestamp_delta)
            + varint::len_i32(offset_delta)
            + field_len(key)
            + field_len(value)
            + varint::len_i32(headers.len() as i32)
            + headers
                .iter()
                .map(|(key, value)| field_len(Some(key)) + field_len(*value))
                .sum::<usize>();
        let out = &mut self.plain;
        out.reserve(varint::VARINT_LEN_MAX + length);
        varint::encode_i32(length as i32, out);
        out.push(0); // attributes of a record: none is defined
        varint::encode_i64(timestamp_delta, out);
        varint::encode_i32(offset_delta, out);
        put_field(key, out);
        put_field(value, out);
        varint::encode_i32(headers.len() as i32, out);
        for (key, value) in headers {
            put_field(Some(key), out);
            put_field(*value, out);
        }
        self.header.max_timestamp = self.header.max_timestamp.max(timestamp);
        self.header.last_offset_delta = offset_delta;
        self.header.records_count = offset_delta + 1;
    }

    /// The batch, ready to send. More records may follow, and another `finish`.
    pub fn finish(&mut self, codec: Codec, level: Option<i32>) -> io::Result<&[u8]> {
        let bytes = match codec {
            Codec::None => &mut self.plain,
            _ => {
                self.packed.clear();
                self.packed.resize(HEADER_LEN, 0);
                let records = self.plain.get(HEADER_LEN..).unwrap_or_default();
                codec::compress(codec, level, records, &mut self.packed)?;
                &mut self.packed
            }
        };
        let batch_length = i32::try_from(bytes.len() - LENGTH_PREFIX).map_err(io::Error::other)?;
        let attributes = self.header.attributes.with_codec(codec);
        let header = BatchHeader { batch_length, attributes, ..self.header };
        batch::write_header(bytes, &header).map_err(io::Error::other)?;
        batch::reseal(bytes).map_err(io::Error::other)?;
        Ok(bytes)
    }
}

fn field_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint::len_i32(bytes.len() as i32) + bytes.len())
}

#[inline]
fn put_field(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        None => varint::encode_i32(-1, out),
        Some(bytes) => {
            varint::encode_i32(bytes.len() as i32, out);
            out.extend_from_slice(bytes);
        }
    }
}

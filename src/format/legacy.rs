//! Messages of magic 0 and 1, the formats before record batches: layout, parsing, checksum.
//!
//! Owns the bytes of one message, and the reading of it into the header that all formats share.
//! Never writes one, never decompresses (`unpack` does). `stored` stands left: it opens this door.
//!
//! ```text
//! offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | timestamp i64 (magic 1 only)
//!            | key length i32, key | value length i32, value        a length of -1 is null
//! ```

use super::batch::{
    Attributes, BatchError, BatchHeader, Codec, LENGTH_PREFIX, MAGIC, MAGIC_V0, MAGIC_V1,
    NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP,
};

/// Size fields of the shortest messages: no key, no value.
const LENGTH_MIN_V0: i32 = 14;
const LENGTH_MIN_V1: i32 = 22;
/// Where key and value begin.
const BODY_V0: usize = 18;
const BODY_V1: usize = 26;
/// What is needed to read any message's header, and the length of the shortest message.
pub(super) const HEADER_LEN_MIN: usize = LENGTH_PREFIX + LENGTH_MIN_V0 as usize;
/// The checksum covers everything from here on.
pub(super) const CRC_FROM: usize = MAGIC;

/// Bits 0 to 2: the codec. Bit 3, of magic 1: append time. The others have no meaning, and must not
/// get that of a record batch.
const ATTRIBUTES_V0: u8 = 0b0111;
const ATTRIBUTES_V1: u8 = 0b1111;

const _: () = assert!(HEADER_LEN_MIN == 26 && HEADER_LEN_MIN >= BODY_V1);

/// The header of a message of `magic`, whose prefix said `length`.
pub(super) fn parse_header(
    bytes: &[u8],
    length: i32,
    magic: i8,
) -> Result<BatchHeader, BatchError> {
    let (length_min, mask) = match magic {
        MAGIC_V0 => (LENGTH_MIN_V0, ATTRIBUTES_V0),
        _ => (LENGTH_MIN_V1, ATTRIBUTES_V1),
    };
    if length < length_min {
        return Err(BatchError::Length { batch_length: length });
    }
    let need_more = BatchError::NeedMore { have: bytes.len(), need: HEADER_LEN_MIN };
    let head: &[u8; HEADER_LEN_MIN] = bytes.first_chunk().ok_or(need_more)?;
    let [o0, o1, o2, o3, o4, o5, o6, o7, _, _, _, _, c0, c1, c2, c3, _, bits, times @ ..] = *head;
    let timestamp = if magic == MAGIC_V1 { i64::from_be_bytes(times) } else { NO_TIMESTAMP };
    let attributes = Attributes(i16::from(bits & mask));
    Ok(BatchHeader {
        magic,
        base_offset: i64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
        batch_length: length,
        leader_epoch: NO_LEADER_EPOCH,
        crc: u32::from_be_bytes([c0, c1, c2, c3]),
        attributes,
        last_offset_delta: 0,
        base_timestamp: timestamp,
        max_timestamp: timestamp,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        base_sequence: NO_SEQUENCE,
        records_count: if attributes.codec() == Some(Codec::None) { 1 } else { -1 },
    })
}

/// No unknown attribute, and a key that lies inside the message.
pub(super) fn plausible(bytes: &[u8], header: &BatchHeader) -> bool {
    let (body, mask) = match header.magic {
        MAGIC_V0 => (BODY_V0, ATTRIBUTES_V0),
        _ => (BODY_V1, ATTRIBUTES_V1),
    };
    let key = bytes.get(body..).and_then(|rest| rest.first_chunk::<4>());
    let room = -1..=header.total_len() as i64 - body as i64 - 8;
    bytes.get(MAGIC + 1).is_some_and(|bits| bits & !mask == 0)
        && header.attributes.codec() != Some(Codec::Zstd)
        && key.is_none_or(|key| room.contains(&i64::from(i32::from_be_bytes(*key))))
}

/// CRC-32 of one whole message.
pub(super) fn checksum(message: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(message.get(CRC_FROM..).unwrap_or_default());
    crc.sum()
}

/// Key and value.
pub(super) type Body<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Those of one whole message; None when their lengths point beyond it. Bytes behind the value are
/// not looked at, as in Kafka.
pub(super) fn body<'a>(message: &'a [u8], magic: i8) -> Option<Body<'a>> {
    let rest = message.get(if magic == MAGIC_V0 { BODY_V0 } else { BODY_V1 }..)?;
    let (key, rest) = field(rest)?;
    let (value, _) = field(rest)?;
    Some((key, value))
}

/// Any negative length reads as null.
fn field(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    match usize::try_from(i32::from_be_bytes(*len)) {
        Ok(len) => rest.split_at_checked(len).map(|(field, rest)| (Some(field), rest)),
        Err(_) => Some((None, rest)),
    }
}

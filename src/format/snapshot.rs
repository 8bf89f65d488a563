//! Producer state at rest: `.snapshot` files.
//!
//! Owns the bytes. Which producers there are, and when they expire, `log` knows.

use super::batch::sequence_sub;
use super::checksum::crc32c;

const VERSION: i16 = 1;
/// Version, CRC, count.
const PREFIX_LEN: usize = 10;
/// The CRC covers all that lies behind it.
const CRC_FROM: usize = 6;
const ENTRY_LEN: usize = 46;

/// The last batch of one producer, and its open transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerEntry {
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// -1: no data batch is known.
    pub last_sequence: i32,
    pub last_offset: i64,
    /// Last offset of that batch minus its first.
    pub offset_delta: i32,
    pub timestamp: i64,
    /// -1: no marker was written.
    pub coordinator_epoch: i32,
    /// -1: no transaction is open.
    pub current_txn_first_offset: i64,
}

impl ProducerEntry {
    pub fn first_sequence(&self) -> i32 {
        sequence_sub(self.last_sequence, self.offset_delta)
    }

    pub fn first_offset(&self) -> i64 {
        self.last_offset.saturating_sub(i64::from(self.offset_delta))
    }

    fn decode(bytes: &[u8; ENTRY_LEN]) -> Option<ProducerEntry> {
        let mut rest = bytes.as_slice();
        Some(ProducerEntry {
            producer_id: i64::from_be_bytes(take(&mut rest)?),
            producer_epoch: i16::from_be_bytes(take(&mut rest)?),
            last_sequence: i32::from_be_bytes(take(&mut rest)?),
            last_offset: i64::from_be_bytes(take(&mut rest)?),
            offset_delta: i32::from_be_bytes(take(&mut rest)?),
            timestamp: i64::from_be_bytes(take(&mut rest)?),
            coordinator_epoch: i32::from_be_bytes(take(&mut rest)?),
            current_txn_first_offset: i64::from_be_bytes(take(&mut rest)?),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.producer_id.to_be_bytes());
        out.extend(self.producer_epoch.to_be_bytes());
        out.extend(self.last_sequence.to_be_bytes());
        out.extend(self.last_offset.to_be_bytes());
        out.extend(self.offset_delta.to_be_bytes());
        out.extend(self.timestamp.to_be_bytes());
        out.extend(self.coordinator_epoch.to_be_bytes());
        out.extend(self.current_txn_first_offset.to_be_bytes());
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// Why a snapshot cannot be used. It is then deleted, and an older one tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("version {0}, 1 is the one known")]
    Version(i16),
    #[error("checksum {computed:#010x}, the file says {stored:#010x}")]
    Crc { stored: u32, computed: u32 },
    #[error("{len} bytes cannot hold the {declared} entries declared")]
    Length { len: usize, declared: i32 },
    #[error("{len} bytes are no snapshot")]
    Short { len: usize },
}

pub fn parse(bytes: &[u8]) -> Result<Vec<ProducerEntry>, SnapshotError> {
    let len = bytes.len();
    let (prefix, body) =
        bytes.split_first_chunk::<PREFIX_LEN>().ok_or(SnapshotError::Short { len })?;
    let [v0, v1, c0, c1, c2, c3, n0, n1, n2, n3] = *prefix;
    let version = i16::from_be_bytes([v0, v1]);
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let stored = u32::from_be_bytes([c0, c1, c2, c3]);
    let computed = crc32c(bytes.get(CRC_FROM..).unwrap_or_default());
    if stored != computed {
        return Err(SnapshotError::Crc { stored, computed });
    }
    let declared = i32::from_be_bytes([n0, n1, n2, n3]);
    let (entries, rest) = body.as_chunks::<ENTRY_LEN>();
    if !rest.is_empty() || usize::try_from(declared) != Ok(entries.len()) {
        return Err(SnapshotError::Length { len, declared });
    }
    Ok(entries.iter().filter_map(ProducerEntry::decode).collect())
}

/// The file's bytes; without entries the ten that Kafka writes at every roll of a log without
/// producers.
pub fn render(entries: &[ProducerEntry]) -> Vec<u8> {
    let mut body = Vec::with_capacity(4 + entries.len() * ENTRY_LEN);
    body.extend((entries.len() as i32).to_be_bytes());
    entries.iter().for_each(|entry| entry.encode(&mut body));
    let mut bytes = Vec::with_capacity(CRC_FROM + body.len());
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend(crc32c(&body).to_be_bytes());
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KAFKAS: &str = "0001da5bbab8000000010000000000000fa000030000000c0000000000000066\
                          000000020000018bcfe56805ffffffffffffffffffffffff";

    #[test]
    fn the_vectors_of_the_specification() {
        assert_eq!(render(&[]), [0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0]);
        let entry = ProducerEntry {
            producer_id: 4000,
            producer_epoch: 3,
            last_sequence: 12,
            last_offset: 102,
            offset_delta: 2,
            timestamp: 1_700_000_000_005,
            coordinator_epoch: -1,
            current_txn_first_offset: -1,
        };
        let bytes = render(&[entry]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, KAFKAS);
        assert_eq!(parse(&bytes), Ok(vec![entry]));
        assert_eq!((entry.first_sequence(), entry.first_offset()), (10, 100));
    }

    #[test]
    fn what_is_refused() {
        assert_eq!(parse(&[0; 9]), Err(SnapshotError::Short { len: 9 }));
        assert_eq!(parse(&[0; 10]), Err(SnapshotError::Version(0)));
        let mut huge = render(&[]);
        huge[6..10].copy_from_slice(&i32::MAX.to_be_bytes());
        assert!(matches!(parse(&huge), Err(SnapshotError::Crc { .. })));
        let crc = crc32c(&huge[6..]);
        huge[2..6].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(parse(&huge), Err(SnapshotError::Length { len: 10, declared: i32::MAX }));
    }

    proptest! {
        #[test]
        fn comes_back_and_notices_damage(
            numbers in prop::collection::vec((any::<i64>(), any::<i32>(), any::<i16>()), 0..20),
            at in any::<prop::sample::Index>(), bit in 0..8,
        ) {
            let entries: Vec<_> = numbers.iter().map(|&(wide, int, short)| ProducerEntry {
                producer_id: wide,
                producer_epoch: short,
                last_sequence: int,
                last_offset: wide.rotate_left(17),
                offset_delta: int.rotate_left(7),
                timestamp: !wide,
                coordinator_epoch: !int,
                current_txn_first_offset: wide ^ 1,
            }).collect();
            let mut bytes = render(&entries);
            prop_assert_eq!(parse(&bytes), Ok(entries));
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(parse(&bytes).is_err());
            prop_assert!(parse(&bytes[..at]).is_err());
        }
    }
}

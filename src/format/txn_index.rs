//! Aborted transactions at rest: `.txnindex` entries.
//!
//! Owns the bytes; who aborted what, and who must be told, is the business of `log`.

pub const TXN_ENTRY_LEN: usize = 34;
const VERSION: i16 = 0;

/// One aborted transaction of one producer in one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedTxn {
    pub producer_id: i64,
    /// May lie in an earlier segment.
    pub first_offset: i64,
    /// Of the marker that aborted it.
    pub last_offset: i64,
    /// What was stable after that marker.
    pub last_stable_offset: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("version {0}, 0 is the one known")]
pub struct TxnVersion(pub i16);

impl AbortedTxn {
    pub fn encode(self) -> [u8; TXN_ENTRY_LEN] {
        let mut bytes = [0; TXN_ENTRY_LEN];
        let columns =
            [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset];
        let (version, rest) = bytes.split_at_mut(2);
        version.copy_from_slice(&VERSION.to_be_bytes());
        for (field, column) in rest.as_chunks_mut::<8>().0.iter_mut().zip(columns) {
            *field = column.to_be_bytes();
        }
        bytes
    }

    pub fn decode(bytes: &[u8; TXN_ENTRY_LEN]) -> Result<AbortedTxn, TxnVersion> {
        let [v0, v1, columns @ ..] = bytes;
        let version = i16::from_be_bytes([*v0, *v1]);
        if version != VERSION {
            return Err(TxnVersion(version));
        }
        let mut columns =
            columns.as_chunks::<8>().0.iter().map(|column| i64::from_be_bytes(*column));
        let mut next = || columns.next().unwrap_or_default(); // there are four
        Ok(AbortedTxn {
            producer_id: next(),
            first_offset: next(),
            last_offset: next(),
            last_stable_offset: next(),
        })
    }
}

/// The entries in `bytes`; what is left of a cut last one is not an entry.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Result<AbortedTxn, TxnVersion>> + '_ {
    bytes.as_chunks().0.iter().map(AbortedTxn::decode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_of_the_specification() {
        let txn = AbortedTxn {
            producer_id: 4000,
            first_offset: 100,
            last_offset: 103,
            last_stable_offset: 104,
        };
        let bytes = txn.encode();
        assert_eq!(bytes[..10], [0, 0, 0, 0, 0, 0, 0, 0, 0x0f, 0xa0]);
        assert_eq!(bytes[17..34], *b"\x64\0\0\0\0\0\0\0\x67\0\0\0\0\0\0\0\x68");
        assert_eq!(entries(&[&bytes[..], &bytes[..33]].concat()).collect::<Vec<_>>(), [Ok(txn)]);
        let mut newer = bytes;
        newer[1] = 1;
        assert_eq!(AbortedTxn::decode(&newer), Err(TxnVersion(1)));
    }
}

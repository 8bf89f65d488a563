//! Aborted transactions at an opening: what a broker's `.txnindex` says, or the markers in the log.
//!
//! Owns: that index files are whole and true. Never does: telling readers of them. Left:
//! `format::txn_index`, `snapshots`. Right: `scan`, `open`.

use std::path::Path;

use super::cursor::FileCursor;
use super::files::path_of;
use super::snapshots::Replay;
use super::{OpenError, cut};
use crate::format::batch::{BatchHeader, RECORDS};
use crate::format::name::FileKind;
use crate::format::record::records;
use crate::format::txn_index::{self, AbortedTxn, TXN_ENTRY_LEN};
use crate::io::blocking::Blocking;
use crate::io::{Errno, Io};
use crate::types::Offset;

const INDEX_BYTES_MAX: usize = 64 << 20;
/// A marker is a few dozen bytes; a control batch that is longer is none.
const MARKER_BYTES_MAX: usize = 4096;
/// What the key of a marker that aborts says: version, type.
const ABORT: u16 = 0;

/// Takes a batch that counts, at `pos`, before the producers do: the transaction that it aborts.
/// `None` for other batches, and for a marker of a transaction that has nothing in this log.
pub(super) fn aborted_by<I: Io>(
    b: &mut Blocking<'_, I>,
    cursor: &mut FileCursor,
    pos: u64,
    header: &BatchHeader,
    producers: &Replay,
) -> Result<Option<AbortedTxn>, Errno> {
    let open = producers.state.open_transaction(header.producer_id);
    let Some(first_offset) = open.filter(|_| header.is_control() && header.has_producer()) else {
        return Ok(None);
    };
    let len = header.total_len();
    if len > MARKER_BYTES_MAX {
        return Ok(None);
    }
    let payload = cursor.bytes(b, pos, len)?.get(RECORDS..len).unwrap_or_default();
    let key = records(payload, header).next().and_then(|record| record.ok()?.key);
    let kind =
        key.and_then(|key| key.get(2..4)?.first_chunk()).map(|kind| u16::from_be_bytes(*kind));
    let last_offset = header.last_offset();
    let others = producers.state.first_unstable(Some(header.producer_id));
    Ok((kind == Some(ABORT)).then_some(AbortedTxn {
        producer_id: header.producer_id,
        first_offset,
        last_offset,
        last_stable_offset: others.unwrap_or(last_offset.saturating_add(1)),
    }))
}

/// Whether a segment's index can be used as it stands; what is left of a cut last entry goes, for
/// the next one would be written behind it.
pub(super) fn is_sound<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    base: Offset,
) -> Result<bool, OpenError> {
    let path = path_of(dir, base, FileKind::TxnIndex);
    let bytes = b.read_file(&path, INDEX_BYTES_MAX).map_err(OpenError::io("reading", &path))?;
    let Some(bytes) = bytes else { return Ok(true) };
    let mut last = base.get().saturating_sub(1);
    for entry in txn_index::entries(&bytes) {
        match entry {
            Ok(entry) if entry.last_offset > last => last = entry.last_offset,
            _ => {
                tracing::warn!(path = %path.display(), "not an index of this segment: rebuilt");
                return Ok(false);
            }
        }
    }
    let rest = bytes.len() % TXN_ENTRY_LEN;
    if rest > 0 {
        let whole = bytes.get(..bytes.len() - rest).unwrap_or_default();
        tracing::warn!(path = %path.display(), bytes = rest, "a cut entry was taken off");
        b.replace_file(&path, whole).map_err(OpenError::io("writing", path))?;
    }
    Ok(true)
}

/// Makes the file say what the markers of a scanned segment said.
pub(super) fn write<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    base: Offset,
    aborted: &[AbortedTxn],
) -> Result<(), OpenError> {
    let path = path_of(dir, base, FileKind::TxnIndex);
    let stored = b.read_file(&path, INDEX_BYTES_MAX).map_err(OpenError::io("reading", &path))?;
    let bytes: Vec<u8> = aborted.iter().flat_map(|entry| entry.encode()).collect();
    match stored {
        stored if stored.as_deref().unwrap_or_default() == bytes => Ok(()),
        Some(_) if bytes.is_empty() => cut::remove(b, &path),
        _ => b.replace_file(&path, &bytes).map_err(OpenError::io("writing", path)),
    }
}

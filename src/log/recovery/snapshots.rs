//! Producer state at an opening: the newest usable snapshot, then the batches behind it.
//!
//! Owns: which snapshot, and the replay. Never does: judging batches. Left: `log::producers`,
//! `cursor`. Right: `scan`, `open`.

use std::path::Path;

use super::OpenError;
use super::cursor::FileCursor;
use super::cut;
use crate::format::batch::{BatchHeader, RECORDS};
use crate::format::name::{FileKind, file_name};
use crate::format::snapshot;
use crate::io::blocking::Blocking;
use crate::io::{Errno, Io};
use crate::log::producers::Producers;
use crate::types::{Offset, WallMs};

const SNAPSHOT_BYTES_MAX: usize = 64 << 20;
/// A marker is a few dozen bytes; a control batch that is longer is none.
const MARKER_BYTES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Replay {
    pub state: Producers,
    /// The state holds everything before it.
    from: i64,
}

impl Replay {
    /// The newest sound snapshot at or below `at_most`; broken ones go, as in Kafka.
    pub fn load<I: Io>(
        b: &mut Blocking<'_, I>,
        dir: &Path,
        snapshots: &[i64],
        at_most: Option<Offset>,
        now: WallMs,
    ) -> Result<Replay, OpenError> {
        let mut offsets: Vec<i64> = snapshots.to_vec();
        offsets.sort_unstable();
        for from in offsets.into_iter().rev() {
            if at_most.is_some_and(|most| from > most.get()) {
                continue;
            }
            let path = dir.join(file_name(from, FileKind::Snapshot));
            let bytes =
                b.read_file(&path, SNAPSHOT_BYTES_MAX).map_err(OpenError::io("reading", &path))?;
            match snapshot::parse(&bytes.unwrap_or_default()) {
                Ok(entries) => {
                    return Ok(Replay { state: Producers::from_snapshot(entries, now), from });
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "snapshot dropped");
                    cut::remove(b, &path)?;
                }
            }
        }
        Ok(Replay::default())
    }

    /// A batch that counts, at `pos`.
    pub fn take<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        cursor: &mut FileCursor,
        pos: u64,
        header: &BatchHeader,
    ) -> Result<(), Errno> {
        if header.base_offset < self.from || !header.has_producer() {
            return Ok(());
        }
        let len = header.total_len();
        if !header.is_control() || len > MARKER_BYTES_MAX {
            self.state.replay(header, &[]);
            return Ok(());
        }
        let bytes = cursor.bytes(b, pos, len)?;
        self.state.replay(header, bytes.get(RECORDS..len).unwrap_or_default());
        Ok(())
    }
}

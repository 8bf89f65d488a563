//! Leader epochs at an opening: read, rebuilt from the batches if need be, raised after an
//! unclean stop.
//!
//! Owns: `leader-epoch-checkpoint`. Never does: judging batches. Left: `format::checkpoint`.
//! Right: `open`, `create`.

use std::path::Path;

use super::OpenError;
use crate::format::checkpoint::EpochCache;
use crate::io::Io;
use crate::io::blocking::Blocking;
use crate::types::Offset;

pub(in crate::log) const FILE_NAME: &str = "leader-epoch-checkpoint";
const BYTES_MAX: usize = 16 << 20;

/// What the file says; `None` when it is missing, garbled or empty (R13), with a warning where the
/// log is not empty too.
pub(super) fn read<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    log_bytes: u64,
) -> Result<Option<EpochCache>, OpenError> {
    let path = dir.join(FILE_NAME);
    let bytes = b.read_file(&path, BYTES_MAX).map_err(OpenError::io("reading", &path))?;
    Ok(match EpochCache::parse(&bytes.unwrap_or_default()) {
        Ok(epochs) if !epochs.entries().is_empty() => Some(epochs),
        Ok(_) => {
            if log_bytes > 0 {
                let path = path.display();
                tracing::warn!(%path, "leader epochs rebuilt: the file has none");
            }
            None
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "leader epochs rebuilt");
            None
        }
    })
}

pub(super) fn write<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    epochs: &EpochCache,
) -> Result<(), OpenError> {
    let path = dir.join(FILE_NAME);
    b.replace_file(&path, epochs.render().as_bytes()).map_err(OpenError::io("writing", path))
}

/// Brings the cache in line with a log of `start..end` whose scanned batches began these epochs.
/// At an unclean start the epoch rises: written bytes may have been lost without a trace where the
/// file merely got shorter (R11), so it is not only done when a cut was seen (D4).
pub(super) fn settle(
    mut epochs: EpochCache,
    scanned: &[(i32, i64)],
    start: Offset,
    end: Offset,
    unclean: bool,
) -> (EpochCache, i32) {
    for (epoch, from) in scanned {
        let newer = epochs.latest().is_none_or(|latest| *epoch > latest.epoch);
        if *epoch >= 0 && newer {
            epochs.assign(*epoch, *from);
        }
    }
    let latest = epochs.latest().map_or(-1, |latest| latest.epoch);
    epochs.truncate_end(end.get());
    epochs.truncate_start(start.get());
    let epoch = if unclean { latest.saturating_add(1) } else { latest.max(0) };
    epochs.assign(epoch, end.get());
    (epochs, epoch)
}

//! What is known to be damaged, across restarts: segments that are trusted are not read again, and
//! their damage must still be answered for (D6, R17).
//!
//! Owns: the list's file, and whether what it says still holds. Never does: finding damage (`scan`
//! does). Left: `format::damage`, `cursor`. Right: `open`.

use std::path::Path;

use super::OpenError;
use super::cursor::FileCursor;
use super::cut;
use super::files::{LogFiles, path_of};
use crate::format::damage::{self, DamageRow, FILE_NAME};
use crate::format::name::FileKind;
use crate::io::blocking::Blocking;
use crate::io::op::OpenHow;
use crate::io::{Errno, Io};
use crate::log::segment::{Damage, Segment};
use crate::types::Offset;

const BYTES_MAX: usize = 16 << 20;

/// What the file says; `None` when it is garbled: then only reading everything tells.
pub(super) fn read<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
) -> Result<Option<Vec<DamageRow>>, OpenError> {
    let path = dir.join(FILE_NAME);
    let bytes = b.read_file(&path, BYTES_MAX).map_err(OpenError::io("reading", &path))?;
    Ok(match damage::parse(&bytes.unwrap_or_default()) {
        Ok(rows) => Some(rows),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "list of damage ignored: reading all");
            None
        }
    })
}

/// Makes the file say what the segments do; no file when nothing is damaged.
pub(super) fn write<'s, I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    stored: Option<&[DamageRow]>,
    segments: impl Iterator<Item = &'s Segment>,
) -> Result<(), OpenError> {
    let rows: Vec<DamageRow> =
        segments.flat_map(|s| s.damage.iter().map(|damage| row(s.base, damage))).collect();
    let path = dir.join(FILE_NAME);
    match stored {
        Some(stored) if stored == rows => Ok(()),
        _ if rows.is_empty() => cut::remove(b, &path),
        _ => b
            .replace_file(&path, damage::render(&rows).as_bytes())
            .map_err(OpenError::io("writing", &path)),
    }
}

fn row(base: Offset, damage: &Damage) -> DamageRow {
    DamageRow {
        base: base.get(),
        pos: damage.pos,
        end_pos: damage.end_pos,
        first: damage.first.get(),
        next: damage.next.get(),
        reason: damage.reason,
    }
}

/// The recorded damage of a segment that is not scanned. A range whose bytes are sound again
/// (somebody put the file back) is none any more; a range that does not fit the file never was.
pub(super) fn recall<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    log: &LogFiles,
    rows: &[DamageRow],
) -> Result<Vec<Damage>, Errno> {
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| row.base == log.base.get() && row.end_pos <= log.len) {
        let (Some(first), Some(next)) = (Offset::new(row.first), Offset::new(row.next)) else {
            continue;
        };
        let file = b.open(&path_of(dir, log.base, FileKind::Log), OpenHow::default())?;
        let verified = FileCursor::new(file, log.len).verify(b, row.pos);
        b.close(file)?;
        if matches!(&verified, Ok(Ok(header)) if header.base_offset >= row.first) {
            tracing::info!(dir = %dir.display(), base = row.base, pos = row.pos, "damage healed");
            continue;
        }
        let (pos, end_pos, reason) = (row.pos, row.end_pos, row.reason);
        found.push(Damage { pos, end_pos, first, next, reason });
    }
    Ok(found)
}

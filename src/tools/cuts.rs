//! The side files in which recovery keeps what it cut.
//!
//! Owns: finding them, saying what they hold, removing them. Never does: remove one unasked.
//! Left: `partition`, `walk`. Right: the CLI's cuts.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::partition::{Cut, Listing, partition_dirs};
use super::walk::{Item, Walk};
use crate::format::cut_name::CutReason;

/// A side file, looked into.
#[derive(Clone, Debug)]
pub struct SideFile {
    pub path: PathBuf,
    /// Base offset of the segment that it was cut from.
    pub segment: i64,
    /// Where in its log.
    pub pos: u64,
    pub bytes: u64,
    pub modified: Option<SystemTime>,
    /// Why it was cut.
    pub reason: CutReason,
    /// Whole, sound batches in it, and their offsets (the last one exclusive).
    pub batches: u64,
    pub offsets: Option<(i64, i64)>,
}

/// All side files of a data directory or of a partition, in name order.
pub fn list(dir: &Path) -> io::Result<Vec<SideFile>> {
    let mut found = Vec::new();
    for dir in partition_dirs(dir)? {
        for cut in Listing::read(&dir)?.cuts {
            found.push(look(cut)?);
        }
    }
    Ok(found)
}

fn look(cut: Cut) -> io::Result<SideFile> {
    let mut file = SideFile {
        segment: cut.origin.base_offset,
        pos: cut.origin.pos,
        bytes: cut.bytes,
        modified: cut.modified,
        reason: cut.origin.reason,
        batches: 0,
        offsets: None,
        path: cut.path,
    };
    let mut walk = Walk::new(File::open(&file.path)?)?;
    while let Some(item) = walk.next_item()? {
        let Item::Batch(batch) = item else { continue };
        if batch.fault.is_none() {
            let (first, next) = (batch.header.base_offset, batch.header.next_offset());
            let known = file.offsets.unwrap_or((first, next));
            file.batches += 1;
            file.offsets = Some((known.0.min(first), known.1.max(next)));
        }
    }
    Ok(file)
}

/// Removes these, and syncs their directories.
pub fn remove(files: &[SideFile]) -> io::Result<()> {
    let mut dirs: Vec<&Path> = Vec::new();
    for file in files {
        fs::remove_file(&file.path)?;
        dirs.extend(file.path.parent());
    }
    dirs.dedup();
    dirs.into_iter().try_for_each(|dir| File::open(dir)?.sync_all())
}

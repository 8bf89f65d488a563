//! One partition's directory: its segments in their order, and what lies beside them.
//!
//! Owns: names, snapshots, leader epochs, and what the checkpoints around it say. Never does: walk
//! a log (`segment` does). Left: `tools::partition`. Right: `verify`.

use std::io;
use std::path::{Path, PathBuf};

use super::segment::{self, Place};
use super::{Totals, text};
use crate::format::checkpoint::EpochCache;
use crate::format::damage;
use crate::format::identity::parse_partition_metadata;
use crate::format::name::{FileKind, SegmentFile};
use crate::format::snapshot;
use crate::tools::findings::{Finding, Kind, Watch};
use crate::tools::partition::{Around, EPOCHS, Listing, METADATA, read_small};

pub(super) fn check(dir: &Path, watch: &mut dyn Watch, totals: &mut Totals) -> io::Result<()> {
    let listing = Listing::read(dir)?;
    let around = Around::read(dir);
    names(&listing, watch);
    metadata(dir, watch);
    text(&dir.join(damage::FILE_NAME), Kind::Checkpoint, watch, |bytes| {
        damage::parse(bytes).map(drop).map_err(|error| error.to_string())
    });
    let bases: Vec<i64> = listing.segments.keys().copied().collect();
    let mut epochs = Epochs::read(dir, &around, watch);
    let last = listing.last_base();
    let mut expected = bases.first().copied().unwrap_or(0);
    for (i, base) in bases.iter().enumerate() {
        let Some(files) = listing.segments.get(base) else { continue };
        if files.log_bytes.is_none() {
            orphans(&listing, *base, watch);
            continue;
        }
        totals.segments += 1;
        let place = Place {
            files,
            is_last: last == Some(*base),
            next_base: bases.get(i + 1).copied(),
            around: &around,
            expected,
        };
        match segment::check(&listing, &place, &mut epochs, watch, totals) {
            Ok(end) => expected = end,
            Err(error) => {
                let path = listing.path(*base, FileKind::Log);
                watch.finding(Finding::new(Kind::Unreadable, path, error));
            }
        }
    }
    epochs.finish(watch);
    snapshots(&listing, expected, watch);
    checkpoints(&listing, &around, expected, watch);
    Ok(())
}

fn names(listing: &Listing, watch: &mut dyn Watch) {
    for path in &listing.foreign {
        let fault = "not of a partition by its name";
        watch.finding(Finding::new(Kind::Foreign, path, fault));
    }
    for path in &listing.swaps {
        let fault = "a compaction was interrupted while it swapped its files in";
        watch.finding(Finding::new(Kind::Unfinished, path, fault));
    }
    for path in &listing.cleaned {
        watch.note(path, "being made, or left over: the next start removes it".to_owned());
    }
    for cut in &listing.cuts {
        let text = format!("{} bytes that recovery cut; see `ringlog cuts list`", cut.bytes);
        watch.note(&cut.path, text);
    }
    for (path, _) in &listing.deleted {
        watch.note(path, "deleted, to be unlinked soon".to_owned());
    }
}

fn metadata(dir: &Path, watch: &mut dyn Watch) {
    let path = dir.join(METADATA);
    if !path.exists() {
        watch.finding(Finding::new(Kind::Metadata, path, "it is missing"));
        return;
    }
    text(&path, Kind::Metadata, watch, |bytes| {
        parse_partition_metadata(bytes).map(drop).map_err(|error| error.to_string())
    });
}

fn orphans(listing: &Listing, base: i64, watch: &mut dyn Watch) {
    let Some(files) = listing.segments.get(&base) else { return };
    for kind in files.others.keys() {
        let path = listing.path(base, *kind);
        watch.finding(Finding::new(Kind::Orphan, path, "its .log is missing"));
    }
}

fn snapshots(listing: &Listing, end: i64, watch: &mut dyn Watch) {
    for offset in listing.snapshots.keys() {
        let path = listing.dir.join(SegmentFile::live(*offset, FileKind::Snapshot).to_string());
        text(&path, Kind::Snapshot, watch, |bytes| {
            snapshot::parse(bytes).map_err(|error| error.to_string())?;
            match *offset > end {
                true => Err(format!("of offset {offset}, behind the log's end {end}")),
                false => Ok(()),
            }
        });
    }
}

/// R14: what the data directory remembers may not lie behind the log's end.
fn checkpoints(listing: &Listing, around: &Around, end: i64, watch: &mut dyn Watch) {
    let root = listing.dir.parent().unwrap_or(&listing.dir);
    let [recovery, replication, log_start, _] = crate::tools::partition::CHECKPOINTS;
    for (file, offset) in [
        (recovery, around.recovery_point),
        (replication, around.high_watermark),
        (log_start, around.log_start),
    ] {
        if let Some(offset) = offset.filter(|offset| *offset > end) {
            let dir = listing.dir.display();
            let fault = format!("says offset {offset} of {dir}, whose log ends at {end}");
            watch.finding(Finding::new(Kind::LogEnd, root.join(file), fault));
        }
    }
}

/// The leader-epoch checkpoint, held against the batches as they pass.
pub(super) struct Epochs {
    path: PathBuf,
    /// None: it cannot be read, which was said already.
    cache: Option<EpochCache>,
    /// The epoch of the batch before: only changes are looked up.
    last: Option<i32>,
    /// The file may know nothing of what lies before; None: not known.
    log_start: Option<i64>,
    first_fault: Option<(String, i64)>,
}

impl Epochs {
    fn read(dir: &Path, around: &Around, watch: &mut dyn Watch) -> Epochs {
        let path = dir.join(EPOCHS);
        let read = read_small(&path).map_err(|error| error.to_string()).and_then(|bytes| {
            EpochCache::parse(&bytes.unwrap_or_default()).map_err(|error| error.to_string())
        });
        if let Err(fault) = &read {
            watch.finding(Finding::new(Kind::Epochs, &path, fault));
        }
        let log_start = around.clean.map(|_| around.log_start.unwrap_or(0));
        Epochs { path, cache: read.ok(), last: None, log_start, first_fault: None }
    }

    pub fn see(&mut self, epoch: i32, offset: i64) {
        if epoch < 0 || self.last == Some(epoch) || self.first_fault.is_some() {
            return;
        }
        let Some(cache) = &self.cache else { return };
        let oldest = cache.entries().first().map(|entry| entry.start_offset);
        if offset < self.log_start.or(oldest).unwrap_or(offset) {
            return;
        }
        self.last = Some(epoch);
        let begun = cache.entries().iter().rfind(|entry| entry.start_offset <= offset);
        let said = match begun {
            Some(entry) if entry.epoch == epoch => return,
            Some(entry) => format!("epoch {}", entry.epoch),
            None => "no epoch".to_owned(),
        };
        let fault = format!("{said} at offset {offset}, where the log has epoch {epoch}");
        self.first_fault = Some((fault, offset));
    }

    fn finish(self, watch: &mut dyn Watch) {
        if let Some((fault, offset)) = self.first_fault {
            watch.finding(Finding::new(Kind::Epochs, self.path, fault).offsets(offset, None));
        }
    }
}

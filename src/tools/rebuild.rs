//! Derived files made anew from the log: both indexes, aborted transactions, producer snapshots.
//!
//! Owns: Kafka's recovery rule applied offline, and how a file is replaced. Never does: change a
//! `.log`; run beside a server (the caller holds the lock); anything unasked.
//! Left: `walk`, `format::index`, `producers`. Right: the CLI's index-rebuild.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::findings::{Finding, Kind, Watch};
use super::partition::{Listing, read_small};
use super::producers::Producers;
use super::verify;
use super::walk::{Item, Walk};
use crate::format::index::{IndexBuilder, IndexLimits};
use crate::format::name::FileKind;
use crate::format::snapshot;

/// What to make, and by which rule.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub limits: IndexLimits,
    /// Also files that are sound.
    pub all: bool,
    /// Only say what would change.
    pub dry_run: bool,
}

/// A file that was (or would be) written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub path: PathBuf,
    /// None: there was none.
    pub bytes_before: Option<u64>,
    /// None: it is removed, because there is nothing for it to hold.
    pub bytes: Option<u64>,
}

/// Which derived files are not sound.
#[derive(Default)]
struct Wrong(BTreeSet<PathBuf>);

impl Watch for Wrong {
    fn finding(&mut self, finding: Finding) {
        let derived = [Kind::Index, Kind::TimeIndex, Kind::TxnIndex, Kind::Snapshot];
        if derived.contains(&finding.kind) {
            self.0.insert(finding.path);
        }
    }

    fn note(&mut self, _: &Path, _: String) {}

    fn progress(&mut self, _: u64) {}
}

/// Makes the derived files of one partition anew; those that would change, in order.
pub fn run(dir: &Path, options: &Options, watch: &mut dyn Watch) -> io::Result<Vec<Change>> {
    let mut wrong = Wrong::default();
    if !options.all {
        verify::partition(dir, &mut wrong)?;
        if wrong.0.is_empty() {
            return Ok(Vec::new());
        }
    }
    let listing = Listing::read(dir)?;
    let mut rebuild = Rebuild {
        producers: producers_before(&listing)?,
        listing: &listing,
        options,
        wrong: wrong.0,
        changes: Vec::new(),
    };
    let mut end = None;
    for base in listing.segments.values().filter(|s| s.log_bytes.is_some()) {
        let at_roll = end.is_some();
        rebuild.snapshot(base.base_offset, at_roll)?;
        end = Some(rebuild.segment(base.base_offset, watch)?);
    }
    if let Some(end) = end {
        rebuild.snapshot(end, true)?;
        rebuild.drop_snapshots(end)?;
    }
    let changes = rebuild.changes;
    if !options.dry_run && !changes.is_empty() {
        File::open(dir)?.sync_all()?;
    }
    Ok(changes)
}

/// What was before the first segment: a transaction may have begun there.
fn producers_before(listing: &Listing) -> io::Result<Producers> {
    let first = listing.segments.keys().next().copied().unwrap_or(0);
    let path = listing.path(first, FileKind::Snapshot);
    let entries = read_small(&path)?.and_then(|bytes| snapshot::parse(&bytes).ok());
    Ok(entries.map(Producers::from_snapshot).unwrap_or_default())
}

struct Rebuild<'a> {
    producers: Producers,
    listing: &'a Listing,
    options: &'a Options,
    wrong: BTreeSet<PathBuf>,
    changes: Vec<Change>,
}

impl Rebuild<'_> {
    /// Where the segment ends.
    fn segment(&mut self, base: i64, watch: &mut dyn Watch) -> io::Result<i64> {
        let mut builder = IndexBuilder::new(base, self.options.limits);
        let (mut offsets, mut times, mut aborted) = (Vec::new(), Vec::new(), Vec::new());
        let mut end = base;
        let mut walk = Walk::new(File::open(self.listing.path(base, FileKind::Log))?)?;
        loop {
            let from = walk.pos();
            let Some(item) = walk.next_item()? else { break };
            if let Item::Batch(batch) = item
                && batch.fault.is_none()
                && batch.header.base_offset >= end
            {
                let header = &batch.header;
                end = header.next_offset();
                let (last, max) = (header.last_offset(), header.max_timestamp);
                if let Some((entry, time)) = builder.on_batch(batch.pos, last, max) {
                    offsets.extend(entry.encode());
                    times.extend(time.into_iter().flat_map(|time| time.encode()));
                }
                if let Some(txn) = self.producers.see(&batch) {
                    aborted.extend(txn.encode());
                }
            }
            watch.progress(walk.pos() - from);
        }
        times.extend(builder.close().into_iter().flat_map(|time| time.encode()));
        self.put(base, FileKind::OffsetIndex, Some(offsets))?;
        self.put(base, FileKind::TimeIndex, Some(times))?;
        self.put(base, FileKind::TxnIndex, (!aborted.is_empty()).then_some(aborted))?;
        Ok(end)
    }

    /// The state as of `offset`. One at the first segment's base is what the log cannot tell.
    fn snapshot(&mut self, offset: i64, known: bool) -> io::Result<()> {
        let path = self.listing.path(offset, FileKind::Snapshot);
        let broken = self.wrong.contains(&path);
        match known {
            true if offset > 0 => {
                let bytes = self.producers.snapshot();
                self.put(offset, FileKind::Snapshot, Some(bytes))
            }
            _ if broken => self.put(offset, FileKind::Snapshot, None),
            _ => Ok(()),
        }
    }

    /// Broken snapshots of offsets where none is due.
    fn drop_snapshots(&mut self, end: i64) -> io::Result<()> {
        for offset in self.listing.snapshots.keys() {
            let due = *offset == end || self.listing.segments.contains_key(offset);
            if !due && self.wrong.contains(&self.listing.path(*offset, FileKind::Snapshot)) {
                self.put(*offset, FileKind::Snapshot, None)?;
            }
        }
        Ok(())
    }

    /// Replaces a file, or removes it, if that was asked for and changes anything.
    fn put(&mut self, offset: i64, kind: FileKind, bytes: Option<Vec<u8>>) -> io::Result<()> {
        let path = self.listing.path(offset, kind);
        if !self.options.all && !self.wrong.contains(&path) {
            return Ok(());
        }
        let before = read_small(&path)?;
        if before == bytes {
            return Ok(());
        }
        if !self.options.dry_run {
            match &bytes {
                Some(bytes) => replace(&path, bytes)?,
                None => fs::remove_file(&path)?,
            }
        }
        let len = |bytes: &Vec<u8>| bytes.len() as u64;
        let (bytes_before, bytes) = (before.as_ref().map(len), bytes.as_ref().map(len));
        self.changes.push(Change { path, bytes_before, bytes });
        Ok(())
    }
}

/// A crash leaves the old file or the new one. The caller syncs the directory.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

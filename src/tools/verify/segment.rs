//! One `.log` from its first byte to its last.
//!
//! Owns: which batches can be trusted, what each gap between them is, and whether offsets rise.
//! Never does: judge index entries (`indexes` does). Left: `walk`, `records`. Right: `partition`.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::Totals;
use super::indexes::Indexes;
use super::partition::Epochs;
use crate::format::batch::BatchError;
use crate::format::index;
use crate::format::name::FileKind;
use crate::tools::findings::{Finding, Kind, Watch};
use crate::tools::partition::{Around, Listing, SegmentFiles};
use crate::tools::records::RecordReader;
use crate::tools::walk::{Bad, Batch, Item, Walk};

/// Batches out of order in one log that are listed one by one.
const ORDER_LISTED_MAX: u32 = 20;

/// Where a segment stands.
pub(super) struct Place<'a> {
    pub files: &'a SegmentFiles,
    pub is_last: bool,
    pub next_base: Option<i64>,
    pub around: &'a Around,
    /// What the segments before end with.
    pub expected: i64,
}

impl Place<'_> {
    /// It is as a roll or a clean stop leaves it.
    fn is_closed(&self) -> bool {
        !self.is_last || self.around.clean == Some(true)
    }
}

/// A stretch that cannot be trusted and is not over yet.
struct Pending {
    pos: u64,
    end_pos: u64,
    first: i64,
    why: BatchError,
    zeros: bool,
}

struct Check<'a> {
    place: &'a Place<'a>,
    path: PathBuf,
    base_offset: i64,
    /// The least offset that may come next, and what it was before the last batch.
    expected: i64,
    expected_before: i64,
    pending: Option<Pending>,
    out_of_order: u32,
    reader: RecordReader,
    watch: &'a mut dyn Watch,
}

/// Where the segment ends.
pub(super) fn check(
    listing: &Listing,
    place: &Place<'_>,
    epochs: &mut Epochs,
    watch: &mut dyn Watch,
    totals: &mut Totals,
) -> io::Result<i64> {
    let base_offset = place.files.base_offset;
    let path = listing.path(base_offset, FileKind::Log);
    let derived = |extension: &str| path.with_extension(extension);
    let mut indexes = Indexes::open(base_offset, derived)?;
    if !indexes.has_offsets() && place.is_closed() {
        let fault = "it is missing";
        watch.finding(Finding::new(Kind::Index, derived("index"), fault));
    }
    let mut check = Check {
        place,
        path: path.clone(),
        base_offset,
        expected: place.expected.max(base_offset),
        expected_before: base_offset,
        pending: None,
        out_of_order: 0,
        reader: RecordReader::default(),
        watch,
    };
    if place.expected > base_offset {
        check.overlap();
    }
    let mut walk = Walk::new(File::open(&path)?)?;
    loop {
        let from = walk.pos();
        match walk.next_item()? {
            None => break,
            Some(Item::Bad(bad)) => {
                indexes.skip(bad.pos + bad.len)?;
                check.bad(&bad);
            }
            Some(Item::Batch(batch)) => {
                totals.batches += 1;
                totals.records += u64::try_from(batch.header.records_count).unwrap_or(0);
                if let Some(why) = batch.fault {
                    indexes.skip(batch.pos + batch.bytes.len() as u64)?;
                    check.corrupt(&batch, why);
                } else {
                    indexes.see(&batch)?;
                    epochs.see(batch.header.leader_epoch, batch.header.base_offset);
                    check.good(&batch);
                }
            }
        }
        let bytes = walk.pos() - from;
        totals.bytes += bytes;
        check.watch.progress(bytes);
    }
    check.finish();
    indexes.close(walk.pos(), place.is_closed(), check.watch)?;
    Ok(check.expected)
}

impl Check<'_> {
    fn overlap(&mut self) {
        let (end, base) = (self.place.expected, self.base_offset);
        let fault = format!("begins at offset {base}; the segment before it ends at {end}");
        let finding = Finding::new(Kind::Order, &self.path, fault);
        self.watch.finding(finding.offsets(base, Some(end)));
    }

    fn corrupt(&mut self, batch: &Batch<'_>, why: BatchError) {
        let end_pos = batch.pos + batch.bytes.len() as u64;
        self.suspect(batch.pos, end_pos, why, false);
    }

    fn bad(&mut self, bad: &Bad) {
        self.suspect(bad.pos, bad.pos + bad.len, bad.why, bad.zeros);
    }

    fn suspect(&mut self, pos: u64, end_pos: u64, why: BatchError, zeros: bool) {
        let first = self.expected;
        let new = Pending { pos, end_pos, first, why, zeros };
        let pending = self.pending.get_or_insert(new);
        pending.zeros &= zeros;
        pending.end_pos = end_pos;
    }

    fn good(&mut self, batch: &Batch<'_>) {
        let header = &batch.header;
        let (first, last, next) = (header.base_offset, header.last_offset(), header.next_offset());
        if let Some(pending) = self.pending.take() {
            self.damage(&pending, Some(first));
        }
        if first < self.expected {
            self.order(batch);
        } else if index::relative_offset(self.base_offset, last).is_none() {
            let fault = format!("offset {last} does not fit this segment's indexes");
            self.say(Kind::Order, fault, batch);
        } else if self.place.next_base.is_some_and(|base| last >= base) {
            let base = self.place.next_base.unwrap_or(last);
            self.say(Kind::Order, format!("the next segment begins at {base} already"), batch);
        }
        if first >= self.expected {
            (self.expected_before, self.expected) = (self.expected, next);
        } else if first >= self.expected_before {
            self.expected = next; // it was the batch before that stands out of order
        }
        self.records(batch);
    }

    /// A sound batch below what is due: a copy of an old one, or the one before it was wrong.
    fn order(&mut self, batch: &Batch<'_>) {
        self.out_of_order += 1;
        if self.out_of_order > ORDER_LISTED_MAX {
            return;
        }
        let (first, due) = (batch.header.base_offset, self.expected);
        let fault = format!("base offset {first} where at least {due} was due");
        self.say(Kind::Order, fault, batch);
    }

    fn records(&mut self, batch: &Batch<'_>) {
        let header = &batch.header;
        // A message of the older formats says where its records end, not where they begin.
        let before = if header.is_legacy() { -1 } else { header.base_offset - 1 };
        let (mut last, mut max_timestamp) = (before, -1);
        let mut fault = None;
        let read = self.reader.each(batch, &mut |unpacked| {
            let record = &unpacked.record;
            if record.offset <= last || record.offset > header.last_offset() {
                let offset = record.offset;
                fault.get_or_insert_with(|| format!("a record has offset {offset} behind {last}"));
            }
            last = record.offset;
            max_timestamp = max_timestamp.max(record.timestamp);
        });
        if max_timestamp > header.max_timestamp {
            let said = header.max_timestamp;
            fault.get_or_insert_with(|| {
                format!("a record has time {max_timestamp}, above the batch's greatest {said}")
            });
        }
        let fault = read.err().map(|error| error.to_string()).or(fault);
        if let Some(fault) = fault {
            self.say(Kind::Records, fault, batch);
        }
    }

    fn say(&mut self, kind: Kind, fault: String, batch: &Batch<'_>) {
        let (first, next) = (batch.header.base_offset, batch.header.next_offset());
        let finding = Finding::new(kind, &self.path, fault).at(batch.pos);
        self.watch.finding(finding.offsets(first, Some(next)));
    }

    fn damage(&mut self, pending: &Pending, next: Option<i64>) {
        let bytes = pending.end_pos - pending.pos;
        let fault = format!("{bytes} bytes are no sound batch: {}", pending.why);
        let finding = Finding::new(Kind::Damage, &self.path, fault).at(pending.pos);
        self.watch.finding(finding.offsets(pending.first, next));
    }

    /// What the log ends with that is no sound batch.
    fn finish(&mut self) {
        if self.out_of_order > ORDER_LISTED_MAX {
            let more = self.out_of_order - ORDER_LISTED_MAX;
            let fault = format!("{more} more batches are out of order");
            self.watch.finding(Finding::new(Kind::Order, &self.path, fault));
        }
        let Some(pending) = self.pending.take() else { return };
        let bytes = pending.end_pos - pending.pos;
        let closed = self.place.is_closed();
        let flushed = self.place.around.recovery_point.is_some_and(|point| pending.first < point);
        if closed || flushed {
            return self.damage(&pending, self.place.next_base);
        }
        if pending.zeros {
            let text = format!("{bytes} bytes of zeros, prepared for batches to come");
            return self.watch.note(&self.path, text);
        }
        let fault = format!("the last {bytes} bytes are no sound batch: {}", pending.why);
        let finding = Finding::new(Kind::TornTail, &self.path, fault).at(pending.pos);
        self.watch.finding(finding.offsets(pending.first, None));
    }
}

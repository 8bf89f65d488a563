//! Opening a log: the steps in their order.
//!
//! Owns: the order, and that a crash between any two of them leads to the same log again. Never
//! does: judging bytes (`scan`), moving them (`cut`). Left: its siblings. Right: `partition`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::cursor::FileCursor;
use super::files::{Found, LogFiles, path_of};
use super::scan::{Scanned, scan};
use super::snapshots::Replay;
use super::{Cut, Damaged, Fault, OpenError, OpenParams, OpenReport};
use super::{aborted, cut, damage, epochs, files, load};
use crate::format::checkpoint::EpochCache;
use crate::format::damage::DamageRow;
use crate::format::index;
use crate::format::name::FileKind;
use crate::io::blocking::Blocking;
use crate::io::buffers::Pool;
use crate::io::op::OpenHow;
use crate::io::{FileId, Io};
use crate::log::held::HeldFile;
use crate::log::partition::{Partition, Recovered};
use crate::log::segment::{Damage, LogFile, Phase, Segment};
use crate::log::segments::Segments;
use crate::log::watermarks::Mark;
use crate::types::{Offset, WallMs};

/// Opens the log in `dir`, recovering it as far as `params` say it must be. `pool` serves the
/// writes of derived files while the log is open.
pub fn open<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    params: &OpenParams,
    pool: &Pool,
) -> Result<(Partition, OpenReport), OpenError> {
    let started = b.io.now();
    let wall = b.io.wall_ms();
    let (mut found, config) = (files::find(b, dir)?, &params.config);
    let mut opening = Opening {
        b,
        dir,
        params: params.clone(),
        report: OpenReport::default(),
        wall,
        segments: VecDeque::new(),
        epochs: Vec::new(),
        unclean: !params.clean,
        next_base: None,
        keep_closed: false,
        kept_aside: 0,
        damage: None,
        producers: Replay::new(&mut found, (wall, started), config.producer_expiration_ms),
        below: Vec::new(),
        scanned: false,
    };
    let recovered = opening.run(found, pool)?;
    let mut report = opening.report;
    report.segments = recovered.segments.len();
    report.took = b.io.now().since(started);
    report.log(dir);
    Ok((Partition::recovered(recovered), report))
}

struct Opening<'b, 'a, I: Io> {
    b: &'b mut Blocking<'a, I>,
    dir: &'b Path,
    params: OpenParams,
    report: OpenReport,
    wall: WallMs,
    /// The log so far, in order.
    segments: VecDeque<Segment>,
    /// Of the batches scanned.
    epochs: Vec<(i32, i64)>,
    unclean: bool,
    /// Of the segment behind the one that is looked at.
    next_base: Option<Offset>,
    /// The last segment holds damage at its end: nothing may follow in it.
    keep_closed: bool,
    producers: Replay,
    /// Segments that end at or before the log start: deleted, and not looked at.
    below: Vec<LogFiles>,
    /// Bytes of side files.
    kept_aside: u64,
    /// The list of damage as it was found; `None` when it is garbled.
    damage: Option<Vec<DamageRow>>,
    /// Some segment was scanned.
    scanned: bool,
}

impl<I: Io> Opening<'_, '_, I> {
    fn run(&mut self, mut found: Found, pool: &Pool) -> Result<Recovered, OpenError> {
        self.set_aside_stray(&mut found)?;
        self.below = self.take_below_start(&mut found);
        self.kept_aside = found.kept_aside;
        self.report.log_bytes = found.logs.iter().map(|log| log.len).sum();
        self.damage = damage::read(self.b, self.dir)?;
        let stored = epochs::read(self.b, self.dir, self.report.log_bytes)?;
        let point = self.params.recovery_point.unwrap_or(Offset::ZERO);
        let known = stored.as_ref().filter(|_| self.damage.is_some());
        let scan_from = match (known, self.params.clean) {
            (None, _) => 0,
            (Some(_), true) => found.logs.len(),
            (Some(_), false) => found.logs.partition_point(|log| log.base <= point).max(1) - 1,
        };
        for at in 0..found.logs.len() {
            let next = found.logs.get(at + 1).map(|log| log.base);
            self.next_base = next;
            let goes_on = match next {
                Some(next) if at < scan_from => self.trust(&found.logs[at], next)?,
                None if at < scan_from => self.resume(&found.logs[at])?,
                _ => self.check(&found.logs[at], &found.logs[at + 1..], point)?,
            };
            if !goes_on {
                break;
            }
        }
        self.start_over_if_behind()?;
        self.have_active(point)?;
        self.drop_below_start()?;
        self.settle_producers()?;
        self.settle(stored, pool)
    }

    fn end(&self) -> Option<Offset> {
        self.segments.back().map(|segment| segment.staged.end)
    }

    /// An empty first file that the log does not begin with: only set aside where something says
    /// that the log begins behind it (R18).
    fn set_aside_stray(&mut self, found: &mut Found) -> Result<(), OpenError> {
        while let [first, second, ..] = &found.logs[..] {
            let begun = self.params.log_start.max(self.params.recovery_point);
            let behind = self.params.clean || begun >= Some(second.base);
            if first.len > 0 || !behind {
                break;
            }
            let base = first.base;
            let reason = Fault::Stray.reason();
            let side_file = Some(cut::set_aside(self.b, self.dir, base, reason)?);
            let path = path_of(self.dir, base, FileKind::Log);
            self.report.cuts.push(Cut { path, pos: 0, bytes: 0, fault: Fault::Stray, side_file });
            found.logs.remove(0);
        }
        Ok(())
    }

    /// Deleted records keep nothing from being read and need not be whole (a power cut may have
    /// brought some of their segments back, and others not).
    fn take_below_start(&self, found: &mut Found) -> Vec<LogFiles> {
        let start = self.params.log_start.unwrap_or(Offset::ZERO);
        let ended = found.logs.iter().skip(1).take_while(|next| next.base <= start).count();
        found.logs.drain(..ended).collect()
    }

    fn drop_below_start(&mut self) -> Result<(), OpenError> {
        for log in std::mem::take(&mut self.below) {
            let path = path_of(self.dir, log.base, FileKind::Log);
            tracing::info!(path = %path.display(), "removed: before the log start");
            // Snapshots may be of use still: `drop_snapshots` judges them.
            for kind in FileKind::ALL.into_iter().filter(|kind| *kind != FileKind::Snapshot) {
                cut::remove(self.b, &path_of(self.dir, log.base, kind))?;
            }
        }
        Ok(())
    }

    /// A sealed segment below the recovery point: not read, unless its indexes are not sound.
    fn trust(&mut self, log: &LogFiles, next: Offset) -> Result<bool, OpenError> {
        let is_sound = aborted::is_sound(self.b, self.dir, log.base)?;
        let loaded = load::sealed(self.b, self.dir, log, next, &self.params, self.wall);
        let path = path_of(self.dir, log.base, FileKind::OffsetIndex);
        match loaded.map_err(OpenError::io("reading", &path))? {
            Ok(mut segment) if is_sound => {
                segment.damage = self.recall(log)?;
                self.push(segment);
                return Ok(true);
            }
            Ok(_) => {}
            Err(why) => tracing::warn!(path = %path.display(), %why, "indexes rebuilt"),
        }
        self.report.rebuilt += 1;
        let point = self.params.recovery_point.unwrap_or(Offset::ZERO).max(next);
        self.check(log, &[], point).map(|_| true)
    }

    fn recall(&mut self, log: &LogFiles) -> Result<Vec<Damage>, OpenError> {
        let path = path_of(self.dir, log.base, FileKind::Log);
        let rows = self.damage.as_deref().unwrap_or_default();
        let recalled = damage::recall(self.b, self.dir, log, rows);
        let recalled = recalled.map_err(OpenError::io("reading", &path))?;
        self.report.damage.extend(recalled.iter().map(|damage| Damaged {
            path: path.clone(),
            damage: *damage,
            fault: Fault::Recorded(damage.reason),
        }));
        Ok(recalled)
    }

    /// The last segment after a clean stop.
    fn resume(&mut self, log: &LogFiles) -> Result<bool, OpenError> {
        let is_sound = aborted::is_sound(self.b, self.dir, log.base)?;
        let path = path_of(self.dir, log.base, FileKind::Log);
        self.close_last()?;
        let file = self.open_log(&path)?;
        let mut cursor = FileCursor::new(file, log.len);
        let loaded = load::active(self.b, self.dir, log, &mut cursor, &self.params.config);
        self.report.scanned_bytes += cursor.read;
        let loaded = loaded.map_err(OpenError::io("reading", &path))?;
        let Some(active) = loaded.filter(|_| is_sound) else {
            self.b.close(file).map_err(OpenError::io("closing", &path))?;
            tracing::error!(path = %path.display(), "not as a clean stop leaves it: scanning");
            self.unclean = true;
            let point = self.params.recovery_point.unwrap_or(Offset::ZERO);
            return self.check(log, &[], point);
        };
        let mut segment = Segment::stored(active.end, log.base, active.index, self.wall);
        segment.first_timestamp = active.first_timestamp;
        segment.index_stored = true;
        segment.file = LogFile::Open(HeldFile::new(file));
        self.push(segment);
        Ok(true)
    }

    /// Only the last segment's file has to be open: a log may have more than there are descriptors.
    fn close_last(&mut self) -> Result<(), OpenError> {
        let Some(last) = self.segments.back_mut() else { return Ok(()) };
        if let Some(file) = last.open_file() {
            last.file = LogFile::Closed;
            let path = path_of(self.dir, last.base, FileKind::Log);
            self.b.close(file).map_err(OpenError::io("closing", path))?;
        }
        Ok(())
    }

    fn open_log(&mut self, path: &Path) -> Result<FileId, OpenError> {
        let how = OpenHow { write: true, ..OpenHow::default() };
        self.b.open(path, how).map_err(OpenError::io("opening", path))
    }

    /// Reads a segment from its first byte on, and cuts it where it stops counting. Says whether
    /// the log goes on behind it.
    fn check(
        &mut self,
        log: &LogFiles,
        later: &[LogFiles],
        point: Offset,
    ) -> Result<bool, OpenError> {
        if let Some(fault) = self.does_not_follow(log, point) {
            self.set_aside_all(later, Fault::Behind)?;
            self.set_aside_all(std::slice::from_ref(log), fault)?;
            return Ok(false);
        }
        self.scanned = true;
        self.producers.reach(self.b, self.dir, &self.segments, log.base)?;
        let path = path_of(self.dir, log.base, FileKind::Log);
        self.close_last()?;
        let file = self.open_log(&path)?;
        let (cursor, scanned) = self.scan(log, file, &path, point)?;
        if scanned.torn.is_some() {
            self.set_aside_all(later, Fault::Behind)?;
        }
        if let Some(fault) = scanned.torn {
            self.cut_tail(log.base, &cursor, scanned.end, fault)?;
        }
        // What was read may be in the page cache only (D8).
        self.b.fdatasync(file).map_err(OpenError::io("flushing", &path))?;
        let torn = scanned.torn.is_some();
        // A marker may have been in what is damaged: then what the file says is all there is.
        if scanned.damage.is_empty() && !self.report.read_only {
            match aborted::write(self.b, self.dir, log.base, &scanned.aborted) {
                Err(error) if error.is_no_space() => self.report.read_only = true,
                written => written?,
            }
        }
        self.keep(log, file, &path, scanned);
        Ok(!torn)
    }

    /// Whether a segment may not follow what is there: a hole means that the end of the one before
    /// was never on the disk (R16). Below the recovery point and in compacted logs holes are legal.
    fn does_not_follow(&self, log: &LogFiles, point: Offset) -> Option<Fault> {
        let end = self.end()?;
        if log.base < end {
            return Some(Fault::OffsetBack { expected: end, found: log.base.get() });
        }
        let hole = log.base > end && !self.params.config.compacted && log.base > point;
        hole.then_some(Fault::Gap { end })
    }

    fn scan(
        &mut self,
        log: &LogFiles,
        file: FileId,
        path: &Path,
        point: Offset,
    ) -> Result<(FileCursor, Scanned), OpenError> {
        // Pages that a failed flush left behind must not be believed (D8). Only clean pages are
        // dropped, and one that was written to again is not clean: flush first.
        self.b.fdatasync(file).map_err(OpenError::io("flushing", path))?;
        self.b.drop_cache(file).map_err(OpenError::io("dropping the cache of", path))?;
        let mut cursor = FileCursor::new(file, log.len);
        let params = OpenParams { recovery_point: Some(point), ..self.params.clone() };
        let next = self.next_base;
        let scanned = scan(self.b, &mut cursor, log.base, next, &params, &mut self.producers);
        let scanned = scanned.map_err(OpenError::io("reading", path))?;
        self.report.scanned_bytes += cursor.read;
        let last = scanned.end.end.get() - 1;
        if last > log.base.get() && index::relative_offset(log.base.get(), last).is_none() {
            let path = path.display();
            tracing::warn!(%path, last, "offsets that no index can hold: served without it");
        }
        Ok((cursor, scanned))
    }

    fn keep(&mut self, log: &LogFiles, file: FileId, path: &Path, scanned: Scanned) {
        let mut segment = Segment::stored(scanned.end, log.base, scanned.index, self.wall);
        segment.first_timestamp = scanned.first_timestamp;
        segment.file = LogFile::Open(HeldFile::new(file));
        // Its indexes are in memory only: sealing writes them.
        segment.phase = Phase::Rolled;
        self.producers.passed(scanned.end.end);
        segment.snapshot = Some(self.producers.state.snapshot());
        for (damage, fault) in scanned.damage {
            segment.damage.push(damage);
            self.report.damage.push(Damaged { path: path.to_path_buf(), damage, fault });
        }
        self.epochs.extend(scanned.epochs);
        self.push(segment);
        self.keep_closed = scanned.keep_closed;
    }

    fn push(&mut self, mut segment: Segment) {
        let before = self.segments.back().map_or(0, |s| s.bytes_before + s.staged.pos);
        segment.bytes_before = before;
        self.keep_closed = false;
        self.segments.push_back(segment);
    }

    /// From the last one back, so that a crash leaves no hole.
    fn set_aside_all(&mut self, logs: &[LogFiles], fault: Fault) -> Result<(), OpenError> {
        for log in logs.iter().rev() {
            let path = path_of(self.dir, log.base, FileKind::Log);
            let side_file = self.set_aside(log.base, log.len, fault)?;
            self.report.cuts.push(Cut { path, pos: 0, bytes: log.len, fault, side_file });
        }
        Ok(())
    }

    /// `None` when there is no room for it: then it stays where it is.
    fn set_aside(
        &mut self,
        base: Offset,
        bytes: u64,
        fault: Fault,
    ) -> Result<Option<PathBuf>, OpenError> {
        if !self.has_room(bytes) {
            return Ok(None);
        }
        match cut::set_aside(self.b, self.dir, base, fault.reason()) {
            Ok(side) => Ok(Some(side)),
            Err(error) if error.is_no_space() => Ok(self.without_space()),
            Err(error) => Err(error),
        }
    }

    fn cut_tail(
        &mut self,
        base: Offset,
        cursor: &FileCursor,
        end: Mark,
        fault: Fault,
    ) -> Result<(), OpenError> {
        let bytes = cursor.len - end.pos;
        let at = cut::At { base, pos: end.pos, reason: fault.reason() };
        let side_file = match self.report.read_only || !self.has_room(bytes) {
            true => None,
            false => match cut::cut_tail(self.b, self.dir, at, cursor.file, cursor.len) {
                Ok(side) => Some(side),
                Err(error) if error.is_no_space() => self.without_space(),
                Err(error) => return Err(error),
            },
        };
        let path = path_of(self.dir, base, FileKind::Log);
        self.report.cuts.push(Cut { path, pos: end.pos, bytes, fault, side_file });
        self.unclean = true;
        Ok(())
    }

    /// Whether so much may be kept aside too. If not, nothing is cut any more in this opening:
    /// what cannot be kept is not taken away.
    fn has_room(&mut self, bytes: u64) -> bool {
        let kept = self.kept_aside.saturating_add(bytes);
        if self.report.aside_full || (bytes > 0 && kept > self.params.config.cut_bytes_max) {
            self.report.aside_full = true;
            self.report.read_only = true;
            return false;
        }
        self.kept_aside = kept;
        true
    }

    /// R21: what was found is served, and the next opening goes on.
    fn without_space<T>(&mut self) -> Option<T> {
        self.report.read_only = true;
        None
    }

    /// A log that ends before its start begins again there, empty (R14).
    fn start_over_if_behind(&mut self) -> Result<(), OpenError> {
        let Some(log_start) = self.params.log_start else { return Ok(()) };
        if self.end().is_none_or(|end| end >= log_start) {
            return Ok(());
        }
        while let Some(segment) = self.segments.pop_back() {
            let path = path_of(self.dir, segment.base, FileKind::Log);
            if let Some(file) = segment.open_file() {
                self.b.close(file).map_err(OpenError::io("closing", &path))?;
            }
            let (bytes, fault) = (segment.staged.pos, Fault::BeforeStart { log_start });
            let side_file = self.set_aside(segment.base, bytes, fault)?;
            self.report.cuts.push(Cut { path, pos: 0, bytes, fault, side_file });
        }
        // The start may be what is wrong: nothing is deleted by it.
        let below = std::mem::take(&mut self.below);
        self.set_aside_all(&below, Fault::BeforeStart { log_start })?;
        tracing::error!(
            dir = %self.dir.display(), %log_start,
            "the log ended before its start: it begins again there, empty"
        );
        self.epochs.clear();
        self.producers.start_over(log_start);
        self.unclean = true;
        Ok(())
    }

    /// The last segment takes appends, unless damage ends it; without any, a new one is made (D10).
    fn have_active(&mut self, point: Offset) -> Result<(), OpenError> {
        if !self.keep_closed
            && let Some(last) = self.segments.back_mut()
            && last.open_file().is_some()
        {
            last.phase = Phase::Active;
            last.snapshot = None;
            return Ok(());
        }
        let start = self.params.log_start.unwrap_or(Offset::ZERO);
        let base = match self.end() {
            Some(end) => end.max(point),
            None => start,
        };
        let path = path_of(self.dir, base, FileKind::Log);
        let how = OpenHow { write: true, create: true, exclusive: true, ..OpenHow::default() };
        let mut segment = Segment::wanted(base, 0, &self.params.config, self.wall);
        if self.report.read_only {
            self.push(segment);
            return Ok(());
        }
        match self.b.open(&path, how) {
            Ok(file) => {
                segment.file = LogFile::Open(HeldFile::new(file));
                segment.named = true;
            }
            Err(errno) if errno.is_no_space() => self.report.read_only = true,
            Err(errno) => return Err(OpenError::io("creating", path)(errno)),
        }
        self.push(segment);
        Ok(())
    }

    /// Producer state up to the end, and the snapshots that Kafka has by then.
    fn settle_producers(&mut self) -> Result<(), OpenError> {
        let end = self.end().unwrap_or(Offset::ZERO);
        let (b, dir) = (&mut *self.b, self.dir);
        if !self.scanned && self.params.clean && !self.producers.has_snapshots() {
            // A clean stop of somebody who keeps none: the log is not read for them.
            self.producers.passed(end);
            for segment in self.segments.range(self.segments.len().saturating_sub(2)..) {
                self.producers.write(b, dir, segment.base)?;
            }
        }
        self.producers.reach(b, dir, &self.segments, end)?;
        let start = self.params.log_start.unwrap_or(Offset::ZERO);
        self.producers.drop_stray(b, dir, &self.segments, (start, end))?;
        if !self.report.read_only {
            self.producers.write(b, dir, end)?;
        }
        Ok(())
    }

    /// Epochs on the disk, then the directory: from here on everything found is durable (D8).
    fn settle(&mut self, stored: Option<EpochCache>, pool: &Pool) -> Result<Recovered, OpenError> {
        let first = self.segments.front().map_or(Offset::ZERO, |segment| segment.base);
        let end = self.end().unwrap_or(first);
        let log_start = self.params.log_start.unwrap_or(first).clamp(first, end);
        let before = stored.clone().unwrap_or_default();
        let latest = before.latest().map(|latest| latest.epoch);
        let (cache, epoch) = epochs::settle(before, &self.epochs, log_start, end, self.unclean);
        if !self.report.read_only && stored.as_ref() != Some(&cache) {
            match epochs::write(self.b, self.dir, &cache) {
                Err(error) if error.is_no_space() => self.report.read_only = true,
                written => written?,
            }
        }
        if !self.report.read_only {
            let stored = self.damage.as_deref();
            match damage::write(self.b, self.dir, stored, self.segments.iter()) {
                Err(error) if error.is_no_space() => self.report.read_only = true,
                written => written?,
            }
        }
        if self.unclean && latest.is_some_and(|latest| epoch > latest) {
            self.report.epoch_rose = Some(epoch);
        }
        self.b.sync_dir(self.dir).map_err(OpenError::io("syncing", self.dir))?;
        Ok(Recovered {
            dir: self.dir.to_path_buf(),
            config: self.params.config.clone(),
            segments: Segments::new(std::mem::take(&mut self.segments)),
            log_start,
            leader_epoch: epoch,
            epochs: cache,
            read_only: self.report.read_only,
            snapshot: self.producers.newest(),
            producers: std::mem::take(&mut self.producers.state),
            pool: pool.clone(),
        })
    }
}

//! What the control thread does unasked: checkpoints, removing what was deleted, and noticing that
//! a data directory failed.
//!
//! Owns: when a failed operation takes a directory offline, and which directories stop clean. Never
//! does: answer requests. Left: `homes`, `removal`. Right: `control`, `run` (which gives the time).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::control::{Control, Phase};
use super::datadir::{LogStart, Point};
use crate::io::Io;
use crate::io::blocking::Blocking;
use crate::log::datadir::DataDirError;
use crate::shard::catalogue::STATE_NOT_OPEN;
use crate::shard::mailbox::{FromShard, MAILBOX_MESSAGES_MAX, ToShard};
use crate::types::{Handle, Micros, Offset};

impl<I: Io> Control<I> {
    /// Writes the recovery points down, so that a scan after a crash starts there (R19).
    pub fn checkpoint(&mut self) {
        let catalogue = Arc::clone(&self.catalogue);
        let mut points = Vec::new();
        for topic in catalogue.topics() {
            for partition in &topic.partitions {
                let marks = partition.marks.now();
                if marks.state == STATE_NOT_OPEN {
                    // Not open here: what the files say of it stays.
                    continue;
                }
                let offset = |raw| Offset::new(raw).unwrap_or(Offset::ZERO);
                points.push(Point {
                    topic: topic.name.clone(),
                    index: partition.index,
                    recovery_point: offset(marks.recovery_point),
                    log_start: offset(marks.start),
                    first_base: offset(marks.first_base),
                    high_watermark: offset(marks.high_watermark),
                });
            }
        }
        let mut blocking = Blocking::new(&mut self.io, self.pool.clone());
        let failed = self.homes.write_checkpoints(&mut blocking, points);
        self.storage_failed(failed);
        if self.topics_changed
            && let Err(error) = self.save_topics()
        {
            tracing::error!("{error}; trying again at the next checkpoint");
        }
    }

    /// What has come by now; one write covers all the log starts that were asked for in it.
    pub fn handle_all(&mut self, first: FromShard, more: impl Iterator<Item = FromShard>) {
        self.handle(first);
        more.take(MAILBOX_MESSAGES_MAX).for_each(|message| self.handle(message));
        self.save_starts();
    }

    /// Writes the log starts down that shards asked for, all at once, and tells them: deleted
    /// records are acked when a restart would know of it.
    fn save_starts(&mut self) {
        let asked = std::mem::take(&mut self.starts_asked);
        if asked.is_empty() {
            return;
        }
        let catalogue = Arc::clone(&self.catalogue);
        let mut starts = HashMap::new();
        let wanted: HashSet<Handle> = asked.iter().map(|(_, handle)| *handle).collect();
        for topic in catalogue.topics() {
            for one in topic.partitions.iter().filter(|one| wanted.contains(&one.handle)) {
                let offset = Offset::new(one.marks.now().start).unwrap_or(Offset::ZERO);
                let (topic, index) = (topic.name.clone(), one.index);
                starts.insert(one.handle, LogStart { topic, index, offset });
            }
        }
        let rows: Vec<LogStart> = starts.values().cloned().collect();
        let mut blocking = Blocking::new(&mut self.io, self.pool.clone());
        let failed = self.homes.write_log_starts(&mut blocking, &rows);
        for (shard, handle) in asked {
            let saved = starts.get(&handle).filter(|start| {
                let at = self.homes.place(&start.topic, start.index);
                let is_online = |at: &usize| self.homes.is_online(*at);
                at.filter(is_online).is_some_and(|at| failed.iter().all(|(dir, _)| *dir != at))
            });
            self.send(shard, ToShard::StartSaved(handle, saved.map(|start| start.offset)));
        }
        self.storage_failed(failed);
    }

    /// When something deleted now is to be removed.
    pub(super) fn removal_time(&self, delay_ms: i64) -> Micros {
        self.io.now().plus(Micros::from_ms(u64::try_from(delay_ms).unwrap_or(0)))
    }

    /// How long until something waits to be removed; none while nothing does.
    pub fn removal_due(&self) -> Option<Duration> {
        if self.phase != Phase::Serving {
            return None;
        }
        match self.removals.due() {
            Micros::NEVER => None,
            due => Some(Duration::from_micros(due.since(self.io.now()).0)),
        }
    }

    /// Removes one file of what was deleted, if it is due.
    pub fn remove_some(&mut self) {
        let mut blocking = Blocking::new(&mut self.io, self.pool.clone());
        self.removals.step(&mut blocking);
    }

    /// Operations on directories went wrong: a full disk passes, all else takes its directory
    /// offline.
    pub(super) fn storage_failed(&mut self, failed: Vec<(usize, DataDirError)>) {
        for (at, error) in failed {
            match error.is_of_storage() {
                true => self.take_offline(at, &error.to_string()),
                false => tracing::error!("{error}"),
            }
        }
    }

    /// A partition can no longer write. Its directory is tried: when that fails, too, all its
    /// partitions go offline, not one after the other.
    pub(super) fn poisoned(&mut self, handle: Handle) {
        let catalogue = Arc::clone(&self.catalogue);
        let place = catalogue.topics().iter().find_map(|topic| {
            let partition = topic.partitions.iter().find(|one| one.handle == handle)?;
            self.homes.place(&topic.name, partition.index)
        });
        let Some(at) = place else { return };
        let mut blocking = Blocking::new(&mut self.io, self.pool.clone());
        if let Err(error) = self.homes.try_out(&mut blocking, at) {
            self.storage_failed(vec![(at, error)]);
        }
    }

    fn take_offline(&mut self, at: usize, why: &str) {
        if self.homes.dirs()[at].failure().is_some() {
            return;
        }
        let why = format!("{why}; mend it and restart the server");
        self.homes.fail(at, why.clone());
        let why =
            format!("its data directory {} failed: {why}", self.homes.dirs()[at].path.display());
        let catalogue = Arc::clone(&self.catalogue);
        for topic in catalogue.topics() {
            for partition in &topic.partitions {
                if self.homes.place(&topic.name, partition.index) == Some(at) {
                    let handle = partition.handle;
                    self.offline.insert(handle, why.clone());
                    let order = ToShard::Offline { handle, why: why.as_str().into() };
                    self.send(partition.shard, order);
                }
            }
        }
        if self.homes.all_failed() && self.failed.is_none() {
            tracing::error!("no data directory is left: stopping");
            self.failed = Some(format!("no data directory is left: {why}"));
            self.stop();
        }
    }

    /// The very last thing (D9): a directory's marker would claim what is not so where one of its
    /// partitions did not close cleanly.
    pub(super) fn write_clean_markers(&mut self) {
        let clean: HashSet<Handle> =
            self.closed.iter().filter(|one| one.clean).map(|one| one.handle).collect();
        let mut unclean = vec![0; self.homes.dirs().len()];
        for topic in self.catalogue.topics() {
            for partition in &topic.partitions {
                if let Some(at) = self.homes.place(&topic.name, partition.index)
                    && !clean.contains(&partition.handle)
                {
                    unclean[at] += 1;
                }
            }
        }
        for (dir, unclean) in self.homes.dirs().iter().zip(&unclean) {
            if *unclean > 0 {
                tracing::warn!(
                    "{}: {unclean} partitions did not close cleanly: no clean marker, the next \
                     start recovers what it holds",
                    dir.path.display()
                );
            }
        }
        let mut blocking = Blocking::new(&mut self.io, self.pool.clone());
        let failed = self.homes.write_clean_markers(&mut blocking, |at| unclean[at] == 0);
        for (_, error) in failed {
            tracing::error!("clean marker: {error}");
        }
    }
}

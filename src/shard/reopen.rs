//! A partition whose disk was full at its recovery is served read-only, and opened again until
//! there is space (D12, R21).
//!
//! Owns: when, and what happens to requests under way. Never does: decide that there is space
//! (opening does). Left: `parts`, `log::open`. Right: `tick`, through `parts`.

use super::Shard;
use super::jobs::Job;
use super::parts::{Closing, Slot};
use crate::errors::ErrorCode;
use crate::io::Io;
use crate::log::PartitionState;
use crate::protocol::api::Api;
use crate::protocol::error::Detail;
use crate::types::Micros;

/// How long a read-only partition is left alone before it is opened again.
pub const REOPEN_AFTER: Micros = Micros(2_000_000);

impl Slot {
    fn waits_for_space(&self) -> bool {
        self.closing == Closing::No && *self.partition.state() == PartitionState::ReadOnly
    }

    /// When to look at a read-only partition again.
    pub fn reopen_deadline(&self) -> Micros {
        if self.waits_for_space() { self.reopen_at } else { Micros::NEVER }
    }
}

impl<I: Io> Shard<I> {
    /// Closes a read-only partition whose time has come; it is opened again when it is closed.
    pub(super) fn begin_reopen(&mut self, slot: u32) {
        let now = self.now;
        let Some(known) = self.parts.get(slot) else { return };
        if known.waits_for_space() && now >= known.reopen_at {
            known.closing = Closing::Reopen;
            known.partition.close(now);
            self.parts.touch(slot);
        }
    }

    /// The closed partition is read anew. Lookups under way hold places of the old one: they end
    /// with an error that a client tries again after; parked fetches start over.
    pub(super) fn reopen(&mut self, slot: u32) {
        let now = self.now;
        let Some(known) = self.parts.get(slot) else { return };
        let (mut spec, handle) = (known.spec.clone(), known.handle);
        spec.clean = false;
        spec.recovery_point = Some(known.partition.recovery_point());
        spec.settings = known.settings.clone();
        let parked = std::mem::take(&mut known.parked);
        for job in self.jobs.under_way_on(handle) {
            if !parked.contains(&job) {
                self.fail_job(job, "the partition is being opened again: try once more");
            }
        }
        match self.open_log(&spec) {
            Ok(partition) => {
                let Some(known) = self.parts.get(slot) else { return };
                if *partition.state() == PartitionState::Open {
                    tracing::info!("{}-{} takes appends again", spec.topic, spec.index);
                }
                known.partition = partition;
                known.closing = Closing::No;
                known.reopen_at = now.plus(REOPEN_AFTER);
                self.parts.touch(slot);
            }
            Err(_) => self.remove_slot(slot, handle),
        }
        for job in parked {
            self.wake_job(job);
        }
    }

    pub(super) fn fail_job(&mut self, id: u32, why: &str) {
        let (api, correlation) = match self.jobs.peek(id) {
            Some(Job::Fetch(fetch)) => (Api::Fetch, fetch.correlation),
            Some(Job::Offsets(job)) => (Api::ListOffsets, job.correlation),
            None => return,
        };
        let code = ErrorCode::KafkaStorageError;
        let answer =
            super::control::error_answer(api.to_wire(), correlation, code, why, Detail::None);
        self.finish_job(id, answer);
    }
}

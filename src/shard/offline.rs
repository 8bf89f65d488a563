//! Partitions whose data directory failed: closed without another write, then refused.
//!
//! Owns: the way out of an open partition, and why it went. Never does: find out that a directory
//! failed (the control thread does). Left: `parts`, `log`. Right: `control`, `parts`.

use std::sync::Arc;

use super::Shard;
use super::catalogue::{MarksNow, STATE_NOT_OPEN};
use super::parts::Closing;
use crate::io::Io;
use crate::types::Handle;

impl<I: Io> Shard<I> {
    /// Nothing more is written here; who waits is refused. Requests hear `why` from now on.
    pub(super) fn take_offline(&mut self, handle: Handle, why: Arc<str>) {
        self.parts.offline.insert(handle, why);
        let now = self.now;
        let Some(slot) = self.parts.find(handle) else { return };
        if let Some(known) = self.parts.get(slot) {
            if known.closing == Closing::Stop {
                return;
            }
            known.closing = Closing::Offline;
            known.partition.forsake(now);
        }
        self.parts.touch(slot);
    }

    /// The partition is closed as far as it can be. Lookups under way end with an error; parked
    /// fetches find it gone.
    pub(super) fn gone_offline(&mut self, slot: u32) {
        let Some(known) = self.parts.get(slot) else { return };
        let (handle, parked) = (known.handle, std::mem::take(&mut known.parked));
        known.marks.publish(MarksNow { state: STATE_NOT_OPEN, ..known.marks.now() });
        let under_way = self.jobs.under_way_on(handle);
        self.remove_slot(slot, handle);
        let why = self.parts.offline.get(&handle).map_or("offline".into(), Arc::clone);
        for job in under_way {
            if !parked.contains(&job) {
                self.fail_job(job, &why);
            }
        }
        for job in parked {
            self.wake_job(job);
        }
    }
}

//! List offsets as a job: the specials at once, times through a lookup.
//!
//! Owns: the rule of which offset answers which question. Never does: read past what
//! the asker may see. Left: `log` (`TimeLookup`). Right: `jobs`, which drives it.

use super::Shard;
use super::conn::{Answer, ConnId};
use super::fetch::view;
use super::jobs::{Came, advance};
use crate::errors::ErrorCode;
use crate::io::Io;
use crate::log::{TimeLookup, Timed, View, When};
use crate::protocol::api::Api;
use crate::protocol::error::Detail;
use crate::protocol::offsets::{ListOffsetsRequest, ListOffsetsResponse, special};
use crate::types::Handle;

#[derive(Debug)]
pub struct OffsetsJob {
    pub conn: ConnId,
    pub sequence: u32,
    pub correlation: u32,
    pub handle: Handle,
    timestamp: i64,
    view: View,
    lookup: Option<TimeLookup>,
}

impl OffsetsJob {
    pub fn new(
        conn: ConnId,
        sequence: u32,
        correlation: u32,
        request: &ListOffsetsRequest,
    ) -> OffsetsJob {
        let (handle, timestamp) = (request.handle, request.timestamp);
        let view = view(request.isolation);
        OffsetsJob { conn, sequence, correlation, handle, timestamp, view, lookup: None }
    }

    fn found(&self, offset: i64, timestamp: i64, leader_epoch: i32) -> Option<Answer> {
        let mut frame = Vec::new();
        let response = ListOffsetsResponse { offset, timestamp, leader_epoch };
        super::control::encode(Api::ListOffsets, self.correlation, &response, &mut frame);
        Some(Answer::Frame(frame))
    }

    fn failed(&self, code: ErrorCode, message: &str, detail: Detail) -> Option<Answer> {
        let api = Api::ListOffsets.to_wire();
        Some(super::control::error_answer(api, self.correlation, code, message, detail))
    }
}

impl<I: Io> Shard<I> {
    pub(super) fn step_offsets(
        &mut self,
        id: u32,
        job: &mut OffsetsJob,
        came: Option<Came>,
    ) -> Option<Answer> {
        let Some(slot) = self.parts.find(job.handle) else {
            let (code, message, detail) = self.not_here(job.handle);
            return job.failed(code, &message, detail);
        };
        let known = self.parts.get(slot)?;
        known.used = true;
        let partition = &mut known.partition;
        let when = match job.timestamp {
            special::LATEST => {
                let end = partition.end_for(job.view);
                return job.found(end.get(), -1, partition.leader_epoch());
            }
            special::EARLIEST | special::EARLIEST_LOCAL => {
                return job.found(partition.log_start().get(), -1, partition.epoch_at_start());
            }
            special::LATEST_TIERED => return job.found(-1, -1, -1),
            special::MAX_TIMESTAMP => When::Max,
            time if time >= 0 => When::AtOrAfter(time),
            other => {
                let message = format!("timestamp {other}: give -1 to -5, or milliseconds");
                return job.failed(ErrorCode::UnsupportedVersion, &message, Detail::None);
            }
        };
        let lookup = job.lookup.get_or_insert_with(|| TimeLookup::new(when, job.view));
        let step = match advance(lookup, partition, came) {
            Ok(step) => step,
            Err(why) => return job.failed(ErrorCode::KafkaStorageError, &why, Detail::None),
        };
        self.parts.touch_if_work(slot);
        match self.submit_step(id, step)? {
            Ok(Some(Timed { offset, timestamp, leader_epoch })) => {
                job.found(offset.get(), timestamp, leader_epoch)
            }
            Ok(None) => job.found(-1, -1, -1),
            Err(message) => job.failed(ErrorCode::KafkaStorageError, &message, Detail::None),
        }
    }
}

//! What moves a log's front and ends its segments: retention passes on time, delete records, rolls
//! on request.
//!
//! Owns: when a partition's next pass is due, spread so that thousands do not come at once; the
//! two requests; asking the control thread to write a log start down. Never does: decide what goes
//! (`log` does). Left: `log`, `mailbox`. Right: `parts`, `control`.

use super::Shard;
use super::conn::{Answer, ConnId, State};
use super::mailbox::FromShard;
use super::parts::Slot;
use crate::errors::ErrorCode;
use crate::io::Io;
use crate::log::{DeleteRefusal, PartitionState, Refusal, Waiter};
use crate::protocol::api::{Api, Message, RequestHeader};
use crate::protocol::cursor::WireError;
use crate::protocol::error::Detail;
use crate::protocol::offsets::{
    DeleteRecordsRequest, DeleteRecordsResponse, RollRequest, RollResponse,
};
use crate::types::{Handle, Micros, Offset};

/// Kafka's `log.initial.task.delay.ms`: a start has other work first.
const FIRST_PASS_AFTER: Micros = Micros(30_000_000);

/// When the first pass of a partition is due: after the delay, at its own place in the interval.
pub fn first_pass(handle: Handle, now: Micros, interval: Micros) -> Micros {
    let every = interval.0.max(1);
    // Neighbouring handles lie far apart.
    let spread = u64::from(handle.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) % every;
    now.plus(Micros(FIRST_PASS_AFTER.0.min(every))).plus(Micros(spread))
}

impl Slot {
    /// Begins a pass if one is due.
    pub(super) fn retain_if_due(&mut self, now: Micros, wall: i64, interval: Micros) {
        if now >= self.retain_at {
            self.retain_at = now.plus(interval);
            self.partition.retain(wall);
        }
    }
}

impl<I: Io> Shard<I> {
    pub(super) fn delete_records(
        &mut self,
        id: ConnId,
        header: &RequestHeader,
        body: &[u8],
    ) -> Result<(), WireError> {
        let request = DeleteRecordsRequest::parse(body)?;
        let Some(slot) = self.parts.find(request.handle) else {
            let refused = self.not_here(request.handle);
            self.refuse(id, header, refused);
            return Ok(());
        };
        let sequence = self.enqueue(id, header, State::DeleteRecords);
        let (now, waiter) = (self.now, Waiter(id.waiter(sequence).0));
        let Some(known) = self.parts.get(slot) else { return Ok(()) };
        if let Err(refusal) = known.partition.delete_records(request.before, waiter, now) {
            let (code, detail) = refused(&refusal);
            let answer = super::control::error_answer(
                header.api,
                header.correlation,
                code,
                &refusal.to_string(),
                detail,
            );
            if let Some(conn) = self.conns.get(id) {
                conn.answer(sequence, answer);
                self.conns.reply.push(id);
            }
        }
        self.parts.touch(slot);
        Ok(())
    }

    pub(super) fn roll(
        &mut self,
        id: ConnId,
        header: &RequestHeader,
        body: &[u8],
    ) -> Result<(), WireError> {
        let request = RollRequest::parse(body)?;
        let Some(slot) = self.parts.find(request.handle) else {
            let refused = self.not_here(request.handle);
            self.refuse(id, header, refused);
            return Ok(());
        };
        let wall = self.wall;
        let Some(known) = self.parts.get(slot) else { return Ok(()) };
        match known.partition.roll(wall) {
            Ok(base) => {
                let mut frame = Vec::new();
                let response = RollResponse { base };
                super::control::encode(Api::Roll, header.correlation, &response, &mut frame);
                self.answer(id, header, Answer::Frame(frame));
            }
            Err(refusal) => {
                let code = match refusal {
                    Refusal::Closing => ErrorCode::ShuttingDown,
                    _ => ErrorCode::KafkaStorageError,
                };
                let message = format!("no roll: {refusal}");
                self.refuse(id, header, (code, message, Detail::None));
            }
        }
        self.parts.touch(slot);
        Ok(())
    }

    /// The answer to records that were deleted, once a restart would know.
    pub(super) fn deleted(correlation: u32, start: Offset) -> Answer {
        let mut frame = Vec::new();
        let response = DeleteRecordsResponse { start };
        super::control::encode(Api::DeleteRecords, correlation, &response, &mut frame);
        Answer::Frame(frame)
    }

    /// Asks for a start that somebody waits for to be written down. The marks were published.
    pub(super) fn ask_start_saved(&mut self, slot: u32) {
        let (shard, now) = (self.config.id, self.now);
        let Some(known) = self.parts.get(slot) else { return };
        if known.partition.start_to_save(now).is_some() {
            let handle = known.handle;
            self.control.send(FromShard::SaveStart { shard, handle });
        }
    }

    pub(super) fn start_saved(&mut self, handle: Handle, saved: Option<Offset>) {
        let now = self.now;
        let Some(slot) = self.parts.find(handle) else { return };
        if let Some(known) = self.parts.get(slot)
            && *known.partition.state() != PartitionState::ReadOnly
        {
            known.partition.start_saved(saved, now);
        }
        self.parts.touch(slot);
    }
}

fn refused(refusal: &DeleteRefusal) -> (ErrorCode, Detail) {
    match refusal {
        DeleteRefusal::Policy => (ErrorCode::PolicyViolation, Detail::None),
        DeleteRefusal::OutOfRange { start, high_watermark, .. } => {
            let (start, high_watermark) = (start.get(), high_watermark.get());
            (ErrorCode::OffsetOutOfRange, Detail::Range { start, high_watermark })
        }
        DeleteRefusal::ReadOnly => (ErrorCode::KafkaStorageError, Detail::None),
        DeleteRefusal::Closing => (ErrorCode::ShuttingDown, Detail::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_passes_are_spread_over_the_interval() {
        let interval = Micros(300_000_000);
        let at = |handle| first_pass(Handle(handle), Micros(0), interval).0;
        let mut by_second = [0; 400];
        (0..10_000).for_each(|handle| by_second[(at(handle) / 1_000_000) as usize] += 1);
        assert!(by_second[..30].iter().all(|count| *count == 0), "the start has other work");
        assert!(by_second.iter().all(|count| *count < 100), "{by_second:?}");
        let soon = first_pass(Handle(7), Micros(0), Micros(1000));
        assert!(soon >= Micros(1000) && soon < Micros(2000), "{soon:?}");
    }
}

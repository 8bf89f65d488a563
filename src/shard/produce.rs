//! Received bytes to requests, and the hot request: checked batches into their partition.
//!
//! Owns: cutting frames, the bounds on a connection's requests, validation before append. Never
//! does: copy record bytes, or answer before the partition says so. Left: `protocol`, `format`,
//! `log`. Right: `tick` (runs it), `control` (the cold requests).

use super::conn::{Answer, ConnId, Pending, State};
use super::histograms::Stage;
use super::tick::Label;
use super::{Life, Shard};
use crate::errors::ErrorCode;
use crate::format::batch::parse_header;
use crate::format::reencode::differs;
use crate::format::validate::{self as format, Checked, Limits, Scratch, check_produce};
use crate::io::Io;
use crate::io::buffers::Slice;
use crate::log::{BatchSummary, Batches, Refusal, Summaries, Waiter};
use crate::protocol::api::{Api, BODY_AT, Message, RequestHeader};
use crate::protocol::error::Detail;
use crate::protocol::frame::{Frame, PREFIX, Scan, scan_request};
use crate::protocol::produce::{BATCHES_AT, ProduceRequest, ProduceResponse};
use crate::types::AckLevel;

/// Requests one connection gets done in a turn before others have theirs.
const REQUESTS_PER_TURN: usize = 64;

/// What a refused produce says.
type Refused = (ErrorCode, String, Detail);

impl<I: Io> Shard<I> {
    /// Every connection with unread bytes gets a share of the turn.
    pub(super) fn parse(&mut self) {
        for _ in 0..self.conns.parse.len() {
            let Some(id) = self.conns.parse.pop_front() else { break };
            self.parse_one(id);
        }
        let staged = std::mem::take(&mut self.staged_now);
        if staged > 0 {
            // One clock read a turn: its requests share the time of the phase.
            let took = self.io.now().since(self.now);
            self.stages.record_n(Stage::Parse, took, staged);
        }
    }

    fn parse_one(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get(id) else { return };
        if conn.closing {
            if conn.is_idle() {
                self.close(id);
            }
            return;
        }
        if !matches!(self.life, Life::Serving) {
            return;
        }
        let in_flight_max = self.config.in_flight_max;
        if let Some(frame) = conn.blocked.take()
            && !self.again(id, frame)
        {
            return;
        }
        let mut missing = 0;
        for turn in 0..=REQUESTS_PER_TURN {
            let Some(conn) = self.conns.get(id) else { return };
            if conn.closing || conn.pending.len() >= in_flight_max || conn.owes_too_much() {
                return;
            }
            if turn == REQUESTS_PER_TURN {
                self.conns.parse.push_back(id);
                return;
            }
            let Some(window) = &mut conn.window else { break };
            match scan_request(window.bytes(), self.config.frame_bytes_max) {
                Ok(Scan::NeedMore(bytes)) => {
                    missing = bytes;
                    break;
                }
                Ok(Scan::Frame(frame)) => {
                    let len = frame.wire_len();
                    let frame = window.take(len);
                    if self.conns.overdraft == Some(id) {
                        self.conns.overdraft = None;
                    }
                    if !self.request(id, frame) {
                        return;
                    }
                }
                Err(error) => {
                    self.counters.frames_refused += 1;
                    let (peer, shard) = (conn.peer.clone(), self.config.id);
                    tracing::warn!(%shard, "{peer} closed: {error}");
                    self.close(id);
                    return;
                }
            }
        }
        self.receive(id, missing);
    }

    fn receive(&mut self, id: ConnId, missing: usize) {
        let (pool, overdraft) = (self.pool.clone(), self.conns.overdraft);
        let Some(conn) = self.conns.get(id) else { return };
        if conn.receiving {
            return;
        }
        // One connection at a time may go past the bound, to the end of its frame: else frames
        // that are all half received would wait for each other's memory.
        let has_partial = conn.window.as_ref().is_some_and(|window| !window.is_empty());
        let mut op = conn.next_receive(&pool, missing, false);
        if op.is_none() && has_partial && overdraft.is_none_or(|holder| holder == id) {
            op = conn.next_receive(&pool, missing, true);
            self.conns.overdraft = Some(id);
        }
        match op {
            Some(op) => self.submit(op, Label::Receive(id)),
            None => {
                // No buffer memory: writes and replies in flight will give some back.
                self.counters.backpressure += 1;
                self.hungry = true;
                self.conns.retry.push(id);
            }
        }
    }

    /// A frame that had to wait tries again; false when it still has to.
    fn again(&mut self, id: ConnId, frame: Slice) -> bool {
        let header = match RequestHeader::split(&Frame { content: &frame[PREFIX..] }) {
            Ok((header, _)) => header,
            Err(_) => return true,
        };
        self.produce(id, frame, header)
    }

    /// One whole request frame. False: stop reading this connection for now.
    fn request(&mut self, id: ConnId, frame: Slice) -> bool {
        self.counters.requests += 1;
        let split = RequestHeader::split(&Frame { content: &frame[PREFIX..] });
        let Ok((header, body)) = split else {
            self.close(id);
            return false;
        };
        match header.admit(body.len()) {
            Ok(Api::Produce) => self.produce(id, frame, header),
            Ok(api) => {
                self.cold_request(id, api, &header, &frame[BODY_AT..]);
                true
            }
            Err(refusal) => {
                if refusal.close
                    && let Some(conn) = self.conns.get(id)
                {
                    let (peer, shard) = (conn.peer.clone(), self.config.id);
                    tracing::warn!(%shard, "{peer}: {}", refusal.message);
                }
                let mut frame = Vec::new();
                refusal.encode(&mut frame);
                self.answer(id, &header, Answer::Frame(frame));
                if refusal.close {
                    self.reply(id);
                    self.close(id);
                }
                !refusal.close
            }
        }
    }

    /// Answers a request at once, in its turn.
    pub(super) fn answer(&mut self, id: ConnId, header: &RequestHeader, answer: Answer) {
        self.enqueue(id, header, State::Ready(answer));
        self.conns.reply.push(id);
    }

    /// Adds a request to its connection's line; its sequence number.
    pub(super) fn enqueue(&mut self, id: ConnId, header: &RequestHeader, state: State) -> u32 {
        let (api, correlation, received) = (header.api, header.correlation, self.now);
        let pending = Pending { api, correlation, received, state };
        self.conns.get(id).map_or(0, |conn| conn.push(pending))
    }

    pub(super) fn refuse(&mut self, id: ConnId, header: &RequestHeader, refused: Refused) {
        let (code, message, detail) = refused;
        let answer =
            super::control::error_answer(header.api, header.correlation, code, &message, detail);
        self.answer(id, header, answer);
    }

    fn produce(&mut self, id: ConnId, frame: Slice, header: RequestHeader) -> bool {
        match self.stage(id, frame, &header) {
            Ok(()) => true,
            Err(Stop::Refused(refused)) => {
                self.counters.produce_requests += 1;
                self.counters.produce_refused += 1;
                self.refuse(id, &header, refused);
                true
            }
            Err(Stop::Wait(frame)) => {
                self.counters.backpressure += 1;
                if let Some(conn) = self.conns.get(id) {
                    conn.blocked = Some(frame);
                }
                self.conns.retry.push(id);
                false
            }
        }
    }

    /// Checks a produce frame and stages its batches; the partition answers through its acks.
    fn stage(&mut self, id: ConnId, mut frame: Slice, header: &RequestHeader) -> Result<(), Stop> {
        let refused = |code, message| Stop::Refused((code, message, Detail::None));
        let request = ProduceRequest::parse(&frame[BODY_AT..])
            .map_err(|error| refused(ErrorCode::InvalidRequest, error.to_string()))?;
        let (handle, level) = (request.handle, request.ack);
        let Some(slot) = self.parts.find(handle) else {
            return Err(Stop::Refused(self.not_here(handle)));
        };
        let Some(known) = self.parts.get(slot) else {
            return Err(Stop::Refused(self.not_here(handle)));
        };
        if !known.partition.can_accept(frame.len() - BATCHES_AT) {
            return Err(Stop::Wait(frame));
        }
        let settings = &known.settings;
        let limits = Limits {
            message_bytes_max: settings.log.max_message_bytes,
            depth: self.config.depth,
            decompressed_bytes_max: self.config.decompressed_bytes_max,
            now_ms: self.wall,
            timestamp_before_max_ms: settings.timestamp_before_max_ms,
            timestamp_after_max_ms: settings.timestamp_after_max_ms,
            log_append_time: settings.log_append_time,
            key_required: settings.log.compacted,
        };
        let append_time = if settings.log_append_time { self.wall } else { -1 };
        let bytes = (frame.len() - BATCHES_AT) as u64;
        let (frame, checked) = match settings.compression {
            Some(target) if differs(&frame[BATCHES_AT..], target) => {
                self.reencode(slot, frame, target, &limits)?
            }
            _ => {
                let checked = check_all(&mut frame[BATCHES_AT..], &limits, &mut self.scratch)?;
                drop(frame.split_to(BATCHES_AT));
                (frame, checked)
            }
        };
        let records: u64 = checked.iter().map(|batch| u64::from(batch.records)).sum();
        let old = self.older_than_retention(slot, &checked);
        let waiter = self.next_waiter(id);
        let (now, wall) = (self.now, self.wall);
        let Some(known) = self.parts.get(slot) else {
            return Err(Stop::Refused(self.not_here(handle)));
        };
        known.used = true;
        let staged = known
            .partition
            .append(Batches::new(frame, checked), level, waiter, now, wall)
            .map_err(|refusal| Stop::Refused(refusal_answer(&refusal)))?;
        // A repeat was stamped when its original came.
        let append_time = staged.repeats.filter(|_| append_time >= 0).unwrap_or(append_time);
        let log_start = known.partition.log_start();
        if old > 0 {
            self.accepted_old(slot, old);
        }
        self.count_accepted(slot, staged.repeats.is_none().then_some((records, bytes)));
        if level != AckLevel::None {
            self.enqueue(id, header, State::Produce { append_time });
            return Ok(());
        }
        let response = ProduceResponse {
            base: staged.base_offset,
            append_time,
            level_met: AckLevel::None,
            log_start,
        };
        self.answer(id, header, Answer::Produce { response, settled: now });
        Ok(())
    }

    /// Counts an accepted request, and what it brought that is new.
    fn count_accepted(&mut self, slot: u32, new: Option<(u64, u64)>) {
        let (records, bytes) = new.unwrap_or_default();
        self.counters.produce_requests += 1;
        self.counters.records += records;
        self.counters.bytes_in += bytes;
        self.staged_now += 1;
        self.parts.touch(slot);
    }

    /// The waiter that the next enqueued request of this connection will have.
    fn next_waiter(&mut self, id: ConnId) -> Waiter {
        let sequence = self.conns.get(id).map_or(0, |conn| conn.next_sequence());
        Waiter(id.waiter(sequence).0)
    }
}

/// The length of the batch at the start of `rest`. A header that does not parse leaves the whole
/// rest to `check_produce`, which says why.
pub(super) fn batch_len(rest: &[u8]) -> usize {
    let len = parse_header(rest).map_or(rest.len(), |header| header.total_len());
    len.min(rest.len())
}

pub(super) fn summary_of(checked: Result<Checked, format::Refused>) -> Result<BatchSummary, Stop> {
    let refused = |code, message| Stop::Refused((code, message, Detail::None));
    let checked = checked.map_err(|error| refused(error.code(), error.to_string()))?;
    BatchSummary::of(&checked.header)
        .ok_or_else(|| refused(ErrorCode::InvalidRecord, "impossible counts".to_string()))
}

/// Checks every batch of a request in place; the frame is theirs to its end.
fn check_all(bytes: &mut [u8], limits: &Limits, scratch: &mut Scratch) -> Result<Summaries, Stop> {
    let mut summaries = Summaries::default();
    let mut rest = bytes;
    loop {
        let (one, behind) = rest.split_at_mut(batch_len(rest));
        summaries.push(summary_of(check_produce(one, limits, scratch))?);
        if behind.is_empty() {
            return Ok(summaries);
        }
        rest = behind;
    }
}

/// Kafka's error for what the log refuses.
fn refusal_answer(refusal: &Refusal) -> Refused {
    let code = match refusal {
        Refusal::Poisoned | Refusal::NoSpace | Refusal::NoDescriptors | Refusal::ReadOnly => {
            ErrorCode::KafkaStorageError
        }
        Refusal::Closing => ErrorCode::ShuttingDown,
        Refusal::Backpressure => ErrorCode::Overloaded,
        Refusal::TooLarge { .. } => ErrorCode::MessageTooLarge,
        Refusal::PastSegment { .. } => ErrorCode::RecordListTooLarge,
        Refusal::TooManyOffsets { .. } => ErrorCode::InvalidRecord,
        Refusal::OffsetsExhausted => ErrorCode::UnknownServerError,
        Refusal::StaleEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        Refusal::OutOfOrder { .. } | Refusal::MixedRepeats => ErrorCode::OutOfOrderSequenceNumber,
        Refusal::Transaction { .. } => ErrorCode::InvalidTxnState,
    };
    let detail = match refusal {
        Refusal::OutOfOrder { producer_epoch, next, is_current: true, .. } => {
            Detail::Sequence { epoch: *producer_epoch, next: *next }
        }
        _ => Detail::None,
    };
    (code, refusal.to_string(), detail)
}

#[derive(Debug)]
pub(super) enum Stop {
    Refused(Refused),
    /// The partition is full: the frame waits, whole, and its connection with it.
    Wait(Slice),
}

//! The cold requests: hello, metadata, offsets and flush here, deletions and rolls in `retain`,
//! topics and stats through the control thread.
//!
//! Owns: what each cold request is answered, and the mail from the control thread. Never does: wait
//! for the control thread. Left: `protocol`, `mailbox`, `catalogue`. Right: `produce` (hands the
//! requests over), `tick` (reads the mail).

use std::sync::Arc;

use super::catalogue::STATE_NOT_OPEN;
use super::conn::{Answer, ConnId, State};
use super::fetch::Ask;
use super::jobs::Job;
use super::mailbox::{FromShard, ToShard, Waiter as Place};
use super::offsets::OffsetsJob;
use super::{Life, Shard};
use crate::errors::ErrorCode;
use crate::io::Io;
use crate::log::Waiter;
use crate::protocol::api::{Api, Message, RequestHeader, encode_response};
use crate::protocol::cursor::WireError;
use crate::protocol::epochs::{EpochEndRequest, EpochEndResponse};
use crate::protocol::error::{Detail, encode_error};
use crate::protocol::fetch::FetchRequest;
use crate::protocol::hello::{HelloRequest, HelloResponse, Limits, ShardAddress, features};
use crate::protocol::metadata::{MetadataRequest, MetadataResponse, PartitionMeta, TopicMeta};
use crate::protocol::offsets::{FlushRequest, ListOffsetsRequest};

/// A waiter that is no request's: its ack finds nobody.
const NOBODY: Waiter = Waiter(u64::MAX);

/// Messages read in one turn.
const MAIL_PER_TURN: usize = 64;

/// A response frame at the end of `out`.
pub fn encode<'a, M: Message<'a>>(api: Api, correlation: u32, response: &M, out: &mut Vec<u8>) {
    if let Err(error) = encode_response(api, correlation, response, out) {
        let (code, version) = (ErrorCode::UnknownServerError, crate::protocol::api::VERSION);
        let message = format!("the answer does not fit the protocol: {error}");
        encode_error(api.to_wire(), version, code, correlation, &message, Detail::None, out);
    }
}

pub fn error_answer(
    api: u8,
    correlation: u32,
    code: ErrorCode,
    message: &str,
    detail: Detail,
) -> Answer {
    let mut frame = Vec::new();
    let version = crate::protocol::api::VERSION;
    encode_error(api, version, code, correlation, message, detail, &mut frame);
    Answer::Frame(frame)
}

impl<I: Io> Shard<I> {
    pub(super) fn cold_request(
        &mut self,
        id: ConnId,
        api: Api,
        header: &RequestHeader,
        body: &[u8],
    ) {
        let handled = match api {
            Api::Hello => self.hello(id, header, body),
            Api::Metadata => self.metadata(id, header, body),
            Api::Fetch => self.fetch(id, header, body),
            Api::ListOffsets => self.list_offsets(id, header, body),
            Api::Flush => self.flush(id, header, body),
            Api::DeleteRecords => self.delete_records(id, header, body),
            Api::Roll => self.roll(id, header, body),
            Api::EpochEnd => self.epoch_end(id, header, body),
            _ => {
                self.forward(id, header, body);
                Ok(())
            }
        };
        if let Err(error) = handled {
            let message = format!("{}: {error}", api.name());
            self.refuse(id, header, (ErrorCode::InvalidRequest, message, Detail::None));
        }
    }

    fn hello(&mut self, id: ConnId, header: &RequestHeader, body: &[u8]) -> Result<(), WireError> {
        HelloRequest::parse(body)?;
        let hello = &self.config.hello;
        let response = HelloResponse {
            server: &hello.server,
            features: features::DELETE_RECORDS | features::IDEMPOTENCE,
            limits: Limits {
                frame_bytes_max: self.config.frame_bytes_max,
                in_flight_max: self.config.in_flight_max as u32,
                fetch_bytes_max: self.config.fetch_bytes_max as u32,
            },
            engine: &hello.engine,
            flush_policy: &hello.flush_policy,
            policy_level: hello.policy_level,
            promise: &hello.promise,
            shard: self.config.id,
            shards: hello
                .shards
                .iter()
                .map(|(host, port)| ShardAddress { host, port: *port })
                .collect(),
        };
        let mut frame = Vec::new();
        encode(Api::Hello, header.correlation, &response, &mut frame);
        self.answer(id, header, Answer::Frame(frame));
        Ok(())
    }

    fn metadata(
        &mut self,
        id: ConnId,
        header: &RequestHeader,
        body: &[u8],
    ) -> Result<(), WireError> {
        let request = MetadataRequest::parse(body)?;
        let catalogue = Arc::clone(&self.catalogue);
        let topics = match &request {
            MetadataRequest::All => catalogue.topics().iter().map(|topic| known(topic)).collect(),
            MetadataRequest::Names(names) => names
                .iter()
                .map(|name| catalogue.topic(name).map_or_else(|| unknown(name), |t| known(t)))
                .collect(),
        };
        let hello = &self.config.hello;
        let response =
            MetadataResponse { cluster_id: &hello.cluster_id, server_id: hello.node_id, topics };
        let mut frame = Vec::new();
        encode(Api::Metadata, header.correlation, &response, &mut frame);
        self.answer(id, header, Answer::Frame(frame));
        Ok(())
    }

    fn fetch(&mut self, id: ConnId, header: &RequestHeader, body: &[u8]) -> Result<(), WireError> {
        let ask = Ask::of(&FetchRequest::parse(body)?, self.config.fetch_bytes_max);
        self.counters.fetch_requests += 1;
        let sequence = self.enqueue(id, header, State::FetchQueued(Box::new(ask)));
        if self.conns.get(id).is_some_and(|conn| conn.front_sequence() == sequence) {
            self.start_fetch(id);
        }
        Ok(())
    }

    fn list_offsets(
        &mut self,
        id: ConnId,
        header: &RequestHeader,
        body: &[u8],
    ) -> Result<(), WireError> {
        let request = ListOffsetsRequest::parse(body)?;
        let sequence = self.enqueue(id, header, State::Control);
        let job = OffsetsJob::new(id, sequence, header.correlation, &request);
        let job = self.jobs.add(Job::Offsets(Box::new(job)));
        if let Some(conn) = self.conns.get(id)
            && let Some(request) = conn.pending_mut(sequence)
        {
            request.state = State::Job(job);
        }
        self.drive(job, None);
        Ok(())
    }

    fn flush(&mut self, id: ConnId, header: &RequestHeader, body: &[u8]) -> Result<(), WireError> {
        let request = FlushRequest::parse(body)?;
        let Some(slot) = self.parts.find(request.handle) else {
            let refused = self.not_here(request.handle);
            self.refuse(id, header, refused);
            return Ok(());
        };
        let sequence = self.enqueue(id, header, State::Flush);
        let (now, waiter) = (self.now, Waiter(id.waiter(sequence).0));
        if let Some(known) = self.parts.get(slot) {
            known.partition.flush(waiter, now);
        }
        self.parts.touch(slot);
        Ok(())
    }

    fn epoch_end(
        &mut self,
        id: ConnId,
        header: &RequestHeader,
        body: &[u8],
    ) -> Result<(), WireError> {
        let request = EpochEndRequest::parse(body)?;
        let slot = self.parts.find(request.handle);
        let Some(known) = slot.and_then(|slot| self.parts.get(slot)) else {
            let refused = self.not_here(request.handle);
            self.refuse(id, header, refused);
            return Ok(());
        };
        let found = known.partition.end_offset_for_epoch(request.epoch);
        let (epoch, end) = found.map_or((-1, -1), |(epoch, end)| (epoch, end.get()));
        let mut frame = Vec::new();
        encode(Api::EpochEnd, header.correlation, &EpochEndResponse { epoch, end }, &mut frame);
        self.answer(id, header, Answer::Frame(frame));
        Ok(())
    }

    fn forward(&mut self, id: ConnId, header: &RequestHeader, body: &[u8]) {
        if !self.control.has_room() {
            let message = "the control thread is busy: try again".to_string();
            self.refuse(id, header, (ErrorCode::Overloaded, message, Detail::None));
            return;
        }
        let sequence = self.enqueue(id, header, State::Control);
        self.control.send(FromShard::Request {
            shard: self.config.id,
            waiter: id.waiter(sequence),
            api: header.api,
            body: body.to_vec(),
        });
    }

    pub(super) fn read_mail(&mut self) {
        // At the start: what was opened is sealed and closed before more is opened.
        if matches!(self.life, Life::Opening)
            && self.has_too_many_files()
            && self.io.in_flight() > 0
        {
            return;
        }
        for _ in 0..MAIL_PER_TURN {
            match self.inbox.try_recv() {
                Ok(message) => {
                    // Opening waits for its files: one a turn while others are served, or while
                    // files have to be closed first.
                    let opens = matches!(message, ToShard::Open(_));
                    self.mail(message);
                    let alone = matches!(self.life, Life::Serving) || self.has_too_many_files();
                    if opens && alone {
                        break;
                    }
                }
                Err(_) => return,
            }
        }
        self.restless = true;
    }

    fn mail(&mut self, message: ToShard) {
        let shard = self.config.id;
        match message {
            ToShard::Open(spec) => self.open_partition(spec),
            ToShard::OpenedAll => {
                let recovered = self.recovered;
                self.control.send(FromShard::OpenedAll { shard, recovered });
            }
            ToShard::Serve => {
                self.life = Life::Serving;
                self.accept();
            }
            ToShard::Drop(handle) => self.drop_partition(handle),
            ToShard::Offline { handle, why } => self.take_offline(handle, why),
            ToShard::Alter(handle, settings) => {
                let now = self.now;
                if let Some(slot) = self.parts.find(handle) {
                    if let Some(known) = self.parts.get(slot) {
                        known.partition.set_config(settings.log.clone());
                        // D1: nobody waits for the flush that the change of policy asks for.
                        known.partition.set_policy(settings.log.flush, NOBODY, now);
                        known.settings = *settings;
                    }
                    self.parts.touch(slot);
                }
            }
            ToShard::StartSaved(handle, saved) => self.start_saved(handle, saved),
            ToShard::Catalogue(catalogue) => self.catalogue = catalogue,
            ToShard::Reply { to, error, body } => self.control_replied(to, error, &body),
            ToShard::Snapshot => self.snapshot(),
            ToShard::Stop => self.begin_stop(),
        }
    }

    /// The control thread's answer: a response body, or a message when it is an error.
    fn control_replied(&mut self, to: Place, error: ErrorCode, body: &[u8]) {
        let (id, sequence) = ConnId::of(to);
        let Some(conn) = self.conns.get(id) else { return };
        let Some(request) = conn.pending_mut(sequence) else { return };
        let answer = match error {
            ErrorCode::None => {
                let header = crate::protocol::api::ResponseHeader {
                    api: request.api,
                    version: crate::protocol::api::VERSION,
                    error: 0,
                    correlation: request.correlation,
                };
                let mut frame = header.head(body.len()).to_vec();
                frame.extend_from_slice(body);
                Answer::Frame(frame)
            }
            code => {
                let message = String::from_utf8_lossy(body);
                error_answer(request.api, request.correlation, code, &message, Detail::None)
            }
        };
        conn.answer(sequence, answer);
        self.conns.reply.push(id);
    }

    fn snapshot(&mut self) {
        let mut counters = self.counters;
        counters.connections_open = self.conns.open() as u64;
        counters.recovery_read_bytes = self.recovered.scanned_bytes;
        counters.recovery_cuts = self.recovered.cuts;
        counters.recovery_cut_bytes = self.recovered.cut_bytes;
        let io = self.io.counters();
        counters.io_submitted = io.submitted;
        counters.io_enters = io.enters;
        counters.io_calls = io.calls;
        counters.io_punted = io.punted;
        counters.io_cq_overflows = io.cq_overflows;
        counters.io_refused = io.refused;
        for slot in self.parts.indexes() {
            if let Some(known) = self.parts.get(slot) {
                let one = known.partition.counters();
                counters.batches += one.batches;
                counters.writes += one.writes;
                counters.flushes += one.flushes;
                counters.flush_waiters += one.acks;
                counters.segments_rolled += one.rolls;
                counters.segments_deleted += one.segments_deleted;
                counters.bytes_deleted += one.bytes_deleted;
                counters.segments_from_the_future += one.segments_from_the_future;
                counters.files_open += known.partition.open_files() as u64;
                counters.damaged_ranges += known.partition.damage().0;
                counters.duplicates += one.duplicates;
                counters.out_of_order += one.out_of_order;
                counters.producers_known += known.partition.producers_known() as u64;
                counters.producers_expired += one.producers_expired;
            }
        }
        self.control.send(FromShard::Snapshot {
            shard: self.config.id,
            stages: Box::new(self.stages.clone()),
            counters: Box::new(counters),
        });
    }
}

fn known(topic: &super::catalogue::TopicEntry) -> TopicMeta<'_> {
    let partitions = topic
        .partitions
        .iter()
        .map(|partition| {
            let marks = partition.marks.now();
            PartitionMeta {
                index: partition.index,
                handle: partition.handle,
                shard: partition.shard,
                start: marks.start,
                high_watermark: marks.high_watermark,
                error: match marks.state {
                    STATE_NOT_OPEN => ErrorCode::KafkaStorageError.code(),
                    _ => ErrorCode::None.code(),
                },
            }
        })
        .collect();
    TopicMeta { name: &topic.name, id: topic.id, error: ErrorCode::None.code(), partitions }
}

fn unknown(name: &str) -> TopicMeta<'_> {
    let error = match crate::format::name::check_topic(name) {
        Ok(()) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopicException,
    };
    TopicMeta { name, id: [0; 16], error: error.code(), partitions: Vec::new() }
}

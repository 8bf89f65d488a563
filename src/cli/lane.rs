//! One partition's way to the server: batches on their way, acks, and going on after a loss.
//!
//! Owns: the batches until they are acked, what was acked, the offsets expected. Never does: cut
//! lines, decide how often to try again ([`super::produce`] does).
//! Left: `client`, `format::builder`. Right: [`super::produce`].
//!
//! Each batch keeps its own buffer until its ack: what was read from a pipe cannot be read again.

use std::collections::VecDeque;
use std::time::Duration;

use crate::client::{
    Ack, Client, Error, Producer, ProducerOptions, Resume, Sent, ServerError, resume_point,
};
use crate::format::batch::Codec;
use crate::format::builder::BatchBuilder;
use crate::protocol::offsets::special;
use crate::types::{AckLevel, Offset};

/// How long the log's end must stand still before it is believed.
const SETTLE: Duration = Duration::from_millis(100);

/// Lines that travel together.
#[derive(Debug)]
pub struct Batch {
    pub builder: BatchBuilder,
    pub first_line: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// The how-many-th record of its lane the first one is, from 0.
    first_record: u64,
}

impl Batch {
    pub fn new() -> Batch {
        Batch { builder: BatchBuilder::new(), first_line: 0, bytes: 0, first_record: 0 }
    }

    pub fn records(&self) -> u32 {
        self.builder.records_count().cast_unsigned()
    }
}

/// A batch that the server would not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub first_line: u64,
    pub records: u32,
    pub error: ServerError,
}

/// What is known to be in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    pub records: u64,
    pub bytes: u64,
    pub last_offset: Option<i64>,
    /// The weakest level that an ack named.
    pub level: Option<AckLevel>,
}

pub struct Lane {
    topic: String,
    pub partition: u32,
    codec: Codec,
    options: ProducerOptions,
    producer: Producer,
    /// Sent, or about to be, in order.
    pending: VecDeque<Batch>,
    spare: Vec<Batch>,
    records: u64,
    /// What the next ack's offset is if nobody else writes here.
    expected: i64,
    /// The offset where this lane's first record went.
    begin: i64,
    /// Every ack had the offset expected.
    alone: bool,
    pub acked: Acked,
    /// The first refusal, and how many batches were refused.
    pub refused: Option<(Refused, u64)>,
    /// Records acked behind a refused batch.
    pub acked_behind: u64,
}

impl Lane {
    pub fn open(
        client: &mut Client,
        topic: &str,
        partition: u32,
        codec: Codec,
        options: &ProducerOptions,
    ) -> Result<Lane, Error> {
        let (end, _) = client.list_offsets(topic, partition, special::LATEST)?;
        Ok(Lane {
            topic: topic.to_owned(),
            partition,
            codec,
            options: options.clone(),
            producer: Producer::new(client, topic, partition, options.clone())?,
            pending: VecDeque::new(),
            spare: Vec::new(),
            records: 0,
            expected: end,
            begin: end,
            alone: true,
            acked: Acked::default(),
            refused: None,
            acked_behind: 0,
        })
    }

    /// The longest batch a request takes.
    pub fn batch_bytes_max(&self) -> usize {
        self.producer.connection().batches_bytes_max()
    }

    /// An empty batch, with a buffer that served before if there is one.
    pub fn empty_batch(&mut self) -> Batch {
        self.spare.pop().unwrap_or_else(Batch::new)
    }

    /// Sends a batch, waiting for acks when the pipeline is full. It is kept whatever happens.
    pub fn send(&mut self, mut batch: Batch) -> Result<(), Error> {
        batch.first_record = self.records;
        self.records += u64::from(batch.records());
        let sent = dispatch(&mut self.producer, &mut batch, self.codec);
        self.pending.push_back(batch);
        self.take_acks();
        sent
    }

    /// Takes the acks that have come.
    pub fn poll(&mut self) -> Result<(), Error> {
        let polled = self.producer.poll(Duration::ZERO);
        self.take_acks();
        polled.map(drop)
    }

    /// Waits until everything is acked.
    pub fn finish(&mut self) -> Result<(), Error> {
        let finished = self.producer.finish();
        self.take_acks();
        finished
    }

    /// Connections that the producer made anew by itself.
    pub fn reconnects(&self) -> u64 {
        self.producer.reconnects()
    }

    pub fn is_idempotent(&self) -> bool {
        self.options.idempotent
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The first line that is not known to be in the log, among those sent.
    pub fn first_pending_line(&self) -> Option<u64> {
        self.pending.front().map(|batch| batch.first_line)
    }

    /// Whether the log's end can tell how much of this lane it holds; then where it began.
    pub fn begin_if_alone(&self) -> Option<i64> {
        self.alone.then_some(self.begin)
    }

    fn take_acks(&mut self) {
        for Ack { sent, result } in self.producer.drain_acks() {
            // Acks come in the order of sending, and so do these.
            let Some(batch) = self.pending.pop_front() else { return };
            debug_assert_eq!(sent.records, batch.records());
            match result {
                Ok(met) => {
                    let base = met.base.map_or(self.expected, Offset::get);
                    self.alone &= met.base.is_some() && base == self.expected;
                    self.expected = base + i64::from(sent.records);
                    let weakest = self.acked.level.map_or(met.level_met, |l| l.min(met.level_met));
                    self.acked.level = Some(weakest);
                    if self.refused.is_some() {
                        self.acked_behind += u64::from(sent.records);
                    }
                    note(&mut self.acked, &batch, self.expected);
                }
                Err(error) => {
                    let (first_line, records) = (batch.first_line, sent.records);
                    let refused = Refused { first_line, records, error };
                    self.refused.get_or_insert((refused, 0)).1 += 1;
                }
            }
            recycle(&mut self.spare, batch);
        }
    }

    /// Asks the log how much of what was sent it holds, over a client that has connected anew, and
    /// sends the rest. The answer is how it went; only `Resume::From` has sent anything.
    pub fn resume(&mut self, client: &mut Client) -> Result<Resume, Error> {
        let unacked: Vec<Sent> = self.pending.iter().enumerate().map(as_sent).collect();
        let expected = Offset::new(self.expected).unwrap_or_default();
        let next = (expected, self.records);
        let found = resume_point(client, &self.topic, self.partition, next, &unacked, SETTLE)?;
        let Resume::From { record, end } = found else { return Ok(found) };
        while let Some(batch) = self.pending.pop_front_if(|batch| batch.first_record < record) {
            self.expected += i64::from(batch.records());
            // `resume_point` has flushed: these are as safe as an ack could say.
            note(&mut self.acked, &batch, self.expected);
            recycle(&mut self.spare, batch);
        }
        debug_assert_eq!(self.expected, end, "whole batches lead to the log's end");
        self.producer = Producer::new(client, &self.topic, self.partition, self.options.clone())?;
        for at in 0..self.pending.len() {
            // Acks that come meanwhile are taken once all are out: `pending` must not move yet.
            let Some(batch) = self.pending.get_mut(at) else { break };
            dispatch(&mut self.producer, batch, self.codec)?;
        }
        self.take_acks();
        Ok(found)
    }
}

fn dispatch(producer: &mut Producer, batch: &mut Batch, codec: Codec) -> Result<(), Error> {
    let records = batch.records();
    let bytes = batch.builder.finish(codec, None).map_err(Error::Codec)?;
    producer.send_batch(bytes, records)
}

fn as_sent((number, batch): (usize, &Batch)) -> Sent {
    let (first_record, records) = (batch.first_record, batch.records());
    Sent { number: number as u64, first_record, records, bytes: batch.builder.plain_len() }
}

fn note(acked: &mut Acked, batch: &Batch, end: i64) {
    acked.records += u64::from(batch.records());
    acked.bytes += batch.bytes;
    acked.last_offset = Some(end - 1);
}

fn recycle(spare: &mut Vec<Batch>, mut batch: Batch) {
    batch.builder.reset();
    batch.bytes = 0;
    spare.push(batch);
}

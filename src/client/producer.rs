//! A pipelined producer of one partition.
//!
//! Owns: the open batch, the unacked in order, the acks not yet drained. Never does: send a batch
//! twice: after a lost connection the fate of what is unacked is unknown, and it says exactly
//! which batches those are. Going on is the caller's decision ([`super::resume`] helps).
//! Left: [`super::connection`], [`crate::format::builder`]. Right: users.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::cluster::Client;
use super::connection::Connection;
use super::error::{Error, ServerError};
use super::machine::{Answer, Ticket};
use crate::format::batch::Codec;
use crate::format::builder::{BatchBuilder, NewHeader};
use crate::protocol::produce::ProduceResponse;
use crate::types::{AckLevel, Handle};

/// Batches whose bookkeeping is allocated ahead; a deeper pipeline grows it.
const ROOM_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// A batch is sent before it would grow past this (a larger record goes alone).
    pub batch_bytes: usize,
    /// A batch is sent at the first call that finds it this old.
    pub linger: Duration,
    pub codec: Codec,
    /// The codec's own scale; `None`: its usual level.
    pub level: Option<i32>,
    pub ack: AckLevel,
    /// Batches unacked at once; the connection's limit binds too.
    pub in_flight_max: usize,
    /// How long a full pipeline waits for an ack.
    pub ack_timeout: Duration,
}

impl Default for ProducerOptions {
    fn default() -> ProducerOptions {
        ProducerOptions {
            batch_bytes: 64 << 10,
            linger: Duration::from_millis(5),
            codec: Codec::None,
            level: None,
            ack: AckLevel::Policy,
            in_flight_max: 16,
            ack_timeout: Duration::from_secs(30),
        }
    }
}

/// A batch that was sent, named by what this producer counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The how-many-th batch, from 0.
    pub number: u64,
    /// The how-many-th record of this producer its first one is, from 0.
    pub first_record: u64,
    pub records: u32,
    pub bytes: usize,
}

/// What became of a batch. Acks come in the order of sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    pub sent: Sent,
    pub result: Result<ProduceResponse, ServerError>,
}

pub struct Producer {
    connection: Connection,
    handle: Handle,
    options: ProducerOptions,
    builder: BatchBuilder,
    /// When the first record of the open batch came.
    opened: Option<Instant>,
    unacked: VecDeque<Sent>,
    acks: VecDeque<Ack>,
    batches: u64,
    records: u64,
}

impl Producer {
    /// A producer on a connection of its own to the partition's shard.
    pub fn new(
        client: &mut Client,
        topic: &str,
        partition: u32,
        options: ProducerOptions,
    ) -> Result<Producer, Error> {
        let owner = client.partition(topic, partition)?;
        let connection = client.open(owner.shard)?;
        Ok(Producer::on(connection, owner.handle, options))
    }

    /// A producer on a connection that already leads to the partition's shard.
    pub fn on(connection: Connection, handle: Handle, options: ProducerOptions) -> Producer {
        // Room for a full pipeline: how deep it gets hangs on the peer's pace, not on the warm-up.
        let room = options.in_flight_max.min(ROOM_MAX);
        Producer {
            connection,
            handle,
            options,
            builder: BatchBuilder::new(),
            opened: None,
            unacked: VecDeque::with_capacity(room),
            acks: VecDeque::with_capacity(room),
            batches: 0,
            records: 0,
        }
    }

    /// Adds a record; sends the batch that is full or old enough, waiting for room in the
    /// pipeline if there is none. Drain the acks now and then: they are kept until then.
    pub fn send(
        &mut self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[NewHeader<'_>],
        timestamp: i64,
    ) -> Result<(), Error> {
        let more = BatchBuilder::record_len_max(key, value, headers);
        let full = self.builder.plain_len() + more > self.options.batch_bytes;
        if !self.builder.is_empty() && (full || self.lingered()) {
            self.send_open()?;
        }
        self.builder.append(key, value, headers, timestamp);
        self.opened.get_or_insert_with(Instant::now);
        Ok(())
    }

    fn lingered(&self) -> bool {
        self.opened.is_some_and(|opened| opened.elapsed() >= self.options.linger)
    }

    /// Sends the open batch, whatever its size.
    pub fn send_open(&mut self) -> Result<(), Error> {
        if self.builder.is_empty() {
            return Ok(());
        }
        self.wait_for_room()?;
        let records = self.builder.records_count().cast_unsigned();
        let codec = self.options.codec;
        let batch = self.builder.finish(codec, self.options.level).map_err(Error::Codec)?;
        let bytes = batch.len();
        let ticket = self.connection.send_batches(self.handle, self.options.ack, batch);
        if maybe_out(&ticket) {
            self.builder.reset();
            self.opened = None;
        }
        self.note(ticket, records, bytes)
    }

    /// Sends a batch made elsewhere, behind the open one.
    pub fn send_batch(&mut self, batch: &[u8], records: u32) -> Result<(), Error> {
        self.send_open()?;
        self.wait_for_room()?;
        let ticket = self.connection.send_batches(self.handle, self.options.ack, batch);
        self.note(ticket, records, batch.len())
    }

    /// Counts a batch as sent as soon as a byte of it may be out.
    fn note(
        &mut self,
        ticket: Result<Ticket, Error>,
        records: u32,
        bytes: usize,
    ) -> Result<(), Error> {
        if maybe_out(&ticket) {
            let (number, first_record) = (self.batches, self.records);
            self.batches += 1;
            self.records += u64::from(records);
            self.unacked.push_back(Sent { number, first_record, records, bytes });
        }
        ticket.map(drop)
    }

    fn wait_for_room(&mut self) -> Result<(), Error> {
        let max = self.options.in_flight_max.min(self.connection.in_flight_max()).max(1);
        while self.unacked.len() >= max {
            let before = self.unacked.len();
            self.collect(self.options.ack_timeout)?;
            if self.unacked.len() == before {
                return Err(self.timed_out());
            }
        }
        Ok(())
    }

    fn timed_out(&self) -> Error {
        Error::TimedOut {
            address: self.connection.address().to_owned(),
            api: crate::protocol::Api::Produce,
            after: self.options.ack_timeout,
        }
    }

    /// Sends an open batch that has lingered, and takes acks, waiting for the first at most
    /// `timeout`. The number of acks that can be drained.
    pub fn poll(&mut self, timeout: Duration) -> Result<usize, Error> {
        if self.lingered() {
            self.send_open()?;
        }
        if !self.unacked.is_empty() {
            self.collect(timeout)?;
        }
        Ok(self.acks.len())
    }

    /// Sends what is open and waits until everything is acked.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.send_open()?;
        while !self.unacked.is_empty() {
            let before = self.unacked.len();
            self.collect(self.options.ack_timeout)?;
            if self.unacked.len() == before {
                return Err(self.timed_out());
            }
        }
        Ok(())
    }

    /// Takes the acks that are there, waiting for the first at most `timeout`. A time-out loses
    /// nothing: the batches stay unacked.
    fn collect(&mut self, timeout: Duration) -> Result<(), Error> {
        let mut next = self.connection.poll(timeout)?;
        while let Some(answer) = next {
            self.ack(&answer)?;
            next = self.connection.buffered()?;
        }
        Ok(())
    }

    fn ack(&mut self, answer: &Answer) -> Result<(), Error> {
        let result = match self.connection.check(answer) {
            Ok(()) => Ok(self.connection.response::<ProduceResponse>()?),
            Err(Error::Server(error)) => Err(error),
            Err(error) => return Err(error),
        };
        // Answers come in request order, and nothing else is asked on this connection.
        if let Some(sent) = self.unacked.pop_front() {
            self.acks.push_back(Ack { sent, result });
        }
        Ok(())
    }

    /// The acks collected so far, in order.
    pub fn drain_acks(&mut self) -> impl Iterator<Item = Ack> + '_ {
        self.acks.drain(..)
    }

    /// Batches that were sent, and whose fate is unknown when the connection is lost; in order.
    pub fn unacked(&self) -> impl ExactSizeIterator<Item = &Sent> {
        self.unacked.iter()
    }

    /// Records in the open batch: not sent at all.
    pub fn open_records(&self) -> u32 {
        self.builder.records_count().cast_unsigned()
    }

    /// Records sent, acked or not.
    pub fn records_sent(&self) -> u64 {
        self.records
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Whether a byte of the batch may have left: then its fate is not ours to know.
fn maybe_out(sent: &Result<Ticket, Error>) -> bool {
    matches!(sent, Ok(_) | Err(Error::Io { .. }))
}

//! A pipelined producer of one partition.
//!
//! Owns: the open batch, the unacked in order, the acks not yet drained; sending what is unacked
//! again over a new connection when it is idempotent. Never does: send a batch twice without an id
//! that tells the server so: then the fate of what is unacked is unknown, and it says exactly which
//! batches those are ([`super::resume`] helps).
//! Left: [`super::connection`], `idempotent`, [`crate::format::builder`]. Right: users.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::cluster::Client;
use super::connection::Connection;
use super::error::{Error, ServerError};
use super::idempotent::{Home, IDEMPOTENT_IN_FLIGHT_MAX, Identity, Sequences, may_go_on};
use super::machine::{Answer, Ticket};
use crate::format::batch::Codec;
use crate::format::builder::{BatchBuilder, NewHeader};
use crate::protocol::offsets::{FlushRequest, FlushResponse};
use crate::protocol::produce::ProduceResponse;
use crate::protocol::{Api, WireError};
use crate::types::{AckLevel, Handle, Offset, WallMs};

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
    /// Batches unacked at once; the connection's limit binds too, and of an idempotent producer
    /// [`IDEMPOTENT_IN_FLIGHT_MAX`].
    pub in_flight_max: usize,
    /// How long a full pipeline waits for an ack.
    pub ack_timeout: Duration,
    /// Batches carry an id and sequences: after a lost connection, or a restart of the server,
    /// what is unacked is sent again, and lands once and in order.
    pub idempotent: bool,
    /// Attempts of an idempotent producer to connect again, with no ack in between.
    pub reconnect: Backoff,
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
            idempotent: true,
            reconnect: Backoff::default(),
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

/// How a batch came to be in the log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// Its first offset. `None`: it landed before a connection was lost, and the server no longer
    /// knows where.
    pub base: Option<Offset>,
    /// -1: the records' own times hold.
    pub append_time: WallMs,
    pub level_met: AckLevel,
    pub log_start: Offset,
}

/// What became of a batch. Acks come in the order of sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    pub sent: Sent,
    pub result: Result<Met, ServerError>,
}

/// A batch without its ack.
#[derive(Debug)]
struct Unacked {
    sent: Sent,
    /// Of an idempotent producer: to be sent again.
    bytes: Vec<u8>,
    sequences: Option<Sequences>,
}

/// What makes a producer idempotent.
struct Idempotence {
    identity: Identity,
    home: Home,
    /// So many of the unacked, from the oldest, were sent on this connection.
    sent_here: usize,
    /// In the log and unacked: how safe they are, the ack of a later batch tells. Refused ones
    /// behind such stand here too, so that acks keep their order.
    held: Vec<(Unacked, Option<ServerError>)>,
    /// A batch was refused: the sequences behind it begin anew.
    broken_off: bool,
    spare: Vec<Vec<u8>>,
    reconnects: u64,
}

pub struct Producer {
    connection: Connection,
    handle: Handle,
    options: ProducerOptions,
    builder: BatchBuilder,
    /// When the first record of the open batch came.
    opened: Option<Instant>,
    unacked: VecDeque<Unacked>,
    acks: VecDeque<Ack>,
    batches: u64,
    records: u64,
    idempotence: Option<Idempotence>,
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
        let idempotence = match options.idempotent {
            false => None,
            true => Some(Idempotence {
                identity: Identity::ask(client)?,
                home: Home::new(client, topic, partition, options.reconnect.clone()),
                sent_here: 0,
                held: Vec::new(),
                broken_off: false,
                spare: Vec::new(),
                reconnects: 0,
            }),
        };
        let connection = client.open(owner.shard)?;
        let mut producer = Producer::on(connection, owner.handle, options);
        producer.idempotence = idempotence;
        Ok(producer)
    }

    /// A producer on a connection that already leads to the partition's shard: it knows no way
    /// back, so it is not idempotent.
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
            idempotence: None,
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
        let (codec, level) = (self.options.codec, self.options.level);
        let batch = self.builder.finish(codec, level).map_err(Error::Codec)?;
        let before = self.batches;
        let sent = match &mut self.idempotence {
            Some(idempotence) => {
                let kept = keep(idempotence, &self.connection, batch, records);
                kept.and_then(|(bytes, sequences)| self.keep_sending(bytes, sequences))
            }
            None => {
                let bytes = batch.len();
                let sent = self.connection.send_batches(self.handle, self.options.ack, batch);
                self.note(sent, records, bytes)
            }
        };
        if self.batches > before {
            self.builder.reset();
            self.opened = None;
        }
        sent
    }

    /// Sends a batch made elsewhere, behind the open one. Of an idempotent producer its id, epoch
    /// and sequence are set.
    pub fn send_batch(&mut self, batch: &[u8], records: u32) -> Result<(), Error> {
        self.send_open()?;
        self.wait_for_room()?;
        if let Some(idempotence) = &mut self.idempotence {
            let (bytes, sequences) = keep(idempotence, &self.connection, batch, records)?;
            return self.keep_sending(bytes, sequences);
        }
        let sent = self.connection.send_batches(self.handle, self.options.ack, batch);
        self.note(sent, records, batch.len())
    }

    /// Counts a batch as sent as soon as a byte of it may be out.
    fn note(
        &mut self,
        ticket: Result<Ticket, Error>,
        records: u32,
        bytes: usize,
    ) -> Result<(), Error> {
        if maybe_out(&ticket) {
            let sent = self.count(records, bytes);
            self.unacked.push_back(Unacked { sent, bytes: Vec::new(), sequences: None });
        }
        ticket.map(drop)
    }

    fn count(&mut self, records: u32, bytes: usize) -> Sent {
        let sent = Sent { number: self.batches, first_record: self.records, records, bytes };
        self.batches += 1;
        self.records += u64::from(records);
        sent
    }

    /// A stamped batch joins the unacked, and leaves.
    fn keep_sending(&mut self, bytes: Vec<u8>, sequences: Sequences) -> Result<(), Error> {
        let sent = self.count(sequences.records, bytes.len());
        self.unacked.push_back(Unacked { sent, bytes, sequences: Some(sequences) });
        match self.send_kept() {
            Err(error) if may_go_on(&error) => self.reconnect(error),
            sent => sent,
        }
    }

    /// Sends what is unacked and was not sent on this connection, as far as there is room.
    fn send_kept(&mut self) -> Result<(), Error> {
        let Some(idempotence) = &mut self.idempotence else { return Ok(()) };
        while let Some(next) = self.unacked.get(idempotence.sent_here)
            && self.connection.in_flight() < self.connection.in_flight_max()
        {
            self.connection.send_batches(self.handle, self.options.ack, &next.bytes)?;
            idempotence.sent_here += 1;
        }
        Ok(())
    }

    /// Connects anew and sends all that is unacked again, until that goes well or the attempts are
    /// used up; then the error is that of the last one.
    fn reconnect(&mut self, mut error: Error) -> Result<(), Error> {
        loop {
            let Some(idempotence) = &mut self.idempotence else { return Err(error) };
            if !idempotence.home.pause() {
                return Err(error);
            }
            for (unacked, _) in idempotence.held.drain(..).rev() {
                self.unacked.push_front(unacked);
            }
            idempotence.sent_here = 0;
            let again = match idempotence.home.dial() {
                Ok(found) => {
                    idempotence.reconnects += 1;
                    (self.connection, self.handle) = found;
                    self.send_kept()
                }
                Err(error) => Err(error),
            };
            match again {
                Err(other) if may_go_on(&other) => error = other,
                done => return done,
            }
        }
    }

    fn wait_for_room(&mut self) -> Result<(), Error> {
        let mut max = self.options.in_flight_max.min(self.connection.in_flight_max()).max(1);
        if self.idempotence.is_some() {
            max = max.min(IDEMPOTENT_IN_FLIGHT_MAX);
        }
        self.wait_for(|unacked| unacked < max)?;
        if self.idempotence.as_ref().is_some_and(|idempotence| idempotence.broken_off) {
            self.wait_for(|unacked| unacked == 0)?;
            self.begin_anew()?;
        }
        Ok(())
    }

    /// Takes acks until so few batches are unacked.
    fn wait_for(&mut self, few: impl Fn(usize) -> bool) -> Result<(), Error> {
        while !few(self.unacked.len()) {
            if !self.collect(self.options.ack_timeout)? {
                return Err(self.timed_out());
            }
        }
        Ok(())
    }

    /// A batch was refused, and everything behind it with it: a new epoch begins at sequence 0.
    fn begin_anew(&mut self) -> Result<(), Error> {
        while let Some(idempotence) = &mut self.idempotence {
            match idempotence.identity.renew(&mut self.connection) {
                Ok(()) => {
                    idempotence.broken_off = false;
                    break;
                }
                Err(error) if may_go_on(&error) => self.reconnect(error)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn timed_out(&self) -> Error {
        Error::TimedOut {
            address: self.connection.address().to_owned(),
            api: Api::Produce,
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
        self.wait_for(|unacked| unacked == 0)
    }

    /// Takes the acks that are there, waiting for the first at most `timeout`. A time-out loses
    /// nothing: the batches stay unacked. Says whether anything happened.
    fn collect(&mut self, timeout: Duration) -> Result<bool, Error> {
        match self.take_answers(timeout) {
            Err(error) if self.idempotence.is_some() && may_go_on(&error) => {
                self.reconnect(error)?;
                Ok(true)
            }
            taken => taken,
        }
    }

    fn take_answers(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.send_kept()?;
        let mut next = self.connection.poll(timeout)?;
        let any = next.is_some();
        while let Some(answer) = next {
            self.ack(&answer)?;
            next = self.connection.buffered()?;
        }
        self.send_kept()?;
        self.settle_landed()?;
        Ok(any)
    }

    fn ack(&mut self, answer: &Answer) -> Result<(), Error> {
        let result = match self.connection.check(answer) {
            Ok(()) => Ok(self.connection.response::<ProduceResponse>()?),
            Err(error) if self.idempotence.is_some() && may_go_on(&error) => return Err(error),
            Err(Error::Server(error)) => Err(error),
            Err(error) => return Err(error),
        };
        // Answers come in request order, and nothing else is asked on this connection.
        let Some(unacked) = self.unacked.pop_front() else { return Ok(()) };
        if let (Some(idempotence), Some(sequences)) = (&mut self.idempotence, unacked.sequences) {
            idempotence.sent_here -= 1;
            match &result {
                Ok(met) => {
                    idempotence.home.attempts = 0;
                    release(idempotence, met, &mut self.acks);
                }
                Err(error) if idempotence.identity.is_in_log(sequences, error) => {
                    idempotence.held.push((unacked, None));
                    return Ok(());
                }
                Err(error) => {
                    idempotence.broken_off = true;
                    if !idempotence.held.is_empty() {
                        idempotence.held.push((unacked, Some(error.clone())));
                        return Ok(());
                    }
                }
            }
            recycle(idempotence, unacked.bytes);
        }
        let result = result.map(|met| Met {
            base: Some(met.base),
            append_time: met.append_time,
            level_met: met.level_met,
            log_start: met.log_start,
        });
        self.acks.push_back(Ack { sent: unacked.sent, result });
        Ok(())
    }

    /// Batches that are in the log with none behind them whose ack could tell how safe they are: a
    /// flush makes them durable.
    fn settle_landed(&mut self) -> Result<(), Error> {
        let Some(idempotence) = &mut self.idempotence else { return Ok(()) };
        if idempotence.held.is_empty() || !self.unacked.is_empty() {
            return Ok(());
        }
        self.connection.call(&FlushRequest { handle: self.handle })?;
        self.connection.response::<FlushResponse>()?;
        let met = ProduceResponse {
            base: Offset::ZERO,
            append_time: -1,
            level_met: AckLevel::Durable,
            log_start: Offset::ZERO,
        };
        release(idempotence, &met, &mut self.acks);
        Ok(())
    }

    /// The acks collected so far, in order.
    pub fn drain_acks(&mut self) -> impl Iterator<Item = Ack> + '_ {
        self.acks.drain(..)
    }

    /// Batches that were sent and have no ack: their fate is unknown once an error ended the
    /// producer; in order.
    pub fn unacked(&self) -> impl Iterator<Item = &Sent> {
        let held = self.idempotence.iter().flat_map(|idempotence| &idempotence.held);
        let held = held.map(|(unacked, _)| unacked);
        held.chain(&self.unacked).map(|unacked| &unacked.sent)
    }

    /// Records in the open batch: not sent at all.
    pub fn open_records(&self) -> u32 {
        self.builder.records_count().cast_unsigned()
    }

    /// Records sent, acked or not.
    pub fn records_sent(&self) -> u64 {
        self.records
    }

    /// Connections made anew so far.
    pub fn reconnects(&self) -> u64 {
        self.idempotence.as_ref().map_or(0, |idempotence| idempotence.reconnects)
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// A stamped copy of a batch, to be kept until its ack.
fn keep(
    idempotence: &mut Idempotence,
    connection: &Connection,
    batch: &[u8],
    records: u32,
) -> Result<(Vec<u8>, Sequences), Error> {
    let (len, max) = (batch.len(), connection.batches_bytes_max());
    if len > max {
        return Err(Error::Unsendable(WireError::TooLong { field: "batches", len, max }));
    }
    let mut bytes = idempotence.spare.pop().unwrap_or_default();
    bytes.extend_from_slice(batch);
    let sequences = idempotence.identity.stamp(&mut bytes, records)?;
    Ok((bytes, sequences))
}

fn recycle(idempotence: &mut Idempotence, mut bytes: Vec<u8>) {
    bytes.clear();
    idempotence.spare.push(bytes);
}

/// What landed before a batch that has met a level has met it too: it lies before it in the log.
fn release(idempotence: &mut Idempotence, met: &ProduceResponse, acks: &mut VecDeque<Ack>) {
    for (unacked, refused) in std::mem::take(&mut idempotence.held) {
        let met =
            Met { base: None, append_time: -1, level_met: met.level_met, log_start: met.log_start };
        let result = refused.map_or(Ok(met), Err);
        acks.push_back(Ack { sent: unacked.sent, result });
        recycle(idempotence, unacked.bytes);
    }
}

/// Whether a byte of the batch may have left: then its fate is not ours to know.
fn maybe_out(sent: &Result<Ticket, Error>) -> bool {
    matches!(sent, Ok(_) | Err(Error::Io { .. }))
}

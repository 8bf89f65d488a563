//! A consumer of one partition: records from an offset on, following the end by long poll.
//!
//! Owns: the position, the fetch in flight. Never does: hand out a record twice or below its
//! position, keep a group's offsets, resolve aborted transactions.
//! Left: [`super::connection`], [`super::batches`]. Right: users.

use std::time::Duration;

use super::batches::{Decoder, Walked};
use super::cluster::Client;
use super::connection::Connection;
use super::error::{Error, ServerError};
use super::machine::Ticket;
use crate::errors::ErrorCode;
use crate::format::record::Record;
use crate::protocol::Api;
use crate::protocol::error::Detail;
use crate::protocol::fetch::{FetchPart, FetchRequest, FetchResponse, Isolation, PartHead, Parts};
use crate::protocol::offsets::special;
use crate::types::Handle;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Start {
    Offset(i64),
    Earliest,
    Latest,
    /// The first record at or after it, in milliseconds since 1970; the end when there is none.
    Time(i64),
}

/// What to do when the position is outside the log (R28).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OutOfRange {
    Fail,
    Earliest,
    Latest,
}

#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Bytes a fetch asks for. One batch always comes, however long (R22).
    pub max_bytes: u32,
    pub min_bytes: u32,
    /// How long the server may wait for `min_bytes`.
    pub max_wait: Duration,
    pub isolation: Isolation,
    pub out_of_range: OutOfRange,
    /// Ask for the next bytes before the records of the last are handed out.
    pub prefetch: bool,
    /// Check each batch's CRC.
    pub check_crc: bool,
    /// Go on behind batches that are damaged on the disk; each poll says which offsets it lost.
    pub skip_damage: bool,
    /// What a compressed batch may expand to.
    pub batch_bytes_max: u64,
}

impl Default for ConsumerOptions {
    fn default() -> ConsumerOptions {
        ConsumerOptions {
            max_bytes: 1 << 20,
            min_bytes: 1,
            max_wait: Duration::from_millis(500),
            isolation: Isolation::ReadUncommitted,
            out_of_range: OutOfRange::Fail,
            prefetch: true,
            check_crc: true,
            skip_damage: false,
            batch_bytes_max: 1 << 30,
        }
    }
}

/// What a poll brought.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    pub records: u64,
    /// Bytes of whole batches, as stored.
    pub bytes: u64,
    /// The next offset to be handed out.
    pub position: i64,
    pub high_watermark: i64,
    pub log_start: i64,
    /// Offsets that are damaged and were skipped: the first, and the first behind them.
    pub skipped: Option<(i64, i64)>,
}

impl Polled {
    /// Nothing more was readable when the server answered.
    pub fn at_end(&self) -> bool {
        self.position >= self.high_watermark
    }
}

pub struct Consumer {
    connection: Connection,
    topic: String,
    partition: u32,
    id: [u8; 16],
    handle: Handle,
    options: ConsumerOptions,
    position: i64,
    /// Leader epoch of the batch read last; -1 before the first. The server tells by it when what
    /// was read has been cut (R11), also after it was restarted.
    epoch: i32,
    /// The fetch in flight, and the offset it asks for.
    asked: Option<(Ticket, i64)>,
    decoder: Decoder,
}

impl Consumer {
    pub fn new(
        client: &mut Client,
        topic: &str,
        partition: u32,
        start: Start,
        options: ConsumerOptions,
    ) -> Result<Consumer, Error> {
        let mut find = |timestamp| {
            let found = client.find_offset(topic, partition, timestamp, options.isolation);
            found.map(|found| found.offset)
        };
        let position = match start {
            Start::Offset(offset) => offset,
            Start::Earliest => find(special::EARLIEST)?,
            Start::Latest => find(special::LATEST)?,
            Start::Time(at) => match find(at)? {
                -1 => find(special::LATEST)?,
                offset => offset,
            },
        };
        let owner = client.partition(topic, partition)?;
        let id = client.metadata().topic(topic).map_or([0; 16], |topic| topic.id);
        Ok(Consumer {
            connection: client.open(owner.shard)?,
            topic: topic.to_owned(),
            partition,
            id,
            handle: owner.handle,
            decoder: Decoder::new(options.check_crc, options.batch_bytes_max),
            options,
            position,
            epoch: -1,
            asked: None,
        })
    }

    /// The next offset that will be handed out.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// Leader epoch of the batch before the position; -1 when it is not known.
    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    /// Goes on at `offset`; a fetch in flight for another place is given up.
    pub fn seek(&mut self, offset: i64) {
        self.seek_in_epoch(offset, -1);
    }

    /// Goes on at `offset`, the batch before which is known to be of this leader epoch: when it is
    /// not any more, the next poll says so.
    pub fn seek_in_epoch(&mut self, offset: i64, epoch: i32) {
        if let Some((ticket, _)) = self.asked.take_if(|_| self.epoch != epoch) {
            self.connection.abandon(ticket);
        }
        self.epoch = epoch;
        self.position = offset;
        if let Some((ticket, at)) = self.asked
            && at != offset
        {
            self.connection.abandon(ticket);
            self.asked = None;
        }
    }

    /// Fetches, waiting at the log's end as long as `max_wait`, and hands each record to `visit`,
    /// in offset order. An empty result means that nothing came in that time.
    ///
    /// After an error the position is behind the last record handed out; a lost connection is
    /// reopened by the next call to [`Self::reopen`].
    pub fn poll(&mut self, mut visit: impl FnMut(&Record<'_>)) -> Result<Polled, Error> {
        let (ticket, _) = match self.asked {
            Some(asked) => asked,
            None => self.ask(self.position, self.epoch)?,
        };
        let patience = self.options.max_wait + self.connection.request_timeout();
        let Some(answer) = self.connection.poll(patience)? else {
            let address = self.connection.address().to_owned();
            return Err(Error::TimedOut { address, api: Api::Fetch, after: patience });
        };
        debug_assert_eq!(answer.ticket, ticket, "one fetch is in flight");
        self.asked = None;
        self.connection.check(&answer)?;
        let head = self.part()?.head;
        if head.error != 0 {
            return self.part_error(&head);
        }
        let walked = self.walk_ahead()?;
        if self.options.prefetch && walked.next > self.position {
            self.ask(walked.next, walked.epoch)?;
        }
        self.hand_out(&head, &mut visit)
    }

    fn part(&self) -> Result<crate::protocol::fetch::PartData<'_>, Error> {
        let response: FetchResponse<'_> = self.connection.response()?;
        response.parts.first().copied().ok_or_else(|| self.bad("a fetch without its partition"))
    }

    fn ask(&mut self, offset: i64, last_epoch: i32) -> Result<(Ticket, i64), Error> {
        let (handle, max_bytes) = (self.handle, self.options.max_bytes);
        let part = FetchPart { handle, offset, last_epoch, max_bytes };
        let max_wait_ms = u32::try_from(self.options.max_wait.as_millis()).unwrap_or(u32::MAX);
        let request = FetchRequest {
            max_bytes: self.options.max_bytes,
            min_bytes: self.options.min_bytes,
            max_wait_ms,
            isolation: self.options.isolation,
            parts: Parts::List(&[part]),
        };
        let asked = (self.connection.send(&request)?, offset);
        self.asked = Some(asked);
        Ok(asked)
    }

    /// Where the batches that came will lead, by their headers alone.
    fn walk_ahead(&self) -> Result<Walked, Error> {
        let walked = Decoder::walk(self.part()?.bytes).map_err(|what| self.bad(&what))?;
        if walked.batches == 0 && walked.cut {
            return Err(self.bad("the first batch is cut: the server owes it whole"));
        }
        if walked.batches > 0 && walked.next <= self.position {
            return Err(self.bad("only batches below the offset asked for"));
        }
        Ok(walked)
    }

    fn hand_out(
        &mut self,
        head: &PartHead,
        visit: &mut impl FnMut(&Record<'_>),
    ) -> Result<Polled, Error> {
        let response: FetchResponse<'_> = self.connection.response()?;
        let bytes = response.parts.first().map_or(&[][..], |part| part.bytes);
        let done = self.decoder.hand_out(bytes, self.position, visit);
        self.position = done.position;
        self.epoch = done.epoch.unwrap_or(self.epoch);
        let polled = Polled { records: done.records, bytes: done.bytes, ..self.nothing(head) };
        let Some(fault) = done.fault else { return Ok(polled) };
        match fault.next.filter(|next| self.options.skip_damage && *next <= head.high_watermark) {
            Some(next) => {
                Ok(Polled { records: done.records, bytes: done.bytes, ..self.skip(next, head) })
            }
            None => {
                self.seek_in_epoch(self.position, self.epoch); // a prefetch asks behind the fault
                Err(self.bad(&fault.what))
            }
        }
    }

    fn nothing(&self, head: &PartHead) -> Polled {
        Polled {
            records: 0,
            bytes: 0,
            position: self.position,
            high_watermark: head.high_watermark,
            log_start: head.start,
            skipped: None,
        }
    }

    /// Goes on behind damage. Another epoch may have begun in it: none is claimed.
    fn skip(&mut self, next: i64, head: &PartHead) -> Polled {
        let from = self.position;
        self.seek(next);
        Polled { skipped: Some((from, next)), ..self.nothing(head) }
    }

    fn part_error(&mut self, head: &PartHead) -> Result<Polled, Error> {
        let error = ServerError::read(Api::Fetch, head.error, self.part()?.bytes)?;
        match (error.code(), error.detail) {
            (Some(ErrorCode::OffsetOutOfRange), _) => self.out_of_range(head),
            (Some(ErrorCode::CorruptMessage), Detail::Damage { next, .. })
                if self.options.skip_damage && next > self.position =>
            {
                Ok(self.skip(next, head))
            }
            (_, Detail::Diverged { epoch, end }) => Err(Error::Cut {
                topic: self.topic.clone(),
                partition: self.partition,
                offset: self.position,
                last_epoch: self.epoch,
                end,
                epoch,
            }),
            _ => Err(Error::Server(error)),
        }
    }

    fn out_of_range(&mut self, head: &PartHead) -> Result<Polled, Error> {
        let (offset, start, end) = (self.position, head.start, head.high_watermark);
        match self.options.out_of_range {
            OutOfRange::Fail => return Err(Error::OutOfRange { offset, start, end }),
            OutOfRange::Earliest => self.seek(start),
            OutOfRange::Latest => self.seek(end),
        }
        Ok(self.nothing(head))
    }

    /// [`Self::poll`], and when the connection is lost, the server stops or the partition has
    /// moved, goes on at the same position over a new connection, as long as the client's back-off
    /// says. Reading again changes nothing, so it may.
    pub fn poll_through(
        &mut self,
        client: &mut Client,
        mut visit: impl FnMut(&Record<'_>),
    ) -> Result<Polled, Error> {
        let mut reopens = 0;
        loop {
            match self.poll(&mut visit) {
                Err(error) if (error.is_moved() || error.may_pass()) && client.pause(reopens) => {
                    reopens += 1;
                    self.reopen(client)?;
                }
                done => return done,
            }
        }
    }

    /// A new connection to wherever the partition is now; an error when the topic is another one.
    pub fn reopen(&mut self, client: &mut Client) -> Result<(), Error> {
        client.refresh(Some(&[&self.topic]))?;
        let owner = client.partition(&self.topic, self.partition)?;
        if client.metadata().topic(&self.topic).is_some_and(|topic| topic.id != self.id) {
            return Err(Error::TopicReplaced { topic: self.topic.clone() });
        }
        self.asked = None;
        self.handle = owner.handle;
        self.connection = client.open(owner.shard)?;
        Ok(())
    }

    fn bad(&self, what: &str) -> Error {
        Error::Records {
            topic: self.topic.clone(),
            partition: self.partition,
            offset: self.position,
            what: what.to_owned(),
        }
    }
}

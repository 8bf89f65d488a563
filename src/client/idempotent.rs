//! What an idempotent producer is, beside its batches: its id and epoch, the next sequence, and the
//! way back to its partition.
//!
//! Owns: stamping batches, telling a repeat that is in the log from a gap, dialling anew. Never
//! does: keep or send batches (`producer` does). Left: [`super::cluster`], [`crate::format`].
//! Right: [`super::producer`].

use super::backoff::Backoff;
use super::cluster::Client;
use super::connection::{Connection, Options};
use super::error::{Error, ServerError};
use crate::errors::ErrorCode;
use crate::format::batch::{self, sequence_add};
use crate::protocol::error::Detail;
use crate::protocol::hello::features;
use crate::protocol::offsets::{InitProducerRequest, InitProducerResponse};
use crate::types::Handle;

/// Batches a producer may have unacked: the server remembers as many of one, so that each of them
/// is known again after a lost connection.
pub const IDEMPOTENT_IN_FLIGHT_MAX: usize = 64;

/// The sequences of a batch: the first, and how many.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Sequences {
    pub first: i32,
    pub records: u32,
}

#[derive(Debug)]
pub(super) struct Identity {
    pub id: i64,
    pub epoch: i16,
    next: i32,
}

impl Identity {
    /// Asks for an id of its own.
    pub fn ask(client: &mut Client) -> Result<Identity, Error> {
        if client.info().features & features::IDEMPOTENCE == 0 {
            return Err(Error::NoProducerIds { server: client.info().server.clone() });
        }
        let got: InitProducerResponse = client.call_any(&new_id(), true)?.response()?;
        Ok(Identity { id: got.producer_id, epoch: got.epoch, next: 0 })
    }

    /// Begins anew behind a batch that was refused: the next epoch starts at sequence 0.
    pub fn renew(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let (producer_id, epoch) = (self.id, self.epoch);
        connection.call(&InitProducerRequest { producer_id, epoch, ..new_id() })?;
        let got: InitProducerResponse = connection.response()?;
        *self = Identity { id: got.producer_id, epoch: got.epoch, next: 0 };
        Ok(())
    }

    /// Writes id, epoch and sequence into a finished batch.
    pub fn stamp(&mut self, bytes: &mut [u8], records: u32) -> Result<Sequences, Error> {
        let first = self.next;
        batch::set_producer(bytes, self.id, self.epoch, first)
            .map_err(|error| Error::Codec(std::io::Error::other(error)))?;
        self.next = sequence_add(first, records.cast_signed());
        Ok(Sequences { first, records })
    }

    /// Whether a refused batch is in the log, from a connection before this one, and only too old
    /// for the server to say where.
    pub fn is_in_log(&self, sequences: Sequences, error: &ServerError) -> bool {
        let Detail::Sequence { epoch, next } = error.detail else { return false };
        // How far the log goes behind the batch's first sequence; a gap is "far" the other way.
        let ahead = next.wrapping_sub(sequences.first) & i32::MAX;
        error.code() == Some(ErrorCode::OutOfOrderSequenceNumber)
            && epoch == self.epoch
            && ahead <= i32::MAX / 2
            && ahead.cast_unsigned() >= sequences.records
    }
}

fn new_id() -> InitProducerRequest<'static> {
    InitProducerRequest { transactional_id: None, timeout_ms: 0, producer_id: -1, epoch: -1 }
}

/// Where the partition is, by name: what is needed to find it again.
#[derive(Debug)]
pub(super) struct Home {
    server: String,
    options: Options,
    topic: String,
    topic_id: [u8; 16],
    partition: u32,
    pub backoff: Backoff,
    /// Attempts since the last ack.
    pub attempts: u32,
}

impl Home {
    pub fn new(client: &Client, topic: &str, partition: u32, backoff: Backoff) -> Home {
        Home {
            server: client.dialled().to_owned(),
            options: client.options().clone(),
            topic: topic.to_owned(),
            topic_id: client.metadata().topic(topic).map_or([0; 16], |topic| topic.id),
            partition,
            backoff,
            attempts: 0,
        }
    }

    /// Waits before the next attempt; false: there is none.
    pub fn pause(&mut self) -> bool {
        if self.attempts >= self.backoff.attempts_max {
            return false;
        }
        self.attempts += 1;
        let endless = Backoff { attempts_max: u32::MAX, ..self.backoff.clone() };
        std::thread::sleep(endless.delay(self.attempts).unwrap_or(self.backoff.cap));
        true
    }

    /// One attempt: a connection to the partition's owner, as it is now.
    pub fn dial(&self) -> Result<(Connection, Handle), Error> {
        let once = Backoff { attempts_max: 1, ..self.backoff.clone() };
        let mut client = Client::connect(&self.server, self.options.clone(), once)?;
        let owner = client.partition(&self.topic, self.partition)?;
        if client.metadata().topic(&self.topic).is_none_or(|topic| topic.id != self.topic_id) {
            return Err(Error::TopicReplaced { topic: self.topic.clone() });
        }
        Ok((client.open(owner.shard)?, owner.handle))
    }
}

/// Whether sending again over a new connection may help: nothing is repeated that is there.
pub(super) fn may_go_on(error: &Error) -> bool {
    error.may_pass() || error.is_moved()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Api;

    fn in_log(first: i32, records: u32, epoch: i16, next: i32) -> bool {
        let identity = Identity { id: 7, epoch: 3, next: 0 };
        let error = ServerError {
            api: Api::Produce,
            number: ErrorCode::OutOfOrderSequenceNumber.code(),
            message: String::new(),
            detail: Detail::Sequence { epoch, next },
        };
        identity.is_in_log(Sequences { first, records }, &error)
    }

    #[test]
    fn what_the_log_is_past_is_in_it() {
        assert!(in_log(10, 5, 3, 15) && in_log(10, 5, 3, 90));
        assert!(!in_log(10, 5, 3, 10), "it is due");
        assert!(!in_log(10, 5, 3, 14), "no whole batch");
        assert!(!in_log(10, 5, 3, 7), "a gap: what was before it is missing");
        assert!(!in_log(10, 5, 4, 90), "of another epoch");
        assert!(in_log(i32::MAX - 1, 4, 3, 2) && !in_log(2, 4, 3, i32::MAX - 1));
    }
}

//! What can go wrong for a client, said so that a person knows what to do.
//!
//! Owns: [`Error`], [`ServerError`]. Never does: decide about retries (who calls does).
//! Left: [`crate::protocol`]. Right: every other file of `client`.

use std::fmt;
use std::io;
use std::time::Duration;

use super::machine::MachineError;
use crate::errors::ErrorCode;
use crate::protocol::error::{Detail, ErrorBody};
use crate::protocol::{Api, WireError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{address}: {action}: {source}")]
    Io { address: String, action: &'static str, source: io::Error },
    /// The peer closed, or an earlier failure did: open a new connection.
    #[error("{address}: the connection is closed ({unanswered} requests unanswered)")]
    Closed { address: String, unanswered: usize },
    /// The answer may still come, and will be skipped; the connection stays usable.
    #[error("{address}: no answer to {} within {after:?}", api.name())]
    TimedOut { address: String, api: Api, after: Duration },
    #[error("{address}: {source}")]
    Protocol { address: String, source: MachineError },
    #[error("cannot be sent: {0}")]
    Unsendable(#[from] WireError),
    #[error("{0}")]
    Server(ServerError),
    #[error("{in_flight} requests are unanswered on this connection; the limit is {max}")]
    Full { in_flight: usize, max: usize },
    #[error("topic {topic} has no partition {partition}")]
    NoPartition { topic: String, partition: u32 },
    /// The name is there, the topic behind it is another one.
    #[error("topic {topic} was deleted and made anew")]
    TopicReplaced { topic: String },
    #[error("{topic}-{partition} at offset {offset}: {what}")]
    Records { topic: String, partition: u32, offset: i64, what: String },
    /// The reader's history is no longer the log's (R11): `seek_in_epoch(end, epoch)` goes on.
    #[error(
        "{topic}-{partition} was cut: what was read at offsets {end} to {} in leader epoch \
         {last_epoch} is lost, and others have or will have those offsets; go on at offset {end}",
        offset - 1
    )]
    Cut { topic: String, partition: u32, offset: i64, last_epoch: i32, end: i64, epoch: i32 },
    #[error("offset {offset} is outside the log, which holds {start} up to {end}")]
    OutOfRange { offset: i64, start: i64, end: i64 },
    #[error("io_uring cannot be used here ({0}); use the blocking transport")]
    NoUring(io::Error),
    #[error(
        "{server:?} hands out no producer ids; produce without idempotence (--no-idempotence), \
         and know that what is unacked at a lost connection cannot be sent again"
    )]
    NoProducerIds { server: String },
    #[error("compressing a batch: {0}")]
    Codec(io::Error),
}

impl Error {
    pub(super) fn io(address: &str, action: &'static str, source: io::Error) -> Error {
        Error::Io { address: address.to_owned(), action, source }
    }

    /// The connection is gone: reconnecting is what helps.
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Error::Io { .. } | Error::Closed { .. } | Error::Protocol { .. })
    }

    /// The partition is elsewhere, or the handle old: reading the metadata again helps.
    pub fn is_moved(&self) -> bool {
        matches!(self.server_code(), Some(ErrorCode::NotOwner | ErrorCode::StaleHandle))
    }

    /// Asking again later, perhaps over a new connection, may help.
    pub fn may_pass(&self) -> bool {
        let passing = [Some(ErrorCode::ShuttingDown), Some(ErrorCode::Overloaded)];
        self.is_disconnect() || passing.contains(&self.server_code())
    }

    pub fn server_code(&self) -> Option<ErrorCode> {
        match self {
            Error::Server(error) => error.code(),
            _ => None,
        }
    }
}

/// An error response, or a part's error in a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    pub api: Api,
    /// The wire's number: a newer server may send one that this build has no name for.
    pub number: i16,
    pub message: String,
    pub detail: Detail,
}

impl ServerError {
    pub(super) fn read(api: Api, number: i16, body: &[u8]) -> Result<ServerError, WireError> {
        let body = ErrorBody::parse(number, body)?;
        let message = body.message.to_owned();
        Ok(ServerError { api, number, message, detail: body.detail })
    }

    pub fn code(&self) -> Option<ErrorCode> {
        ErrorCode::from_code(self.number)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let api = self.api.name();
        match self.code() {
            Some(code) => write!(f, "{api}: {}", code.name())?,
            None => write!(f, "{api}: error {}", self.number)?,
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ServerError {}

//! One connection's protocol, without its socket: requests in, bytes out; bytes in, answers out.
//!
//! Owns: correlation numbers, the order of the unanswered, the in-flight bound, both buffers.
//! Never does: I/O, clocks, retries.
//! Left: [`crate::protocol`]. Right: `connection`, the transports, load generators.
//!
//! Answers come in request order, so one queue of the unanswered is all the state there is. A
//! request whose caller gave up stays in it: its answer is still taken off the stream, then
//! dropped. A time-out therefore never costs the connection.
//!
//! ```
//! use ringlog::client::machine::Machine;
//! use ringlog::protocol::offsets::FlushRequest;
//! use ringlog::types::Handle;
//!
//! let mut machine = Machine::new(16);
//! let ticket = machine.request(&FlushRequest { handle: Handle(1) }).unwrap();
//! let sent = machine.output().len(); // hand these bytes to a socket, then
//! machine.sent(sent);
//! machine.feed(b"\0\0\0\x10\x0a\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x07"); // what the socket gave
//! let answer = machine.next_answer().unwrap().unwrap();
//! assert_eq!(answer.ticket, ticket);
//! assert_eq!(machine.body(), [0, 0, 0, 0, 0, 0, 0, 7]);
//! ```

use std::collections::VecDeque;

use crate::protocol::api::{BODY_AT, ResponseHeader, encode_request};
use crate::protocol::frame::{self, FRAME_BYTES_CEILING, FRAME_BYTES_DEFAULT, FrameError, Scan};
use crate::protocol::produce;
use crate::protocol::{Api, Request, WireError};
use crate::types::{AckLevel, Handle};

/// Room made for a read when nothing is known about what comes.
const READ_BYTES: usize = 64 << 10;

/// A request's name on its connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u32);

/// An answer whose body is in [`Machine::body`] until the next call that takes bytes or answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub ticket: Ticket,
    pub api: Api,
    /// Raw error number; not 0: the body is an error body.
    pub error: i16,
}

/// The peer does not keep the protocol: close.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("a response that cannot be read: {0}")]
    Wire(#[from] WireError),
    #[error("a response {got} that nobody asked for")]
    Unasked { got: u32 },
    #[error("response {got} where {want} is due")]
    Order { got: u32, want: u32 },
    #[error("a response of api {got} to a request of api {want}")]
    Api { got: u8, want: u8 },
}

/// Why a request was not taken; nothing has changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("{in_flight} requests are unanswered; the limit is {max}")]
    Full { in_flight: usize, max: usize },
    #[error("{0}")]
    Wire(#[from] WireError),
}

#[derive(Copy, Clone, Debug)]
struct Unanswered {
    ticket: Ticket,
    api: Api,
    abandoned: bool,
}

#[derive(Debug)]
pub struct Machine {
    unanswered: VecDeque<Unanswered>,
    in_flight_max: usize,
    request_bytes_max: u32,
    next: u32,
    output: Vec<u8>,
    output_sent: usize,
    input: Vec<u8>,
    /// Received and not yet released: `input[start..end]`.
    start: usize,
    end: usize,
    /// Bytes at `start` of the answer handed out last, released by the next one.
    held: usize,
    /// Of the frame that is being received, as its prefix said.
    missing: usize,
}

impl Machine {
    pub fn new(in_flight_max: usize) -> Machine {
        Machine {
            unanswered: VecDeque::with_capacity(in_flight_max.min(1024)),
            in_flight_max: in_flight_max.max(1),
            request_bytes_max: FRAME_BYTES_DEFAULT,
            next: 1,
            output: Vec::new(),
            output_sent: 0,
            input: Vec::new(),
            start: 0,
            end: 0,
            held: 0,
            missing: 0,
        }
    }

    /// What hello said: never more in flight than the server takes, no frame that it refuses.
    pub fn limit(&mut self, in_flight_max: usize, request_bytes_max: u32) {
        self.in_flight_max = self.in_flight_max.min(in_flight_max.max(1));
        self.request_bytes_max = request_bytes_max;
    }

    /// Requests whose answers are due, abandoned ones included.
    pub fn in_flight(&self) -> usize {
        self.unanswered.len()
    }

    pub fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    /// The longest batches that fit a produce request.
    pub fn batches_bytes_max(&self) -> usize {
        (self.request_bytes_max as usize).saturating_sub(produce::BATCHES_AT - frame::PREFIX)
    }

    /// Queues a request in the output.
    pub fn request<'a, R: Request<'a>>(&mut self, request: &R) -> Result<Ticket, SendError> {
        self.room()?;
        let ticket = Ticket(self.next);
        let start = self.output.len();
        encode_request(request, ticket.0, &mut self.output)?;
        let len = self.output.len() - start;
        if let Err(error) = self.fits(len) {
            self.output.truncate(start);
            return Err(error);
        }
        Ok(self.admit(ticket, R::API))
    }

    /// Queues a produce frame up to its batches, which the caller must send behind the output:
    /// batches are never copied here.
    pub fn produce(
        &mut self,
        handle: Handle,
        ack: AckLevel,
        batches_len: usize,
    ) -> Result<Ticket, SendError> {
        self.room()?;
        self.fits(batches_len.saturating_add(produce::BATCHES_AT))?;
        let ticket = Ticket(self.next);
        let head = produce::request_head(handle, ack, ticket.0, batches_len);
        self.output.extend_from_slice(&head);
        Ok(self.admit(ticket, Api::Produce))
    }

    fn room(&self) -> Result<(), SendError> {
        let (in_flight, max) = (self.unanswered.len(), self.in_flight_max);
        if in_flight < max { Ok(()) } else { Err(SendError::Full { in_flight, max }) }
    }

    /// A frame of `wire_len` bytes, prefix included, is within the server's limit.
    fn fits(&self, wire_len: usize) -> Result<(), SendError> {
        let (len, max) = (wire_len - frame::PREFIX, self.request_bytes_max as usize);
        if len <= max { Ok(()) } else { Err(WireError::TooLong { field: "frame", len, max })? }
    }

    fn admit(&mut self, ticket: Ticket, api: Api) -> Ticket {
        self.next = self.next.wrapping_add(1);
        self.unanswered.push_back(Unanswered { ticket, api, abandoned: false });
        ticket
    }

    /// The caller no longer waits: the answer will be taken off the stream and dropped.
    pub fn abandon(&mut self, ticket: Ticket) {
        if let Some(entry) = self.unanswered.iter_mut().find(|entry| entry.ticket == ticket) {
            entry.abandoned = true;
        }
    }

    /// The api that was asked with this ticket, while it is unanswered.
    pub fn api_of(&self, ticket: Ticket) -> Option<Api> {
        self.unanswered.iter().find(|entry| entry.ticket == ticket).map(|entry| entry.api)
    }

    /// Requests somebody still waits for.
    pub fn awaited(&self) -> usize {
        self.unanswered.iter().filter(|entry| !entry.abandoned).count()
    }

    /// Bytes to send.
    pub fn output(&self) -> &[u8] {
        self.output.get(self.output_sent..).unwrap_or_default()
    }

    /// The first `len` bytes of the output are on their way.
    pub fn sent(&mut self, len: usize) {
        self.output_sent += len;
        assert!(self.output_sent <= self.output.len(), "more sent than there was");
        if self.output_sent == self.output.len() {
            self.output.clear();
            self.output_sent = 0;
        }
    }

    /// Room to receive into; say with [`Self::received`] how much of it was used. It grows with
    /// what has come, not with what a prefix promises: at most twofold.
    pub fn room_to_receive(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let want = self.missing.clamp(READ_BYTES, READ_BYTES.max(self.end - self.start));
        if self.input.len() - self.end < want {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.input.len() - self.end < want {
                self.input.resize(self.end + want, 0);
            }
        }
        self.input.get_mut(self.end..).unwrap_or_default()
    }

    /// `len` bytes of the room now hold what the peer sent.
    pub fn received(&mut self, len: usize) {
        self.end += len;
        assert!(self.end <= self.input.len(), "more received than there was room");
        self.missing = self.missing.saturating_sub(len);
    }

    /// Copies received bytes in, for transports that own their buffers.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room_to_receive();
            let len = room.len().min(bytes.len());
            let (now, later) = bytes.split_at(len);
            if let Some(room) = room.get_mut(..len) {
                room.copy_from_slice(now);
            }
            self.received(len);
            bytes = later;
        }
    }

    /// The next whole answer, in request order; `None` until more bytes come. Releases the one
    /// before. After an error the stream means nothing any more.
    pub fn next_answer(&mut self) -> Result<Option<Answer>, MachineError> {
        loop {
            self.start += std::mem::take(&mut self.held);
            let received = self.input.get(self.start..self.end).unwrap_or_default();
            let frame = match frame::scan_response(received, FRAME_BYTES_CEILING)? {
                Scan::Frame(frame) => frame,
                Scan::NeedMore(more) => {
                    self.missing = more;
                    return Ok(None);
                }
            };
            let (header, _) = ResponseHeader::split(&frame)?;
            let held = frame.wire_len();
            let due = self.match_up(&header)?;
            self.held = held;
            if !due.abandoned {
                let Unanswered { ticket, api, .. } = due;
                return Ok(Some(Answer { ticket, api, error: header.error }));
            }
        }
    }

    fn match_up(&mut self, header: &ResponseHeader) -> Result<Unanswered, MachineError> {
        let got = header.correlation;
        let due = *self.unanswered.front().ok_or(MachineError::Unasked { got })?;
        if got != due.ticket.0 {
            return Err(MachineError::Order { got, want: due.ticket.0 });
        }
        if header.api != due.api.to_wire() {
            return Err(MachineError::Api { got: header.api, want: due.api.to_wire() });
        }
        self.unanswered.pop_front();
        Ok(due)
    }

    /// The body of the answer handed out last.
    pub fn body(&self) -> &[u8] {
        self.input.get(self.start + BODY_AT..self.start + self.held).unwrap_or_default()
    }
}

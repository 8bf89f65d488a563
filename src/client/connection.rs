//! One connection to one shard: a machine, a socket, and what hello said.
//!
//! Owns: opening, calling, pipelining. Never does: reconnect, know topics.
//! Left: [`super::machine`], [`super::transport`]. Right: `cluster`, `producer`, `consumer`.

use std::time::{Duration, Instant};

use super::error::{Error, ServerError};
use super::machine::{Answer, Machine, SendError, Ticket};
use super::transport::{Received, Socket, Transport};
use crate::protocol::api::CONTROL_BYTES_MAX;
use crate::protocol::hello::{HelloRequest, HelloResponse, Limits, ShardAddress};
use crate::protocol::{Message, Request, WireError};
use crate::types::{AckLevel, Handle, ShardId};

/// How connections are opened and how long they wait.
#[derive(Clone, Debug)]
pub struct Options {
    /// Told to the server, for its log.
    pub client_name: String,
    pub token: Option<String>,
    pub transport: Transport,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
    /// Requests that may be unanswered on a connection; the server's limit binds too.
    pub in_flight_max: usize,
}

impl Default for Options {
    /// Blocking sockets: they work everywhere. [`Transport::auto`] picks the ring.
    fn default() -> Options {
        Options {
            client_name: concat!("ringlog-client ", env!("CARGO_PKG_VERSION")).to_owned(),
            token: None,
            transport: Transport::Blocking,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            in_flight_max: 64,
        }
    }
}

/// What the server said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    pub server: String,
    pub features: u64,
    pub limits: Limits,
    pub engine: String,
    pub flush_policy: String,
    pub policy_level: AckLevel,
    /// What the default policy can lose at a power cut, in words.
    pub promise: String,
    pub shard: ShardId,
    /// Addresses to dial, in shard order.
    pub shards: Vec<String>,
}

pub struct Connection {
    address: String,
    machine: Machine,
    socket: Socket,
    info: ServerInfo,
    request_timeout: Duration,
    /// After an I/O or protocol error the stream means nothing any more.
    broken: bool,
}

impl Connection {
    /// Dials, says hello, and keeps to the limits that come back.
    pub fn open(address: &str, options: &Options) -> Result<Connection, Error> {
        let socket = Socket::dial(address, options.transport, options.connect_timeout)?;
        let mut connection = Connection {
            address: address.to_owned(),
            machine: Machine::new(options.in_flight_max),
            socket,
            info: ServerInfo::unasked(),
            request_timeout: options.request_timeout,
            broken: false,
        };
        let hello = HelloRequest { client: &options.client_name, token: options.token.as_deref() };
        connection.call(&hello)?;
        let info = ServerInfo::read(&connection.response()?, address);
        let in_flight_max = usize::try_from(info.limits.in_flight_max).unwrap_or(usize::MAX);
        connection.machine.limit(in_flight_max, info.limits.frame_bytes_max);
        connection.info = info;
        Ok(connection)
    }

    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    pub fn is_broken(&self) -> bool {
        self.broken
    }

    pub fn in_flight(&self) -> usize {
        self.machine.in_flight()
    }

    pub fn in_flight_max(&self) -> usize {
        self.machine.in_flight_max()
    }

    /// The longest batches that one produce request takes.
    pub fn batches_bytes_max(&self) -> usize {
        self.machine.batches_bytes_max()
    }

    /// Sends a request and does not wait.
    pub fn send<'a, R: Request<'a>>(&mut self, request: &R) -> Result<Ticket, Error> {
        self.usable()?;
        let ticket = self.machine.request(request).map_err(refused)?;
        self.push(&[])?;
        Ok(ticket)
    }

    /// Sends batches and does not wait for the ack. Over blocking sockets they go from `batches`
    /// to the kernel without a copy.
    pub fn send_batches(
        &mut self,
        handle: Handle,
        ack: AckLevel,
        batches: &[u8],
    ) -> Result<Ticket, Error> {
        self.usable()?;
        let ticket = self.machine.produce(handle, ack, batches.len()).map_err(refused)?;
        self.push(batches)?;
        Ok(ticket)
    }

    fn push(&mut self, tail: &[u8]) -> Result<(), Error> {
        let sent = self.socket.send(&mut self.machine, tail, self.request_timeout);
        sent.map_err(|source| {
            self.broken = true; // a part of a frame may be out
            Error::io(&self.address, "sending", source)
        })
    }

    /// The next answer in request order, waiting at most `timeout` (zero: what is there).
    pub fn poll(&mut self, timeout: Duration) -> Result<Option<Answer>, Error> {
        let deadline = Instant::now().checked_add(timeout);
        let mut left = timeout;
        loop {
            self.usable()?;
            let answer = self.buffered()?;
            if answer.is_some() {
                return Ok(answer);
            }
            let received = self.socket.receive(&mut self.machine, left).map_err(|source| {
                self.broken = true;
                Error::io(&self.address, "receiving", source)
            })?;
            match received {
                Received::Bytes(_) => {}
                Received::Closed => {
                    self.broken = true;
                    return Err(self.closed());
                }
                Received::Nothing if left.is_zero() => return Ok(None),
                Received::Nothing => {}
            }
            left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
        }
    }

    /// The next answer among the bytes already received; asks the socket for nothing.
    pub fn buffered(&mut self) -> Result<Option<Answer>, Error> {
        self.machine.next_answer().map_err(|source| {
            self.broken = true;
            Error::Protocol { address: self.address.clone(), source }
        })
    }

    /// Sends a request and waits for its answer, whose body is then in [`Self::response`].
    ///
    /// Answers come in order, so nobody may be waiting for earlier ones: pipelined requests
    /// belong on a connection of their own ([`Error::Full`] says so).
    pub fn call<'a, R: Request<'a>>(&mut self, request: &R) -> Result<(), Error> {
        self.call_within(request, self.request_timeout)
    }

    pub fn call_within<'a, R: Request<'a>>(
        &mut self,
        request: &R,
        timeout: Duration,
    ) -> Result<(), Error> {
        let awaited = self.machine.awaited();
        if awaited > 0 {
            return Err(Error::Full { in_flight: awaited, max: 0 });
        }
        let ticket = self.send(request)?;
        match self.poll(timeout)? {
            Some(answer) => self.check(&answer),
            None => {
                self.machine.abandon(ticket);
                let address = self.address.clone();
                Err(Error::TimedOut { address, api: R::API, after: timeout })
            }
        }
    }

    /// Gives up on an answer: it will be skipped when it comes.
    pub fn abandon(&mut self, ticket: Ticket) {
        self.machine.abandon(ticket);
    }

    /// An error response as an error.
    pub fn check(&self, answer: &Answer) -> Result<(), Error> {
        if answer.error == 0 {
            return Ok(());
        }
        let error = ServerError::read(answer.api, answer.error, self.machine.body());
        Err(Error::Server(error.map_err(|e| self.unreadable(e))?))
    }

    /// The body of the last answer.
    pub fn body(&self) -> &[u8] {
        self.machine.body()
    }

    /// The last answer's body, read as a message.
    pub fn response<'s, M: Message<'s>>(&'s self) -> Result<M, Error> {
        M::parse(self.machine.body()).map_err(|e| self.unreadable(e))
    }

    fn unreadable(&self, error: WireError) -> Error {
        Error::Protocol { address: self.address.clone(), source: error.into() }
    }

    fn usable(&self) -> Result<(), Error> {
        if self.broken { Err(self.closed()) } else { Ok(()) }
    }

    fn closed(&self) -> Error {
        Error::Closed { address: self.address.clone(), unanswered: self.machine.awaited() }
    }
}

impl ServerInfo {
    /// Before hello was answered.
    fn unasked() -> ServerInfo {
        let limits = Limits {
            frame_bytes_max: CONTROL_BYTES_MAX,
            in_flight_max: 1,
            fetch_bytes_max: CONTROL_BYTES_MAX,
        };
        ServerInfo {
            server: String::new(),
            features: 0,
            limits,
            engine: String::new(),
            flush_policy: String::new(),
            policy_level: AckLevel::None,
            promise: String::new(),
            shard: ShardId(0),
            shards: Vec::new(),
        }
    }

    fn read(hello: &HelloResponse<'_>, dialled: &str) -> ServerInfo {
        let address = |shard: &ShardAddress<'_>| address_of(shard, dialled);
        ServerInfo {
            server: hello.server.to_owned(),
            features: hello.features,
            limits: hello.limits,
            engine: hello.engine.to_owned(),
            flush_policy: hello.flush_policy.to_owned(),
            policy_level: hello.policy_level,
            promise: hello.promise.to_owned(),
            shard: hello.shard,
            shards: hello.shards.iter().map(address).collect(),
        }
    }
}

/// Where to dial a shard: a server that listens everywhere names no host, so the host that was
/// dialled stays.
fn address_of(shard: &ShardAddress<'_>, dialled: &str) -> String {
    let host = match shard.host {
        "" | "0.0.0.0" | "::" | "[::]" => {
            dialled.rsplit_once(':').map_or(dialled, |(host, _)| host)
        }
        host => host,
    };
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{}", shard.port)
    } else {
        format!("{host}:{}", shard.port)
    }
}

fn refused(error: SendError) -> Error {
    match error {
        SendError::Full { in_flight, max } => Error::Full { in_flight, max },
        SendError::Wire(error) => Error::Unsendable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_host_keeps_the_one_dialled() {
        let at = |host, dialled| address_of(&ShardAddress { host, port: 7441 }, dialled);
        assert_eq!(at("0.0.0.0", "log.example:7440"), "log.example:7441");
        assert_eq!(at("::", "[::1]:7440"), "[::1]:7441");
        assert_eq!(at("", "127.0.0.1:7440"), "127.0.0.1:7441");
        assert_eq!(at("fe80::1", "x:1"), "[fe80::1]:7441");
        assert_eq!(at("other", "x:1"), "other:7441");
    }
}

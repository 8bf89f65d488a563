//! Which socket a connection speaks through: plain blocking, or tokio-uring.
//!
//! Owns: the choice, dialling, and the one shape both have. Never does: read the protocol.
//! Left: [`super::blocking`], [`super::uring`]. Right: [`super::connection`].

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::blocking::Blocking;
use super::error::Error;
use super::machine::Machine;
use super::uring::{self, Uring};

/// The transport to use. [`Transport::auto`] tries; a caller that has probed may just say.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    Blocking,
    Uring,
}

impl Transport {
    /// tokio-uring where io_uring works, blocking sockets where it is forbidden. Makes a ring to
    /// find out: ask once, keep the answer.
    pub fn auto() -> Transport {
        Transport::from_probe(uring::probe().is_ok())
    }

    pub fn from_probe(io_uring_works: bool) -> Transport {
        if io_uring_works { Transport::Uring } else { Transport::Blocking }
    }

    pub fn name(self) -> &'static str {
        match self {
            Transport::Blocking => "blocking",
            Transport::Uring => "tokio-uring",
        }
    }
}

/// What a receive brought.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Received {
    Bytes(usize),
    /// Not in that time; nothing is lost.
    Nothing,
    Closed,
}

/// A dialled socket.
pub enum Socket {
    Blocking(Blocking),
    Uring(Box<Uring>),
}

impl Socket {
    pub fn dial(address: &str, transport: Transport, timeout: Duration) -> Result<Socket, Error> {
        let stream = dial(address, timeout).map_err(|e| Error::io(address, "connecting", e))?;
        match transport {
            Transport::Blocking => Blocking::new(stream)
                .map(Socket::Blocking)
                .map_err(|e| Error::io(address, "setting up the socket", e)),
            Transport::Uring => Uring::new(stream)
                .map(|uring| Socket::Uring(Box::new(uring)))
                .map_err(Error::NoUring),
        }
    }

    pub fn send(
        &mut self,
        machine: &mut Machine,
        tail: &[u8],
        patience: Duration,
    ) -> io::Result<()> {
        match self {
            Socket::Blocking(socket) => socket.send(machine, tail, patience),
            Socket::Uring(socket) => socket.send(machine, tail, patience),
        }
    }

    pub fn receive(&mut self, machine: &mut Machine, timeout: Duration) -> io::Result<Received> {
        match self {
            Socket::Blocking(socket) => socket.receive(machine, timeout),
            Socket::Uring(socket) => socket.receive(machine, timeout),
        }
    }
}

/// Tries each address the name has.
fn dial(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for resolved in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&resolved, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

//! The transport of plain blocking sockets.
//!
//! Owns: a `std::net::TcpStream` and its time-outs. Never does: drop a byte on a time-out
//! (`SO_RCVTIMEO` gives up only when nothing was received), wait in a send while the peer waits
//! for us to read.
//! Left: [`super::machine`]. Right: [`super::transport`].

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::machine::Machine;
use super::transport::Received;

/// How long a send waits before it looks whether the peer waits for us to read.
const SEND_SLICE: Duration = Duration::from_millis(20);
/// `SO_RCVTIMEO` of zero would mean for ever.
const RECEIVE_MIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub struct Blocking {
    stream: TcpStream,
    /// What `SO_RCVTIMEO` is set to.
    timeout: Option<Duration>,
}

impl Blocking {
    pub fn new(stream: TcpStream) -> io::Result<Blocking> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SEND_SLICE))?;
        stream.set_read_timeout(None)?;
        Ok(Blocking { stream, timeout: None })
    }

    /// Sends the machine's output, then `tail`; an error when nothing moved for `patience`.
    pub fn send(
        &mut self,
        machine: &mut Machine,
        mut tail: &[u8],
        patience: Duration,
    ) -> io::Result<()> {
        let mut moved = Instant::now();
        while !machine.output().is_empty() || !tail.is_empty() {
            let head = machine.output();
            let head_len = head.len();
            match self.stream.write_vectored(&[IoSlice::new(head), IoSlice::new(tail)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    machine.sent(len.min(head_len));
                    tail = tail.get(len.saturating_sub(head_len)..).unwrap_or_default();
                    moved = Instant::now();
                }
                Err(error) if would_block(&error) => {
                    while let Received::Bytes(_) = self.receive_now(machine)? {
                        moved = Instant::now();
                    }
                    if moved.elapsed() >= patience {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for bytes, at most `timeout` (zero: takes what is there).
    pub fn receive(&mut self, machine: &mut Machine, timeout: Duration) -> io::Result<Received> {
        if timeout.is_zero() {
            return self.receive_now(machine);
        }
        let timeout = Some(timeout.max(RECEIVE_MIN));
        if self.timeout != timeout {
            self.stream.set_read_timeout(timeout)?;
            self.timeout = timeout;
        }
        self.read(machine)
    }

    fn receive_now(&mut self, machine: &mut Machine) -> io::Result<Received> {
        self.stream.set_nonblocking(true)?;
        let received = self.read(machine);
        self.stream.set_nonblocking(false)?;
        received
    }

    fn read(&mut self, machine: &mut Machine) -> io::Result<Received> {
        loop {
            match self.stream.read(machine.room_to_receive()) {
                Ok(0) => return Ok(Received::Closed),
                Ok(len) => {
                    machine.received(len);
                    return Ok(Received::Bytes(len));
                }
                Err(error) if would_block(&error) => return Ok(Received::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        // The peer learns at once, also when a clone of the descriptor lives on in a child.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

//! The transport on tokio-uring.
//!
//! Owns: a tokio-uring runtime, a stream, and the one read that is always in flight. Never does:
//! drop that read: tokio-uring would let it finish in the kernel and throw its bytes away, so a
//! time-out leaves the future where it is and the next call polls it again.
//! Left: [`super::machine`]. Right: [`super::transport`].
//!
//! Each transport has its own runtime, so it cannot be used from inside another one.

use std::future::Future;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio_uring::{BufResult, Runtime};

use super::machine::Machine;
use super::transport::Received;

/// Entries of the ring: one read and one write are in flight.
const RING_ENTRIES: u32 = 8;
/// The read buffer, which the kernel owns while a read is in flight.
const READ_BYTES: usize = 256 << 10;
/// The shortest sleep: tokio's timer counts milliseconds.
const PARK: Duration = Duration::from_millis(1);
/// Turns of the scheduler in which a finished read reaches us: the driver's poll, its task, ours.
const GLANCE_TURNS: u32 = 3;
/// tokio-uring submits only when its thread parks, which a glance does not: so many glances in vain
/// may be at a read that was never submitted, and one of them parks.
const GLANCES_MAX: u32 = 16;

type Reading = Pin<Box<dyn Future<Output = BufResult<usize, Vec<u8>>>>>;

pub struct Uring {
    stream: Rc<tokio_uring::net::TcpStream>,
    reading: Option<Reading>,
    read_buffer: Vec<u8>,
    write_buffer: Vec<u8>,
    /// Received in the midst of a send, and the peer has closed.
    closed: bool,
    /// Looked in vain since the thread last parked.
    glances: u32,
    runtime: Runtime,
}

/// Whether io_uring works here; tokio-uring's other doors panic where it does not.
pub fn probe() -> io::Result<()> {
    runtime().map(drop)
}

fn runtime() -> io::Result<Runtime> {
    Runtime::new(tokio_uring::builder().entries(RING_ENTRIES))
}

impl Uring {
    pub fn new(stream: TcpStream) -> io::Result<Uring> {
        let runtime = runtime()?;
        stream.set_nodelay(true)?;
        Ok(Uring {
            stream: Rc::new(tokio_uring::net::TcpStream::from_std(stream)),
            reading: None,
            read_buffer: vec![0; READ_BYTES],
            write_buffer: Vec::new(),
            closed: false,
            glances: 0,
            runtime,
        })
    }

    /// Sends the machine's output, then `tail`, and receives meanwhile. The kernel wants to own
    /// what it sends: this is the one copy of the produce path.
    pub fn send(
        &mut self,
        machine: &mut Machine,
        tail: &[u8],
        patience: Duration,
    ) -> io::Result<()> {
        if machine.output().is_empty() && tail.is_empty() {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.write_buffer);
        buffer.clear();
        buffer.extend_from_slice(machine.output());
        machine.sent(machine.output().len());
        buffer.extend_from_slice(tail);
        let stream = Rc::clone(&self.stream);
        let writing = async move { stream.write_all(buffer).await };
        let (reading, read_buffer) = (&mut self.reading, &mut self.read_buffer);
        let (stream, closed) = (&self.stream, &mut self.closed);
        let sent = self.runtime.block_on(async {
            let mut writing = pin!(writing);
            let mut deadline = pin!(tokio::time::sleep(patience));
            std::future::poll_fn(|context| {
                if let Poll::Ready(sent) = writing.as_mut().poll(context) {
                    return Poll::Ready(Some(sent));
                }
                if !*closed {
                    let read = reading.get_or_insert_with(|| start(stream, read_buffer));
                    if let Poll::Ready((result, buffer)) = read.as_mut().poll(context) {
                        *reading = None;
                        match result {
                            Ok(len) if len > 0 => machine.feed(buffer.get(..len).unwrap_or(&[])),
                            _ => *closed = true,
                        }
                        *read_buffer = buffer;
                        context.waker().wake_by_ref();
                    }
                }
                deadline.as_mut().poll(context).map(|()| None)
            })
            .await
        });
        let Some((result, buffer)) = sent else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        self.write_buffer = buffer;
        result
    }

    /// Waits for bytes, at most `timeout` (zero: glances, and parks for a millisecond now and
    /// then).
    pub fn receive(&mut self, machine: &mut Machine, timeout: Duration) -> io::Result<Received> {
        if self.closed {
            return Ok(Received::Closed);
        }
        let glance = timeout.is_zero() && self.reading.is_some() && self.glances < GLANCES_MAX;
        let (reading, read_buffer) = (&mut self.reading, &mut self.read_buffer);
        let stream = &self.stream;
        let done = self.runtime.block_on(async {
            let read = reading.get_or_insert_with(|| start(stream, read_buffer));
            if glance {
                return look(read).await;
            }
            let mut deadline = pin!(tokio::time::sleep(timeout.max(PARK)));
            std::future::poll_fn(|context| match read.as_mut().poll(context) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                Poll::Pending => deadline.as_mut().poll(context).map(|()| None),
            })
            .await
        });
        self.glances = if glance && done.is_none() { self.glances + 1 } else { 0 };
        let Some((result, buffer)) = done else { return Ok(Received::Nothing) };
        self.reading = None;
        self.read_buffer = buffer;
        match result? {
            0 => {
                self.closed = true;
                Ok(Received::Closed)
            }
            len => {
                machine.feed(self.read_buffer.get(..len).unwrap_or(&[]));
                Ok(Received::Bytes(len))
            }
        }
    }
}

/// Whether a read is done, without waiting for it.
async fn look(read: &mut Reading) -> Option<BufResult<usize, Vec<u8>>> {
    for _ in 0..GLANCE_TURNS {
        let done = std::future::poll_fn(|context| match read.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        });
        match done.await {
            None => tokio::task::yield_now().await,
            done => return done,
        }
    }
    None
}

/// Puts a read in flight (at its first poll) that owns the buffer.
fn start(stream: &Rc<tokio_uring::net::TcpStream>, buffer: &mut Vec<u8>) -> Reading {
    let stream = Rc::clone(stream);
    let buffer = std::mem::take(buffer);
    Box::pin(async move { stream.read(buffer).await })
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Ends the read in flight, which the runtime waits for when it is dropped.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.reading = None;
    }
}

//! The producing client: many connections in one pinned thread, a fixed number of requests in
//! flight on each.
//!
//! Owns: the closed loop and the latency of each request, send to ack. Never does: build batches.
//! Left: `wire`, `sys`. Right: `ceiling::produce`, `quick`.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::wire::{self, Frames, HEAD_LEN};
use crate::device::Device;
use crate::histogram::Latencies;
use crate::meter::Snapshot;
use crate::sys::{self, Epoll};

/// Without an ack for so long the server counts as hung.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const INBOX_BYTES: usize = 4096;

pub struct Plan<'a> {
    pub to: SocketAddr,
    pub connections: usize,
    /// Requests in flight on each connection.
    pub window: usize,
    pub frames: &'a Frames,
    pub seconds: Duration,
    pub bytes_max: u64,
    pub cpu: Option<usize>,
}

/// What a client did between two moments.
pub struct Load {
    pub begin: Snapshot,
    pub end: Snapshot,
    pub requests: u64,
    pub bytes: u64,
    pub records: u64,
    pub latencies: Latencies,
    pub client_cpu: f64,
}

/// Runs the plan in a thread of its own, pinned if asked.
pub fn run(plan: &Plan<'_>, device: &Device) -> io::Result<Load> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(cpu) = plan.cpu {
                sys::pin_to(cpu)?;
            }
            Client::connect(plan)?.load(device)
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the client panicked")))
    })
}

struct Conn {
    stream: TcpStream,
    sending: Option<Sending>,
    /// Send times and correlations of what is not acked, oldest first: responses come in order.
    in_flight: VecDeque<(Instant, u32)>,
    inbox: Box<[u8; INBOX_BYTES]>,
    filled: usize,
}

/// A frame on its way: its head with the correlation in it, its number, bytes sent.
struct Sending {
    head: [u8; HEAD_LEN],
    number: usize,
    pos: usize,
}

struct Client<'a> {
    plan: &'a Plan<'a>,
    conns: Vec<Conn>,
    epoll: Epoll,
    latencies: Latencies,
    next_correlation: u32,
    acked: u64,
    last_ack: Instant,
}

/// When a phase stops sending: whichever comes first.
struct Phase {
    start: Instant,
    seconds: Duration,
    requests_max: u64,
    window: usize,
    sent: u64,
}

impl Phase {
    fn may_send(&self) -> bool {
        self.sent < self.requests_max && self.start.elapsed() < self.seconds && !sys::stopped()
    }
}

impl<'a> Client<'a> {
    fn connect(plan: &'a Plan<'a>) -> io::Result<Client<'a>> {
        let epoll = Epoll::new(plan.connections)?;
        let mut conns = Vec::with_capacity(plan.connections);
        for token in 0..plan.connections {
            let stream = TcpStream::connect(plan.to)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll.add(stream.as_raw_fd(), token)?;
            conns.push(Conn {
                stream,
                sending: None,
                in_flight: VecDeque::with_capacity(plan.window),
                inbox: Box::new([0; INBOX_BYTES]),
                filled: 0,
            });
        }
        let (latencies, last_ack) = (Latencies::default(), Instant::now());
        Ok(Client { plan, conns, epoll, latencies, next_correlation: 0, acked: 0, last_ack })
    }

    fn load(mut self, device: &Device) -> io::Result<Load> {
        // One uncounted request a connection: what is made on first use is not the row's.
        self.pump(SILENCE_MAX, self.plan.connections as u64, 1)?;
        self.latencies = Latencies::default();
        self.acked = 0;

        let begin = Snapshot::take(device);
        let cpu = sys::thread_cpu();
        let each = self.plan.frames.bytes_each as u64;
        let requests_max = (self.plan.bytes_max / each).max(1);
        self.pump(self.plan.seconds, requests_max, self.plan.window)?;
        let client_cpu = (sys::thread_cpu() - cpu).as_secs_f64();
        Ok(Load {
            begin,
            end: Snapshot::take(device),
            requests: self.acked,
            bytes: self.acked * each,
            records: self.acked * self.plan.frames.records_each,
            latencies: self.latencies,
            client_cpu,
        })
    }

    /// Keeps `window` requests in flight on each connection until a limit is met, then waits for
    /// the rest of the acks.
    fn pump(&mut self, seconds: Duration, requests_max: u64, window: usize) -> io::Result<()> {
        let mut phase = Phase { start: Instant::now(), seconds, requests_max, window, sent: 0 };
        self.last_ack = phase.start;
        let mut ready: Vec<usize> = (0..self.conns.len()).collect();
        loop {
            for &token in &ready {
                self.take_acks(token)?;
                self.send(token, &mut phase)?;
            }
            let rests = |conn: &Conn| conn.in_flight.is_empty() && conn.sending.is_none();
            if !phase.may_send() && self.conns.iter().all(rests) {
                return Ok(());
            }
            if self.last_ack.elapsed() > SILENCE_MAX {
                return Err(io::Error::other(format!("no ack for {SILENCE_MAX:?}")));
            }
            self.epoll.wait(100, &mut ready)?;
        }
    }

    /// Sends on one connection until its window or its socket is full, or the phase is over.
    fn send(&mut self, token: usize, phase: &mut Phase) -> io::Result<()> {
        let frames = &self.plan.frames.all;
        let conn = &mut self.conns[token];
        loop {
            if conn.sending.is_none() {
                if conn.in_flight.len() >= phase.window || !phase.may_send() {
                    return Ok(());
                }
                let correlation = self.next_correlation;
                self.next_correlation = correlation.wrapping_add(1);
                let number = correlation as usize % frames.len();
                let head = wire::head_with(&frames[number], correlation);
                conn.sending = Some(Sending { head, number, pos: 0 });
                conn.in_flight.push_back((Instant::now(), correlation));
                phase.sent += 1;
            }
            if !conn.push(frames)? {
                return Ok(());
            }
        }
    }

    /// Reads until the socket is empty, as edge-triggered readiness demands.
    fn take_acks(&mut self, token: usize) -> io::Result<()> {
        let conn = &mut self.conns[token];
        loop {
            let room = INBOX_BYTES - conn.filled;
            let n = match conn.stream.read(&mut conn.inbox[conn.filled..]) {
                Ok(0) => return Err(io::Error::other("the server closed the connection")),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            conn.filled += n;
            let now = Instant::now();
            while let Some(sent_at) = conn.next_ack()? {
                self.latencies.record(now.duration_since(sent_at));
                self.acked += 1;
                self.last_ack = now;
            }
            if n < room {
                return Ok(()); // a short read has emptied a stream socket
            }
        }
    }
}

impl Conn {
    /// Sends more of the frame on its way; false when the socket is full.
    fn push(&mut self, frames: &[Vec<u8>]) -> io::Result<bool> {
        let Some(mut sending) = self.sending.take() else { return Ok(true) };
        let frame = &frames[sending.number];
        while sending.pos < frame.len() {
            let wrote = match sending.head.get(sending.pos..) {
                Some(head) if !head.is_empty() => {
                    let parts = [IoSlice::new(head), IoSlice::new(&frame[HEAD_LEN..])];
                    self.stream.write_vectored(&parts)
                }
                _ => self.stream.write(&frame[sending.pos..]),
            };
            match wrote {
                Ok(n) => sending.pos += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.sending = Some(sending);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The send time of the next whole ack in the inbox, which is then removed.
    fn next_ack(&mut self) -> io::Result<Option<Instant>> {
        let Some(len) = wire::response_len(&self.inbox[..self.filled])? else { return Ok(None) };
        if len > INBOX_BYTES {
            return Err(io::Error::other(format!("an ack of {len} bytes")));
        }
        if len > self.filled {
            return Ok(None);
        }
        let correlation = wire::correlation(&self.inbox[..len]);
        self.inbox.copy_within(len..self.filled, 0);
        self.filled -= len;
        match self.in_flight.pop_front() {
            Some((sent_at, want)) if want == correlation => Ok(Some(sent_at)),
            Some((_, want)) => {
                Err(io::Error::other(format!("ack {correlation} in place of {want}")))
            }
            None => Err(io::Error::other("an ack that nothing was waiting for")),
        }
    }
}

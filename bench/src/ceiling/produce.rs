//! The least that an append server must do: recv -> CRC -> pwrite -> (fdatasync) -> ack.
//!
//! Owns: those loops, complete small servers for the load client, fused in one thread (M4).
//! Never does: validate records, keep an index, know a topic. Left: `load`, `sys`. Right: `quick`.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use ringlog::format::batch;
use ringlog::format::checksum::crc32c;

use super::{Bench, fresh, pinned};
use crate::load::CLOSED_LOOP;
use crate::load::produce::{self as client, Plan};
use crate::load::wire::{self, BATCH_AT, Frames};
use crate::meter::{Snapshot, Window};
use crate::row::Measured;
use crate::sys::{self, Epoll};

/// What an ack of the loop waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// The write.
    Write,
    /// A flush of its own: one batch, one flush, then the next.
    Each,
    /// One flush for all that was received together.
    Round,
}

/// Connections, and requests in flight on each: many, or several on one. Of many each has one in
/// flight, so that an acked connection is empty and its next frame gives a new edge.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub connections: usize,
    pub window: usize,
}

/// Runs the loop on the server's core against the load client on the other.
pub fn run(
    bench: &Bench<'_>,
    name: &str,
    frames: &Frames,
    shape: Shape,
    settle: Settle,
) -> io::Result<Measured> {
    assert!(
        shape.connections == 1 || shape.window == 1,
        "several in flight on one connection only"
    );
    let file = fresh(&bench.path(name))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let plan = Plan {
        to: listener.local_addr()?,
        connections: shape.connections,
        window: shape.window,
        frames,
        seconds: bench.seconds,
        bytes_max: bench.bytes_max,
        cpu: bench.client_cpu,
    };
    let (load, cpu) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            pinned(bench.server_cpu, || {
                Loop::accept(&listener, frames, shape, settle, &file)?.serve()
            })
        });
        let load = client::run(&plan, bench.device);
        if load.is_err() {
            // The loop may still wait in accept for connections that will not come.
            (0..shape.connections).for_each(|_| drop(TcpStream::connect(plan.to)));
        }
        let served = server.join().unwrap_or_else(|_| Err(io::Error::other("the loop panicked")));
        let load = load?;
        Ok::<_, io::Error>((load, served?.1))
    })?;
    let drained = match settle {
        Settle::Write => {
            bench.device.syncfs()?;
            Some(Window::between(&load.begin, &Snapshot::take(bench.device)))
        }
        Settle::Each | Settle::Round => None,
    };
    Ok(Measured {
        bytes: load.bytes,
        records: load.records,
        requests: load.requests,
        latencies: load.latencies,
        accepted: Window::between(&load.begin, &load.end),
        drained,
        server_cpu: Some(cpu),
        server_cpu_ticked: false,
        client_cpu: load.client_cpu,
        engine: "syscall".into(),

        extents: sys::extents(&file),
        flags: vec![CLOSED_LOOP.into()],
        doubt: None,
    })
}

struct Conn {
    stream: TcpStream,
    /// Room for exactly one frame: all frames of a row have one length, which the loop knows.
    frame: Vec<u8>,
    filled: usize,
    closed: bool,
}

struct Loop<'a> {
    conns: Vec<Conn>,
    epoll: Epoll,
    file: &'a File,
    pos: u64,
    settle: Settle,
}

impl<'a> Loop<'a> {
    fn accept(
        listener: &TcpListener,
        frames: &Frames,
        shape: Shape,
        settle: Settle,
        file: &'a File,
    ) -> io::Result<Loop<'a>> {
        let epoll = Epoll::new(shape.connections)?;
        let mut conns = Vec::with_capacity(shape.connections);
        for token in 0..shape.connections {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            if shape.connections > 1 {
                stream.set_nonblocking(true)?;
                epoll.add(stream.as_raw_fd(), token)?;
            }
            let frame = vec![0; frames.frame_len()];
            conns.push(Conn { stream, frame, filled: 0, closed: false });
        }
        Ok(Loop { conns, epoll, file, pos: 0, settle })
    }

    fn serve(mut self) -> io::Result<()> {
        if self.conns.len() == 1 {
            return self.serve_one();
        }
        let mut ready = Vec::with_capacity(self.conns.len());
        let mut whole = Vec::with_capacity(self.conns.len());
        while self.conns.iter().any(|conn| !conn.closed) && !sys::stopped() {
            self.epoll.wait(100, &mut ready)?;
            whole.clear();
            for &token in &ready {
                if self.conns[token].receive()? {
                    whole.push(token);
                }
            }
            self.settle_all(&whole)?;
        }
        Ok(())
    }

    /// One blocking connection needs no readiness: the cheapest loop there is.
    fn serve_one(mut self) -> io::Result<()> {
        loop {
            let conn = &mut self.conns[0];
            match conn.stream.read_exact(&mut conn.frame) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
            self.settle_all(&[0])?;
        }
    }

    /// Checks, writes, flushes as told, and acks one whole frame of each of these connections.
    fn settle_all(&mut self, whole: &[usize]) -> io::Result<()> {
        for &token in whole {
            check(&self.conns[token].frame[BATCH_AT..])?;
        }
        match self.settle {
            Settle::Round if !whole.is_empty() => {
                self.write_together(whole)?;
                self.file.sync_data()?;
                whole.iter().try_for_each(|&token| self.conns[token].ack())
            }
            Settle::Round => Ok(()),
            Settle::Write | Settle::Each => whole.iter().try_for_each(|&token| {
                let batch = &self.conns[token].frame[BATCH_AT..];
                self.file.write_all_at(batch, self.pos)?;
                self.pos += batch.len() as u64;
                if self.settle == Settle::Each {
                    self.file.sync_data()?;
                }
                self.conns[token].ack()
            }),
        }
    }

    fn write_together(&mut self, whole: &[usize]) -> io::Result<()> {
        let batches: Vec<IoSlice<'_>> =
            whole.iter().map(|&token| IoSlice::new(&self.conns[token].frame[BATCH_AT..])).collect();
        let want: usize = batches.iter().map(|batch| batch.len()).sum();
        let wrote = sys::pwritev(self.file, &batches, self.pos)?;
        if wrote != want {
            return Err(io::Error::other(format!("short write: {wrote} of {want}")));
        }
        self.pos += want as u64;
        Ok(())
    }
}

impl Conn {
    /// Receives until the frame is whole (true) or the socket is empty or closed (false).
    fn receive(&mut self) -> io::Result<bool> {
        while self.filled < self.frame.len() {
            match self.stream.read(&mut self.frame[self.filled..]) {
                Ok(0) => {
                    self.closed = true;
                    return Ok(false);
                }
                Ok(n) => self.filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Acks are far smaller than a socket buffer: a blocked one is an error, not a wait.
    fn ack(&mut self) -> io::Result<()> {
        self.filled = 0;
        self.stream.write_all(&wire::bare_ack(&self.frame))
    }
}

fn check(bytes: &[u8]) -> io::Result<()> {
    let stored = u32::from_be_bytes([
        bytes[batch::CRC],
        bytes[batch::CRC + 1],
        bytes[batch::CRC + 2],
        bytes[batch::CRC + 3],
    ]);
    match crc32c(&bytes[batch::ATTRIBUTES..]) == stored {
        true => Ok(()),
        false => Err(io::Error::other("a batch of the load does not match its CRC")),
    }
}

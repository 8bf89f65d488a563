//! The least that a fetch must do: read a range of a file and send it.
//!
//! Owns: the two loops, read+send and sendfile, complete small servers for the fetch client.
//! Never does: look an offset up. Left: `load`, `sys`. Right: `quick`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use super::{Bench, pinned};
use crate::load::CLOSED_LOOP;
use crate::load::fetch::{self as client, Cursor, Plan};
use crate::load::wire::{self, FETCH_BYTES, FETCH_LEN, FETCHED_HEAD_LEN};
use crate::meter::Window;
use crate::row::Measured;
use crate::sys;

/// How bytes get from the file to the socket.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    Send,
    Sendfile,
}

impl Via {
    /// The value of the server's `--fetch-path`.
    pub fn name(self) -> &'static str {
        match self {
            Via::Send => "send",
            Via::Sendfile => "sendfile",
        }
    }
}

/// A stretch of a file to serve, from its start.
#[derive(Copy, Clone)]
pub struct Range<'a> {
    pub file: &'a File,
    pub len: u64,
    pub records_per_byte: f64,
    /// Once through, or round and round until the time is up.
    pub once: bool,
}

pub fn run(bench: &Bench<'_>, range: Range<'_>, via: Via) -> io::Result<Measured> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let plan = Plan {
        to: listener.local_addr()?,
        seconds: bench.seconds,
        bytes_max: if range.once { range.len } else { u64::MAX },
        records_per_byte: range.records_per_byte,
        cpu: bench.client_cpu,
    };
    let (load, cpu) = std::thread::scope(|scope| {
        let server = scope.spawn(|| pinned(bench.server_cpu, || serve(&listener, range, via)));
        let load = client::run(&plan, &mut Cursor::anything(), bench.device);
        if load.is_err() {
            drop(TcpStream::connect(plan.to)); // the loop may still wait in accept
        }
        let served = server.join().unwrap_or_else(|_| Err(io::Error::other("the loop panicked")));
        let load = load?;
        Ok::<_, io::Error>((load, served?.1))
    })?;
    Ok(Measured {
        bytes: load.bytes,
        records: load.records,
        requests: load.requests,
        latencies: load.latencies,
        accepted: Window::between(&load.begin, &load.end),
        drained: None,
        server_cpu: Some(cpu),
        server_cpu_ticked: false,
        client_cpu: load.client_cpu,
        engine: "syscall".into(),

        extents: sys::extents(range.file),
        flags: vec![CLOSED_LOOP.into()],
        doubt: None,
    })
}

fn serve(listener: &TcpListener, range: Range<'_>, via: Via) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut request = [0; FETCH_LEN];
    let mut buf = vec![0; FETCHED_HEAD_LEN + FETCH_BYTES];
    let mut pos = 0;
    loop {
        match stream.read_exact(&mut request) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let take = (range.len - pos).min(FETCH_BYTES as u64) as usize;
        let head = wire::bare_fetched(&request, take);
        match via {
            Via::Send => {
                buf[..head.len()].copy_from_slice(&head);
                range.file.read_exact_at(&mut buf[head.len()..head.len() + take], pos)?;
                stream.write_all(&buf[..head.len() + take])?;
            }
            Via::Sendfile => {
                send_head(&stream, &head)?;
                send_range(&stream, range.file, pos, take)?;
            }
        }
        pos = (pos + take as u64) % range.len;
    }
}

fn send_head(stream: &TcpStream, head: &[u8]) -> io::Result<()> {
    match sys::send_more(stream.as_raw_fd(), head)? {
        n if n == head.len() => Ok(()),
        n => Err(io::Error::other(format!("a blocking socket took {n} bytes of a head"))),
    }
}

fn send_range(stream: &TcpStream, file: &File, pos: u64, len: usize) -> io::Result<()> {
    let mut sent = 0;
    while sent < len {
        match sys::sendfile(stream.as_raw_fd(), file, pos + sent as u64, len - sent) {
            Ok(0) => return Err(io::Error::other("the file ended inside the range")),
            Ok(n) => sent += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

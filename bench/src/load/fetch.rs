//! The fetching client: one connection, one request in flight, everything read and counted.
//!
//! Owns: the closed loop and the latency of each fetch, request to last byte. Never does: decide
//! what is asked (a [`Cursor`] does). Left: `wire`, `sys`. Right: `ceiling::fetch`, `quick`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::produce::Load;
pub use super::wire::Cursor;
use super::wire::{self, HEAD_LEN, RESPONSE_LEN_MAX};
use crate::device::Device;
use crate::histogram::Latencies;
use crate::meter::Snapshot;
use crate::sys;

const SILENCE_MAX: Duration = Duration::from_secs(10);

pub struct Plan {
    pub to: SocketAddr,
    pub seconds: Duration,
    /// Payload after which the client stops.
    pub bytes_max: u64,
    pub records_per_byte: f64,
    pub cpu: Option<usize>,
}

/// Runs the plan in a thread of its own, pinned if asked.
pub fn run(plan: &Plan, cursor: &mut Cursor, device: &Device) -> io::Result<Load> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(cpu) = plan.cpu {
                sys::pin_to(cpu)?;
            }
            load(plan, cursor, device)
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the client panicked")))
    })
}

fn load(plan: &Plan, cursor: &mut Cursor, device: &Device) -> io::Result<Load> {
    let mut stream = TcpStream::connect(plan.to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let mut buf = vec![0; RESPONSE_LEN_MAX];
    let mut latencies = Latencies::default();
    let (mut bytes, mut requests) = (0u64, 0u64);

    let begin = Snapshot::take(device);
    let cpu = sys::thread_cpu();
    while begin.at.elapsed() < plan.seconds && bytes < plan.bytes_max && !sys::stopped() {
        let asked_at = Instant::now();
        let correlation = requests as u32;
        stream.write_all(&cursor.request(correlation))?;
        let len = read_response(&mut stream, &mut buf)?;
        latencies.record(asked_at.elapsed());
        if wire::correlation(&buf[..len]) != correlation {
            return Err(io::Error::other("a response to another request"));
        }
        let payload = cursor.response(&buf[HEAD_LEN..len])?;
        if payload == 0 {
            return Err(io::Error::other("a fetch inside the log came back empty"));
        }
        bytes += payload as u64;
        requests += 1;
    }
    let client_cpu = (sys::thread_cpu() - cpu).as_secs_f64();
    let end = Snapshot::take(device);
    let records = (bytes as f64 * plan.records_per_byte) as u64;
    Ok(Load { begin, end, requests, bytes, records, latencies, client_cpu })
}

/// Reads exactly one response into `buf`; returns its length.
fn read_response(stream: &mut TcpStream, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    let mut want = None;
    loop {
        // One request is in flight, so what arrives can only be this response.
        match stream.read(&mut buf[filled..want.unwrap_or(RESPONSE_LEN_MAX)]) {
            Ok(0) => return Err(io::Error::other("the server closed the connection")),
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if want.is_none() {
            want = wire::response_len(&buf[..filled])?;
        }
        match want {
            Some(len) if filled == len => return Ok(len),
            Some(len) if filled > len => {
                return Err(io::Error::other("more bytes than one response"));
            }
            _ => {}
        }
    }
}

//! Bytes through a loopback socket, nothing else: what the network part of a row costs at least.
//!
//! Owns: one sender on the client's core, one receiver on the server's. Never does: touch a file.
//! Left: `sys`. Right: `quick`.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::{Bench, goes_on, pinned};
use crate::histogram::Latencies;
use crate::meter::{Snapshot, Window};
use crate::row::Measured;

const RECEIVE_BYTES: usize = 256 << 10;

/// Blocks of `block` bytes in one direction; a block counts when it has been received.
pub fn one_way(bench: &Bench<'_>, block: usize) -> io::Result<Measured> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = listener.local_addr()?;
    let begin = Snapshot::take(bench.device);
    let (received, sent) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| pinned(bench.server_cpu, || receive(&listener)));
        let sender = pinned(bench.client_cpu, || {
            let mut stream = TcpStream::connect(to)?;
            let bytes = vec![0x5a; block];
            let mut sent = 0;
            while goes_on(bench, begin.at, sent) {
                stream.write_all(&bytes)?;
                sent += block as u64;
            }
            Ok(sent)
        });
        let received =
            receiver.join().unwrap_or_else(|_| Err(io::Error::other("receiver panicked")));
        Ok::<_, io::Error>((received?, sender?))
    })?;
    let window = Window::between(&begin, &Snapshot::take(bench.device));
    let short = received.0 != sent.0;
    Ok(Measured {
        bytes: received.0,
        records: received.0 / block as u64,
        requests: received.0 / block as u64,
        latencies: Latencies::default(),
        accepted: window,
        drained: None,
        server_cpu: Some(received.1),
        server_cpu_ticked: false,
        client_cpu: sent.1,
        engine: "syscall".into(),

        extents: None,
        flags: Vec::new(),
        doubt: short.then(|| "bytes were lost on loopback".to_string()),
    })
}

fn receive(listener: &TcpListener) -> io::Result<u64> {
    let (mut stream, _) = listener.accept()?;
    let mut buf = vec![0; RECEIVE_BYTES];
    let mut received = 0;
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return Ok(received),
            Ok(n) => received += n as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

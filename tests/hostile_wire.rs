//! Hostile bytes over real sockets: the server answers or closes, goes on, and does not grow.
//!
//! Owns: one test, alone in its process, because it measures the process. Never does: real load.
//! Left: `ringlog::{server, client}`. Right: nobody.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ringlog::client::{
    Backoff, Client, Consumer, ConsumerOptions, Options, Producer, ProducerOptions, Start,
    Transport,
};
use ringlog::format::batch::Codec;
use ringlog::io::probe::Features;
use ringlog::server::config::{EngineFlag, Flags};
use ringlog::server::start;
use ringlog::types::AckLevel;

/// Hostile input over the wire: the server answers or closes, stays up, and memory stays bounded.
#[test]
fn hostile_bytes_never_stop_the_server_or_grow_it() {
    let mut engines = vec![EngineFlag::Syscall];
    match Features::probe().io_uring.refused {
        None => engines.push(EngineFlag::Uring),
        Some(why) => println!("the ring is skipped: {why}"),
    }
    for engine in engines {
        let dir = tempfile::tempdir().unwrap();
        let flags = Flags {
            data_dir: Some(vec![dir.path().to_path_buf()]),
            listen: Some("127.0.0.1:0".parse().unwrap()),
            engine: Some(engine),
            shards: Some(1),
            ..Flags::default()
        };
        let server = start(flags).unwrap();
        let options = Options { transport: Transport::Blocking, ..Options::default() };
        let address = server.addresses[0].to_string();
        let mut admin = Client::connect(&address, options, Backoff::default()).unwrap();
        admin.create_topic("t", 1, &[]).unwrap();
        produce(&mut admin, &values(50));
        let before = resident_kib();
        let mut dice = Dice(engine as u64 + 1);
        let handle = admin.partition("t", 0).unwrap().handle;
        for round in 0..400 {
            hostile_round(server.addresses[0], handle, &mut dice, round);
        }
        // Prefixes alone, a thousand of them, held open.
        let held: Vec<_> = (0..1000)
            .map(|_| {
                let mut socket = TcpStream::connect(server.addresses[0]).unwrap();
                socket.write_all(&(8u32 << 20).to_be_bytes()).unwrap();
                socket
            })
            .collect();
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 64 << 10, "{engine:?}: grew by {grown} KiB");
        drop(held);
        let held = consume(&mut admin);
        assert_eq!(held[..50], values(50)[..], "{engine:?}");
        assert!(held[50..].iter().all(|value| value.starts_with("hostile")), "{engine:?}");
        server.stop().unwrap();
    }
}

fn hostile_round(to: SocketAddr, handle: ringlog::types::Handle, dice: &mut Dice, round: u64) {
    let mut builder = ringlog::format::builder::BatchBuilder::new();
    for _ in 0..1 + dice.below(5) {
        builder.append(None, Some(format!("hostile {round}").as_bytes()), &[], 1);
    }
    let batch = builder.finish(Codec::None, None).unwrap().to_vec();
    let mut frame =
        ringlog::protocol::produce::request_head(handle, AckLevel::Policy, 7, batch.len()).to_vec();
    frame.extend_from_slice(&batch);
    match dice.below(4) {
        // Bits flipped anywhere, the prefix included.
        0 => (0..1 + dice.below(8)).for_each(|_| {
            let at = dice.below(frame.len() as u64) as usize;
            frame[at] ^= 1 << dice.below(8);
        }),
        1 => frame.truncate(dice.below(frame.len() as u64) as usize),
        2 => frame.iter_mut().skip(4).for_each(|byte| *byte = dice.below(256) as u8),
        // Every api, with a body of noise.
        _ => {
            frame[4] = dice.below(16) as u8;
            frame.iter_mut().skip(12).for_each(|byte| *byte = dice.below(256) as u8);
        }
    }
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let _ = socket.write_all(&frame);
    let mut answer = [0; 4096];
    let _ = socket.read(&mut answer);
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

/// Resident memory of this process, the server in it included.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn values(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("good-{n}")).collect()
}

fn produce(client: &mut Client, values: &[String]) {
    let mut producer = Producer::new(client, "t", 0, ProducerOptions::default()).unwrap();
    for value in values {
        producer.send(None, Some(value.as_bytes()), &[], 1).unwrap();
    }
    producer.finish().unwrap();
    assert!(producer.drain_acks().all(|ack| ack.result.is_ok()));
}

fn consume(client: &mut Client) -> Vec<String> {
    let options = ConsumerOptions { max_wait: Duration::ZERO, ..ConsumerOptions::default() };
    let mut consumer = Consumer::new(client, "t", 0, Start::Earliest, options).unwrap();
    let mut values = Vec::new();
    loop {
        let mut take = |record: &ringlog::format::record::Record<'_>| {
            values.push(String::from_utf8_lossy(record.value.unwrap()).into_owned());
        };
        if consumer.poll_through(client, &mut take).unwrap().at_end() {
            return values;
        }
    }
}

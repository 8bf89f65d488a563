//! Idempotent producers over the wire: ids, verdicts, and connections that are cut anywhere.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringlog::client::{
    Backoff, Client, Connection, Consumer, ConsumerOptions, Error, IDEMPOTENT_IN_FLIGHT_MAX,
    Options, Producer, ProducerOptions, Start,
};
use ringlog::errors::ErrorCode;
use ringlog::format::batch::Codec;
use ringlog::format::builder::BatchBuilder;
use ringlog::io::sim::Prng;
use ringlog::protocol::error::Detail;
use ringlog::protocol::offsets::{InitProducerRequest, InitProducerResponse, special};
use ringlog::protocol::produce::ProduceResponse;
use ringlog::server::config::Flags;
use ringlog::server::{Running, start};
use ringlog::types::{AckLevel, Handle};

fn serve(dir: &std::path::Path) -> Running {
    let flags = Flags {
        data_dir: Some(vec![dir.into()]),
        listen: Some("127.0.0.1:0".parse().unwrap()),
        shards: Some(1),
        ..Flags::default()
    };
    start(flags).unwrap()
}

fn connect(address: SocketAddr) -> Client {
    Client::connect(&address.to_string(), Options::default(), Backoff::default()).unwrap()
}

fn init(client: &mut Connection, id: i64, epoch: i16) -> Result<InitProducerResponse, Error> {
    let request =
        InitProducerRequest { transactional_id: None, timeout_ms: 0, producer_id: id, epoch };
    client.call(&request)?;
    client.response()
}

#[test]
fn the_server_remembers_as_many_batches_as_a_producer_may_have_unacked() {
    assert_eq!(IDEMPOTENT_IN_FLIGHT_MAX, ringlog::log::REMEMBERED_MAX);
}

#[test]
fn d13_ids_are_new_after_every_start_and_epochs_rise_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = -1;
    for _ in 0..3 {
        let server = serve(dir.path());
        let address = server.addresses[0].to_string();
        let mut connection = Connection::open(&address, &Options::default()).unwrap();
        for _ in 0..3 {
            let got = init(&mut connection, -1, -1).unwrap();
            assert!(got.producer_id > last && got.epoch == 0, "{got:?} after {last}");
            last = got.producer_id;
        }
        let next = InitProducerResponse { producer_id: last, epoch: 6 };
        assert_eq!(init(&mut connection, last, 5).unwrap(), next);
        assert_eq!(init(&mut connection, last, 5).unwrap(), next, "an answer that was lost");
        let got = init(&mut connection, last, i16::MAX - 1).unwrap();
        assert_eq!((got.producer_id, got.epoch), (last + 1, 0), "no epoch is left");
        last = got.producer_id;
        let unknown = init(&mut connection, last + 1, 0).unwrap_err();
        assert_eq!(unknown.server_code(), Some(ErrorCode::InvalidProducerIdMapping));
        let half = init(&mut connection, 1, -1).unwrap_err();
        assert_eq!(half.server_code(), Some(ErrorCode::InvalidRequest));
        server.stop().unwrap();
    }
}

fn batch(id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.producer(id, epoch, sequence);
    builder.append(None, Some(b"x"), &[], 1_000);
    builder.finish(Codec::None, None).unwrap().to_vec()
}

fn produce(connection: &mut Connection, handle: Handle, bytes: &[u8]) -> Result<i64, Error> {
    connection.send_batches(handle, AckLevel::Durable, bytes)?;
    let answer = connection.poll(Duration::from_secs(30))?.expect("an answer");
    connection.check(&answer)?;
    let met: ProduceResponse = connection.response()?;
    assert_eq!(met.level_met, AckLevel::Durable);
    Ok(met.base.get())
}

#[test]
fn verdicts_have_kafkas_numbers_and_say_what_is_due() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let mut client = connect(server.addresses[0]);
    client.create_topic("t", 1, &[("message.timestamp.type", "LogAppendTime")]).unwrap();
    let owner = client.partition("t", 0).unwrap();
    let mut connection = client.open(owner.shard).unwrap();
    let mut send = |id, epoch, sequence| {
        let got = produce(&mut connection, owner.handle, &batch(id, epoch, sequence));
        got.map_err(|error| match error {
            Error::Server(error) => (error.code().unwrap(), error.detail),
            other => panic!("{other}"),
        })
    };
    let first: Vec<_> = (0..3).map(|at| send(7, 3, 40 + at).unwrap()).collect();
    assert_eq!(first, [0, 1, 2], "an unknown producer begins anywhere");
    assert_eq!(send(7, 3, 41), Ok(1), "a repeat: its original's offset");
    let due = Detail::Sequence { epoch: 3, next: 43 };
    assert_eq!(send(7, 3, 44), Err((ErrorCode::OutOfOrderSequenceNumber, due)));
    assert_eq!(send(7, 2, 43), Err((ErrorCode::InvalidProducerEpoch, Detail::None)));
    assert_eq!(send(7, 4, 43), Err((ErrorCode::OutOfOrderSequenceNumber, Detail::None)));
    assert_eq!(send(7, 4, 0), Ok(3));
    assert_eq!(send(8, 0, i32::MAX), Ok(4));
    assert_eq!(send(8, 0, 0), Ok(5), "sequences go round");
    let stats = client.stats(1).unwrap();
    let counter = |name: &str| stats.counters.iter().find(|(known, _)| known == name).unwrap().1;
    let counted = ["duplicates", "out_of_order", "producers_known"].map(counter);
    assert_eq!(counted, [1, 2, 2]);
    server.stop().unwrap();
}

/// Carries bytes between clients and a server; the answer to hello names the proxy's own port.
struct Proxy {
    server: Mutex<SocketAddr>,
    /// Answers behind hello's are swallowed.
    mute: AtomicBool,
    port: u16,
}

impl Proxy {
    /// With a seed, connections are cut after some bytes.
    fn start(server: SocketAddr, cuts: Option<u64>) -> Arc<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (server, mute) = (Mutex::new(server), AtomicBool::new(false));
        let proxy = Arc::new(Proxy { server, mute, port });
        let carrier = Arc::clone(&proxy);
        std::thread::spawn(move || {
            let mut dice = Prng::new(cuts.unwrap_or(0));
            for client in listener.incoming().map_while(Result::ok) {
                let server = *carrier.server.lock().unwrap();
                let Ok(server) = TcpStream::connect(server) else { continue };
                let [out, back] = match cuts {
                    Some(_) => [dice.below(60_000), 200 + dice.below(6_000)],
                    None => [u64::MAX; 2],
                };
                let ends = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || carry(client, ends.0, out, |_| true));
                let carrier = Arc::clone(&carrier);
                std::thread::spawn(move || carrier.answers(server, ends.1, back));
            }
        });
        proxy
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn answers(&self, mut from: TcpStream, mut to: TcpStream, budget: u64) {
        let mut prefix = [0; 4];
        if from.read_exact(&mut prefix).is_err() {
            return;
        }
        let mut frame = vec![0; u32::from_be_bytes(prefix) as usize];
        if from.read_exact(&mut frame).is_err() {
            return;
        }
        // Of the one shard the port stands last.
        let end = frame.len();
        frame[end - 2..].copy_from_slice(&self.port.to_be_bytes());
        let _ = to.write_all(&prefix).and_then(|()| to.write_all(&frame));
        carry(from, to, budget, |_| !self.mute.load(Ordering::SeqCst));
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, budget: u64, passes: impl Fn(&[u8]) -> bool) {
    let mut left = budget;
    let mut bytes = [0; 4096];
    while left > 0 {
        let most = bytes.len().min(usize::try_from(left).unwrap());
        let Ok(read @ 1..) = from.read(&mut bytes[..most]) else { break };
        if passes(&bytes[..read]) && to.write_all(&bytes[..read]).is_err() {
            break;
        }
        left -= read as u64;
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// After a restart the server knows of each producer the last batch only; what was sent before it
/// and has no ack is in the log all the same.
#[test]
fn d13_batches_that_a_restarted_server_has_forgotten_are_known_to_have_landed() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let proxy = Proxy::start(server.addresses[0], None);
    let mut direct = connect(server.addresses[0]);
    direct.create_topic("t", 1, &[]).unwrap();
    let mut client =
        Client::connect(&proxy.address(), Options::default(), Backoff::default()).unwrap();
    let options = ProducerOptions {
        ack: AckLevel::Durable,
        batch_bytes: 1,
        ack_timeout: Duration::from_secs(60),
        ..ProducerOptions::default()
    };
    let mut producer = Producer::new(&mut client, "t", 0, options).unwrap();
    let send = |producer: &mut Producer, value: &str| {
        producer.send(None, Some(value.as_bytes()), &[], 1_000).unwrap();
        producer.send_open().unwrap();
    };
    send(&mut producer, "0");
    producer.finish().unwrap();
    proxy.mute.store(true, Ordering::SeqCst);
    (1..10).for_each(|number| send(&mut producer, &number.to_string()));
    while direct.list_offsets("t", 0, special::LATEST).unwrap().0 < 10 {
        std::thread::yield_now();
    }
    server.stop().unwrap();
    let server = serve(dir.path());
    *proxy.server.lock().unwrap() = server.addresses[0];
    proxy.mute.store(false, Ordering::SeqCst);
    send(&mut producer, "10");
    producer.finish().unwrap();
    let acks: Vec<_> = producer.drain_acks().map(|ack| (ack.sent.number, ack.result)).collect();
    let bases: Vec<_> =
        acks.iter().map(|(_, met)| met.as_ref().unwrap().base.map(|base| base.get())).collect();
    assert!(acks.iter().map(|(number, _)| *number).eq(0..11), "{acks:?}");
    let forgotten = [None; 8];
    assert_eq!(bases, [&[Some(0)], &forgotten[..], &[Some(9), Some(10)]].concat());
    assert!(acks.iter().all(|(_, met)| met.as_ref().unwrap().level_met == AckLevel::Durable));
    let end = connect(server.addresses[0]).list_offsets("t", 0, special::LATEST).unwrap().0;
    assert_eq!(end, 11, "nothing twice");
    server.stop().unwrap();
}

/// Three producers of one partition, every connection of theirs cut again and again: each record
/// lands once, and those of each producer in order.
#[test]
fn d13_cut_connections_lose_nothing_and_repeat_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let mut client = connect(server.addresses[0]);
    client.create_topic("t", 1, &[]).unwrap();
    let threads: Vec<_> = (0..3)
        .map(|name| {
            let proxy = Proxy::start(server.addresses[0], Some(name));
            std::thread::spawn(move || send_through(&proxy.address(), name))
        })
        .collect();
    let reconnects: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(reconnects > 10, "connections were lost: {reconnects}");
    let options = ConsumerOptions { max_wait: Duration::ZERO, ..ConsumerOptions::default() };
    let mut consumer = Consumer::new(&mut client, "t", 0, Start::Earliest, options).unwrap();
    let mut next = [0; 3];
    while !consumer
        .poll(|record| {
            let text = std::str::from_utf8(record.value.unwrap()).unwrap();
            let (name, number) = text.trim_end_matches('.').split_once(' ').unwrap();
            let name: usize = name.parse().unwrap();
            assert_eq!(number.parse::<u64>().unwrap(), next[name], "of producer {name}");
            next[name] += 1;
        })
        .unwrap()
        .at_end()
    {}
    assert_eq!(next, [RECORDS; 3]);
    server.stop().unwrap();
}

const RECORDS: u64 = 1500;

/// How often it had to connect again.
fn send_through(proxy: &str, name: u64) -> u64 {
    let reconnect = Backoff {
        first: Duration::from_millis(1),
        cap: Duration::from_millis(5),
        attempts_max: 1000,
    };
    let mut client = loop {
        // The proxy cuts these, too.
        let tried = Client::connect(proxy, Options::default(), reconnect.clone());
        if let Ok(client) = tried {
            break client;
        }
    };
    let options = || ProducerOptions {
        ack: AckLevel::Durable,
        batch_bytes: 400,
        in_flight_max: 64,
        reconnect: reconnect.clone(),
        ..ProducerOptions::default()
    };
    let mut producer = loop {
        if let Ok(producer) = Producer::new(&mut client, "t", 0, options()) {
            break producer;
        }
    };
    for number in 0..RECORDS {
        let value = format!("{name} {number}{}", ".".repeat(number as usize % 50));
        producer.send(None, Some(value.as_bytes()), &[], 1_000).unwrap();
    }
    producer.finish().unwrap();
    let mut acked = 0;
    for ack in producer.drain_acks() {
        assert_eq!(ack.sent.first_record, acked, "acks come in order");
        assert_eq!(ack.result.unwrap().level_met, AckLevel::Durable);
        acked += u64::from(ack.sent.records);
    }
    assert_eq!(acked, RECORDS);
    producer.reconnects()
}

/// A refused batch takes what was sent behind it along; the next one begins a new epoch.
#[test]
fn a_refused_batch_breaks_the_sequence_off_and_the_next_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let mut client = connect(server.addresses[0]);
    client.create_topic("t", 1, &[("max.message.bytes", "200")]).unwrap();
    let options = ProducerOptions { batch_bytes: 1, ..ProducerOptions::default() };
    let mut producer = Producer::new(&mut client, "t", 0, options).unwrap();
    let long = "x".repeat(300);
    for value in ["a", &long, "behind", "also behind"] {
        producer.send(None, Some(value.as_bytes()), &[], 1_000).unwrap();
    }
    producer.finish().unwrap();
    producer.send(None, Some(b"anew"), &[], 1_000).unwrap();
    producer.finish().unwrap();
    let got: Vec<_> = producer
        .drain_acks()
        .map(|ack| ack.result.map(|met| met.base.unwrap().get()).map_err(|e| e.code().unwrap()))
        .collect();
    let gap = Err(ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(got, [Ok(0), Err(ErrorCode::MessageTooLarge), gap, gap, Ok(1)]);
    server.stop().unwrap();
}

//! Real servers on loopback, one body for each engine: what a user does, and what nobody should.
//!
//! Owns: whole-server behaviour over TCP and real files. Never does: assert on time. Left:
//! `ringlog::{server, client}`. Right: nobody.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use ringlog::client::{
    Backoff, Client, Consumer, ConsumerOptions, Options, Producer, ProducerOptions, Start,
    Transport,
};
use ringlog::errors::ErrorCode;
use ringlog::format::batch::Codec;
use ringlog::io::probe::Features;
use ringlog::protocol::api::{ResponseHeader, encode_request};
use ringlog::protocol::fetch::Isolation;
use ringlog::protocol::frame::{Scan, scan_response};
use ringlog::protocol::metadata::{MetadataRequest, MetadataResponse};
use ringlog::protocol::offsets::{FlushRequest, special};
use ringlog::protocol::stats::flags;
use ringlog::server::config::{EngineFlag, FetchPathFlag, Flags};
use ringlog::server::{RunError, Running, start};
use ringlog::types::AckLevel;

/// The engines this machine allows.
fn engines() -> Vec<EngineFlag> {
    match Features::probe().io_uring.refused {
        None => vec![EngineFlag::Syscall, EngineFlag::Uring],
        Some(why) => {
            println!("the ring is skipped: {why}");
            vec![EngineFlag::Syscall]
        }
    }
}

fn flags(dir: &Path, engine: EngineFlag, shards: u16) -> Flags {
    Flags {
        data_dir: Some(vec![dir.to_path_buf()]),
        listen: Some("127.0.0.1:0".parse().unwrap()),
        engine: Some(engine),
        shards: Some(shards),
        ..Flags::default()
    }
}

fn client(server: &Running) -> Client {
    let options = Options { transport: Transport::Blocking, ..Options::default() };
    Client::connect(&server.addresses[0].to_string(), options, Backoff::default()).unwrap()
}

fn produce(client: &mut Client, topic: &str, partition: u32, codec: Codec, values: &[String]) {
    let options = ProducerOptions { ack: AckLevel::Durable, codec, ..ProducerOptions::default() };
    let mut producer = Producer::new(client, topic, partition, options).unwrap();
    for value in values {
        producer.send(Some(b"k"), Some(value.as_bytes()), &[], 1_700_000_000_000).unwrap();
    }
    producer.finish().unwrap();
    for ack in producer.drain_acks() {
        assert_eq!(ack.result.unwrap().level_met, AckLevel::Durable);
    }
}

fn consume(client: &mut Client, topic: &str, partition: u32) -> Vec<String> {
    let options = ConsumerOptions { max_wait: Duration::ZERO, ..ConsumerOptions::default() };
    let mut consumer = Consumer::new(client, topic, partition, Start::Earliest, options).unwrap();
    let mut values = Vec::new();
    loop {
        let polled = consumer
            .poll_through(client, |record| {
                values.push(String::from_utf8(record.value.unwrap_or_default().to_vec()).unwrap());
            })
            .unwrap();
        if polled.at_end() {
            return values;
        }
    }
}

fn values(count: usize, of: &str) -> Vec<String> {
    (0..count).map(|n| format!("{of}-{n}-{}", "x".repeat(n % 300))).collect()
}

#[test]
fn what_goes_in_comes_out_again_after_a_restart_on_every_engine_and_path() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    let mut stops = 0;
    for engine in engines() {
        for path in [FetchPathFlag::Send, FetchPathFlag::Sendfile] {
            let flags = Flags { fetch_path: Some(path), ..flags(dir.path(), engine, 2) };
            let server = start(flags).unwrap();
            let mut client = client(&server);
            if stops == 0 {
                client.create_topic("t", 2, &[("segment.bytes", "1100000")]).unwrap();
            }
            for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
                let more = values(3000, &format!("{engine:?}-{path:?}-{codec:?}"));
                produce(&mut client, "t", 1, codec, &more);
                expected.extend(more);
            }
            assert_eq!(consume(&mut client, "t", 1), expected, "{engine:?} {path:?}");
            assert_eq!(consume(&mut client, "t", 0), Vec::<String>::new());
            server.stop().unwrap();
            assert!(dir.path().join(".kafka_cleanshutdown").exists(), "{engine:?} {path:?}");
            stops += 1;
        }
    }
}

#[test]
fn two_shards_both_work_and_no_request_crosses() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let server = start(flags(dir.path(), engine, 2)).unwrap();
        let mut client = client(&server);
        client.create_topic("t", 2, &[]).unwrap();
        let shards: Vec<_> =
            (0..2).map(|partition| client.partition("t", partition).unwrap().shard).collect();
        assert_ne!(shards[0], shards[1], "neighbours live on different shards");
        for partition in 0..2 {
            produce(&mut client, "t", partition, Codec::None, &values(500, "v"));
            assert_eq!(consume(&mut client, "t", partition), values(500, "v"));
        }
        // The wrong shard refuses and names the right one.
        let owner = client.partition("t", 0).unwrap();
        let wrong = server.addresses[usize::from(1 - owner.shard.0)];
        let mut socket = Raw::connect(wrong);
        socket.request(&FlushRequest { handle: owner.handle });
        assert_eq!(socket.response().error, ErrorCode::NotOwner.code());
        // Each shard staged its own partition's records, and only those.
        for (shard, address) in server.addresses.iter().enumerate() {
            let mut one = Client::connect(
                &address.to_string(),
                Options { transport: Transport::Blocking, ..Options::default() },
                Backoff::default(),
            )
            .unwrap();
            let mut connection = one.open(ringlog::types::ShardId(shard as u16)).unwrap();
            let request = ringlog::protocol::stats::StatsRequest {
                flags: flags::COUNTERS | flags::THIS_SHARD,
            };
            let records = stat(&mut connection, &request, "records");
            assert_eq!(records, 500, "{engine:?} shard {shard}");
        }
        server.stop().unwrap();
    }
}

fn stat(
    connection: &mut ringlog::client::Connection,
    request: &ringlog::protocol::stats::StatsRequest,
    name: &str,
) -> u64 {
    connection.call(request).unwrap();
    let stats: ringlog::protocol::stats::StatsResponse<'_> = connection.response().unwrap();
    stats.counters.iter().find(|counter| counter.name == name).unwrap().value
}

/// R69: a second server refuses and names the directory; after a kill or stop the next one starts.
#[test]
fn r69_a_second_server_on_the_same_directory_refuses() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let server = start(flags(dir.path(), engine, 1)).unwrap();
        let error = match start(flags(dir.path(), engine, 1)) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("two servers on one directory"),
        };
        assert!(error.contains(&dir.path().display().to_string()), "{error}");
        server.stop().unwrap();
        start(flags(dir.path(), engine, 1)).unwrap().stop().unwrap();
    }
}

/// R87: names that would leave the directory, or that no broker takes, create nothing.
#[test]
fn r87_illegal_topic_names_are_refused_and_create_nothing() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let server = start(flags(dir.path(), engine, 1)).unwrap();
        let mut client = client(&server);
        let before = std::fs::read_dir(dir.path()).unwrap().count();
        let long = "a".repeat(250);
        for name in ["../../../x", "a/b", ".", "..", "", &long, "a\0b", "%2e%2e", "a b"] {
            for error in [
                client.create_topic(name, 1, &[]).map(drop).unwrap_err(),
                client.delete_topic(name).unwrap_err(),
                client.describe_topic(name).map(drop).unwrap_err(),
            ] {
                let code = error.server_code();
                assert_eq!(code, Some(ErrorCode::InvalidTopicException), "{name:?}: {error}");
            }
        }
        let mut connection = client.open(ringlog::types::ShardId(0)).unwrap();
        connection.call(&MetadataRequest::Names(vec!["a/b"])).unwrap();
        let metadata: MetadataResponse<'_> = connection.response().unwrap();
        assert_eq!(metadata.topics[0].error, ErrorCode::InvalidTopicException.code());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), before);
        server.stop().unwrap();
    }
}

#[test]
fn a_deleted_topics_handle_is_refused_and_its_name_can_be_used_again() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let server = start(flags(dir.path(), engine, 1)).unwrap();
        let mut admin = client(&server);
        admin.create_topic("t", 1, &[]).unwrap();
        produce(&mut admin, "t", 0, Codec::None, &values(10, "old"));
        let old = admin.partition("t", 0).unwrap().handle;
        admin.delete_topic("t").unwrap();
        assert!(!dir.path().join("t-0").exists());
        admin.create_topic("t", 1, &[]).unwrap();
        let mut socket = Raw::connect(server.addresses[0]);
        socket.request(&FlushRequest { handle: old });
        assert_eq!(socket.response().error, ErrorCode::StaleHandle.code());
        let mut fresh = client(&server);
        assert_eq!(consume(&mut fresh, "t", 0), Vec::<String>::new());
        server.stop().unwrap();
    }
}

/// A log of the formats before record batches, under a server: consumed, found by time, appended
/// to.
#[test]
fn a_log_of_an_old_format_is_served_and_goes_on() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden/legacy");
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let server = start(flags(dir.path(), engine, 1)).unwrap();
        client(&server).create_topic("t", 1, &[]).unwrap();
        server.stop().unwrap();
        let log = "00000000000000000000.log";
        std::fs::copy(golden.join("magic1-lz4-0").join(log), dir.path().join("t-0").join(log))
            .unwrap();
        let server = start(flags(dir.path(), engine, 1)).unwrap();
        let mut client = client(&server);
        produce(&mut client, "t", 0, Codec::Zstd, &values(10, "new"));
        let read = consume(&mut client, "t", 0);
        assert_eq!(read.len(), 51 + 10, "{engine:?}");
        assert_eq!(read[0], "value number 0 of set 0 ");
        assert_eq!(read[51..], values(10, "new"));
        let found = client.list_offsets("t", 0, 1_400_000_003_000).unwrap();
        assert_eq!(found, (17, 1_400_000_003_000));
        server.stop().unwrap();
    }
}

#[test]
fn offsets_answer_by_special_and_by_time() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let server = start(flags(dir.path(), engine, 1)).unwrap();
        let mut client = client(&server);
        client.create_topic("t", 1, &[]).unwrap();
        let options = ProducerOptions { codec: Codec::Zstd, ..ProducerOptions::default() };
        let mut producer = Producer::new(&mut client, "t", 0, options).unwrap();
        for time in 1..=20 {
            producer.send(None, Some(b"v"), &[], time).unwrap();
        }
        producer.finish().unwrap();
        let mut at = |time| client.list_offsets("t", 0, time).unwrap();
        // R25: inside a compressed batch.
        assert_eq!(at(13), (12, 13));
        assert_eq!(at(special::EARLIEST).0, 0);
        assert_eq!(at(special::LATEST).0, 20);
        assert_eq!(at(special::MAX_TIMESTAMP), (19, 20));
        assert_eq!(at(21), (-1, -1));
        assert_eq!(at(special::EARLIEST_LOCAL), (0, -1));
        assert_eq!(at(special::LATEST_TIERED), (-1, -1));
        let error = client.list_offsets("t", 0, -6).unwrap_err().to_string();
        assert!(error.contains("-1 to -5"), "{error}");
        let committed = Isolation::ReadCommitted;
        let found = client.find_offset("t", 0, special::LATEST, committed).unwrap();
        assert_eq!((found.offset, found.leader_epoch), (20, 0));
        server.stop().unwrap();
    }
}

/// R71: an engine that is forced and cannot run says so; it is never replaced in silence.
#[test]
fn settings_out_of_bounds_and_taken_ports_are_errors_that_name_them() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let server = start(flags(dir.path(), engine, 1)).unwrap();
        let taken = server.addresses[0];
        let other = tempfile::tempdir().unwrap();
        let flags = Flags { listen: Some(taken), ..flags(other.path(), engine, 1) };
        match start(flags) {
            Err(RunError::Listen { addr, .. }) => assert_eq!(addr, taken),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("two listeners on {taken}"),
        }
        server.stop().unwrap();
    }
}

/// A socket that speaks frames and nothing else.
struct Raw(TcpStream);

impl Raw {
    fn connect(to: SocketAddr) -> Raw {
        Raw(TcpStream::connect(to).unwrap())
    }

    fn request<'a, R: ringlog::protocol::Request<'a>>(&mut self, request: &R) {
        let mut frame = Vec::new();
        encode_request(request, 1, &mut frame).unwrap();
        self.0.write_all(&frame).unwrap();
    }

    fn response(&mut self) -> ResponseHeader {
        let mut bytes = Vec::new();
        loop {
            if let Scan::Frame(frame) = scan_response(&bytes, 1 << 20).unwrap() {
                return ResponseHeader::split(&frame).unwrap().0;
            }
            let mut more = [0; 4096];
            let got = self.0.read(&mut more).unwrap();
            assert!(got > 0, "closed before it answered");
            bytes.extend_from_slice(&more[..got]);
        }
    }
}

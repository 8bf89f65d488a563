//! The real binary: records that were deleted stay deleted over SIGKILL, and many partitions are
//! served with few descriptors.
//!
//! Owns: what the log's front and the bound on open files promise over the wire. Never does: cut
//! the power (the crash sweep does), or assert on time. Left: the `ringlog` binary,
//! `ringlog::client`. Right: nobody.

#[path = "support/engines.rs"]
mod engines;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use engines::engines;
use ringlog::client::{Backoff, Client, Error, Options, Producer, ProducerOptions, Transport};
use ringlog::errors::ErrorCode;
use ringlog::protocol::offsets::special;
use ringlog::protocol::stats::flags;
use ringlog::types::AckLevel;

/// Killed when it goes.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(dir: &Path, engine: &str, nofile: u32) -> Server {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("ulimit -n {nofile}; exec \"$0\" \"$@\""))
            .arg(env!("CARGO_BIN_EXE_ringlog"))
            .args(["serve", "--shards", "1", "--listen", "127.0.0.1:0", "--engine", engine])
            .args(["--connections-max", "32", "--segment-bytes", "16KiB", "--data-dir"])
            .arg(dir.join("data"))
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.join("log")).expect("a log"))
            .spawn()
            .expect("runs");
        let line = BufReader::new(child.stdout.take().expect("piped")).lines().next();
        let line = line.map(|line| line.expect("text")).unwrap_or_default();
        let address = line.replace("listening on ", "");
        let told = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
        assert!(!address.is_empty(), "it did not start: {told}");
        assert!(told.contains(&format!("open files: limit {nofile};")), "R68: {told}");
        Server { child, address }
    }

    fn client(&self) -> Client {
        let options = Options { transport: Transport::Blocking, ..Options::default() };
        Client::connect(&self.address, options, Backoff::default()).expect("it serves")
    }

    /// A graceful stop.
    fn stop(mut self) {
        let id = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status().expect("kill runs");
        assert!(asked.success() && self.child.wait().expect("it ends").success());
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs").count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that was stopped has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn produce(client: &mut Client, topic: &str, partition: u32, count: u32) {
    let options = ProducerOptions {
        ack: AckLevel::Durable,
        batch_bytes: 4 << 10,
        ..ProducerOptions::default()
    };
    let mut producer = Producer::new(client, topic, partition, options).expect("a producer");
    for number in 0..count {
        let value = format!("{number:0100}");
        producer.send(None, Some(value.as_bytes()), &[], 1_700_000_000_000).expect("sent");
    }
    producer.finish().expect("acked");
    for ack in producer.drain_acks() {
        ack.result.expect("acked");
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Option<ErrorCode> {
    match result.expect_err("refused") {
        Error::Server(error) => error.code(),
        other => panic!("{other}"),
    }
}

#[test]
fn deleted_records_stay_deleted_and_rolls_give_the_new_base() {
    for engine in engines() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Server::start(dir.path(), engine, 1024);
        let mut client = server.client();
        client.create_topic("t", 1, &[]).expect("made");
        client.create_topic("c", 1, &[("cleanup.policy", "compact")]).expect("made");
        produce(&mut client, "t", 0, 1000);
        assert_eq!(client.roll("t", 0).expect("rolled").get(), 1000);
        assert_eq!(client.roll("t", 0).expect("empty, so it stays").get(), 1000);
        assert_eq!(client.delete_records("t", 0, 500).expect("deleted").get(), 500);
        assert_eq!(client.delete_records("t", 0, 400).expect("never down").get(), 500);
        let beyond = client.delete_records("t", 0, 1001);
        assert_eq!(code(beyond), Some(ErrorCode::OffsetOutOfRange), "{engine}");
        let compacted = client.delete_records("c", 0, 0);
        assert_eq!(code(compacted), Some(ErrorCode::PolicyViolation), "{engine}");
        drop(server);
        let server = Server::start(dir.path(), engine, 1024);
        let mut client = server.client();
        let earliest = client.list_offsets("t", 0, special::EARLIEST).expect("answered");
        assert_eq!(earliest.0, 500, "{engine}");
        assert_eq!(client.delete_records("t", 0, -1).expect("all of it").get(), 1000);
        drop(server);
        let server = Server::start(dir.path(), engine, 1024);
        let mut client = server.client();
        produce(&mut client, "t", 0, 1);
        let latest = client.list_offsets("t", 0, special::LATEST).expect("answered");
        assert_eq!(latest.0, 1001, "{engine}: the next record got the next offset");
    }
}

#[test]
fn r68_many_partitions_are_served_with_few_descriptors() {
    const PARTITIONS: u32 = 200;
    const LIMIT: u32 = 192;
    for engine in engines() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Server::start(dir.path(), engine, LIMIT);
        let mut client = server.client();
        client.create_topic("t", PARTITIONS, &[]).expect("made");
        for _ in 0..2 {
            for partition in 0..PARTITIONS {
                // Several segments each.
                produce(&mut client, "t", partition, 300);
            }
        }
        assert!(server.descriptors() < LIMIT as usize, "{engine}: {}", server.descriptors());
        drop(server);
        // All of them again, after a start that recovers them.
        let server = Server::start(dir.path(), engine, LIMIT);
        let mut client = server.client();
        for partition in 0..PARTITIONS {
            let found = client.list_offsets("t", partition, 1_700_000_000_000).expect("found");
            assert_eq!(found.0, 0, "{engine} {partition}");
            produce(&mut client, "t", partition, 1);
        }
        let stats = client.stats(flags::COUNTERS).expect("answered");
        let open = stats.counters.iter().find(|(name, _)| name == "files_open").expect("counted");
        assert!(open.1 < u64::from(LIMIT), "{engine}: {} files", open.1);
    }
}

#[test]
fn many_idle_partitions_stop_clean_within_few_descriptors() {
    const LIMIT: u32 = 192;
    for engine in engines() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Server::start(dir.path(), engine, LIMIT);
        server.client().create_topic("t", 400, &[]).expect("made");
        produce(&mut server.client(), "t", 7, 300);
        server.stop();
        let marker = dir.path().join("data/.kafka_cleanshutdown");
        assert!(marker.exists(), "{engine}: the stop was not clean");
        // Once more, with nothing to write.
        let server = Server::start(dir.path(), engine, LIMIT);
        assert!(server.descriptors() < LIMIT as usize, "{engine}: {}", server.descriptors());
        assert_eq!(server.client().list_offsets("t", 7, special::LATEST).expect("found").0, 300);
        server.stop();
        assert!(marker.exists(), "{engine}: the second stop was not clean");
    }
}

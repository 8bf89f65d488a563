//! The real binary, killed with SIGKILL at seeded moments and started again on the same files: what
//! was acked is there, once and in order, and the log goes on behind it.
//!
//! Owns: the promise of an ack across the death of the process, and R69's start at once after it.
//! Never does: cut the power (the crash sweep does), or assert on time. Left: the `ringlog` binary,
//! `ringlog::client`. Right: nobody.

#[path = "support/engines.rs"]
mod engines;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use engines::engines;
use ringlog::client::{
    Backoff, Client, Consumer, ConsumerOptions, Options, Producer, ProducerOptions, Start,
    Transport,
};
use ringlog::types::AckLevel;

const ROUNDS: u64 = 5;
const PARTITIONS: u32 = 2;
const TOPIC: &str = "t";
/// Records of one produce request.
const BATCH_RECORDS: u64 = 10;

/// A small generator of our own: the seed printed is all it takes to repeat a run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

struct Server {
    child: Child,
    addresses: Vec<String>,
    log: PathBuf,
}

impl Server {
    /// Starts it; it says where it listens once it serves.
    fn start(dir: &Path, listen: &str, engine: &str) -> Server {
        let log = dir.with_extension("log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringlog"))
            .args(["serve", "--shards", "2", "--listen", listen, "--engine", engine])
            .args(["--segment-bytes", "64KiB", "--checkpoint-interval", "50ms"])
            .arg("--data-dir")
            .arg(dir)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).expect("a log"))
            .spawn()
            .expect("runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let addresses: Vec<String> =
            lines.take(2).map(|line| line.expect("text").replace("listening on ", "")).collect();
        let server = Server { child, addresses, log };
        assert_eq!(server.addresses.len(), 2, "it did not start: {}", server.told());
        server
    }

    fn told(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn client(&self) -> Client {
        connect(&self.addresses[0]).expect("it serves")
    }

    /// As a crash does it.
    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// As a service manager does it.
    fn terminate(mut self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().expect("kill(1) runs");
        assert!(sent.success());
        let ended = self.child.wait().expect("it ends");
        assert!(ended.success(), "{ended}: {}", self.told());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it has ended, unless the test failed
        let _ = self.child.wait();
    }
}

fn connect(address: &str) -> Result<Client, ringlog::client::Error> {
    let options = Options { transport: Transport::Blocking, ..Options::default() };
    Client::connect(address, options, Backoff { attempts_max: 1, ..Backoff::default() })
}

/// Two free ports in a row, for a server that comes back to where it was.
fn free_address() -> String {
    loop {
        let first = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = first.local_addr().expect("bound").port();
        if std::net::TcpListener::bind(("127.0.0.1", port.wrapping_add(1))).is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
}

fn value(partition: u32, number: u64) -> String {
    format!("p{partition} record {number} {}", "x".repeat(number as usize % 400))
}

/// Produces numbered records from `next` on until the server dies; how many were sent and acked.
fn produce_until_killed(address: String, partition: u32, next: u64) -> JoinHandle<(u64, u64)> {
    std::thread::spawn(move || {
        let options = ProducerOptions {
            ack: AckLevel::Durable,
            idempotent: false,
            ..ProducerOptions::default()
        };
        let open = |mut client| Producer::new(&mut client, TOPIC, partition, options);
        // Killed before the producer was even there: nothing was sent.
        let Ok(mut producer) = connect(&address).and_then(open) else { return (next, next) };
        let (mut sent, mut acked) = (next, next);
        let mut alive = true;
        while alive {
            for _ in 0..BATCH_RECORDS {
                let text = value(partition, sent);
                alive &= producer.send(None, Some(text.as_bytes()), &[], 1_000).is_ok();
                sent += 1;
            }
            alive &= producer.send_open().is_ok() && producer.poll(Duration::ZERO).is_ok();
            for ack in producer.drain_acks() {
                let met = ack.result.expect("a sound batch");
                assert_eq!(met.level_met, AckLevel::Durable);
                assert_eq!(met.base.unwrap().get() as u64, acked, "offsets go on without a gap");
                acked += u64::from(ack.sent.records);
            }
        }
        (sent, acked)
    })
}

fn held(client: &mut Client, partition: u32) -> Vec<String> {
    let options = ConsumerOptions { max_wait: Duration::ZERO, ..ConsumerOptions::default() };
    let mut consumer =
        Consumer::new(client, TOPIC, partition, Start::Earliest, options).expect("a consumer");
    let mut values = Vec::new();
    loop {
        let polled = consumer
            .poll_through(client, |record| {
                values.push(String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned());
            })
            .expect("all of it can be read");
        if polled.at_end() {
            return values;
        }
    }
}

/// One life of the server per round; each partition's log must be exactly the numbers up to some
/// point at or behind the last ack.
fn killed_again_and_again(engine: &str, seed: u64) {
    println!("engine {engine}, seed {seed}");
    let mut random = Random(seed);
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let marker = data.join(".kafka_cleanshutdown");
    let address = free_address();
    let mut next = [0; PARTITIONS as usize];
    for round in 0..ROUNDS {
        let server = Server::start(&data, &address, engine);
        if round == 0 {
            server.client().create_topic(TOPIC, PARTITIONS, &[]).expect("a topic");
        }
        let producers: Vec<_> = (0..PARTITIONS)
            .map(|at| produce_until_killed(server.addresses[0].clone(), at, next[at as usize]))
            .collect();
        std::thread::sleep(Duration::from_millis(20 + random.below(400)));
        server.kill();
        assert!(!marker.exists(), "round {round}: a killed server claims a clean stop");
        let ended: Vec<_> = producers.into_iter().map(|one| one.join().expect("ends")).collect();
        // R69: at once, on the same address, over the same files.
        let server = Server::start(&data, &address, engine);
        let mut client = server.client();
        for (partition, &(sent, acked)) in (0..PARTITIONS).zip(&ended) {
            let values = held(&mut client, partition);
            let count = values.len() as u64;
            assert!((acked..=sent).contains(&count), "{count} held; acked {acked}, sent {sent}");
            for (number, text) in (0..).zip(&values) {
                assert_eq!(*text, value(partition, number), "partition {partition}");
            }
            next[partition as usize] = count;
        }
        // Now and then a clean stop between two kills: only that one leaves the marker.
        if random.below(2) == 0 {
            server.terminate();
            assert!(marker.exists(), "round {round}: a clean stop left no marker");
        } else {
            server.kill();
            assert!(!marker.exists(), "round {round}: a killed server claims a clean stop");
        }
    }
    assert!(next.iter().all(|&count| count > 0), "nothing was ever acked: {next:?}");
    let segments = |partition: u32| {
        let dir = data.join(format!("{TOPIC}-{partition}"));
        let names = std::fs::read_dir(dir).expect("a partition").flatten();
        names.filter(|entry| entry.path().extension().is_some_and(|name| name == "log")).count()
    };
    assert!((0..PARTITIONS).all(|at| segments(at) > 1), "no kill fell behind a roll");
}

#[test]
fn acked_records_survive_kill_after_kill_on_every_engine() {
    for (at, engine) in (0..).zip(engines()) {
        killed_again_and_again(engine, 0x5eed + at);
    }
}

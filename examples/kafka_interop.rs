//! ringlog's side of `scripts/kafka_interop.sh`: topics of every kind, written through the client
//! library, and where their times lie.
//!
//! Owns: what the test's topics are and hold. Never does: judge; the script compares what ringlog
//! and the broker say. Left: `ringlog::client`. Right: the script.
//!
//! `kafka_interop ports` two free ports; `topics` the broker's orders that make the same topics;
//! `write ADDRESS`, `append ADDRESS`: make and fill them, add to them; `answers ADDRESS QUESTIONS`:
//! list-offsets for the lines "topic partition time" of a file.

use std::fs::read_to_string;
use std::net::TcpListener;
use std::time::SystemTime;

use ringlog::client::{Backoff, Client, Error, Options, Producer, ProducerOptions};
use ringlog::format::batch::Codec;
use ringlog::types::AckLevel;

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
/// Settings that a broker knows too. Small intervals: many index entries.
const COMMON: &[(&str, &str)] = &[
    ("index.interval.bytes", "512"),
    ("max.message.bytes", "262144"),
    ("retention.ms", "-1"),
    ("segment.bytes", "1048576"),
];
/// Of the topic whose first records are deleted: inside its first segment, for a broker that finds
/// a whole segment below the log start looks for times in that one, and answers none.
const DELETED_BEFORE: i64 = 123;
const HOUR_MS: i64 = 3_600_000;

struct Topic {
    name: String,
    partitions: u32,
    more: &'static [(&'static str, &'static str)],
    kind: Kind,
}

#[derive(Copy, Clone)]
enum Kind {
    /// Every shape of a record, through one codec.
    Shapes(Codec),
    /// Far apart and out of order: segments roll by record time.
    Times,
    /// More than a segment holds.
    Large,
}

fn topics() -> Vec<Topic> {
    let topic = |name: &str, partitions, more, kind| Topic {
        name: name.to_owned(),
        partitions,
        more,
        kind,
    };
    let shapes =
        |codec: Codec| topic(&format!("shapes-{}", codec.name()), 1, &[], Kind::Shapes(codec));
    let mut all: Vec<Topic> = CODECS.into_iter().map(shapes).collect();
    all.push(topic("times", 1, &[("segment.ms", "60000")], Kind::Times));
    all.push(topic("rolls", 3, &[], Kind::Large));
    all.push(topic("deleted", 1, &[], Kind::Large));
    let append_time = &[("message.timestamp.type", "LogAppendTime")];
    all.push(topic("append-time", 1, append_time, Kind::Shapes(Codec::Lz4)));
    all
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["ports"] => print_ports()?,
        ["topics"] => print_topics(),
        ["write", address] => write(&mut connect(address)?)?,
        ["append", address] => append(&mut connect(address)?)?,
        ["answers", address, file] => answer(&mut connect(address)?, &read_to_string(file)?)?,
        _ => return Err("usage: see the head of examples/kafka_interop.rs".into()),
    }
    Ok(())
}

fn connect(address: &str) -> Result<Client, Error> {
    Client::connect(address, Options::default(), Backoff::default())
}

fn print_ports() -> std::io::Result<()> {
    let free = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    for listener in &free {
        println!("{}", listener.local_addr()?.port());
    }
    Ok(())
}

fn print_topics() {
    for topic in topics() {
        let configs: Vec<String> =
            COMMON.iter().chain(topic.more).map(|(key, value)| format!(" {key}={value}")).collect();
        println!("create {} {}{}", topic.name, topic.partitions, configs.concat());
    }
}

fn write(client: &mut Client) -> Result<(), Error> {
    for topic in topics() {
        let configs: Vec<(&str, &str)> = COMMON.iter().chain(topic.more).copied().collect();
        client.create_topic(&topic.name, topic.partitions, &configs)?;
        for partition in 0..topic.partitions {
            fill(client, &topic, partition, 1)?;
        }
    }
    let start = client.delete_records("deleted", 0, DELETED_BEFORE)?;
    assert_eq!(start.get(), DELETED_BEFORE);
    Ok(())
}

fn append(client: &mut Client) -> Result<(), Error> {
    for topic in topics() {
        for partition in 0..topic.partitions {
            fill(client, &topic, partition, 2)?;
        }
    }
    Ok(())
}

fn fill(client: &mut Client, topic: &Topic, partition: u32, round: u8) -> Result<(), Error> {
    let (codec, batch_bytes) = match topic.kind {
        Kind::Shapes(codec) => (codec, 700),
        Kind::Times => (Codec::None, 200),
        Kind::Large => (Codec::None, 16 << 10),
    };
    let options =
        ProducerOptions { codec, batch_bytes, ack: AckLevel::Durable, ..Default::default() };
    let mut producer = Producer::new(client, &topic.name, partition, options)?;
    match topic.kind {
        Kind::Shapes(_) => shapes(&mut producer, now_ms())?,
        Kind::Times => times(&mut producer, now_ms())?,
        Kind::Large => large(&mut producer, now_ms(), round)?,
    }
    producer.finish()?;
    let failed = producer.drain_acks().find_map(|ack| ack.result.err());
    failed.map_or(Ok(()), |error| Err(Error::Server(error)))
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as i64)
}

/// Null, empty and binary; lengths around where a varint grows; headers of every kind; times out
/// of order, and none.
fn shapes(producer: &mut Producer, now: i64) -> Result<(), Error> {
    let binary: Vec<u8> = (0..=255).collect();
    producer.send(None, None, &[], now)?;
    producer.send(Some(b""), Some(b""), &[], now - 5)?;
    producer.send(Some(&binary), Some(&binary), &[], now + 5)?;
    producer.send(Some("h\u{e9}\u{1f980}\"\\\n\t".as_bytes()), None, &[], -1)?;
    for len in [62_usize, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193, 20_000] {
        producer.send(None, Some(&noise(len)), &[], now - len as i64)?;
        producer.send(Some(&noise(len.min(200))), Some(b"v"), &[], now)?;
    }
    let many: Vec<(&[u8], Option<&[u8]>)> = vec![(b"n", Some(b"v")); 80];
    producer.send(None, Some(b"many headers"), &many, now)?;
    let odd: [(&[u8], Option<&[u8]>); 5] = [
        (b"twice", Some(b"1")),
        (b"twice", None),
        (b"", Some(b"")),
        ("\u{fc}".as_bytes(), Some(&binary)),
        (b"twice", Some(b"3")),
    ];
    producer.send(Some(b"odd headers"), None, &odd, now)?;
    producer.send_open()?;
    for at in 0..200_u32 {
        let text = format!("record {at} {}", "abc ".repeat((at % 17) as usize));
        let header: [(&[u8], Option<&[u8]>); 1] = [(b"at", Some(text.as_bytes()))];
        let headers = if at % 3 == 0 { &header[..] } else { &[] };
        let time = now + i64::from(at * 37 % 101);
        producer.send(Some(text.as_bytes()), Some(text.as_bytes()), headers, time)?;
    }
    Ok(())
}

/// Days back and forth.
fn times(producer: &mut Producer, now: i64) -> Result<(), Error> {
    for at in 0..120_i64 {
        let back = [0, 400 * 24, 1, 90 * 24, 2, 30, 5, 0][(at / 10 % 8) as usize] * HOUR_MS;
        let time = now - back + (at * 7919 % 1000);
        producer.send(None, Some(format!("at {at}").as_bytes()), &[], time)?;
    }
    producer.send(None, Some(b"no time"), &[], -1)?;
    producer.send(None, Some(b"1970"), &[], 0)
}

fn large(producer: &mut Producer, now: i64, round: u8) -> Result<(), Error> {
    let records = if round == 1 { 2600 } else { 300 };
    for at in 0..records {
        let value = noise(900 + (at * 31 % 400) as usize);
        producer.send(
            Some(&i64::to_be_bytes(at)),
            Some(&value),
            &[],
            now + at * 3 - at % 50 * 20,
        )?;
    }
    Ok(())
}

/// Bytes that do not compress, the same for the same length; letters, so that a diff can be read.
fn noise(len: usize) -> Vec<u8> {
    let mut state = len as u64 + 1;
    let letter = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'a' + ((state >> 33) % 26) as u8
    };
    (0..len).map(letter).collect()
}

/// Answers "topic partition time" lines: offset and timestamp behind each.
fn answer(client: &mut Client, questions: &str) -> Result<(), Box<dyn std::error::Error>> {
    for question in questions.lines() {
        let [topic, partition, time] = question.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("{question:?} is not \"topic partition time\"").into());
        };
        let (offset, timestamp) = client.list_offsets(topic, partition.parse()?, time.parse()?)?;
        println!("{question} {offset} {timestamp}");
    }
    Ok(())
}

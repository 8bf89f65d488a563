//! Administration through the client: what the server says arrives whole, in its owned form.

mod fake;

use ringlog::client::admin::Config;
use ringlog::client::{Backoff, Client, Error, Options, Producer, ProducerOptions};
use ringlog::errors::ErrorCode;
use ringlog::protocol::Message;
use ringlog::protocol::api::Api;
use ringlog::protocol::error::Detail;
use ringlog::protocol::offsets::{DeleteRecordsRequest, DeleteRecordsResponse};
use ringlog::protocol::stats::{Counter, Histogram, StatsRequest, StatsResponse, flags};
use ringlog::protocol::topics::*;
use ringlog::types::{Handle, Offset, ShardId};
use std::sync::Mutex;
use std::time::Duration;

const ID: [u8; 16] = [9; 16];

fn connect(address: &str) -> Client {
    Client::connect(address, Options::default(), Backoff::default()).unwrap()
}

/// A server that answers each administrative request with something of its own.
fn admin_server() -> String {
    let log = Mutex::new(fake::Log::default());
    fake::start(move |_, mut peer| {
        while let Some((header, body)) = peer.next_after_hello() {
            if log.lock().unwrap().serve(&mut peer, &header, &body) {
                continue;
            }
            answer(&mut peer, &header, &body);
        }
    })
}

fn answer(peer: &mut fake::Peer, header: &ringlog::protocol::api::RequestHeader, body: &[u8]) {
    let config = |source| ConfigEntry { key: "segment.bytes", value: "4096", source, default: "1" };
    match Api::from_wire(header.api).unwrap() {
        Api::CreateTopic => {
            let request = CreateRequest::parse(body).unwrap();
            if request.name == "bad/name" {
                return peer.refuse(header, ErrorCode::InvalidTopicException, Detail::None);
            }
            assert_eq!((request.partitions, &request.configs[..]), (2, &[("k", "v")][..]));
            let placed = Placed { handle: Handle(5), shard: ShardId(0) };
            peer.answer(
                header,
                &CreateResponse { id: ID, partitions: vec![placed; 2], notices: vec!["n1"] },
            );
        }
        Api::DeleteTopic => peer.answer(header, &DeleteResponse),
        Api::DescribeTopic => {
            let partition = PartitionInfo {
                index: 0,
                handle: Handle(5),
                shard: ShardId(0),
                start: 1,
                high_watermark: 2,
                staged: 5,
                written: 4,
                durable: 3,
                leader_epoch: 6,
                bytes: 7,
                segments: 8,
                state: "read-only: no space",
            };
            let configs = vec![config(ConfigSource::Topic)];
            let (partitions, notices) = (vec![partition], vec!["n2"]);
            let described = DescribeResponse { name: "t", id: ID, configs, partitions, notices };
            peer.answer(header, &described);
        }
        Api::AlterTopic => {
            let request = AlterRequest::parse(body).unwrap();
            assert_eq!(request.changes, [("segment.bytes", None), ("k", Some("v"))]);
            let configs = vec![config(ConfigSource::Default)];
            peer.answer(header, &AlterResponse { configs, notices: vec!["n3"] });
        }
        Api::DeleteRecords => {
            let before = DeleteRecordsRequest::parse(body).unwrap().before;
            let start = Offset::new(before).unwrap();
            peer.answer(header, &DeleteRecordsResponse { start });
        }
        Api::Stats => {
            let asked = StatsRequest::parse(body).unwrap().flags;
            assert_eq!(asked, flags::COUNTERS | flags::HISTOGRAMS);
            let response = StatsResponse {
                uptime_ms: 1,
                shards: 2,
                counters: vec![Counter { name: "records", value: 3 }],
                histograms: vec![Histogram { name: "ack", unit: "us", data: &[4, 5] }],
            };
            peer.answer(header, &response);
        }
        other => panic!("{}", other.name()),
    }
}

#[test]
fn topics_are_made_described_altered_and_deleted() {
    let mut client = connect(&admin_server());
    let made = client.create_topic("t", 2, &[("k", "v")]).unwrap();
    assert_eq!(made, (ID, vec!["n1".to_owned()]));
    let error = client.create_topic("bad/name", 2, &[]).unwrap_err();
    assert_eq!(error.server_code(), Some(ErrorCode::InvalidTopicException));
    let text = error.to_string();
    assert!(text.contains("create topic: INVALID_TOPIC_EXCEPTION: no"), "{text}");

    let described = client.describe_topic("t").unwrap();
    let at = |source| Config {
        key: "segment.bytes".into(),
        value: "4096".into(),
        source,
        default: "1".into(),
    };
    assert_eq!((described.id, described.configs), (ID, vec![at(ConfigSource::Topic)]));
    let one = &described.partitions[0];
    let marks = (one.start, one.high_watermark, one.durable, one.written, one.staged);
    assert_eq!(marks, (1, 2, 3, 4, 5));
    assert_eq!((one.leader_epoch, one.bytes, one.segments), (6, 7, 8));
    assert_eq!(one.state, "read-only: no space");

    let changes = [("segment.bytes", None), ("k", Some("v"))];
    let altered = client.alter_topic("t", &changes).unwrap();
    assert_eq!(altered.configs, [at(ConfigSource::Default)]);
    assert_eq!((&*described.notices[0], &*altered.notices[0]), ("n2", "n3"));
    client.delete_topic("t").unwrap();
    let topics = client.list_topics().unwrap();
    assert_eq!(topics.len(), 1);
    assert_eq!(topics[0].0, "t");
}

#[test]
fn figures_and_offsets() {
    let mut client = connect(&admin_server());
    let stats = client.stats(flags::COUNTERS | flags::HISTOGRAMS).unwrap();
    assert_eq!((stats.uptime_ms, stats.shards), (1, 2));
    assert_eq!(stats.counters, [("records".to_owned(), 3)]);
    let histogram = &stats.histograms[0];
    assert_eq!((&*histogram.name, &*histogram.unit, &*histogram.data), ("ack", "us", &[4, 5][..]));
    assert_eq!(client.flush("t", 0).unwrap(), Offset::ZERO);
    assert_eq!(client.delete_records("t", 0, 7).unwrap().get(), 7);
    let error = client.flush("t", 1).unwrap_err();
    assert!(matches!(error, Error::NoPartition { partition: 1, .. }), "{error}");
}

/// A batch that nothing fills leaves by its age, at the next poll.
#[test]
fn a_batch_leaves_by_its_age() {
    let mut client = connect(&admin_server());
    let options =
        ProducerOptions { linger: Duration::ZERO, idempotent: false, ..ProducerOptions::default() };
    let mut producer = Producer::new(&mut client, "t", 0, options).unwrap();
    producer.send(None, Some(b"one"), &[], 1).unwrap();
    assert_eq!((producer.open_records(), producer.records_sent()), (1, 0));
    assert_eq!(producer.poll(Duration::from_secs(30)).unwrap(), 1);
    assert_eq!((producer.open_records(), producer.records_sent()), (0, 1));

    let forever =
        ProducerOptions { linger: Duration::MAX, idempotent: false, ..ProducerOptions::default() };
    let mut producer = Producer::new(&mut client, "t", 0, forever).unwrap();
    producer.send(None, Some(b"two"), &[], 1).unwrap();
    assert_eq!(producer.poll(Duration::ZERO).unwrap(), 0);
    assert_eq!((producer.open_records(), producer.unacked().count()), (1, 0));
    drop(producer); // an open batch is the caller's to finish
}

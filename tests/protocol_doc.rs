//! `docs/protocol.md` and the code say the same: every example of the page is decoded and encoded
//! again, every message has an example, and the tables name the codes that there are.

use std::collections::BTreeMap;

use ringlog::errors::ErrorCode;
use ringlog::format::batch::{self, Codec};
use ringlog::format::builder::BatchBuilder;
use ringlog::protocol::api::{Api, RequestHeader, ResponseHeader, encode_request, encode_response};
use ringlog::protocol::epochs::*;
use ringlog::protocol::error::{Detail, ErrorBody, encode_error};
use ringlog::protocol::fetch::*;
use ringlog::protocol::frame::{Frame, HEADER, Scan, scan_request, scan_response};
use ringlog::protocol::hello::*;
use ringlog::protocol::log_dirs::*;
use ringlog::protocol::metadata::*;
use ringlog::protocol::offsets::*;
use ringlog::protocol::produce::*;
use ringlog::protocol::stats::*;
use ringlog::protocol::topics::*;
use ringlog::protocol::{Message, Request};
use ringlog::types::{AckLevel, Handle, Offset, ShardId};

const PAGE: &str = include_str!("../docs/protocol.md");
const ID: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const HANDLE: Handle = Handle(0x0001_0005);
const TIME: i64 = 1_700_000_000_000;

/// The page's examples by name. Each is taken once: what is left over has no test.
struct Page {
    examples: BTreeMap<&'static str, Vec<u8>>,
}

impl Page {
    fn read() -> Page {
        let mut examples = BTreeMap::new();
        let mut lines = PAGE.lines();
        while let Some(line) = lines.next() {
            let Some(name) = line.strip_prefix("```hex ") else { continue };
            let mut bytes = Vec::new();
            for line in lines.by_ref().take_while(|line| *line != "```") {
                let hex = line.split('#').next().unwrap();
                for digits in hex.split_whitespace() {
                    let byte = u8::from_str_radix(digits, 16);
                    bytes.push(byte.unwrap_or_else(|_| panic!("{name}: {digits}")));
                }
            }
            assert!(examples.insert(name, bytes).is_none(), "{name} is there twice");
        }
        Page { examples }
    }

    fn take(&mut self, name: &str) -> Vec<u8> {
        self.examples.remove(name).unwrap_or_else(|| panic!("the page has no example {name}"))
    }

    /// The example is this request, in both directions.
    fn request<R>(&mut self, name: &str, correlation: u32, want: R)
    where
        R: for<'a> Request<'a> + PartialEq + std::fmt::Debug,
    {
        let bytes = self.take(&format!("{name}.request"));
        check_request(name, &bytes, correlation, &want);
    }

    fn response<M>(&mut self, name: &str, api: Api, correlation: u32, want: M)
    where
        M: for<'a> Message<'a> + PartialEq + std::fmt::Debug,
    {
        let bytes = self.take(&format!("{name}.response"));
        check_response(name, &bytes, api, correlation, &want);
    }
}

fn check_request<'a, R>(name: &str, bytes: &'a [u8], correlation: u32, want: &R)
where
    R: Request<'a> + PartialEq + std::fmt::Debug,
{
    let mut encoded = Vec::new();
    encode_request(want, correlation, &mut encoded).unwrap();
    same(name, &encoded, bytes);
    let Scan::Frame(frame) = scan_request(bytes, 1 << 20).unwrap() else { panic!("{name}") };
    let (header, body) = RequestHeader::split(&frame).unwrap();
    assert_eq!(header.correlation, correlation, "{name}");
    assert_eq!(header.admit(body.len()), Ok(R::API), "{name}");
    assert_eq!(R::parse(body).unwrap(), *want, "{name}");
}

fn check_response<'a, M>(name: &str, bytes: &'a [u8], api: Api, correlation: u32, want: &M)
where
    M: Message<'a> + PartialEq + std::fmt::Debug,
{
    let mut encoded = Vec::new();
    encode_response(api, correlation, want, &mut encoded).unwrap();
    same(name, &encoded, bytes);
    let (header, body) = split(name, bytes);
    let correct = ResponseHeader { api: api.to_wire(), version: 0, error: 0, correlation };
    assert_eq!(header, correct, "{name}");
    assert_eq!(M::parse(body).unwrap(), *want, "{name}");
}

fn split<'a>(name: &str, bytes: &'a [u8]) -> (ResponseHeader, &'a [u8]) {
    let Scan::Frame(frame) = scan_response(bytes, 1 << 20).unwrap() else { panic!("{name}") };
    assert_eq!(frame.wire_len(), bytes.len(), "{name}");
    ResponseHeader::split(&frame).unwrap()
}

fn same(name: &str, code: &[u8], page: &[u8]) {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x} ")).collect::<String>();
    assert_eq!(hex(code), hex(page), "{name}: the code (left), the page (right)");
}

/// The batch of the produce example.
fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.append(Some(b"k"), Some(b"v"), &[], TIME);
    builder.finish(Codec::None, None).unwrap().to_vec()
}

#[test]
fn every_example_is_what_the_code_sends() {
    let mut page = Page::read();
    hello_and_metadata(&mut page);
    topics(&mut page);
    offsets(&mut page);
    log_dirs(&mut page);
    stats(&mut page);
    produce(&mut page);
    fetch(&mut page);
    errors(&mut page);
    let left: Vec<_> = page.examples.keys().collect();
    assert!(left.is_empty(), "examples that no test decodes: {left:?}");
}

fn hello_and_metadata(page: &mut Page) {
    let bytes = page.take("hello.request");
    check_request("hello", &bytes, 1, &HelloRequest { client: "demo 1", token: None });
    let bytes = page.take("hello.response");
    let hello = HelloResponse {
        server: "ringlog 0.1.0",
        features: 0,
        limits: Limits { frame_bytes_max: 64 << 20, in_flight_max: 64, fetch_bytes_max: 64 << 20 },
        engine: "uring",
        flush_policy: "group",
        policy_level: AckLevel::Durable,
        promise: "nothing is lost",
        shard: ShardId(1),
        shards: vec![ShardAddress { host: "", port: 7440 }, ShardAddress { host: "", port: 7441 }],
    };
    check_response("hello", &bytes, Api::Hello, 1, &hello);

    let bytes = page.take("metadata.request");
    check_request("metadata", &bytes, 2, &MetadataRequest::Names(vec!["readings"]));
    let bytes = page.take("metadata.response");
    let partition = PartitionMeta {
        index: 0,
        handle: HANDLE,
        shard: ShardId(1),
        start: 100,
        high_watermark: 200,
        error: 0,
    };
    let topic = TopicMeta { name: "readings", id: ID, error: 0, partitions: vec![partition] };
    let metadata = MetadataResponse { cluster_id: "clu1", server_id: 7, topics: vec![topic] };
    check_response("metadata", &bytes, Api::Metadata, 2, &metadata);
}

fn topics(page: &mut Page) {
    let name = "readings";
    let bytes = page.take("create.request");
    let configs = vec![("flush.policy", "bytes:4MiB")];
    check_request("create", &bytes, 3, &CreateRequest { name, partitions: 2, configs });
    let partitions = vec![
        Placed { handle: HANDLE, shard: ShardId(1) },
        Placed { handle: Handle(HANDLE.0 + 1), shard: ShardId(0) },
    ];
    let bytes = page.take("create.response");
    let notices = vec!["none"];
    let made = CreateResponse { id: ID, partitions, notices };
    check_response("create", &bytes, Api::CreateTopic, 3, &made);

    let bytes = page.take("delete.request");
    check_request("delete", &bytes, 4, &DeleteRequest { name });
    page.response("delete", Api::DeleteTopic, 4, DeleteResponse);

    let bytes = page.take("describe.request");
    check_request("describe", &bytes, 5, &DescribeRequest { name });
    let bytes = page.take("describe.response");
    let partition = PartitionInfo {
        index: 0,
        handle: HANDLE,
        shard: ShardId(1),
        start: 100,
        high_watermark: 200,
        staged: 204,
        written: 200,
        durable: 150,
        leader_epoch: 0,
        bytes: 65_536,
        segments: 1,
        state: "ok",
    };
    let source = ConfigSource::Topic;
    let described = DescribeResponse {
        name,
        id: ID,
        configs: vec![ConfigEntry {
            key: "flush.policy",
            value: "bytes:4MiB",
            source,
            default: "group",
        }],
        partitions: vec![partition],
        notices: vec![],
    };
    check_response("describe", &bytes, Api::DescribeTopic, 5, &described);

    let bytes = page.take("alter.request");
    let changes = vec![("flush.policy", None)];
    check_request("alter", &bytes, 6, &AlterRequest { name, changes });
    let bytes = page.take("alter.response");
    let source = ConfigSource::Server;
    let (key, default) = ("flush.policy", "group");
    let configs = vec![ConfigEntry { key, value: "os", source, default }];
    let altered = AlterResponse { configs, notices: vec![] };
    check_response("alter", &bytes, Api::AlterTopic, 6, &altered);
}

fn offsets(page: &mut Page) {
    let at = |raw| Offset::new(raw).unwrap();
    let request =
        ListOffsetsRequest { handle: HANDLE, timestamp: TIME, isolation: Isolation::ReadCommitted };
    page.request("list-offsets", 7, request);
    let response = ListOffsetsResponse { offset: 123, timestamp: TIME + 5, leader_epoch: 3 };
    page.response("list-offsets", Api::ListOffsets, 7, response);

    let bytes = page.take("init-producer.request");
    let init = InitProducerRequest {
        transactional_id: None,
        timeout_ms: 60_000,
        producer_id: -1,
        epoch: -1,
    };
    check_request("init-producer", &bytes, 8, &init);
    let response = InitProducerResponse { producer_id: 1000, epoch: 0 };
    page.response("init-producer", Api::InitProducer, 8, response);

    page.request("flush", 9, FlushRequest { handle: HANDLE });
    page.response("flush", Api::Flush, 9, FlushResponse { durable: at(200) });

    page.request("delete-records", 10, DeleteRecordsRequest { handle: HANDLE, before: 150 });
    let response = DeleteRecordsResponse { start: at(150) };
    page.response("delete-records", Api::DeleteRecords, 10, response);

    page.request("roll", 18, RollRequest { handle: HANDLE });
    page.response("roll", Api::Roll, 18, RollResponse { base: at(200) });

    page.request("epoch-end", 16, EpochEndRequest { handle: HANDLE, epoch: 2 });
    page.response("epoch-end", Api::EpochEnd, 16, EpochEndResponse { epoch: 1, end: 200 });
}

fn log_dirs(page: &mut Page) {
    let bytes = page.take("log-dirs.request");
    check_request("log-dirs", &bytes, 17, &LogDirsRequest { topics: vec!["readings"] });
    let bytes = page.take("log-dirs.response");
    let partitions = vec![DirPartition { index: 0, bytes: 65_536, lag: 4 }];
    let online = LogDir {
        path: "/a",
        id: ID,
        error: 0,
        why: "",
        total_bytes: 1_000_000,
        usable_bytes: 400_000,
        topics: vec![DirTopic { name: "readings", partitions }],
    };
    let offline = LogDir {
        path: "/b",
        id: [0; 16],
        error: ErrorCode::KafkaStorageError.code(),
        why: "gone",
        total_bytes: -1,
        usable_bytes: -1,
        topics: Vec::new(),
    };
    let response = LogDirsResponse { dirs: vec![online, offline] };
    check_response("log-dirs", &bytes, Api::LogDirs, 17, &response);
}

fn stats(page: &mut Page) {
    page.request("stats", 11, StatsRequest { flags: flags::COUNTERS | flags::HISTOGRAMS });
    let bytes = page.take("stats.response");
    let response = StatsResponse {
        uptime_ms: 10_000,
        shards: 2,
        counters: vec![Counter { name: "records", value: 42 }],
        histograms: vec![Histogram { name: "ack", unit: "us", data: &[0xde, 0xad] }],
    };
    check_response("stats", &bytes, Api::Stats, 11, &response);
}

fn produce(page: &mut Page) {
    let bytes = page.take("produce.request");
    let batch = batch();
    let request = ProduceRequest { handle: HANDLE, ack: AckLevel::Durable, batches: &batch };
    let mut encoded = Vec::new();
    encode_request(&request, 12, &mut encoded).unwrap();
    same("produce", &encoded, &bytes);
    let (header, body) = RequestHeader::split(&Frame { content: &bytes[4..] }).unwrap();
    assert_eq!((header.correlation, header.admit(body.len())), (12, Ok(Api::Produce)));
    assert_eq!(ProduceRequest::parse(body).unwrap(), request);
    batch::verify(&bytes[BATCHES_AT..]).unwrap();
    let response = ProduceResponse {
        base: Offset::new(200).unwrap(),
        append_time: -1,
        level_met: AckLevel::Durable,
        log_start: Offset::new(100).unwrap(),
    };
    page.response("produce", Api::Produce, 12, response);
}

fn fetch(page: &mut Page) {
    let bytes = page.take("fetch.request");
    let part = FetchPart { handle: HANDLE, offset: 200, last_epoch: 0, max_bytes: 512 << 10 };
    let request = FetchRequest {
        max_bytes: 1 << 20,
        min_bytes: 1,
        max_wait_ms: 500,
        isolation: Isolation::ReadUncommitted,
        parts: Parts::List(&[part]),
    };
    check_request("fetch", &bytes, 13, &request);

    let bytes = page.take("fetch.response");
    let mut stored = batch();
    batch::assign(&mut stored, 200, 0).unwrap();
    let mut head = PartHead {
        handle: HANDLE,
        error: 0,
        start: 100,
        high_watermark: 201,
        len: stored.len() as u32,
    };
    let parts = vec![PartData { head, bytes: &stored }];
    check_response("fetch", &bytes, Api::Fetch, 13, &FetchResponse { parts });

    let bytes = page.take("fetch.diverged");
    let (mut body, detail) = (Vec::new(), Detail::Diverged { epoch: 0, end: 200 });
    ErrorBody { message: "cut at 200.", detail }.encode(&mut body);
    assert_eq!(ErrorBody::parse(74, &body).unwrap().detail, detail);
    head.error = ErrorCode::FencedLeaderEpoch.code();
    head.len = body.len() as u32;
    let parts = vec![PartData { head, bytes: &body }];
    check_response("fetch.diverged", &bytes, Api::Fetch, 15, &FetchResponse { parts });

    let bytes = page.take("fetch.out-of-range");
    head.error = ErrorCode::OffsetOutOfRange.code();
    head.len = 0;
    let parts = vec![PartData { head, bytes: &[] }];
    check_response("fetch.out-of-range", &bytes, Api::Fetch, 14, &FetchResponse { parts });
}

fn errors(page: &mut Page) {
    let bytes = page.take("error.not-owner");
    let (message, detail) = ("ask shard one", Detail::Owner(ShardId(1)));
    let mut encoded = Vec::new();
    encode_error(6, 0, ErrorCode::NotOwner, 42, message, detail, &mut encoded);
    same("error.not-owner", &encoded, &bytes);
    let (header, body) = split("error.not-owner", &bytes);
    assert_eq!(header.error, ErrorCode::NotOwner.code());
    let parsed = ErrorBody::parse(header.error, body).unwrap();
    assert_eq!(parsed, ErrorBody { message, detail });
}

/// The cells of every table row of the page that has `cells` of them.
fn rows(cells: usize) -> impl Iterator<Item = Vec<&'static str>> {
    let row = |line: &'static str| {
        let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
        Some(inner.split(" | ").collect::<Vec<_>>())
    };
    PAGE.lines().filter_map(row).filter(move |row| row.len() == cells)
}

#[test]
fn the_error_table_is_complete() {
    let listed: Vec<(i16, &str)> =
        rows(3).filter_map(|row| Some((row[0].parse().ok()?, row[1]))).collect();
    let known: Vec<(i16, &str)> = ErrorCode::ALL
        .iter()
        .filter(|code| **code != ErrorCode::None)
        .map(|code| (code.code(), code.name()))
        .collect();
    assert_eq!(listed, known);
}

#[test]
fn the_ack_table_is_complete() {
    let listed: Vec<(&str, u8)> =
        rows(4).filter_map(|row| Some((row[0], row[1].parse().ok()?))).collect();
    let levels = [AckLevel::None, AckLevel::Written, AckLevel::Durable, AckLevel::Policy];
    let known: Vec<_> = levels.iter().map(|level| (level.name(), level.to_wire())).collect();
    assert_eq!(listed, known);
}

/// Every api has a heading with its number, and the fixed places are where the page says.
#[test]
fn headings_and_places() {
    for api in Api::ALL {
        let number = api.to_wire();
        let control = format!("\n### {number} {}\n", api.name());
        let hot = format!(". {}{} ({number})\n", api.name()[..1].to_uppercase(), &api.name()[1..]);
        assert!(PAGE.contains(&control) || PAGE.contains(&hot), "no heading for {}", api.name());
    }
    assert_eq!((HEADER, BATCHES_AT), (8, 20));
}

//! The wire, through its public doors: every message round-trips, no truncation or garbage
//! panics, no count allocates ahead of its bytes (R85), foreign protocols are named (R83).

use proptest::collection::vec;
use proptest::prelude::*;
use ringlog::errors::ErrorCode;
use ringlog::protocol::api::{self, Api, CONTROL_BYTES_MAX, RequestHeader, ResponseHeader};
use ringlog::protocol::error::{Detail, ErrorBody, MESSAGE_BYTES_MAX, encode_error};
use ringlog::protocol::fetch::{self, *};
use ringlog::protocol::frame::{self, Foreign, FrameError, Scan};
use ringlog::protocol::hello::*;
use ringlog::protocol::log_dirs::*;
use ringlog::protocol::metadata::*;
use ringlog::protocol::offsets::*;
use ringlog::protocol::produce::{self, *};
use ringlog::protocol::stats::*;
use ringlog::protocol::topics::*;
use ringlog::protocol::{Message, Request, WireError};
use ringlog::types::{AckLevel, Handle, Offset, ShardId};

/// Round trip, truncation at every byte, one byte too many.
fn holds<'a, M: Message<'a> + PartialEq + std::fmt::Debug>(message: &M, wire: &'a mut Vec<u8>) {
    message.encode(wire).unwrap();
    let wire: &'a Vec<u8> = wire;
    assert_eq!(&M::parse(wire).unwrap(), message);
    for cut in 0..wire.len() {
        assert!(M::parse(&wire[..cut]).is_err(), "cut at {cut} of {}: {message:?}", wire.len());
    }
}

/// As [`holds`], and a byte behind the last field is an error.
fn holds_exactly<M>(message: &M)
where
    M: for<'a> Message<'a> + PartialEq + std::fmt::Debug,
{
    let mut wire = Vec::new();
    holds(message, &mut wire);
    let mut wire = Vec::new();
    message.encode(&mut wire).unwrap();
    wire.push(0);
    assert!(matches!(M::parse(&wire), Err(WireError::Trailing { bytes: 1, .. })));
}

/// A borrowing message cannot name `for<'a>`: its own body with a byte behind it.
macro_rules! exact {
    ($message:expr, $kind:ident) => {{
        let message = $message;
        let mut wire = Vec::new();
        holds(&message, &mut wire);
        let mut wire = Vec::new();
        message.encode(&mut wire).unwrap();
        wire.push(0);
        assert!(matches!($kind::parse(&wire), Err(WireError::Trailing { bytes: 1, .. })));
    }};
}

fn handle() -> impl Strategy<Value = Handle> {
    any::<u32>().prop_map(Handle)
}

fn shard() -> impl Strategy<Value = ShardId> {
    any::<u16>().prop_map(ShardId)
}

fn offset() -> impl Strategy<Value = Offset> {
    (0..=i64::MAX).prop_map(|raw| Offset::new(raw).unwrap())
}

fn ack() -> impl Strategy<Value = AckLevel> {
    (0u8..4).prop_map(|raw| AckLevel::from_wire(raw).unwrap())
}

fn met() -> impl Strategy<Value = AckLevel> {
    (0u8..3).prop_map(|raw| AckLevel::from_wire(raw).unwrap())
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn source() -> impl Strategy<Value = ConfigSource> {
    (0u8..3).prop_map(|raw| ConfigSource::from_wire(raw).unwrap())
}

fn part_head_any() -> impl Strategy<Value = PartHead> {
    (handle(), any::<i16>(), any::<i64>(), any::<i64>()).prop_map(
        |(handle, error, start, high_watermark)| PartHead {
            handle,
            error,
            start,
            high_watermark,
            len: 0,
        },
    )
}

proptest! {
    #[test]
    fn hello_holds(
        (client, token) in (text(), proptest::option::of(text())),
        (server, engine, policy, promise) in (text(), text(), text(), text()),
        features in any::<u64>(),
        limits in any::<(u32, u32, u32)>(),
        (level, shard) in (ack(), shard()),
        shards in vec((text(), any::<u16>()), 0..4),
    ) {
        exact!(HelloRequest { client: &client, token: token.as_deref() }, HelloRequest);
        exact!(HelloResponse {
            server: &server,
            features,
            limits: Limits {
                frame_bytes_max: limits.0,
                in_flight_max: limits.1,
                fetch_bytes_max: limits.2,
            },
            engine: &engine,
            flush_policy: &policy,
            policy_level: level,
            promise: &promise,
            shard,
            shards: shards.iter().map(|(host, port)| ShardAddress { host, port: *port }).collect(),
        }, HelloResponse);
    }

    #[test]
    fn metadata_holds(
        names in vec(text(), 0..4),
        (cluster_id, server_id) in (text(), any::<i32>()),
        topics in vec((
            text(),
            any::<[u8; 16]>(),
            any::<i16>(),
            vec((any::<u32>(), handle(), shard(), any::<i64>(), any::<i64>(), any::<i16>()), 0..3),
        ), 0..3),
    ) {
        exact!(MetadataRequest::All, MetadataRequest);
        exact!(
            MetadataRequest::Names(names.iter().map(String::as_str).collect()),
            MetadataRequest
        );
        let topics = topics.iter().map(|(name, id, error, partitions)| TopicMeta {
            name,
            id: *id,
            error: *error,
            partitions: partitions
                .iter()
                .map(|&(index, handle, shard, start, high_watermark, error)| PartitionMeta {
                    index, handle, shard, start, high_watermark, error,
                })
                .collect(),
        });
        exact!(MetadataResponse {
            cluster_id: &cluster_id,
            server_id,
            topics: topics.collect(),
        }, MetadataResponse);
    }

    #[test]
    fn topic_requests_hold(
        name in text(),
        partitions in any::<u32>(),
        configs in vec((text(), text()), 0..4),
        changes in vec((text(), proptest::option::of(text())), 0..4),
    ) {
        let pairs = configs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        exact!(CreateRequest { name: &name, partitions, configs: pairs }, CreateRequest);
        exact!(DeleteRequest { name: &name }, DeleteRequest);
        exact!(DescribeRequest { name: &name }, DescribeRequest);
        let changes = changes.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
        exact!(AlterRequest { name: &name, changes }, AlterRequest);
    }

    #[test]
    fn log_dirs_hold(
        names in vec(text(), 0..3),
        (path, why, id) in (text(), text(), any::<[u8; 16]>()),
        (error, total_bytes, usable_bytes) in (any::<i16>(), any::<i64>(), any::<i64>()),
        held in vec((text(), vec((any::<u32>(), any::<u64>(), any::<i64>()), 0..3)), 0..3),
    ) {
        let topics = names.iter().map(String::as_str).collect();
        exact!(LogDirsRequest { topics }, LogDirsRequest);
        let partition = |&(index, bytes, lag): &_| DirPartition { index, bytes, lag };
        let topics: Vec<_> = held
            .iter()
            .map(|(name, all)| DirTopic { name, partitions: all.iter().map(partition).collect() })
            .collect();
        let (path, why) = (path.as_str(), why.as_str());
        let dir = LogDir { path, id, error, why, total_bytes, usable_bytes, topics };
        exact!(LogDirsResponse { dirs: vec![dir.clone(), dir] }, LogDirsResponse);
    }

    #[test]
    fn topic_responses_hold(
        (name, id, notices) in (text(), any::<[u8; 16]>(), vec(text(), 0..3)),
        placed in vec((handle(), shard()), 0..4),
        configs in vec((text(), text(), source()), 0..4),
        infos in vec(
            (
                (any::<u32>(), handle(), shard()),
                any::<[i64; 5]>(),
                any::<(i32, u64, u32)>(),
                text(),
            ),
            0..3,
        ),
    ) {
        let placed = placed.iter().map(|&(handle, shard)| Placed { handle, shard }).collect();
        let notices: Vec<&str> = notices.iter().map(String::as_str).collect();
        exact!(CreateResponse { id, partitions: placed, notices: notices.clone() }, CreateResponse);
        holds_exactly(&DeleteResponse);
        let configs: Vec<_> = configs
            .iter()
            .map(|(key, value, source)| {
                ConfigEntry { key, value, source: *source, default: value }
            })
            .collect();
        exact!(
            AlterResponse { configs: configs.clone(), notices: notices.clone() },
            AlterResponse
        );
        let partitions = infos.iter().map(|(place, marks, sizes, state)| PartitionInfo {
            index: place.0,
            handle: place.1,
            shard: place.2,
            start: marks[0],
            high_watermark: marks[1],
            staged: marks[2],
            written: marks[3],
            durable: marks[4],
            leader_epoch: sizes.0,
            bytes: sizes.1,
            segments: sizes.2,
            state,
        });
        exact!(DescribeResponse {
            name: &name,
            id,
            configs,
            partitions: partitions.collect(),
            notices,
        }, DescribeResponse);
    }

    #[test]
    fn offsets_hold(
        (handle, at, offset, time) in (handle(), any::<i64>(), offset(), any::<i64>()),
        transactional_id in proptest::option::of(text()),
        (timeout_ms, producer_id, epoch) in any::<(u32, i64, i16)>(),
    ) {
        for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
            holds_exactly(&ListOffsetsRequest { handle, timestamp: at, isolation });
        }
        let leader_epoch = epoch.into();
        holds_exactly(&ListOffsetsResponse { offset: at, timestamp: time, leader_epoch });
        exact!(
            InitProducerRequest {
                transactional_id: transactional_id.as_deref(),
                timeout_ms,
                producer_id,
                epoch,
            },
            InitProducerRequest
        );
        holds_exactly(&InitProducerResponse { producer_id, epoch });
        holds_exactly(&FlushRequest { handle });
        holds_exactly(&FlushResponse { durable: offset });
        holds_exactly(&DeleteRecordsRequest { handle, before: at });
        holds_exactly(&DeleteRecordsResponse { start: offset });
        holds_exactly(&RollRequest { handle });
        holds_exactly(&RollResponse { base: offset });
    }

    #[test]
    fn stats_hold(
        flags in 0u32..8,
        (uptime_ms, shards) in any::<(u64, u16)>(),
        counters in vec((text(), any::<u64>()), 0..4),
        histograms in vec((text(), text(), vec(any::<u8>(), 0..20)), 0..3),
    ) {
        holds_exactly(&StatsRequest { flags });
        let counters = counters.iter().map(|(name, value)| Counter { name, value: *value });
        let histograms = histograms.iter().map(|(name, unit, data)| Histogram { name, unit, data });
        exact!(StatsResponse {
            uptime_ms,
            shards,
            counters: counters.collect(),
            histograms: histograms.collect(),
        }, StatsResponse);
    }

    #[test]
    fn produce_holds(
        (handle, ack, correlation) in (handle(), ack(), any::<u32>()),
        batches in vec(any::<u8>(), 0..64),
        (base, append_time, level_met, log_start) in (offset(), any::<i64>(), met(), offset()),
    ) {
        let request = ProduceRequest { handle, ack, batches: &batches };
        let mut body = Vec::new();
        request.encode(&mut body).unwrap();
        prop_assert_eq!(ProduceRequest::parse(&body).unwrap(), request);
        for cut in 0..produce::FIXED {
            prop_assert!(ProduceRequest::parse(&body[..cut]).is_err());
        }
        // The head and the general encoder are one frame, and the records sit where it says.
        let mut frame = Vec::new();
        api::encode_request(&request, correlation, &mut frame).unwrap();
        let head = produce::request_head(handle, ack, correlation, batches.len());
        prop_assert_eq!(&frame[..produce::BATCHES_AT], &head[..]);
        prop_assert_eq!(&frame[produce::BATCHES_AT..], &batches[..]);

        let response = ProduceResponse { base, append_time, level_met, log_start };
        holds_exactly(&response);
        let mut frame = Vec::new();
        api::encode_response(Api::Produce, correlation, &response, &mut frame).unwrap();
        prop_assert_eq!(&frame[..], &produce::response_frame(correlation, &response)[..]);
    }

    #[test]
    fn fetch_holds(
        (max_bytes, min_bytes, max_wait_ms, committed) in any::<(u32, u32, u32, bool)>(),
        parts in vec((handle(), any::<i64>(), any::<i32>(), any::<u32>()), 0..5),
    ) {
        let parts: Vec<_> = parts
            .into_iter()
            .map(|(handle, offset, last_epoch, max_bytes)| FetchPart {
                handle,
                offset,
                last_epoch,
                max_bytes,
            })
            .collect();
        let isolation =
            if committed { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
        let parts = Parts::List(&parts);
        exact!(
            FetchRequest { max_bytes, min_bytes, max_wait_ms, isolation, parts },
            FetchRequest
        );
    }

    /// The server's heads, the general encoder and the incremental parser agree, whatever the
    /// pieces in which the response arrives.
    #[test]
    fn fetch_responses_hold(
        correlation in any::<u32>(),
        parts in vec((part_head_any(), vec(any::<u8>(), 0..40)), 0..5),
        pieces in vec(1usize..17, 1..8),
    ) {
        let parts: Vec<_> = parts
            .iter()
            .map(|(head, bytes)| PartData {
                head: PartHead { len: bytes.len() as u32, ..*head },
                bytes,
            })
            .collect();
        let response = FetchResponse { parts };
        exact!(response.clone(), FetchResponse);

        let mut sent = Vec::new();
        api::encode_response(Api::Fetch, correlation, &response, &mut sent).unwrap();
        let parts_len = response.parts.iter().map(|part| PART_HEAD + part.bytes.len()).sum();
        let mut pieced =
            fetch::frame_head(correlation, response.parts.len() as u16, parts_len).to_vec();
        for part in &response.parts {
            pieced.extend_from_slice(&fetch::part_head(&part.head));
            pieced.extend_from_slice(part.bytes);
        }
        prop_assert_eq!(&pieced, &sent);

        let body = &sent[api::BODY_AT..];
        let mut progress = Progress::new(body.len());
        let mut got: Vec<(PartHead, Vec<u8>)> = Vec::new();
        let (mut at, mut seen) = (0, 0);
        let mut sizes = pieces.iter().cycle();
        loop {
            let (used, event) = progress.next(&body[at..seen]).unwrap();
            at += used;
            match event {
                Event::NeedMore(more) => {
                    prop_assert!(seen + more <= body.len(), "asks past the end");
                    seen = (seen + sizes.next().unwrap()).min(body.len());
                }
                Event::Part(head) => got.push((head, Vec::new())),
                Event::Bytes(bytes) => got.last_mut().unwrap().1.extend_from_slice(bytes),
                Event::End => break,
            }
        }
        prop_assert_eq!(at, body.len());
        let want: Vec<_> =
            response.parts.iter().map(|part| (part.head, part.bytes.to_vec())).collect();
        prop_assert_eq!(got, want);
    }

    #[test]
    fn error_bodies_hold(message in text(), which in 0..6, (a, b) in any::<(i64, i64)>()) {
        let (code, detail) = match which {
            0 => (ErrorCode::NotOwner, Detail::Owner(ShardId(a as u16))),
            1 => (ErrorCode::OffsetOutOfRange, Detail::Range { start: a, high_watermark: b }),
            2 => (ErrorCode::UnsupportedVersion, Detail::Versions { min: a as u8, max: b as u8 }),
            3 => (ErrorCode::StaleHandle, Detail::None),
            4 => {
                let detail = Detail::Sequence { epoch: a as i16, next: b as i32 };
                (ErrorCode::OutOfOrderSequenceNumber, detail)
            }
            _ => (ErrorCode::InvalidRequest, Detail::None),
        };
        let mut frame = Vec::new();
        encode_error(6, 0, code, 77, &message, detail, &mut frame);
        let Ok(Scan::Frame(found)) = frame::scan_response(&frame, 1 << 20) else {
            panic!("no frame");
        };
        let (header, body) = ResponseHeader::split(&found).unwrap();
        prop_assert_eq!(header.error, code.code());
        prop_assert_eq!(header.correlation, 77);
        prop_assert_eq!(
            ErrorBody::parse(header.error, body).unwrap(),
            ErrorBody { message: &message, detail }
        );
        for cut in 0..body.len() {
            let _ = ErrorBody::parse(header.error, &body[..cut]);
        }
    }

    /// Random bytes, alone or behind a real header, are an answer or an error, never a panic.
    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..96), api in 0u8..16) {
        let _ = frame::scan_request(&bytes, 1 << 16);
        parse_everything(&bytes);
        let mut progress = Progress::new(bytes.len());
        let mut at = 0;
        while let Ok((used, event)) = progress.next(&bytes[at..]) {
            at += used;
            if matches!(event, Event::NeedMore(_) | Event::End) {
                break;
            }
        }
        let header = RequestHeader { api, version: 0, flags: 0, correlation: 1 };
        let _ = header.admit(bytes.len());
        let _ = ErrorBody::parse(1, &bytes);
        let _ = ErrorBody::parse(1000, &bytes);
    }

    /// A flipped bit in a real message is another message or an error, never a panic.
    #[test]
    fn flipped_bits_never_panic(bit in 0usize..4096) {
        for mut body in samples() {
            let at = bit % (body.len() * 8);
            body[at / 8] ^= 1 << (at % 8);
            parse_everything(&body);
        }
    }
}

fn parse_everything(bytes: &[u8]) {
    let _ = HelloRequest::parse(bytes);
    let _ = HelloResponse::parse(bytes);
    let _ = MetadataRequest::parse(bytes);
    let _ = MetadataResponse::parse(bytes);
    let _ = CreateRequest::parse(bytes);
    let _ = CreateResponse::parse(bytes);
    let _ = DeleteRequest::parse(bytes);
    let _ = DescribeRequest::parse(bytes);
    let _ = (LogDirsRequest::parse(bytes), LogDirsResponse::parse(bytes));
    let _ = DescribeResponse::parse(bytes);
    let _ = AlterRequest::parse(bytes);
    let _ = AlterResponse::parse(bytes);
    let _ = ProduceRequest::parse(bytes);
    let _ = ProduceResponse::parse(bytes);
    let _ = FetchRequest::parse(bytes);
    let _ = FetchResponse::parse(bytes);
    let _ = ListOffsetsRequest::parse(bytes);
    let _ = ListOffsetsResponse::parse(bytes);
    let _ = InitProducerRequest::parse(bytes);
    let _ = InitProducerResponse::parse(bytes);
    let _ = RollRequest::parse(bytes);
    let _ = RollResponse::parse(bytes);
    let _ = FlushRequest::parse(bytes);
    let _ = FlushResponse::parse(bytes);
    let _ = DeleteRecordsRequest::parse(bytes);
    let _ = DeleteRecordsResponse::parse(bytes);
    let _ = StatsRequest::parse(bytes);
    let _ = StatsResponse::parse(bytes);
}

/// Bodies with a list or two in them, to be damaged.
fn samples() -> Vec<Vec<u8>> {
    let mut list = Vec::new();
    let mut add = |encode: &dyn Fn(&mut Vec<u8>) -> Result<(), WireError>| {
        let mut body = Vec::new();
        encode(&mut body).unwrap();
        list.push(body);
    };
    let names = MetadataRequest::Names(vec!["a", "bc"]);
    add(&|out| names.encode(out));
    let create = CreateRequest { name: "t", partitions: 3, configs: vec![("k", "v")] };
    add(&|out| create.encode(out));
    let alter = AlterRequest { name: "t", changes: vec![("k", None), ("l", Some("v"))] };
    add(&|out| alter.encode(out));
    let parts = [FetchPart { handle: Handle(1), offset: 2, last_epoch: 0, max_bytes: 3 }; 2];
    let fetch = FetchRequest {
        max_bytes: 1,
        min_bytes: 1,
        max_wait_ms: 1,
        isolation: Isolation::ReadUncommitted,
        parts: Parts::List(&parts),
    };
    add(&|out| fetch.encode(out));
    list
}

/// R85: in a small frame, a count that could not fit is refused by name, at once. The check
/// stands before the only allocation ([`WireError::Count`] is what it returns).
#[test]
fn count_bombs_are_refused() {
    for count in [2u32.pow(31) - 1, u32::MAX, 1 << 20] {
        let bomb = count.to_be_bytes();
        let body = |before: &[u8]| [before, &bomb, &[0; 64]].concat();
        let is_count = |error: WireError| {
            assert!(matches!(error, WireError::Count { count: got, .. } if got == count));
        };
        is_count(MetadataRequest::parse(&body(&[1])).unwrap_err());
        is_count(MetadataResponse::parse(&body(&[0; 6])).unwrap_err());
        is_count(CreateRequest::parse(&body(&[0, 0, 0, 0, 0, 1])).unwrap_err());
        is_count(CreateResponse::parse(&body(&[0; 16])).unwrap_err());
        is_count(AlterRequest::parse(&body(&[0, 0])).unwrap_err());
        is_count(AlterResponse::parse(&body(&[])).unwrap_err());
        is_count(DescribeResponse::parse(&body(&[0; 18])).unwrap_err());
        is_count(StatsResponse::parse(&body(&[0; 10])).unwrap_err());
        is_count(HelloResponse::parse(&body(&[0; 31])).unwrap_err());
    }
    let fetch = [&[0; 14][..], &[0xff, 0xff], &[0; 64]].concat();
    let error = FetchRequest::parse(&fetch).unwrap_err();
    assert!(matches!(error, WireError::Count { count: 0xffff, .. }), "{error}");
    let error = FetchResponse::parse(&[&[0xff, 0xff][..], &[0; 64]].concat()).unwrap_err();
    assert!(matches!(error, WireError::Count { count: 0xffff, .. }), "{error}");
}

/// R85: prefixes. Exactly the limit is accepted; a refusal needs the prefix alone.
#[test]
fn prefixes_are_judged_alone() {
    let max = 1000;
    let scan = |prefix: u32| frame::scan_request(&prefix.to_be_bytes(), max).map(drop);
    for length in [0x7fff_ffff, 0xffff_ffff, max + 1] {
        assert_eq!(scan(length), Err(FrameError::TooLong { length, max }));
    }
    for length in [0, 1, 7] {
        assert_eq!(scan(length), Err(FrameError::TooShort { length }));
    }
    assert_eq!(frame::scan_request(&max.to_be_bytes(), max), Ok(Scan::NeedMore(1000)));
    let whole = [&max.to_be_bytes()[..], &[9; 1000], &[1, 2, 3]].concat();
    let Ok(Scan::Frame(found)) = frame::scan_request(&whole, max) else { panic!("no frame") };
    assert_eq!((found.content.len(), found.wire_len()), (1000, 1004));
    assert_eq!(frame::scan_request(&whole[..1003], max), Ok(Scan::NeedMore(1)));
    assert_eq!(frame::scan_request(&whole[..3], max), Ok(Scan::NeedMore(1)));
    assert_eq!(frame::scan_request(&[], max), Ok(Scan::NeedMore(4)));
    // A configured limit cannot reach the foreign protocols' lengths.
    assert!(scan(frame::FRAME_BYTES_CEILING + 1).is_err());
    let over = frame::judge((frame::FRAME_BYTES_CEILING + 1).to_be_bytes(), u32::MAX);
    assert!(matches!(over, Err(FrameError::TooLong { .. })));
}

/// R83: named by their first bytes, under any limit, without waiting for more.
#[test]
fn foreign_protocols_are_named() {
    let foreign = |bytes: &[u8]| match frame::scan_request(bytes, u32::MAX) {
        Err(FrameError::Foreign(foreign)) => Some(foreign),
        _ => None,
    };
    assert_eq!(foreign(b"\x16\x03\x01\x02\x00\x01"), Some(Foreign::Tls));
    assert_eq!(foreign(b"\x15\x03\x03\x00\x02"), Some(Foreign::Tls));
    for opening in ["GET / HTTP/1.1\r\n", "POST /", "PUT /", "HEAD", "OPTIONS *", "PRI * HTTP/2"] {
        assert_eq!(foreign(opening.as_bytes()), Some(Foreign::Http), "{opening}");
    }
    assert_eq!(foreign(b"HTTP/1.1 400 Bad Request"), Some(Foreign::Http));
    assert_eq!(foreign(b"SSH-2.0-OpenSSH"), Some(Foreign::Ssh));
    // Kafka: ApiVersions v3 with client id "rdkafka", then a null client id.
    let kafka = b"\x00\x00\x00\x23\x00\x12\x00\x03\x00\x00\x00\x01\x00\x07rdkafka";
    assert_eq!(foreign(kafka), Some(Foreign::Kafka));
    let kafka = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff";
    assert_eq!(foreign(kafka), Some(Foreign::Kafka));
    let text = FrameError::Foreign(Foreign::Kafka).to_string();
    assert!(text.contains("Kafka"), "{text}");
    // Our own hello is not Kafka's.
    let mut hello = Vec::new();
    let request = HelloRequest { client: "c", token: None };
    api::encode_request(&request, 1, &mut hello).unwrap();
    assert_eq!(foreign(&hello), None);
}

/// What an unknown api, version or flag is answered, and whether the connection goes on.
#[test]
fn admission() {
    let header = |api, version, flags| RequestHeader { api, version, flags, correlation: 9 };
    for api in Api::ALL {
        let wire = api.to_wire();
        assert_eq!(Api::from_wire(wire), Some(api));
        assert_eq!(header(wire, 0, 0).admit(10), Ok(api));
        let refusal = header(wire, 1, 0).admit(10).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::UnsupportedVersion);
        assert!(!refusal.close, "an unknown version does not cost the connection");
        let refusal = header(wire, 0, 1).admit(10).unwrap_err();
        assert!(!refusal.close);
    }
    let mut unknown = header(0x30, 0x39, 0).admit(10).unwrap_err();
    assert!(unknown.close);
    assert!(unknown.message.contains("12345"), "{}", unknown.message);
    assert!(unknown.message.contains("48"), "{}", unknown.message);
    unknown.message = "x".repeat(MESSAGE_BYTES_MAX - 1) + "\u{e9}";
    let mut frame = Vec::new();
    unknown.encode(&mut frame);
    let Ok(Scan::Frame(found)) = frame::scan_response(&frame, 4096) else { panic!("no frame") };
    let (header, body) = ResponseHeader::split(&found).unwrap();
    assert_eq!((header.api, header.version, header.correlation), (0x30, 0x39, 9));
    let parsed = ErrorBody::parse(header.error, body).unwrap();
    assert_eq!(parsed.message.len(), MESSAGE_BYTES_MAX - 1, "cut at a character's start");

    let over = CONTROL_BYTES_MAX as usize + 1;
    let control = RequestHeader { api: 1, version: 0, flags: 0, correlation: 0 };
    assert_eq!(control.admit(over).unwrap_err().code, ErrorCode::InvalidRequest);
    let produce = RequestHeader { api: 6, version: 0, flags: 0, correlation: 0 };
    assert_eq!(produce.admit(over), Ok(Api::Produce));
    assert_eq!(Api::Produce.request_bytes_max(1 << 26), 1 << 26);
    assert_eq!(Api::Fetch.request_bytes_max(1 << 26), CONTROL_BYTES_MAX);
}

#[test]
fn values_that_cannot_be_are_refused() {
    let produce = |ack, reserved| ProduceRequest::parse(&[0, 0, 0, 1, ack, 0, 0, reserved]).err();
    assert_eq!(produce(4, 0), Some(WireError::Value { field: "ack level", got: 4 }));
    assert_eq!(produce(1, 2), Some(WireError::Value { field: "reserved", got: 2 }));
    let mut met = Vec::new();
    let response = ProduceResponse {
        base: Offset::ZERO,
        append_time: -1,
        level_met: AckLevel::Durable,
        log_start: Offset::ZERO,
    };
    response.encode(&mut met).unwrap();
    met[16] = 3;
    assert!(ProduceResponse::parse(&met).is_err(), "policy is never met");
    met[16] = 2;
    met[0] = 0x80;
    assert!(ProduceResponse::parse(&met).is_err(), "a negative base offset");
    assert!(StatsRequest::parse(&8u32.to_be_bytes()).is_err());
    let not_utf8 = [0, 2, 0xc3, 0x28];
    assert_eq!(
        DeleteRequest::parse(&not_utf8).err(),
        Some(WireError::Utf8 { field: "topic name" })
    );
}

/// What cannot be sent leaves the output as it was: no half frame poisons the stream.
#[test]
fn a_string_too_long_leaves_no_trace() {
    let name = "x".repeat(65_536);
    let mut out = b"before".to_vec();
    let error = api::encode_request(&DeleteRequest { name: &name }, 1, &mut out).unwrap_err();
    assert!(matches!(error, WireError::TooLong { len: 65_536, .. }), "{error}");
    assert_eq!(out, b"before");
}

fn request_api<'a, R: Request<'a>>(_: &R) -> Api {
    R::API
}

#[test]
fn requests_know_their_api() {
    assert_eq!(request_api(&FlushRequest { handle: Handle(0) }).to_wire(), 10);
    assert_eq!(request_api(&StatsRequest { flags: 0 }).to_wire(), 12);
    assert_eq!(request_api(&HelloRequest { client: "", token: None }).to_wire(), 0);
}

/// The incremental parser refuses what the frame's length contradicts.
#[test]
fn progress_refuses_contradictions() {
    let head = PartHead { handle: Handle(1), error: 0, start: 0, high_watermark: 0, len: 10 };
    let mut body = 1u16.to_be_bytes().to_vec();
    body.extend_from_slice(&fetch::part_head(&head));
    body.extend_from_slice(&[0; 9]);
    let mut progress = Progress::new(body.len());
    assert!(progress.next(&body).is_err(), "a part longer than the body");
    body.extend_from_slice(&[0; 2]);
    let mut progress = Progress::new(body.len());
    let (used, event) = progress.next(&body).unwrap();
    assert_eq!((used, event), (28, Event::Part(head)));
    let (more, _) = progress.next(&body[used..]).unwrap();
    assert!(progress.next(&body[used + more..]).is_err(), "a byte behind the last part");
}

//! Memory under hostile frames (R85), and the hot paths that ask for none: counted.

#[path = "support/counting.rs"]
mod counting;
mod fake;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use counting::measured;
use proptest::collection::vec;
use proptest::prelude::*;
use ringlog::client::{Backoff, Client, Options, Producer, ProducerOptions};
use ringlog::protocol::fetch::{self, *};
use ringlog::protocol::frame::{FrameError, Scan, scan_request};
use ringlog::protocol::hello::*;
use ringlog::protocol::metadata::*;
use ringlog::protocol::offsets::*;
use ringlog::protocol::produce::{self, *};
use ringlog::protocol::stats::*;
use ringlog::protocol::topics::*;
use ringlog::protocol::{Message, WireError};
use ringlog::types::{AckLevel, Handle, Offset};

/// What a parser may hold for each byte of its body: a string of no bytes takes two on the wire
/// and sixteen in memory, and nothing does much worse.
const BYTES_PER_BYTE_MAX: usize = 16;

type Parse = fn(&[u8]) -> Option<WireError>;

fn error_of<'a, M: Message<'a>>(body: &'a [u8]) -> Option<WireError> {
    M::parse(body).err()
}

/// Every message that holds a list, and the bytes that stand before the list's count.
fn lists() -> Vec<(&'static str, Parse, Vec<u8>)> {
    vec![
        ("hello response", |b| error_of::<HelloResponse>(b), vec![0; 31]),
        ("metadata request", |b| error_of::<MetadataRequest>(b), vec![1]),
        ("metadata response", |b| error_of::<MetadataResponse>(b), vec![0; 6]),
        ("create request", |b| error_of::<CreateRequest>(b), vec![0; 6]),
        ("create response", |b| error_of::<CreateResponse>(b), vec![0; 16]),
        ("alter request", |b| error_of::<AlterRequest>(b), vec![0; 2]),
        ("alter response", |b| error_of::<AlterResponse>(b), vec![]),
        ("describe response", |b| error_of::<DescribeResponse>(b), vec![0; 18]),
        ("describe response", |b| error_of::<DescribeResponse>(b), vec![0; 22]),
        ("stats response", |b| error_of::<StatsResponse>(b), vec![0; 10]),
        ("stats response", |b| error_of::<StatsResponse>(b), vec![0; 14]),
    ]
}

/// An array count of 2^31-1 (and others) inside a small frame: nothing is allocated.
#[test]
fn count_bombs_allocate_nothing() {
    for (name, parse, before) in lists() {
        for count in [(1u32 << 31) - 1, u32::MAX, 1 << 24, 1000] {
            let body = [&before[..], &count.to_be_bytes(), &[0; 64]].concat();
            let (error, asked) = measured(|| parse(&body));
            let refused =
                matches!(error, Some(WireError::Count { count: got, .. }) if got == count);
            assert!(refused, "{name}: {error:?}");
            assert_eq!((asked.calls, asked.peak_bytes), (0, 0), "{name} at {count}");
        }
    }
    let bomb = [&[0; 14][..], &[0xff; 2], &[0; 64]].concat();
    let (error, asked) = measured(|| error_of::<FetchRequest>(&bomb));
    assert!(matches!(error, Some(WireError::Count { count: 0xffff, .. })), "{error:?}");
    assert_eq!(asked.calls, 0);
    let (error, asked) = measured(|| error_of::<FetchResponse>(&bomb[14..]));
    assert!(matches!(error, Some(WireError::Count { count: 0xffff, .. })), "{error:?}");
    assert_eq!(asked.calls, 0);
}

proptest! {
    /// The largest count that the bytes allow costs what the bytes cost, times a constant.
    #[test]
    fn honest_counts_cost_what_their_bytes_cost(
        garbage in vec(any::<u8>(), 0..4096),
        zeros in any::<bool>(),
        divisor in 1u32..60,
    ) {
        for (name, parse, before) in lists() {
            let rest = if zeros { vec![0; garbage.len()] } else { garbage.clone() };
            let count = rest.len() as u32 / divisor;
            let body = [&before[..], &count.to_be_bytes(), &rest].concat();
            let (_, asked) = measured(|| parse(&body));
            let bound = body.len() * BYTES_PER_BYTE_MAX;
            prop_assert!(
                asked.peak_bytes <= bound as isize,
                "{} held {} for {} bytes", name, asked.peak_bytes, body.len()
            );
        }
    }
}

/// A thousand connections that send only a prefix: none of them makes any room, and a prefix that
/// will be refused is refused with its fourth byte.
#[test]
fn prefixes_make_no_room() {
    let (_, asked) = measured(|| {
        for connection in 0..1000u32 {
            let good = (1000 + connection).to_be_bytes();
            assert!(matches!(scan_request(&good, 1 << 20), Ok(Scan::NeedMore(_))));
            let bad = (0x7fff_0000 + connection).to_be_bytes();
            assert!(matches!(scan_request(&bad, 1 << 20), Err(FrameError::TooLong { .. })));
        }
    });
    assert_eq!(asked.calls, 0);
}

/// What a server does for each produce and fetch, in bytes, asks for no memory.
#[test]
fn the_hot_messages_allocate_nothing() {
    let parts = [FetchPart { handle: Handle(1), offset: 2, last_epoch: -1, max_bytes: 3 }; 3];
    let request = FetchRequest {
        max_bytes: 1,
        min_bytes: 1,
        max_wait_ms: 1,
        isolation: Isolation::ReadUncommitted,
        parts: Parts::List(&parts),
    };
    let mut fetch_body = Vec::new();
    request.encode(&mut fetch_body).unwrap();
    let produce_body = [0, 0, 0, 1, 2, 0, 0, 0, 9, 9, 9];
    let (sum, asked) = measured(|| {
        let fetch = FetchRequest::parse(&fetch_body).unwrap();
        let offsets: i64 = fetch.parts.iter().map(|part| part.offset).sum();
        let produce = ProduceRequest::parse(&produce_body).unwrap();
        let response = ProduceResponse {
            base: Offset::ZERO,
            append_time: -1,
            level_met: AckLevel::Durable,
            log_start: Offset::ZERO,
        };
        let frame = produce::response_frame(7, &response);
        let head = PartHead { handle: Handle(1), error: 0, start: 0, high_watermark: 9, len: 3 };
        let heads = fetch::frame_head(7, 1, 29).len() + fetch::part_head(&head).len();
        offsets as usize + produce.batches.len() + frame.len() + heads
    });
    assert_eq!(sum, 6 + 3 + 37 + 14 + 26);
    assert_eq!(asked.calls, 0);
}

/// Small answers are read in place too.
#[test]
fn small_answers_allocate_nothing() {
    let (_, asked) = measured(|| {
        assert!(FlushResponse::parse(&[0; 8]).is_ok());
        assert!(ListOffsetsResponse::parse(&[0; 20]).is_ok());
        assert!(DeleteRecordsRequest::parse(&[0; 12]).is_ok());
    });
    assert_eq!(asked.calls, 0);
}

/// Once its buffers have grown, a producer asks for no memory: not for a record, a batch or an ack.
#[test]
fn a_producer_allocates_nothing_once_warm() {
    let log = Arc::new(Mutex::new(fake::Log::default()));
    let shared = Arc::clone(&log);
    let address = fake::start(move |_, mut peer| {
        while let Some((header, body)) = peer.next_after_hello() {
            let mut log = shared.lock().unwrap();
            log.serve(&mut peer, &header, &body);
            log.bytes.clear(); // each batch is the first
        }
    });
    let mut client = Client::connect(&address, Options::default(), Backoff::default()).unwrap();
    let options = ProducerOptions {
        batch_bytes: 4096,
        linger: Duration::from_secs(3600), // batches end by size, the same in both rounds
        idempotent: false,                 // what it keeps to send again has the pace of the acks
        ..ProducerOptions::default()
    };
    let mut producer = Producer::new(&mut client, "t", 0, options).unwrap();
    let value = [7; 100];
    let mut round = || {
        let mut acked = 0;
        for i in 0..5000 {
            producer.send(Some(b"key"), Some(&value), &[], i).unwrap();
            acked += producer.drain_acks().map(|ack| u64::from(ack.sent.records)).sum::<u64>();
        }
        producer.finish().unwrap();
        acked + producer.drain_acks().map(|ack| u64::from(ack.sent.records)).sum::<u64>()
    };
    assert_eq!(round(), 5000);
    let (acked, asked) = measured(round);
    assert_eq!(acked, 5000);
    assert_eq!(asked.calls, 0, "{} bytes at most", asked.peak_bytes);
}

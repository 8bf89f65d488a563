//! Whole shards in the simulator, over the wire: what requests are answered, in which order, and
//! what a slow or failing disk does to them.
//!
//! Owns: the behaviours of fetch, produce and frames that need a clock or a fault. Never does: real
//! I/O. Left: `harness`. Right: nobody.

mod bounds;
mod cut_off;
mod dropping;
mod harness;
mod storage;
mod stored;

use harness::{Response, Setup, SimShard, Wire, batch};
use ringlog::errors::ErrorCode;
use ringlog::format::batch;
use ringlog::protocol::api::Message;
use ringlog::protocol::error::{Detail, ErrorBody};
use ringlog::protocol::fetch::{FetchPart, FetchRequest, FetchResponse, Isolation, Parts};
use ringlog::protocol::metadata::MetadataRequest;
use ringlog::protocol::offsets::{ListOffsetsRequest, ListOffsetsResponse, special};
use ringlog::shard::FetchPath;
use ringlog::types::{AckLevel, Handle, Micros};

const SEED: u64 = 11;

fn ask(parts: &[FetchPart], max_bytes: u32, min_bytes: u32, wait_ms: u32) -> FetchRequest<'_> {
    FetchRequest {
        max_bytes,
        min_bytes,
        max_wait_ms: wait_ms,
        isolation: Isolation::ReadUncommitted,
        parts: Parts::List(parts),
    }
}

fn part(handle: Handle, offset: i64, max_bytes: u32) -> FetchPart {
    FetchPart { handle, offset, last_epoch: -1, max_bytes }
}

/// Bytes of each part of a fetch response.
fn lens(response: &Response) -> Vec<usize> {
    let parsed = FetchResponse::parse(&response.body).expect("a fetch response");
    parsed.parts.iter().map(|part| part.bytes.len()).collect()
}

fn both_paths() -> [Setup; 2] {
    [FetchPath::Send, FetchPath::Sendfile]
        .map(|fetch_path| Setup { fetch_path, ..Setup::default() }.flush("group"))
}

/// R22: the whole first batch of the first non-empty partition, whatever the limit.
#[test]
fn r22_first_batch_comes_whole_past_every_limit() {
    for setup in both_paths() {
        let setup = Setup { partitions: 3, ..setup };
        let mut server = SimShard::create(SEED, &setup);
        let mut wire = server.connect();
        let big = batch(&[&vec![7; 200 << 10]]);
        let handles = server.handles.clone();
        for &handle in &handles[1..] {
            server.produce(&mut wire, handle, &big);
            server.produce(&mut wire, handle, &batch(&[b"small"]));
        }
        let parts: Vec<_> = handles.iter().map(|&handle| part(handle, 0, 1)).collect();
        let response = server.call(&mut wire, &ask(&parts, 1, 1, 0));
        assert_eq!(lens(&response), [0, big.len(), 0]);
        let next = [part(handles[1], 1, 1 << 20)];
        let response = server.call(&mut wire, &ask(&next, 1 << 20, 1, 0));
        assert_eq!(lens(&response), [batch(&[b"small"]).len()]);
    }
}

/// R23: a caught-up fetch waits its time; a record wakes it at once.
#[test]
fn r23_long_poll_waits_and_is_woken_by_a_record() {
    for setup in both_paths() {
        let mut server = SimShard::create(SEED, &setup);
        let mut wire = server.connect();
        let handle = server.handles[0];
        let parts = [part(handle, 0, 1 << 20)];
        let began = server.world.now();
        let response = server.call(&mut wire, &ask(&parts, 1 << 20, 1, 500));
        assert_eq!(lens(&response), [0]);
        let waited = server.world.now().since(began);
        assert!((500_000..520_000).contains(&waited.0), "{waited:?}");

        let mut other = server.connect();
        wire.send(&ask(&parts, 1 << 20, 1, 60_000));
        server.run_us(2_000);
        assert!(wire.poll().is_none(), "nothing to read yet");
        server.produce(&mut other, handle, &batch(&[b"x"]));
        let began = server.world.now();
        let response = server.response(&mut wire);
        assert_eq!(lens(&response), [batch(&[b"x"]).len()]);
        assert!(server.world.now().since(began) < Micros(1_000));
    }
}

/// R24: a minimum that the limits cannot meet does not make anybody wait, reply after reply.
#[test]
fn r24_partition_limit_below_the_minimum_answers_at_once() {
    for setup in both_paths() {
        let mut server = SimShard::create(SEED, &setup);
        let mut wire = server.connect();
        let handle = server.handles[0];
        for _ in 0..40 {
            server.produce(&mut wire, handle, &batch(&[&[3; 30 << 10]]));
        }
        let (mut next, mut batches) = (0, 0);
        // Behind 38 the end of the log is less than the limit away: there a fetch waits.
        while next < 38 {
            let parts = [part(handle, next, 64 << 10)];
            let began = server.world.now();
            let response = server.call(&mut wire, &ask(&parts, 8 << 20, 1 << 20, 60_000));
            assert!(server.world.now().since(began) < Micros(10_000), "nobody waits at {next}");
            let parsed = FetchResponse::parse(&response.body).unwrap();
            assert_eq!(parsed.parts[0].bytes.len(), 64 << 10, "the limit, each time");
            for found in batch::scan(parsed.parts[0].bytes) {
                assert_eq!(found.header.base_offset, next);
                (next, batches) = (found.header.next_offset(), batches + 1);
            }
        }
        assert_eq!(batches, 38);
    }
}

/// R28: out of range says what the range is; the end itself waits.
#[test]
fn r28_out_of_range_answers_carry_the_valid_range() {
    let mut server = SimShard::create(SEED, &Setup::default());
    let mut wire = server.connect();
    let handle = server.handles[0];
    server.produce(&mut wire, handle, &batch(&[b"a", b"b"]));
    for offset in [-1, 3, i64::MAX] {
        let response = server.call(&mut wire, &ask(&[part(handle, offset, 100)], 100, 1, 0));
        let parsed = FetchResponse::parse(&response.body).unwrap();
        let head = parsed.parts[0].head;
        assert_eq!(head.error, ErrorCode::OffsetOutOfRange.code());
        assert_eq!((head.start, head.high_watermark), (0, 2));
        let body = ErrorBody::parse(head.error, parsed.parts[0].bytes).unwrap();
        assert_eq!(body.detail, Detail::Range { start: 0, high_watermark: 2 });
    }
    let response = server.call(&mut wire, &ask(&[part(handle, 2, 100)], 100, 1, 0));
    assert_eq!(FetchResponse::parse(&response.body).unwrap().parts[0].head.error, 0);
}

/// R29: while a flush stalls, nothing it should settle is readable or acked.
#[test]
fn r29_readers_do_not_see_what_a_crash_can_still_take() {
    for policy in ["each", "group", "group:50us"] {
        let mut server = SimShard::create(SEED, &Setup::default().flush(policy));
        let mut wire = server.connect();
        let handle = server.handles[0];
        server.produce(&mut wire, handle, &batch(&[b"before"]));
        server.world.faults(|faults| faults.stall_fdatasync(".log", 1, 2_000_000));
        let mut writer = server.connect();
        writer.produce(handle, AckLevel::Policy, &batch(&[b"stalled"]));
        server.run_us(500_000);
        assert!(writer.poll().is_none(), "{policy}: acked ahead of its flush");
        let response = server.call(&mut wire, &ask(&[part(handle, 1, 100)], 100, 1, 0));
        let parsed = FetchResponse::parse(&response.body).unwrap();
        assert_eq!((parsed.parts[0].head.error, parsed.parts[0].bytes.len()), (0, 0));
        assert_eq!(parsed.parts[0].head.high_watermark, 1, "{policy}");
        server.run_us(2_000_000);
        assert!(writer.poll().expect("the flush ended").header.is_ok());
    }
}

/// R41: one flush serves many waiters, and no ack leaves before a flush that began after its write.
#[test]
fn r41_one_flush_serves_many_waiters() {
    let mut server = SimShard::create(SEED, &Setup::default().flush("group"));
    server.world.faults(|faults| faults.fdatasync_us = 5_000);
    let handle = server.handles[0];
    let mut wires: Vec<Wire> = (0..48).map(|_| server.connect()).collect();
    let began = server.world.now();
    let mut acked: u64 = 0;
    for wire in &mut wires {
        wire.produce(handle, AckLevel::Policy, &batch(&[b"x"]));
    }
    while server.world.now().since(began) < Micros(200_000) {
        server.run_us(100);
        for wire in &mut wires {
            if let Some(response) = wire.poll() {
                assert!(response.header.is_ok());
                acked += 1;
                wire.produce(handle, AckLevel::Policy, &batch(&[b"x"]));
            }
        }
    }
    let flushes = server.counters().flushes;
    assert!(acked > 20 * flushes, "{acked} acks by {flushes} flushes");
}

/// R81: responses in request order, though a fetch waits; the produce behind it is done meanwhile.
#[test]
fn r81_responses_keep_request_order_and_work_goes_on() {
    let mut server = SimShard::create(SEED, &Setup { partitions: 2, ..Setup::default() });
    let mut wire = server.connect();
    let (first, second) = (server.handles[0], server.handles[1]);
    let fetch = wire.send(&ask(&[part(first, 0, 100)], 100, 1, 50));
    let produce = wire.produce(second, AckLevel::Policy, &batch(&[b"x"]));
    server.run_us(20_000);
    assert!(wire.poll().is_none(), "the fetch holds the line");
    let mut other = server.connect();
    let latest = ListOffsetsRequest {
        handle: second,
        timestamp: special::LATEST,
        isolation: Isolation::ReadUncommitted,
    };
    let response = server.call(&mut other, &latest);
    assert_eq!(ListOffsetsResponse::parse(&response.body).unwrap().offset, 1, "the work is done");
    assert_eq!(server.response(&mut wire).header.correlation, fetch);
    assert_eq!(server.response(&mut wire).header.correlation, produce);
}

/// R83, R85: foreign protocols and absurd lengths are closed at once, and cost no memory.
#[test]
fn r83_r85_foreign_and_absurd_frames_are_closed_at_once() {
    let setup = Setup::default();
    let mut server = SimShard::create(SEED, &setup);
    let unknown_api = [0, 0, 0, 8, 99, 0, 0, 0, 0, 0, 0, 1];
    let frames: [&[u8]; 7] = [
        &[0x16, 3, 1, 2, 0, 1, 0, 1],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0],
        &(setup.frame_bytes_max + 1).to_be_bytes(),
        &unknown_api,
    ];
    for frame in frames {
        let mut wire = server.connect();
        wire.raw(frame);
        server.run_us(2_000);
        while wire.poll().is_some() {}
        assert!(wire.socket.at_end(), "{frame:02x?} was not closed");
    }
    let mut wire = server.connect();
    let all = server.call(&mut wire, &MetadataRequest::All);
    assert!(all.header.is_ok(), "the server goes on");
}

/// R85: exactly the limit is accepted; one byte more is not.
#[test]
fn r85_a_frame_of_exactly_the_limit_is_accepted() {
    let setup = Setup { frame_bytes_max: 64 << 10, ..Setup::default() };
    let mut server = SimShard::create(SEED, &setup);
    let mut wire = server.connect();
    let handle = server.handles[0];
    let overhead = batch(&[&[0; 60_000]]).len() - 60_000 + 16;
    let exact = batch(&[&vec![1; (64 << 10) - overhead]]);
    assert_eq!(exact.len() + 16, 64 << 10);
    let response = server.produce(&mut wire, handle, &exact);
    assert_eq!(response.base.get(), 0);
    let over = batch(&[&vec![1; (64 << 10) - overhead + 1]]);
    wire.produce(handle, AckLevel::Policy, &over);
    server.run_us(2_000);
    assert!(wire.socket.at_end());
}

/// R20 (wire part), R32, R33, R35: refused batches append nothing and leave the connection open.
#[test]
fn refused_batches_append_nothing() {
    let setup = Setup::default().log(|log| log.max_message_bytes = 1000);
    let mut server = SimShard::create(SEED, &setup);
    let mut wire = server.connect();
    let handle = server.handles[0];
    let mut flipped = batch(&[b"abc"]);
    *flipped.last_mut().unwrap() ^= 1;
    let mut rebased = batch(&[b"abc"]);
    batch::assign(&mut rebased, 5, -1).unwrap();
    let mut truncated = batch(&[b"abc"]);
    truncated.pop();
    let cases: [(&[u8], ErrorCode); 5] = [
        (&flipped, ErrorCode::CorruptMessage),
        (&rebased, ErrorCode::InvalidRecord),
        (&truncated, ErrorCode::InvalidRecord),
        (&batch(&[&[0; 2000]]), ErrorCode::MessageTooLarge),
        (&[], ErrorCode::InvalidRecord),
    ];
    for (bytes, code) in cases {
        wire.produce(handle, AckLevel::Policy, bytes);
        let response = server.response(&mut wire);
        assert_eq!(response.header.error, code.code(), "{}", response.message());
        assert!(!response.message().is_empty());
    }
    assert_eq!(server.produce(&mut wire, handle, &batch(&[b"abc"])).base.get(), 0);
}

/// D11 over the wire: a failed flush fails its waiters and later appends; reads go on.
#[test]
fn d11_a_failed_flush_poisons_its_partition_and_no_other() {
    let mut server = SimShard::create(SEED, &Setup { partitions: 2, ..Setup::default() });
    let mut wire = server.connect();
    let (bad, good) = (server.handles[0], server.handles[1]);
    server.produce(&mut wire, bad, &batch(&[b"kept"]));
    server.world.faults(|faults| {
        faults.fail_fdatasync("t-0", 1, ringlog::io::Errno::EIO);
    });
    for _ in 0..2 {
        wire.produce(bad, AckLevel::Policy, &batch(&[b"lost"]));
        let response = server.response(&mut wire);
        assert_eq!(response.header.error, ErrorCode::KafkaStorageError.code());
    }
    assert_eq!(server.produce(&mut wire, good, &batch(&[b"x"])).base.get(), 0);
    let response = server.call(&mut wire, &ask(&[part(bad, 0, 100)], 100, 1, 0));
    let parsed = FetchResponse::parse(&response.body).unwrap();
    assert_eq!((parsed.parts[0].head.error, parsed.parts[0].head.high_watermark), (0, 1));
}

/// A connection that sends faster than the disk is slowed down, never refused, and loses nothing.
#[test]
fn a_full_partition_slows_its_connection_down() {
    let setup = Setup::default().flush("group").log(|log| log.unsettled_bytes_max = 64 << 10);
    let mut server = SimShard::create(SEED, &setup);
    server.world.faults(|faults| faults.fdatasync_us = 2_000);
    let mut wire = server.connect();
    let handle = server.handles[0];
    let one = batch(&[&[9; 20 << 10]]);
    for _ in 0..50 {
        wire.produce(handle, AckLevel::Policy, &one);
    }
    for at in 0..50 {
        let response = server.response(&mut wire);
        assert!(response.header.is_ok(), "{at}: {}", response.message());
    }
}

/// Frames that are all half received never wait for each other for ever.
#[test]
fn half_received_frames_that_fill_the_memory_do_not_lock_each_other_out() {
    let setup = Setup { memory_bytes: 2 << 20, ..Setup::default() };
    let mut server = SimShard::create(SEED, &setup.log(|log| log.max_message_bytes = 8 << 20));
    let handle = server.handles[0];
    let big = batch(&[&vec![5; 900 << 10]]);
    let mut wires: Vec<Wire> = (0..6).map(|_| server.connect()).collect();
    for wire in &mut wires {
        wire.produce(handle, AckLevel::Policy, &big);
    }
    for (at, wire) in wires.iter_mut().enumerate() {
        let response = server.response(wire);
        assert!(response.header.is_ok(), "{at}: {}", response.message());
    }
    assert_eq!(server.counters().stalled_closed, 0, "nobody had to go");
}

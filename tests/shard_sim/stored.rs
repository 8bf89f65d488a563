//! What becomes of a client's batch by its topic's settings, over the wire: codec, append time,
//! bounds, refusals.

use super::harness::{Setup, SimShard, Wire, batch};
use super::{ask, part};
use ringlog::errors::ErrorCode;
use ringlog::format::batch::{
    self, ATTRIBUTES, Attributes, BASE_SEQUENCE, BatchHeader, Codec, HEADER_LEN, MAGIC,
    PRODUCER_ID, TimestampType,
};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::codec::{self, Workspace};
use ringlog::format::reencode::Target;
use ringlog::protocol::api::Message;
use ringlog::protocol::fetch::FetchResponse;
use ringlog::shard::mailbox::{Settings, ToShard};
use ringlog::types::{AckLevel, Handle};

const SEED: u64 = 23;
const NOW: i64 = 1_800_000_000_000;
const HOUR_MS: i64 = 3_600_000;

fn setup(change: impl FnOnce(&mut Settings)) -> Setup {
    let mut setup = Setup::default();
    change(&mut setup.settings);
    setup
}

/// A shard whose clock stands at `NOW` when it starts.
fn create(setup: &Setup) -> SimShard {
    let server = SimShard::create(SEED, setup);
    server.world.set_wall_ms(NOW);
    server
}

fn stamped(times: &[i64], codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (i, time) in times.iter().enumerate() {
        builder.append(Some(b"key"), Some(format!("value {i}").as_bytes()), &[], *time);
    }
    builder.finish(codec, None).expect("compresses").to_vec()
}

fn patched<const N: usize>(bytes: &[u8], at: usize, value: [u8; N]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + N].copy_from_slice(&value);
    batch::reseal(&mut bytes).expect("whole");
    bytes
}

/// Everything that is stored, from the first offset on.
fn fetched(server: &mut SimShard, wire: &mut Wire, handle: Handle) -> Vec<u8> {
    let parts = [part(handle, 0, 8 << 20)];
    let response = server.call(wire, &ask(&parts, 8 << 20, 1, 0));
    let parsed = FetchResponse::parse(&response.body).expect("a fetch response");
    parsed.parts.first().expect("a part").bytes.to_vec()
}

fn plain(found: &batch::Found<'_>) -> Vec<u8> {
    let codec = found.header.codec().expect("a codec");
    let mut plain = Vec::new();
    codec::decompress(codec, found.payload(), 1 << 24, &mut Workspace::new(), &mut plain)
        .expect("decompresses");
    plain
}

fn refused(server: &mut SimShard, wire: &mut Wire, bytes: &[u8], code: ErrorCode) -> String {
    let handle = server.handles[0];
    wire.produce(handle, AckLevel::Policy, bytes);
    let response = server.response(wire);
    let message = response.message();
    assert_eq!(response.header.error, code.code(), "{message}");
    message
}

/// Every codec into every other, two batches in a request, and back to `producer` while running.
#[test]
fn a_topic_stores_its_own_codec_whatever_comes() {
    for target in Codec::ALL {
        let level = (target == Codec::Zstd).then_some(19);
        let setup = setup(|s| s.compression = Some(Target { codec: target, level }));
        let mut server = create(&setup);
        let (mut wire, handle) = (server.connect(), server.handles[0]);
        let now = NOW;
        let mut sent = Vec::new();
        for codec in Codec::ALL {
            let two = [stamped(&[now, now - 5], codec), stamped(&[-1, now, now], target)].concat();
            let response = server.produce(&mut wire, handle, &two);
            assert_eq!(response.base.get(), sent.len() as i64 / 2 * 5);
            sent.extend([stamped(&[now, now - 5], codec), stamped(&[-1, now, now], target)]);
        }
        let bytes = fetched(&mut server, &mut wire, handle);
        let found: Vec<_> = batch::scan(&bytes).collect();
        assert_eq!(found.len(), sent.len());
        let mut next = 0;
        for (found, sent) in found.iter().zip(&sent) {
            assert!(found.crc_ok());
            assert_eq!((found.header.base_offset, found.header.codec()), (next, Some(target)));
            next = found.header.next_offset();
            let sent = batch::scan(sent).next().expect("a batch");
            assert_eq!(plain(found), plain(&sent));
            assert_eq!(found.header.max_timestamp, sent.header.max_timestamp);
        }
        assert_eq!(server.counters().reencoded, 4, "one request came in the right codec");

        server.mail.send(ToShard::Alter(handle, Box::default()));
        server.turns(2);
        let before = bytes.len();
        server.produce(&mut wire, handle, &stamped(&[now], Codec::Snappy));
        let bytes = fetched(&mut server, &mut wire, handle);
        let last = batch::parse_header(&bytes[before..]).expect("a header");
        assert_eq!(last.codec(), Some(Codec::Snappy), "as it came");
    }
}

/// R35 over the wire: what counts is what is stored.
#[test]
fn r35_a_batch_that_grows_past_the_limit_is_refused_whole() {
    let mut setup = setup(|s| s.compression = Some(Target { codec: Codec::None, level: None }));
    setup.settings.log.max_message_bytes = 100_000;
    let mut server = create(&setup);
    let (mut wire, handle) = (server.connect(), server.handles[0]);
    let mut builder = BatchBuilder::new();
    builder.append(None, Some(&vec![b'a'; 5_000_000]), &[], 1);
    let large = builder.finish(Codec::Gzip, None).expect("compresses").to_vec();
    let message = refused(&mut server, &mut wire, &large, ErrorCode::MessageTooLarge);
    assert!(message.contains("compression.type"), "{message}");
    let fine = stamped(&[1], Codec::Gzip);
    refused(&mut server, &mut wire, &[fine.clone(), large].concat(), ErrorCode::MessageTooLarge);
    assert_eq!(server.produce(&mut wire, handle, &fine).base.get(), 0, "nothing was appended");
}

/// A full partition makes the connection wait, also for what grows on its way to the disk.
#[test]
fn re_encoded_requests_wait_like_others() {
    let mut setup = setup(|s| s.compression = Some(Target { codec: Codec::None, level: None }));
    setup.settings.log.unsettled_bytes_max = 300_000;
    let mut server = create(&setup);
    let (mut wire, handle) = (server.connect(), server.handles[0]);
    let mut builder = BatchBuilder::new();
    builder.append(None, Some(&vec![b'a'; 250_000]), &[], 1);
    let large = builder.finish(Codec::Gzip, None).expect("compresses").to_vec();
    for _ in 0..20 {
        wire.produce(handle, AckLevel::Durable, &large);
    }
    for _ in 0..20 {
        let response = server.response(&mut wire);
        assert!(response.header.is_ok(), "{}", response.message());
    }
    assert!(server.counters().backpressure > 0);
    assert_eq!(batch::scan(&fetched(&mut server, &mut wire, handle)).count(), 20);
}

/// Append time: told to the producer, in the header of what is stored, over every codec and also
/// where the codec changes.
#[test]
fn append_time_is_the_servers_and_is_answered() {
    for compression in [None, Some(Target { codec: Codec::Lz4, level: None })] {
        let setup = setup(|s| (s.log_append_time, s.compression) = (true, compression));
        let mut server = create(&setup);
        let (mut wire, handle) = (server.connect(), server.handles[0]);
        for codec in Codec::ALL {
            server.run_us(7_000);
            let old = stamped(&[5, 1_000], codec);
            let response = server.produce(&mut wire, handle, &old);
            let bytes = fetched(&mut server, &mut wire, handle);
            let last = batch::scan(&bytes).last().expect("a batch");
            assert!(last.crc_ok());
            assert_eq!(last.header.timestamp_type(), TimestampType::LogAppendTime);
            assert_eq!(last.header.max_timestamp, response.append_time);
            assert!((NOW..NOW + HOUR_MS).contains(&response.append_time));
            assert_eq!(last.header.base_timestamp, 5, "the producer's deltas stand");
        }
    }
    let mut server = create(&Setup::default());
    let (mut wire, handle) = (server.connect(), server.handles[0]);
    let response = server.produce(&mut wire, handle, &stamped(&[5], Codec::None));
    assert_eq!(response.append_time, -1, "create time is the producer's own");
}

/// R43, R44 and the bounds on time, at produce.
#[test]
fn times_outside_the_topics_bounds_are_refused() {
    let setup = setup(|s| s.timestamp_before_max_ms = HOUR_MS);
    let mut server = create(&setup);
    let (mut wire, handle) = (server.connect(), server.handles[0]);
    let now = NOW;
    let ten_years = 10 * 365 * 24 * HOUR_MS;
    for codec in Codec::ALL {
        for times in [
            &[now + ten_years][..],
            &[now * 1_000],
            &[now, now + HOUR_MS + 60_000],
            &[now, now - HOUR_MS - 60_000, -1],
        ] {
            let sent = stamped(times, codec);
            refused(&mut server, &mut wire, &sent, ErrorCode::InvalidTimestamp);
        }
        let sent = stamped(&[now - HOUR_MS + 60_000, -1, now + HOUR_MS - 60_000], codec);
        server.produce(&mut wire, handle, &sent);
    }
}

/// R44: by default the records are taken, as Kafka does, and counted; append time makes them young.
#[test]
fn r44_records_that_retention_will_take_at_once_are_counted() {
    let long_ago = NOW - 2 * 365 * 24 * HOUR_MS;
    let mut server = create(&Setup::default());
    let (mut wire, handle) = (server.connect(), server.handles[0]);
    server.produce(&mut wire, handle, &stamped(&[NOW, long_ago], Codec::None));
    server.produce(&mut wire, handle, &stamped(&[-1], Codec::None));
    assert_eq!(server.counters().records_past_retention, 0, "not the whole batch, or no time");
    server.produce(&mut wire, handle, &stamped(&[long_ago; 3], Codec::Gzip));
    assert_eq!(server.counters().records_past_retention, 3);
    for change in [
        |s: &mut Settings| s.log_append_time = true,
        |s: &mut Settings| s.log.retention_ms = -1,
        |s: &mut Settings| s.log.deletes = false,
    ] {
        let mut server = create(&setup(change));
        let (mut wire, handle) = (server.connect(), server.handles[0]);
        server.produce(&mut wire, handle, &stamped(&[long_ago], Codec::None));
        assert_eq!(server.counters().records_past_retention, 0);
    }
}

/// Sizes: a batch against `max.message.bytes`, an append against `segment.bytes`, in this order.
#[test]
fn an_append_past_a_segment_is_a_list_too_large() {
    let mut setup = Setup::default();
    (setup.settings.log.segment_bytes, setup.settings.log.max_message_bytes) = (1_000, 600);
    let mut server = create(&setup);
    let (mut wire, handle) = (server.connect(), server.handles[0]);
    let of_500 = batch(&[&[7; 500 - 70]]);
    let two = of_500.repeat(2);
    refused(&mut server, &mut wire, &batch(&[&[7; 600]]), ErrorCode::MessageTooLarge);
    let room = two.len() as u64;
    server.produce(&mut wire, handle, &two);
    setup.settings.log.segment_bytes = room - 1;
    server.mail.send(ToShard::Alter(handle, Box::new(setup.settings)));
    server.turns(2);
    let message = refused(&mut server, &mut wire, &two, ErrorCode::RecordListTooLarge);
    assert!(message.contains("segment.bytes"), "{message}");
    assert_eq!(server.produce(&mut wire, handle, &of_500).base.get(), 2);
}

fn header_bits(change: impl Fn(Attributes) -> Attributes) -> Vec<u8> {
    let bytes = stamped(&[1], Codec::None);
    let header: BatchHeader = batch::parse_header(&bytes).expect("a header");
    patched(&bytes, ATTRIBUTES, change(header.attributes).0.to_be_bytes())
}

/// R36 and the old formats, over the wire, on topics of both kinds of time. Two batches in one
/// request are no fault here: the protocol says so (a request is one append).
#[test]
fn r36_what_a_client_may_not_send_is_refused() {
    let legacy = |magic: u8| {
        let mut bytes = stamped(&[1], Codec::None);
        bytes[MAGIC] = magic;
        bytes
    };
    let mut nulls = BatchBuilder::new();
    nulls.append(None, Some(b"v"), &[], 1);
    let keyless = nulls.finish(Codec::Gzip, None).expect("compresses").to_vec();
    let no_sequence = patched(&stamped(&[1], Codec::None), PRODUCER_ID, 7i64.to_be_bytes());
    let sequence = patched(&no_sequence, BASE_SEQUENCE, (-1i32).to_be_bytes());
    let unknown = header_bits(|attributes| Attributes(attributes.0 | 5));
    let cut = stamped(&[1], Codec::None)[..HEADER_LEN].to_vec();
    for log_append_time in [false, true] {
        let setup = setup(|s| (s.log_append_time, s.log.compacted) = (log_append_time, true));
        let mut server = create(&setup);
        let (mut wire, handle) = (server.connect(), server.handles[0]);
        let stamp = TimestampType::LogAppendTime;
        for (bytes, code) in [
            (header_bits(|bits| bits.with_control(true)), ErrorCode::InvalidRecord),
            (header_bits(|bits| bits.with_timestamp_type(stamp)), ErrorCode::InvalidTimestamp),
            (sequence.clone(), ErrorCode::InvalidRecord),
            (legacy(0), ErrorCode::InvalidRecord),
            (legacy(1), ErrorCode::InvalidRecord),
            (legacy(3), ErrorCode::CorruptMessage),
            (keyless.clone(), ErrorCode::InvalidRecord),
            (unknown.clone(), ErrorCode::UnsupportedCompressionType),
            (cut.clone(), ErrorCode::InvalidRecord),
        ] {
            refused(&mut server, &mut wire, &bytes, code);
        }
        let two = stamped(&[1], Codec::None).repeat(2);
        assert_eq!(server.produce(&mut wire, handle, &two).base.get(), 0, "nothing was appended");
    }
}

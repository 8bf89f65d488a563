//! The client against a server that pipelines, stalls, drops and lies; over both transports.

mod fake;

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fake::{Log, Peer, produced, start, start_shards};
use ringlog::client::machine::MachineError;
use ringlog::client::{
    Backoff, Client, Connection, Consumer, ConsumerOptions, Error, Options, OutOfRange, Producer,
    ProducerOptions, Resume, Start, Transport, resume_point, uring,
};
use ringlog::errors::ErrorCode;
use ringlog::format::batch::{self, Codec};
use ringlog::format::builder::BatchBuilder;
use ringlog::protocol::Message;
use ringlog::protocol::api::Api;
use ringlog::protocol::error::Detail;
use ringlog::protocol::fetch::{
    FetchPart, FetchRequest, FetchResponse, Isolation, PartData, PartHead, Parts,
};
use ringlog::protocol::offsets::{FlushRequest, FlushResponse, special};
use ringlog::protocol::produce::ProduceRequest;
use ringlog::types::{AckLevel, Handle, Offset, ShardId};

/// Long enough for a loaded machine; no test waits for it to pass.
const LONG: Duration = Duration::from_secs(30);
/// Short enough to wait for.
const SHORT: Duration = Duration::from_millis(40);

fn transports() -> Vec<Transport> {
    match uring::probe() {
        Ok(()) => vec![Transport::Blocking, Transport::Uring],
        Err(error) => {
            eprintln!("skipped for tokio-uring: io_uring cannot be used here ({error})");
            vec![Transport::Blocking]
        }
    }
}

fn options(transport: Transport) -> Options {
    Options { transport, request_timeout: LONG, ..Options::default() }
}

fn quick() -> Backoff {
    Backoff { first: Duration::from_millis(1), cap: Duration::from_millis(5), attempts_max: 20 }
}

fn client(address: &str, transport: Transport) -> Client {
    Client::connect(address, options(transport), quick()).unwrap()
}

fn batch_of(values: &[&str], codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.append(None, Some(value.as_bytes()), &[], 1);
    }
    builder.finish(codec, None).unwrap().to_vec()
}

fn flush(handle: u32) -> FlushRequest {
    FlushRequest { handle: Handle(handle) }
}

fn durable(connection: &Connection) -> i64 {
    connection.response::<FlushResponse>().unwrap().durable.get()
}

/// Answers every flush with its handle as the durable offset.
fn echo(peer: &mut Peer, body: &[u8]) -> FlushResponse {
    let _ = peer;
    let handle = FlushRequest::parse(body).unwrap().handle;
    FlushResponse { durable: Offset::new(i64::from(handle.0)).unwrap() }
}

/// A server around one log.
fn log_server(log: &Arc<Mutex<Log>>, shards: u16) -> Vec<String> {
    let log = Arc::clone(log);
    start_shards(shards, move |_, mut peer| {
        while let Some((header, body)) = peer.next_after_hello() {
            log.lock().unwrap().serve(&mut peer, &header, &body);
        }
    })
}

#[test]
fn hello_tells_limits_and_addresses() {
    for transport in transports() {
        let address = start(|_, mut peer| {
            peer.in_flight_max = 3;
            peer.next_after_hello();
        });
        let connection = Connection::open(&address, &options(transport)).unwrap();
        assert_eq!(connection.info().server, "fake 1");
        assert_eq!(connection.info().shards, [address], "the host dialled stays");
        assert_eq!(connection.in_flight_max(), 3, "the server's limit binds");
    }
}

/// Requests go out while none is answered; answers are matched in order, however they are cut.
#[test]
fn pipelining_keeps_order() {
    for transport in transports() {
        let address = start(|_, mut peer| {
            let mut answers = Vec::new();
            for _ in 0..50 {
                let (header, body) = peer.next_after_hello().unwrap();
                let response = echo(&mut peer, &body);
                answers.extend_from_slice(&Peer::encoded(&header, &response));
            }
            for piece in answers.chunks(7) {
                peer.raw(piece);
            }
            peer.next();
        });
        let mut connection = Connection::open(&address, &options(transport)).unwrap();
        let tickets: Vec<_> = (0..50).map(|i| connection.send(&flush(i)).unwrap()).collect();
        for (i, ticket) in tickets.into_iter().enumerate() {
            let answer = connection.poll(LONG).unwrap().expect("an answer");
            assert_eq!((answer.ticket, answer.api), (ticket, Api::Flush));
            assert_eq!(durable(&connection), i as i64);
        }
        assert_eq!(connection.in_flight(), 0);
    }
}

/// A time-out, also in the midst of a frame, loses nothing: the late answer is skipped, the next
/// call gets its own.
#[test]
fn timeouts_lose_nothing() {
    for transport in transports() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let address = start(move |_, mut peer| {
            let (header, body) = peer.next_after_hello().unwrap();
            let response = echo(&mut peer, &body);
            let late = Peer::encoded(&header, &response);
            peer.raw(&late[..9]);
            wait.lock().unwrap().recv().unwrap();
            peer.raw(&late[9..15]);
            wait.lock().unwrap().recv().unwrap();
            peer.raw(&late[15..]);
            while let Some((header, body)) = peer.next_after_hello() {
                let response = echo(&mut peer, &body);
                peer.answer(&header, &response);
            }
        });
        let mut connection = Connection::open(&address, &options(transport)).unwrap();
        let error = connection.call_within(&flush(1), SHORT).unwrap_err();
        assert!(matches!(error, Error::TimedOut { api: Api::Flush, .. }), "{error}");
        go.send(()).unwrap();
        assert!(connection.poll(SHORT).unwrap().is_none(), "it was given up");
        go.send(()).unwrap();
        for i in 2..5 {
            connection.call(&flush(i)).unwrap();
            assert_eq!(durable(&connection), i64::from(i));
        }
    }
}

/// Polling with a time-out, again and again, while bytes trickle: every one of them arrives.
#[test]
fn trickling_answers_survive_any_number_of_timeouts() {
    for transport in transports() {
        let address = start(|_, mut peer| {
            let (header, body) = peer.next_after_hello().unwrap();
            let response = echo(&mut peer, &body);
            for byte in Peer::encoded(&header, &response) {
                peer.raw(&[byte]);
                thread::sleep(Duration::from_millis(4));
            }
            peer.next();
        });
        let mut connection = Connection::open(&address, &options(transport)).unwrap();
        let ticket = connection.send(&flush(77)).unwrap();
        let short = Duration::from_millis(1);
        let answer = (0..10_000).find_map(|_| connection.poll(short).unwrap());
        assert_eq!(answer.expect("the bytes came").ticket, ticket);
        assert_eq!(durable(&connection), 77);
    }
}

/// Polls that wait for nothing are cheap, and still bring the answer.
#[test]
fn glances_bring_answers() {
    for transport in transports() {
        let address = start(|_, mut peer| {
            while let Some((header, body)) = peer.next_after_hello() {
                let response = echo(&mut peer, &body);
                peer.answer(&header, &response);
            }
        });
        let mut connection = Connection::open(&address, &options(transport)).unwrap();
        for i in 0..20 {
            connection.send(&flush(i)).unwrap();
            let give_up = Instant::now() + LONG;
            while connection.poll(Duration::ZERO).unwrap().is_none() {
                assert!(Instant::now() < give_up, "{} never sees its answer", transport.name());
            }
            assert_eq!(durable(&connection), i64::from(i));
        }
    }
}

/// Calls would mix up with what is pipelined: refused, not misread.
#[test]
fn calls_do_not_steal_pipelined_answers() {
    let address = start(|_, mut peer| {
        while let Some((header, body)) = peer.next_after_hello() {
            let response = echo(&mut peer, &body);
            peer.answer(&header, &response);
        }
    });
    let mut connection = Connection::open(&address, &options(Transport::Blocking)).unwrap();
    connection.send(&flush(1)).unwrap();
    assert!(matches!(connection.call(&flush(2)), Err(Error::Full { in_flight: 1, .. })));
    connection.poll(LONG).unwrap().expect("the first answer");
    connection.call(&flush(2)).unwrap();
    assert_eq!(durable(&connection), 2);
}

#[test]
fn in_flight_is_bounded() {
    let address = start(|_, mut peer| {
        peer.in_flight_max = 4;
        while peer.next_after_hello().is_some() {}
    });
    let mut connection = Connection::open(&address, &options(Transport::Blocking)).unwrap();
    for i in 0..4 {
        connection.send(&flush(i)).unwrap();
    }
    let error = connection.send(&flush(4)).unwrap_err();
    assert!(matches!(error, Error::Full { in_flight: 4, max: 4 }), "{error}");
    assert!(!connection.is_broken());
}

/// Both sides have megabytes to send and nobody reads first: the client reads while it sends.
#[test]
fn a_send_does_not_wait_for_a_peer_that_waits_for_us() {
    const ANSWER: usize = 4 << 20;
    for transport in transports() {
        let address = start(|_, mut peer| {
            let mut headers = Vec::new();
            for _ in 0..4 {
                headers.push(peer.next_after_hello().unwrap().0);
            }
            let head = PartHead {
                handle: Handle(1),
                error: 0,
                start: 0,
                high_watermark: 0,
                len: ANSWER as u32,
            };
            let bytes = vec![7; ANSWER];
            for header in headers {
                let parts = vec![PartData { head, bytes: &bytes }];
                peer.answer(&header, &FetchResponse { parts });
            }
            let (header, _) = peer.next().unwrap(); // read only now
            peer.answer(&header, &produced(3));
            peer.next();
        });
        let mut connection = Connection::open(&address, &options(transport)).unwrap();
        let part = FetchPart { handle: Handle(1), offset: 0, last_epoch: -1, max_bytes: 1 };
        let fetch = FetchRequest {
            max_bytes: 1,
            min_bytes: 1,
            max_wait_ms: 0,
            isolation: Isolation::ReadUncommitted,
            parts: Parts::List(&[part]),
        };
        for _ in 0..4 {
            connection.send(&fetch).unwrap();
        }
        let batches = vec![9; 16 << 20];
        connection.send_batches(Handle(1), AckLevel::None, &batches).unwrap();
        for _ in 0..4 {
            let answer = connection.poll(LONG).unwrap().expect("a fetch answer");
            assert_eq!(answer.api, Api::Fetch);
            assert_eq!(connection.body().len(), 2 + 26 + ANSWER);
        }
        assert_eq!(connection.poll(LONG).unwrap().expect("the ack").api, Api::Produce);
    }
}

#[test]
fn a_frame_past_the_servers_limit_is_never_sent() {
    let address = start(|_, mut peer| while peer.next_after_hello().is_some() {});
    let mut connection = Connection::open(&address, &options(Transport::Blocking)).unwrap();
    let max = connection.batches_bytes_max();
    let batches = vec![0; max + 1];
    let error = connection.send_batches(Handle(1), AckLevel::None, &batches).unwrap_err();
    assert!(matches!(error, Error::Unsendable(_)), "{error}");
    assert!(!connection.is_broken());
    assert_eq!(connection.in_flight(), 0);
    connection.send_batches(Handle(1), AckLevel::None, &batches[1..]).unwrap();
}

#[test]
fn connecting_is_tried_again() {
    // Nobody listens: the error says where, after as many attempts as asked for.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = format!("127.0.0.1:{port}");
    let twice = Backoff { attempts_max: 2, ..quick() };
    let error = Client::connect(&nobody, options(Transport::Blocking), twice).err().unwrap();
    assert!(matches!(&error, Error::Io { action: "connecting", .. }), "{error}");
    assert!(error.to_string().contains(&nobody), "{error}");
    // A server that drops the first connections, as one that starts.
    for transport in transports() {
        let address = start(|number, mut peer| {
            if number >= 3 {
                while peer.next_after_hello().is_some() {}
            }
        });
        client(&address, transport);
    }
}

/// A kept connection that died is opened anew for a question, never for an order.
#[test]
fn questions_survive_a_lost_connection() {
    for transport in transports() {
        let creates = Arc::new(AtomicUsize::new(0));
        let log = Arc::new(Mutex::new(Log::default()));
        let (seen, shared) = (Arc::clone(&creates), Arc::clone(&log));
        let address = start(move |_, mut peer| {
            // One request a connection, then the door closes.
            let Some((header, body)) = peer.next_after_hello() else { return };
            if header.api == Api::CreateTopic.to_wire() {
                seen.fetch_add(1, Ordering::SeqCst);
            } else {
                shared.lock().unwrap().serve(&mut peer, &header, &body);
            }
        });
        let mut client = client(&address, transport);
        for _ in 0..3 {
            client.refresh(None).unwrap();
            assert_eq!(client.metadata().topics().count(), 1);
        }
        assert_eq!(client.list_offsets("t", 0, special::LATEST).unwrap().0, 0);
        let mut lost = 0;
        while creates.load(Ordering::SeqCst) == 0 {
            let error = client.create_topic("new", 1, &[]).unwrap_err();
            assert!(error.is_disconnect(), "{error}");
            lost += 1;
            assert!(lost < 5);
        }
        assert_eq!(creates.load(Ordering::SeqCst), 1, "an order is not repeated");
    }
}

#[test]
fn garbage_from_the_server_breaks_the_connection() {
    let flush_answer = |correlation: u32, api: u8| {
        let mut frame = b"\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07".to_vec();
        frame[4] = api;
        frame[8..12].copy_from_slice(&correlation.to_be_bytes());
        frame
    };
    let garbage: Vec<(&str, Vec<u8>)> = vec![
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("limit", b"\x7f\xff\xff\xff".to_vec()),
        ("header of", b"\0\0\0\x03abc".to_vec()),
        ("is due", flush_answer(1000, 10)),
        ("of api 12 to a request of api 10", flush_answer(2, 12)),
        ("nobody asked", [flush_answer(2, 10), flush_answer(3, 10)].concat()),
    ];
    for transport in transports() {
        for (named, bytes) in garbage.clone() {
            let address = start(move |_, mut peer| {
                peer.next_after_hello();
                peer.raw(&bytes);
                peer.next();
            });
            let mut connection = Connection::open(&address, &options(transport)).unwrap();
            let first = connection.call(&flush(1));
            let error = match first {
                Ok(()) => connection.poll(LONG).unwrap_err(),
                Err(error) => error,
            };
            assert!(matches!(error, Error::Protocol { .. }), "{error}");
            assert!(error.to_string().contains(named), "{named}: {error}");
            assert!(connection.is_broken());
            assert!(matches!(connection.send(&flush(2)), Err(Error::Closed { .. })));
        }
    }
}

/// A body shorter than its message is the peer's fault, found when it is read.
#[test]
fn a_body_that_cannot_be_read_is_an_error() {
    let address = start(|_, mut peer| {
        let (header, _) = peer.next_after_hello().unwrap();
        let mut frame = b"\0\0\0\x0b\x0a\0\0\0\0\0\0\0abc".to_vec();
        frame[8..12].copy_from_slice(&header.correlation.to_be_bytes());
        peer.raw(&frame);
        peer.next();
    });
    let mut connection = Connection::open(&address, &options(Transport::Blocking)).unwrap();
    connection.call(&flush(1)).unwrap();
    let error = connection.response::<FlushResponse>().unwrap_err();
    assert!(matches!(error, Error::Protocol { source: MachineError::Wire(_), .. }), "{error}");
}

fn producer_options(batch_bytes: usize) -> ProducerOptions {
    // Batches end by size alone, so that tests know which record is where.
    let more = ProducerOptions { idempotent: false, ..ProducerOptions::default() };
    ProducerOptions { batch_bytes, linger: LONG, ack_timeout: LONG, ..more }
}

/// Every record is acked once, in order, and lies in the log as sent; for each codec.
#[test]
fn a_producer_acks_in_order() {
    for (transport, codec) in transports().into_iter().zip([Codec::Zstd, Codec::None]) {
        let log = Arc::new(Mutex::new(Log::default()));
        let address = log_server(&log, 1).remove(0);
        let mut client = client(&address, transport);
        let options = ProducerOptions { codec, in_flight_max: 3, ..producer_options(300) };
        let mut producer = Producer::new(&mut client, "t", 0, options).unwrap();
        for i in 0..200 {
            producer.send(None, Some(format!("value {i}").as_bytes()), &[], i).unwrap();
            assert!(producer.unacked().count() <= 3, "the cap holds");
        }
        producer.finish().unwrap();
        let (mut next, mut batches) = (0, 0);
        for ack in producer.drain_acks() {
            let met = ack.result.unwrap();
            assert_eq!((met.base.unwrap().get(), ack.sent.number), (next, batches));
            assert_eq!(ack.sent.first_record, next as u64);
            next += i64::from(ack.sent.records);
            batches += 1;
        }
        assert_eq!(next, 200);
        assert!(batches > 1);
        let mut values = Vec::new();
        let all = ConsumerOptions { max_bytes: 500, ..ConsumerOptions::default() };
        let mut consumer = Consumer::new(&mut client, "t", 0, Start::Earliest, all).unwrap();
        while values.len() < 200 {
            consumer
                .poll(|record| {
                    assert_eq!(record.offset as usize, values.len());
                    values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
                })
                .unwrap();
        }
        assert!(values.iter().enumerate().all(|(i, value)| *value == format!("value {i}")));
    }
}

/// A refused batch is one ack with the reason; those around it are not touched.
#[test]
fn a_refused_batch_is_told_apart() {
    let address = start(|_, mut peer| {
        let mut number = 0;
        let log = Mutex::new(Log::default());
        while let Some((header, body)) = peer.next_after_hello() {
            if header.api == Api::Produce.to_wire() {
                number += 1;
                if number == 2 {
                    peer.refuse(&header, ErrorCode::InvalidRecord, Detail::None);
                    continue;
                }
            }
            log.lock().unwrap().serve(&mut peer, &header, &body);
        }
    });
    let mut client = client(&address, Transport::Blocking);
    let mut producer = Producer::new(&mut client, "t", 0, producer_options(1)).unwrap();
    for value in ["a", "b", "c"] {
        producer.send(None, Some(value.as_bytes()), &[], 1).unwrap();
    }
    producer.finish().unwrap();
    let acks: Vec<_> = producer.drain_acks().collect();
    assert_eq!(acks.len(), 3);
    assert_eq!(acks[0].result.as_ref().unwrap().base, Some(Offset::ZERO));
    let refused = acks[1].result.as_ref().unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::InvalidRecord));
    assert_eq!(refused.message, "no");
    assert_eq!(acks[2].result.as_ref().unwrap().base, Offset::new(1));
}

/// The connection goes down in the midst of a response: exactly the unacked are named, nothing is
/// sent again, and the log's end tells where to go on.
#[test]
fn a_lost_connection_names_the_unacked() {
    for transport in transports() {
        let log = Arc::new(Mutex::new(Log::default()));
        let shared = Arc::clone(&log);
        let produces = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&produces);
        let address = start(move |_, mut peer| {
            while let Some((header, body)) = peer.next_after_hello() {
                if header.api != Api::Produce.to_wire() {
                    shared.lock().unwrap().serve(&mut peer, &header, &body);
                    continue;
                }
                // 1: acked. 2: appended, ack cut in its midst. 3: dropped unread.
                match seen.fetch_add(1, Ordering::SeqCst) {
                    1 => {
                        peer.next();
                        let batches = ProduceRequest::parse(&body).unwrap().batches.to_vec();
                        let base = shared.lock().unwrap().append(0, &batches);
                        let answer = Peer::encoded(&header, &produced(base));
                        peer.raw(&answer[..20]);
                        return;
                    }
                    _ => {
                        shared.lock().unwrap().serve(&mut peer, &header, &body);
                    }
                }
            }
        });
        let mut client = client(&address, transport);
        let mut producer = Producer::new(&mut client, "t", 0, producer_options(1)).unwrap();
        for value in ["first", "second", "third", "open"] {
            producer.send(None, Some(value.as_bytes()), &[], 1).unwrap();
        }
        let error = loop {
            match producer.poll(LONG) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(error.is_disconnect(), "{error}");
        let acked: Vec<_> = producer.drain_acks().map(|ack| ack.sent.number).collect();
        assert_eq!(acked, [0]);
        let unacked: Vec<_> = producer.unacked().copied().collect();
        assert_eq!(unacked.iter().map(|sent| sent.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(producer.open_records(), 1);
        assert!(producer.finish().is_err(), "nothing goes on by itself");
        assert_eq!(producer.unacked().count(), 2);

        let sent = (Offset::new(1).unwrap(), producer.records_sent());
        let settle = Duration::from_millis(1);
        let resume = resume_point(&mut client, "t", 0, sent, &unacked, settle).unwrap();
        assert_eq!(resume, Resume::From { record: 2, end: 2 });
        assert_eq!(produces.load(Ordering::SeqCst), 2, "nothing was sent again");
    }
}

/// NOT_OWNER and STALE_HANDLE mean that the metadata is old: it is read again.
#[test]
fn moved_partitions_are_found_again() {
    for transport in transports() {
        let log = Log { owner: 1, generation: 1, handles_wrong: 2, ..Log::default() };
        let log = Arc::new(Mutex::new(log));
        let address = log_server(&log, 2).remove(0);
        let mut client = client(&address, transport);
        assert_eq!(client.list_offsets("t", 0, special::LATEST).unwrap().0, 0);
        assert_eq!(client.partition("t", 0).unwrap().shard, ShardId(1));
        // It moves while it is cached.
        log.lock().unwrap().owner = 0;
        assert_eq!(client.list_offsets("t", 0, special::EARLIEST).unwrap().0, 0);
        assert_eq!(client.partition("t", 0).unwrap().shard, ShardId(0));
        // Deleted and made anew: by name, the new one is meant.
        log.lock().unwrap().generation = 2;
        assert_eq!(client.list_offsets("t", 0, special::EARLIEST).unwrap().0, 0);
        let error = client.list_offsets("unknown", 0, special::LATEST).unwrap_err();
        assert!(matches!(error, Error::NoPartition { .. }), "{error}");
    }
}

/// A server that always answers STALE_HANDLE is asked a bounded number of times.
#[test]
fn refreshing_ends() {
    let log = Arc::new(Mutex::new(Log { generation: 1, handles_wrong: 1000, ..Log::default() }));
    let address = log_server(&log, 1).remove(0);
    let mut client = client(&address, Transport::Blocking);
    let error = client.list_offsets("t", 0, special::LATEST).unwrap_err();
    assert_eq!(error.server_code(), Some(ErrorCode::StaleHandle), "{error}");
}

fn consume(consumer: &mut Consumer, polls: usize) -> Vec<(i64, String)> {
    let mut got = Vec::new();
    for _ in 0..polls {
        consumer
            .poll(|record| {
                let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                got.push((record.offset, value));
            })
            .unwrap();
    }
    got
}

/// From the midst of a batch, over a cut last batch, with any codec: each record once, none below.
#[test]
fn a_consumer_skips_and_resumes() {
    for transport in transports() {
        for codec in Codec::ALL {
            let mut log = Log::default();
            for chunk in 0..5 {
                let values: Vec<String> = (0..4).map(|i| format!("v{}", chunk * 4 + i)).collect();
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                log.append(0, &batch_of(&values, codec));
            }
            let one = batch::scan(&log.bytes[&0]).next().unwrap().bytes.len() as u32;
            let log = Arc::new(Mutex::new(log));
            let address = log_server(&log, 1).remove(0);
            let mut client = client(&address, transport);
            for (max_bytes, prefetch) in [(1, true), (one * 5 / 2, false), (1 << 20, true)] {
                let options = ConsumerOptions { max_bytes, prefetch, ..ConsumerOptions::default() };
                let mut consumer =
                    Consumer::new(&mut client, "t", 0, Start::Offset(6), options).unwrap();
                let got = consume(&mut consumer, 6);
                let want: Vec<_> = (6..20).map(|i| (i, format!("v{i}"))).collect();
                assert_eq!(got, want, "{} at {max_bytes}", codec.name());
                consumer.seek(18);
                assert_eq!(consume(&mut consumer, 1).first().unwrap().0, 18);
            }
        }
    }
}

#[test]
fn a_consumer_follows_the_end() {
    for transport in transports() {
        let log = Arc::new(Mutex::new(Log::default()));
        let address = log_server(&log, 1).remove(0);
        let mut client = client(&address, transport);
        let options = ConsumerOptions::default();
        let mut consumer = Consumer::new(&mut client, "t", 0, Start::Latest, options).unwrap();
        let polled = consumer.poll(|_| panic!("the log is empty")).unwrap();
        assert!(polled.at_end());
        log.lock().unwrap().append(0, &batch_of(&["x", "y"], Codec::Lz4));
        // A prefetch may have been answered before.
        let mut got = consume(&mut consumer, 1);
        got.extend(consume(&mut consumer, 1));
        assert_eq!(got, [(0, "x".to_owned()), (1, "y".to_owned())]);
        assert_eq!(consumer.position(), 2);
    }
}

/// R28: the answer carries the range, and the policy decides.
#[test]
fn out_of_range_positions() {
    let mut log = Log { start: 100, ..Log::default() };
    log.append(0, &batch_of(&["a", "b"], Codec::None));
    let log = Arc::new(Mutex::new(log));
    let address = log_server(&log, 1).remove(0);
    let mut client = client(&address, Transport::Blocking);
    let mut consumer = |offset, out_of_range| {
        let options = ConsumerOptions { out_of_range, ..ConsumerOptions::default() };
        Consumer::new(&mut client, "t", 0, Start::Offset(offset), options).unwrap()
    };
    for offset in [99, 103] {
        let error = consumer(offset, OutOfRange::Fail).poll(|_| {}).unwrap_err();
        let expected = matches!(
            error,
            Error::OutOfRange { offset: at, start: 100, end: 102 } if at == offset
        );
        assert!(expected, "{error}");
    }
    let mut earliest = consumer(99, OutOfRange::Earliest);
    assert_eq!(consume(&mut earliest, 2).len(), 2);
    let mut latest = consumer(103, OutOfRange::Latest);
    assert_eq!(consume(&mut latest, 1).len(), 0);
    assert_eq!(latest.position(), 102);
    let mut at_end = consumer(102, OutOfRange::Fail);
    assert!(at_end.poll(|_| {}).unwrap().at_end(), "the end itself is in range");
}

/// A damaged batch stops the consumer there, behind what was sound, every time.
#[test]
fn damage_is_reported_where_it_is() {
    let mut log = Log::default();
    log.append(0, &batch_of(&["a", "b"], Codec::None));
    log.append(0, &batch_of(&["c"], Codec::None));
    let bytes = log.bytes.get_mut(&0).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let log = Arc::new(Mutex::new(log));
    let address = log_server(&log, 1).remove(0);
    let mut client = client(&address, Transport::Blocking);
    let options = ConsumerOptions::default();
    let mut consumer = Consumer::new(&mut client, "t", 0, Start::Earliest, options).unwrap();
    let mut seen = 0;
    for _ in 0..2 {
        let error = consumer.poll(|_| seen += 1).unwrap_err();
        assert!(matches!(error, Error::Records { offset: 2, .. }), "{error}");
        assert!(error.to_string().contains("checksum"), "{error}");
    }
    assert_eq!((seen, consumer.position()), (2, 2));
}

/// A lost connection costs a consumer nothing; a topic made anew is not read as the old one.
#[test]
fn consumers_reopen() {
    for transport in transports() {
        let mut log = Log::default();
        for value in ["a", "b", "c"] {
            log.append(0, &batch_of(&[value], Codec::None));
        }
        let log = Arc::new(Mutex::new(log));
        let shared = Arc::clone(&log);
        let address = start(move |_, mut peer| {
            let mut fetches = 0;
            while let Some((header, body)) = peer.next_after_hello() {
                fetches += usize::from(header.api == Api::Fetch.to_wire());
                if fetches == 2 {
                    return;
                }
                shared.lock().unwrap().serve(&mut peer, &header, &body);
            }
        });
        let mut client = client(&address, transport);
        let options = ConsumerOptions { max_bytes: 1, ..ConsumerOptions::default() };
        let mut consumer = Consumer::new(&mut client, "t", 0, Start::Earliest, options).unwrap();
        let mut got = Vec::new();
        while got.len() < 3 {
            consumer.poll_through(&mut client, |record| got.push(record.offset)).unwrap();
        }
        assert_eq!(got, [0, 1, 2]);
        log.lock().unwrap().generation += 1;
        let error = consumer.poll_through(&mut client, |_| panic!("not ours")).unwrap_err();
        assert!(matches!(error, Error::TopicReplaced { .. }), "{error}");
    }
}

/// A server that stops says so before it goes: the consumer waits for its successor.
#[test]
fn consumers_wait_for_a_server_that_restarts() {
    let mut log = Log::default();
    log.append(0, &batch_of(&["a"], Codec::None));
    let log = Mutex::new(log);
    let stopping = AtomicUsize::new(4);
    let address = start(move |_, mut peer| {
        while let Some((header, body)) = peer.next_after_hello() {
            let fetch = header.api == Api::Fetch.to_wire();
            let left = stopping.load(Ordering::SeqCst);
            if fetch && left > 0 {
                stopping.store(left - 1, Ordering::SeqCst);
                peer.refuse(&header, ErrorCode::ShuttingDown, Detail::None);
                return;
            }
            log.lock().unwrap().serve(&mut peer, &header, &body);
        }
    });
    let mut client = client(&address, Transport::Blocking);
    let options = ConsumerOptions::default();
    let mut consumer = Consumer::new(&mut client, "t", 0, Start::Earliest, options).unwrap();
    let error = consumer.poll(|_| panic!("it stops")).unwrap_err();
    assert_eq!(error.server_code(), Some(ErrorCode::ShuttingDown), "{error}");
    let mut seen = 0;
    consumer.poll_through(&mut client, |_| seen += 1).unwrap();
    assert_eq!(seen, 1);
}

/// The lowest door: both transports end cleanly with a read in flight.
#[test]
fn dropping_a_connection_with_a_read_in_flight_ends() {
    for transport in transports() {
        let address = start(|_, mut peer| while peer.next_after_hello().is_some() {});
        let mut connection = Connection::open(&address, &options(transport)).unwrap();
        connection.send(&flush(1)).unwrap();
        assert!(connection.poll(Duration::from_millis(5)).unwrap().is_none());
        drop(connection);
    }
}

mod model {
    //! The machine against a queue: whatever is asked, given up and cut into pieces, each answer
    //! that somebody waits for comes once, in order, with its own body.

    use std::collections::VecDeque;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use ringlog::client::machine::{Machine, SendError, Ticket};
    use ringlog::protocol::Message;
    use ringlog::protocol::api::{Api, RequestHeader, encode_response};
    use ringlog::protocol::frame::{Scan, scan_request};
    use ringlog::protocol::offsets::{FlushRequest, FlushResponse};
    use ringlog::types::{Handle, Offset};

    const IN_FLIGHT_MAX: usize = 5;

    #[derive(Clone, Debug)]
    enum Step {
        Ask,
        GiveUp(usize),
        /// Hand over this many of the bytes that the server has answered.
        Deliver(usize),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Ask),
            1 => (0..IN_FLIGHT_MAX).prop_map(Step::GiveUp),
            4 => (1usize..40).prop_map(Step::Deliver),
            3 => Just(Step::Take),
        ]
    }

    /// Answers every request in the output; the handle comes back as the durable offset.
    fn serve(machine: &mut Machine, wire: &mut Vec<u8>) {
        while let Scan::Frame(frame) = scan_request(machine.output(), 1 << 20).unwrap() {
            let (header, body) = RequestHeader::split(&frame).unwrap();
            let handle = FlushRequest::parse(body).unwrap().handle;
            let durable = Offset::new(i64::from(handle.0)).unwrap();
            let response = FlushResponse { durable };
            encode_response(Api::Flush, header.correlation, &response, wire).unwrap();
            let len = frame.wire_len();
            machine.sent(len);
        }
    }

    proptest! {
        #[test]
        fn answers_are_never_lost_or_mixed_up(steps in vec(step(), 1..200)) {
            let mut machine = Machine::new(IN_FLIGHT_MAX);
            let mut due: VecDeque<(Ticket, u32, bool)> = VecDeque::new();
            let (mut wire, mut asked) = (Vec::new(), 0);
            let finish = (0..1000).flat_map(|_| [Step::Deliver(40), Step::Take]);
            for step in steps.into_iter().chain(finish) {
                match step {
                    Step::Ask => match machine.request(&FlushRequest { handle: Handle(asked) }) {
                        Ok(ticket) => {
                            due.push_back((ticket, asked, true));
                            asked += 1;
                        }
                        Err(error) => {
                            let full = matches!(error, SendError::Full { .. });
                            prop_assert!(full, "{}", error);
                            prop_assert_eq!(machine.in_flight(), IN_FLIGHT_MAX);
                        }
                    },
                    Step::GiveUp(at) => {
                        if let Some((ticket, _, wanted)) = due.get_mut(at) {
                            machine.abandon(*ticket);
                            *wanted = false;
                        }
                    }
                    Step::Deliver(len) => {
                        serve(&mut machine, &mut wire);
                        let len = len.min(wire.len());
                        machine.feed(&wire.drain(..len).collect::<Vec<u8>>());
                    }
                    Step::Take => {
                        let Some(answer) = machine.next_answer().unwrap() else { continue };
                        while due.front().is_some_and(|(_, _, wanted)| !wanted) {
                            due.pop_front();
                        }
                        let (ticket, number, _) = due.pop_front().unwrap();
                        prop_assert_eq!(answer.ticket, ticket);
                        let body = FlushResponse::parse(machine.body()).unwrap();
                        prop_assert_eq!(body.durable.get(), i64::from(number));
                    }
                }
            }
            prop_assert!(due.iter().all(|(_, _, wanted)| !wanted), "every answer came");
            prop_assert_eq!(machine.in_flight(), 0);
        }
    }

    /// R85, the client's side: a length makes no room by itself; bytes do, and at most twofold.
    #[test]
    fn a_promised_length_makes_no_room() {
        let mut machine = Machine::new(1);
        machine.request(&FlushRequest { handle: Handle(1) }).unwrap();
        machine.feed(&(200u32 << 20).to_be_bytes());
        assert_eq!(machine.next_answer(), Ok(None));
        let mut received = 4;
        while received < 1 << 20 {
            let room = machine.room_to_receive().len();
            assert!(room <= received.max(64 << 10) * 2 + (64 << 10), "{room} for {received}");
            machine.received(room);
            received += room;
            assert_eq!(machine.next_answer(), Ok(None));
        }
    }
}

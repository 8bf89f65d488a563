//! A shard's buffer memory under clients that sit on it: bounded, and never out of others' reach.
//!
//! Owns: the bounds on what one connection may hold. Never does: real I/O. Left: `harness`.
//! Right: nobody.

use ringlog::protocol::api::encode_request;
use ringlog::protocol::metadata::MetadataRequest;
use ringlog::shard::FetchPath;
use ringlog::types::AckLevel;

use super::harness::{Setup, SimShard, Wire, batch};
use super::{SEED, ask, part};

const MEMORY: usize = 4 << 20;

fn small() -> Setup {
    Setup { memory_bytes: MEMORY, frame_bytes_max: 1 << 20, ..Setup::default() }
}

/// A frame that takes a fourth of the shard's memory, as it is received.
fn large() -> Vec<u8> {
    batch(&[&vec![5; 900 << 10]])
}

/// Sends half of a large produce frame and no more.
fn half_a_frame(server: &mut SimShard) -> Wire {
    let mut wire = server.connect();
    wire.raw(&[1_000_000_u32.to_be_bytes(), [6, 0, 0, 0], [0, 0, 0, 1]].concat());
    wire.raw(&vec![0; 600_000]);
    wire
}

/// Memory comes back within half a minute of the shard's own time, whoever sits on it: for who
/// writes and for who reads.
fn others_are_served(server: &mut SimShard, idle: &mut Wire) {
    let (mut writer, mut reader) = (server.connect(), server.connect());
    let handle = server.handles[0];
    writer.produce(handle, AckLevel::Policy, &large());
    assert!(answered(server, &mut writer), "a produce found no memory in half a minute");
    reader.send(&ask(&[part(handle, 0, 1 << 20)], 1 << 20, 1, 0));
    assert!(answered(server, &mut reader), "a fetch found no memory in half a minute");
    assert!(!idle.socket.at_end(), "who holds nothing is left alone");
    let response = server.call(idle, &MetadataRequest::All);
    assert!(response.header.is_ok());
}

fn answered(server: &mut SimShard, wire: &mut Wire) -> bool {
    (0..3_000).any(|_| {
        server.run_us(10_000);
        wire.poll().is_some_and(|response| response.header.is_ok())
    })
}

#[test]
fn who_asks_and_never_reads_takes_nothing_from_others() {
    let mut server = SimShard::create(SEED, &small());
    let mut greedy = server.connect();
    let mut frame = Vec::new();
    encode_request(&MetadataRequest::All, 1, &mut frame).unwrap();
    greedy.raw(&frame.repeat(200_000));
    server.run_us(200_000);
    assert!(greedy.socket.unsent() > 0, "the server goes on reading what it cannot answer");
    let mut other = server.connect();
    let handle = server.handles[0];
    other.produce(handle, AckLevel::Policy, &batch(&[b"x"]));
    server.run_us(50_000);
    assert!(other.poll().expect("memory is left").header.is_ok());
    // It was only slow: all is answered, in order, once it reads.
    for _ in 0..2_000 {
        assert!(server.response(&mut greedy).header.is_ok());
    }
}

#[test]
fn half_frames_cannot_keep_others_out_for_ever() {
    let mut server = SimShard::create(SEED, &small());
    let mut idle = server.connect();
    let halves: Vec<_> = (0..8).map(|_| half_a_frame(&mut server)).collect();
    server.run_us(10_000);
    others_are_served(&mut server, &mut idle);
    assert!(halves.iter().any(|wire| wire.socket.at_end()), "one gave its memory up");
}

#[test]
fn replies_that_nobody_reads_cannot_keep_others_out_for_ever() {
    for fetch_path in [FetchPath::Send, FetchPath::Sendfile] {
        let mut server = SimShard::create(SEED, &Setup { fetch_path, ..small() });
        let mut idle = server.connect();
        let mut writer = server.connect();
        let handle = server.handles[0];
        for _ in 0..3 {
            server.produce(&mut writer, handle, &large());
        }
        drop(writer);
        let lazy: Vec<_> = (0..8)
            .map(|_| {
                let mut wire = server.connect();
                for _ in 0..3 {
                    wire.send(&ask(&[part(handle, 0, 1 << 20)], 1 << 20, 1, 0));
                }
                wire
            })
            .collect();
        server.run_us(10_000);
        others_are_served(&mut server, &mut idle);
        drop(lazy);
    }
}

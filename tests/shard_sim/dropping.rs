//! Partitions that go while they are in use: deleted, or offline with their directory.
//!
//! Owns: R46 for topic deletion, and what clients hear of a failed directory. Never does: real I/O.
//! Left: `harness`. Right: nobody.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringlog::errors::ErrorCode;
use ringlog::io::blocking::Blocking;
use ringlog::io::buffers::Pool;
use ringlog::io::sim::Prng;
use ringlog::protocol::offsets::FlushRequest;
use ringlog::shard::catalogue;
use ringlog::shard::mailbox::{FromShard, PartitionSpec, ToShard};
use ringlog::types::{AckLevel, Handle};

use super::harness::{DATA_DIR, ID, Setup, SimShard, Wire, batch};
use super::{SEED, ask, part};

const ROUNDS: u32 = 1000;

fn open_one(server: &mut SimShard, setup: &Setup, round: u32) -> (Handle, PathBuf) {
    let dir = PathBuf::from(DATA_DIR).join(format!("gone-{round}"));
    let mut io = server.world.engine();
    let mut b = Blocking::new(&mut io, Pool::new(1 << 20));
    ringlog::log::create(&mut b, &dir, ID, 0).unwrap();
    let handle = catalogue::handle(1, 2 + round);
    server.mail.send(ToShard::Open(Box::new(PartitionSpec {
        handle,
        dir: dir.clone(),
        topic: "gone".into(),
        index: round,
        settings: setup.settings.clone(),
        clean: true,
        unflushed_max: None,
        recovery_point: None,
        log_start: None,
        marks: Arc::default(),
    })));
    server.turns(4);
    (handle, dir)
}

/// As the control thread does it once the shard has let go.
fn remove(server: &SimShard, dir: &Path) {
    let mut io = server.world.engine();
    let mut b = Blocking::new(&mut io, Pool::new(1 << 20));
    let aside = dir.with_extension("0123456789abcdef0123456789abcdef-delete");
    b.rename(dir, &aside).unwrap();
    for entry in b.list(&aside).unwrap() {
        b.unlink(&aside.join(entry.name)).unwrap();
    }
    b.remove_dir(&aside).unwrap();
}

/// R46: flushes asked for by produce, by roll and by request are under way while the topic is
/// deleted: each counts as done or finds the topic gone, nothing is poisoned, nobody else notices.
#[test]
fn r46_a_flush_and_the_deletion_of_its_topic_at_the_same_moment() {
    let setup = Setup::default().flush("group").log(|log| log.segment_bytes = 300);
    let mut server = SimShard::create(SEED, &setup);
    let mut wire = server.connect();
    let mut dice = Prng::new(SEED);
    let steady = server.handles[0];
    for round in 0..ROUNDS {
        let (handle, dir) = open_one(&mut server, &setup, round);
        let sent = 2 + dice.below(4);
        for _ in 0..sent {
            wire.produce(handle, AckLevel::Durable, &batch(&[&[b'x'; 100]]));
        }
        wire.send(&FlushRequest { handle });
        for _ in 0..dice.below(8) {
            server.run_us(dice.below(120));
        }
        server.mail.send(ToShard::Drop(handle));
        for _ in 0..=sent {
            let header = server.response(&mut wire).header;
            let fine = [ErrorCode::None.code(), ErrorCode::StaleHandle.code()];
            assert!(fine.contains(&header.error), "round {round}: error {}", header.error);
        }
        let gone = |one: &FromShard| match one {
            FromShard::Dropped { handle: gone, .. } => *gone == handle,
            _ => false,
        };
        while !server.heard.iter().any(gone) {
            server.run_us(100);
        }
        remove(&server, &dir);
        if round % 50 == 0 {
            server.produce(&mut wire, steady, &batch(&[b"on"]));
        }
    }
    let poisoned = |one: &&FromShard| matches!(one, FromShard::Poisoned { .. });
    assert_eq!(server.heard.iter().filter(poisoned).count(), 0);
}

fn error_of(server: &mut SimShard, wire: &mut Wire) -> (i16, String) {
    let response = server.response(wire);
    (response.header.error, response.message())
}

/// The directory of one partition fails while requests wait in it: they are refused with the
/// reason, so is all that comes later; the other partition goes on.
#[test]
fn a_partition_of_a_failed_directory_answers_why_and_others_go_on() {
    let setup = Setup { partitions: 2, ..Setup::default() }.flush("group");
    let mut server = SimShard::create(SEED, &setup);
    let (mut wire, mut reader) = (server.connect(), server.connect());
    let [bad, good] = server.handles[..] else { panic!("two partitions") };
    server.produce(&mut wire, bad, &batch(&[b"before"]));
    server.world.faults(|faults| faults.stall_fdatasync("t-0", 1, 50_000));
    wire.produce(bad, AckLevel::Durable, &batch(&[b"waits"]));
    reader.send(&ask(&[part(bad, 1, 1 << 20)], 1 << 20, 1, 60_000));
    server.run_us(1_000);
    let why = "its data directory /data failed: EIO";
    server.mail.send(ToShard::Offline { handle: bad, why: why.into() });
    let storage = ErrorCode::KafkaStorageError.code();
    assert_eq!(error_of(&mut server, &mut wire).0, storage, "the waiting produce");
    server.response(&mut reader);
    wire.produce(bad, AckLevel::Policy, &batch(&[b"later"]));
    let (error, told) = error_of(&mut server, &mut wire);
    assert!(error == storage && told.contains(why), "{error} {told}");
    server.produce(&mut wire, good, &batch(&[b"on"]));
}

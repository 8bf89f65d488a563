//! Partitions in trouble beside partitions that are well, over the wire.
//!
//! Owns: R20 and R21 as a client sees them, and the widest fetch. Never does: real I/O. Left:
//! `harness`. Right: nobody.

use ringlog::errors::ErrorCode;
use ringlog::protocol::api::Message as _;
use ringlog::protocol::fetch::{FetchPart, FetchResponse, PartHead};
use ringlog::types::{AckLevel, Handle};

use super::harness::{Setup, SimShard, Wire, batch, partition_dir};
use super::{SEED, ask, part};

fn log_of(index: u32) -> std::path::PathBuf {
    partition_dir(index).join("00000000000000000000.log")
}

fn read(server: &mut SimShard, wire: &mut Wire, handle: Handle) -> (PartHead, usize) {
    let parts = [part(handle, 0, 1 << 20)];
    let response = server.call(wire, &ask(&parts, 1 << 20, 0, 0));
    let parsed = FetchResponse::parse(&response.body).unwrap();
    (parsed.parts[0].head, parsed.parts[0].bytes.len())
}

fn produce_error(server: &mut SimShard, wire: &mut Wire, handle: Handle) -> i16 {
    wire.produce(handle, AckLevel::Policy, &batch(&[b"more"]));
    server.response(wire).header.error
}

/// R20: one absurd tail and one unreadable file among a hundred partitions: the first is cut and
/// serves, the second refuses its own requests, all others are as they were.
#[test]
fn r20_one_bad_partition_does_not_stop_the_server() {
    const CUT: usize = 17;
    const OFFLINE: usize = 42;
    let setup = Setup { partitions: 100, ..Setup::default() };
    let mut server = SimShard::create(SEED, &setup);
    server.turns(100);
    let mut wire = server.connect();
    let one = batch(&[b"kept"]);
    for handle in server.handles.clone() {
        server.produce(&mut wire, handle, &one);
    }
    let world = server.world.clone();
    world.kill();
    drop(server);
    let mut torn = world.read_file(log_of(CUT as u32)).unwrap();
    let mut absurd = batch(&[b"absurd"]);
    absurd[8..12].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
    torn.extend_from_slice(&absurd);
    world.write_file_durably(log_of(CUT as u32), torn);
    world.faults(|faults| faults.deny(log_of(OFFLINE as u32).to_str().unwrap()));

    let mut server = SimShard::serve(world, &setup, false);
    server.turns(100);
    let mut wire = server.connect();
    for (at, handle) in server.handles.clone().into_iter().enumerate() {
        let (head, bytes) = read(&mut server, &mut wire, handle);
        let error = produce_error(&mut server, &mut wire, handle);
        if at == OFFLINE {
            assert_ne!(head.error, 0, "nobody can read it");
            assert_ne!(error, 0);
            continue;
        }
        assert_eq!((head.error, bytes, head.high_watermark), (0, one.len(), 1), "{at}");
        assert_eq!(error, 0, "partition {at}");
    }
}

/// R21: started on a full disk after an unclean stop: reads go on, appends get a storage error, and
/// are taken again by themselves once there is space.
#[test]
fn r21_a_full_disk_at_the_start_is_read_only_until_there_is_space() {
    let setup = Setup { partitions: 2, ..Setup::default() };
    let mut server = SimShard::create(SEED, &setup);
    let mut wire = server.connect();
    let one = batch(&[b"kept"]);
    for handle in server.handles.clone() {
        server.produce(&mut wire, handle, &one);
    }
    let world = server.world.clone();
    world.kill();
    drop(server);
    let mut torn = world.read_file(log_of(0)).unwrap();
    torn.extend_from_slice(&one[..40]);
    world.write_file_durably(log_of(0), torn);
    world.faults(|faults| faults.space_bytes = Some(0));

    let mut server = SimShard::serve(world, &setup, false);
    let mut wire = server.connect();
    let handle = server.handles[0];
    for _ in 0..3 {
        assert_eq!(read(&mut server, &mut wire, handle).1, one.len(), "fetch works");
        let error = produce_error(&mut server, &mut wire, handle);
        assert_eq!(error, ErrorCode::KafkaStorageError.code());
        // It looks again now and then, and must not break on finding the disk as full as before.
        server.run_us(3_000_000);
    }
    server.world.faults(|faults| faults.space_bytes = None);
    let mut error = -1;
    for _ in 0..20 {
        server.run_us(500_000);
        error = produce_error(&mut server, &mut wire, handle);
        if error == 0 {
            break;
        }
    }
    assert_eq!(error, 0, "space is back, appends are not");
    let (head, bytes) = read(&mut server, &mut wire, handle);
    assert_eq!(head.high_watermark, 2);
    assert_eq!(bytes, one.len() + batch(&[b"more"]).len());
}

/// The most parts a request can name cost work in proportion, not its square: the shard's other
/// connections wait for no more than that.
#[test]
fn the_widest_fetch_is_answered() {
    let mut server = SimShard::create(SEED, &Setup::default());
    let mut wire = server.connect();
    let handle = server.handles[0];
    let parts: Vec<FetchPart> = vec![part(handle, 0, 100); usize::from(u16::MAX)];
    let response = server.call(&mut wire, &ask(&parts, 1 << 20, 1, 5));
    assert_eq!(FetchResponse::parse(&response.body).unwrap().parts.len(), parts.len());
}

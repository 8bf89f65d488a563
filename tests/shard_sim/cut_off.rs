//! R11 over the wire: whoever has read what a power cut took is told, and only they.
//!
//! Owns: readers that know their epoch, before and after a crash. Never does: real I/O. Left:
//! `harness`. Right: nobody.

use ringlog::errors::ErrorCode;
use ringlog::format::batch as format;
use ringlog::protocol::api::Message as _;
use ringlog::protocol::epochs::{EpochEndRequest, EpochEndResponse};
use ringlog::protocol::error::{Detail, ErrorBody};
use ringlog::protocol::fetch::{FetchPart, FetchResponse};
use ringlog::types::Handle;

use super::ask;
use super::harness::{Setup, SimShard, Wire, batch};

fn epoch_end(server: &mut SimShard, wire: &mut Wire, epoch: i32) -> (i32, i64) {
    let handle = server.handles[0];
    let response = server.call(wire, &EpochEndRequest { handle, epoch });
    let found = EpochEndResponse::parse(&response.body).unwrap();
    (found.epoch, found.end)
}

/// The answer to a reader that has read up to `offset` in `last_epoch`: a cut it is told of, or the
/// epoch of the batch it gets (-1: none).
fn told(
    server: &mut SimShard,
    wire: &mut Wire,
    offset: i64,
    last_epoch: i32,
) -> Result<i32, Detail> {
    let handle: Handle = server.handles[0];
    let parts = [FetchPart { handle, offset, last_epoch, max_bytes: 1 << 20 }];
    let response = server.call(wire, &ask(&parts, 1 << 20, 0, 0));
    let parsed = FetchResponse::parse(&response.body).unwrap();
    let part = parsed.parts[0];
    match ErrorCode::from_code(part.head.error) {
        Some(ErrorCode::None) => {
            Ok(format::scan(part.bytes).next().map_or(-1, |found| found.header.leader_epoch))
        }
        Some(ErrorCode::FencedLeaderEpoch | ErrorCode::UnknownLeaderEpoch) => {
            Err(ErrorBody::parse(part.head.error, part.bytes).unwrap().detail)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn r11_a_reader_is_told_of_what_a_power_cut_took() {
    let mut cuts = 0;
    for seed in 0..40 {
        let weak = Setup::default().flush("os");
        let mut server = SimShard::create(seed, &weak);
        let mut wire = server.connect();
        let handle = server.handles[0];
        for _ in 0..10 {
            server.produce(&mut wire, handle, &batch(&[b"old"]));
        }
        let old = told(&mut server, &mut wire, 0, -1).expect("there are batches");
        assert_eq!(epoch_end(&mut server, &mut wire, old), (old, 10));
        let world = server.world.clone();
        let power = seed % 4 != 0;
        if power {
            world.power_cut()
        } else {
            world.kill()
        }
        drop(server);

        let mut server = SimShard::serve(world.clone(), &weak, false);
        let mut wire = server.connect();
        let (epoch, kept) = epoch_end(&mut server, &mut wire, old);
        assert_eq!(epoch, old);
        assert!(power || kept == 10, "a kill takes nothing");
        for _ in 0..5 {
            server.produce(&mut wire, server.handles[0], &batch(&[b"new"]));
        }
        let cut = Detail::Diverged { epoch: old, end: kept };
        for read_to in 0..=10 {
            let answer = told(&mut server, &mut wire, read_to, old);
            match read_to > kept {
                true => assert_eq!(answer, Err(cut), "seed {seed}, read up to {read_to}"),
                false => assert!(answer.is_ok(), "seed {seed}: {read_to} of {kept} is untouched"),
            }
        }
        cuts += i32::from(kept < 10);
        // Going on as told works, and what is read then is of the new epoch.
        let new = told(&mut server, &mut wire, kept, old).expect("as told");
        assert!(new > old);
        assert_eq!(epoch_end(&mut server, &mut wire, new), (new, kept + 5));
        assert_eq!(epoch_end(&mut server, &mut wire, new + 1), (-1, -1));
        let unknown = told(&mut server, &mut wire, kept + 5, new + 7);
        assert_eq!(unknown, Err(Detail::Diverged { epoch: new, end: kept + 5 }));
        // The third start tells the same: to readers of the first epoch and of the second.
        world.kill();
        drop(server);
        let mut server = SimShard::serve(world, &weak, false);
        let mut wire = server.connect();
        assert_eq!(told(&mut server, &mut wire, kept + 1, old), Err(cut));
        assert_eq!(told(&mut server, &mut wire, kept, old), Ok(new));
        assert!(told(&mut server, &mut wire, kept + 5, new).is_ok());
    }
    assert!(cuts > 5, "the power cuts took something: {cuts}");
}

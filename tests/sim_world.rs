//! The simulator's unkindness, promise by promise: what a seed may lose, another keeps.
//!
//! Owns: searches over seeds for outcomes that must be possible, and for those that must not.
//! Never does: real I/O.

use std::collections::BTreeSet;
use std::path::Path;

use ringlog::io::blocking::Blocking;
use ringlog::io::buffers::Pool;
use ringlog::io::op::{FileId, OpenHow};
use ringlog::io::sim::{SimIo, World};

const SEEDS: u64 = 400;

fn pool() -> Pool {
    Pool::new(16 << 20)
}

fn new_file() -> OpenHow {
    OpenHow { write: true, create: true, ..OpenHow::default() }
}

/// Runs `act` on a fresh world for many seeds and gathers what `look` finds after a power cut.
fn outcomes<T: Ord>(
    act: impl Fn(&World, &mut Blocking<SimIo>),
    look: impl Fn(&World) -> T,
) -> BTreeSet<T> {
    let outcome = |seed| {
        let world = World::new(seed);
        world.make_dir_durably("/d");
        let mut io = world.engine();
        act(&world, &mut Blocking::new(&mut io, pool()));
        world.power_cut();
        look(&world)
    };
    (0..SEEDS).map(outcome).collect()
}

fn create(io: &mut Blocking<SimIo>, path: &str, bytes: &[u8]) -> FileId {
    let file = io.open(Path::new(path), new_file()).unwrap();
    io.write_at(file, 0, bytes).unwrap();
    file
}

#[test]
fn flushed_and_synced_survives_and_a_missing_dir_sync_loses_the_name() {
    let kept = outcomes(
        |_, io| {
            let file = create(io, "/d/f", b"data");
            io.fdatasync(file).unwrap();
            io.sync_dir(Path::new("/d")).unwrap();
        },
        |world| world.read_file("/d/f"),
    );
    assert_eq!(kept, BTreeSet::from([Some(b"data".to_vec())]));
    let unsynced = outcomes(
        |_, io| {
            let file = create(io, "/d/f", b"data");
            io.fdatasync(file).unwrap();
        },
        |world| world.read_file("/d/f"),
    );
    assert_eq!(unsynced, BTreeSet::from([None, Some(b"data".to_vec())]));
}

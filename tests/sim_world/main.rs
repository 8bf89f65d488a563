//! The simulator's unkindness, promise by promise: what one seed loses, another keeps.
//!
//! Owns: searches over seeds for outcomes that must be possible, and for those that must not.
//! Never does: real I/O, or what every engine must do (`io_suite`).

mod cuts;
mod histories;
mod processes;
mod trouble;

use std::collections::BTreeSet;
use std::path::Path;

use ringlog::io::blocking::Blocking;
use ringlog::io::buffers::{Group, Pool};
use ringlog::io::op::OpenHow;
use ringlog::io::sim::{SimIo, World};
use ringlog::io::{Done, FileId, Io, Op, Tag, Wait};

/// Seeds of one search. An outcome that none of them shows is taken as impossible.
const SEEDS: u64 = 400;

const CREATE: OpenHow =
    OpenHow { write: true, create: true, exclusive: false, truncate: false, direct: false };

fn pool() -> Pool {
    Pool::new(64 << 20)
}

fn world(seed: u64) -> World {
    let world = World::new(seed);
    world.make_dir_durably("/d");
    world
}

/// What `look` finds after `act` and a power cut, over many seeds.
fn outcomes<T: Ord>(
    act: impl Fn(&World, &mut Blocking<SimIo>),
    look: impl Fn(&World) -> T,
) -> BTreeSet<T> {
    let outcome = |seed| {
        let world = world(seed);
        let mut io = world.engine();
        act(&world, &mut Blocking::new(&mut io, pool()));
        world.power_cut();
        look(&world)
    };
    (0..SEEDS).map(outcome).collect()
}

fn set<T: Ord, const N: usize>(items: [T; N]) -> BTreeSet<T> {
    BTreeSet::from(items)
}

fn open(io: &mut Blocking<SimIo>, path: &str) -> FileId {
    io.open(Path::new(path), CREATE).unwrap()
}

fn create(io: &mut Blocking<SimIo>, path: &str, bytes: &[u8]) -> FileId {
    let file = open(io, path);
    io.write_at(file, 0, bytes).unwrap();
    file
}

fn text(bytes: Option<Vec<u8>>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8(bytes).unwrap().replace('\0', "."))
}

fn write_op(pool: &Pool, file: FileId, pos: u64, bytes: &[u8]) -> Op {
    Op::Write { file, pos, bufs: Group::of(pool.copied(bytes).unwrap()) }
}

/// Submits all of them at once and gives their ends, in the order they were handed out.
fn together(io: &mut SimIo, ops: Vec<Op>) -> Vec<Done> {
    let count = ops.len();
    for (i, op) in ops.into_iter().enumerate() {
        io.submit(op, Tag(i as u64)).unwrap();
    }
    let mut done = Vec::new();
    while done.len() < count {
        io.reap(Wait::Forever, &mut done).unwrap();
    }
    done
}

//! Random histories: exactly what was synced, and beyond it nothing that was never there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ringlog::io::blocking::Blocking;
use ringlog::io::sim::{Prng, SimIo, World};

use crate::{CREATE, SEEDS, pool, world};

type Files = BTreeMap<String, Vec<u8>>;

fn files(world: &World) -> Files {
    let read = |name: String| {
        let bytes = world.read_file(format!("/d/{name}")).unwrap();
        (name, bytes)
    };
    world.list("/d").into_iter().map(read).collect()
}

fn any_path(prng: &mut Prng) -> PathBuf {
    Path::new("/d").join(format!("f{}", prng.below(3)))
}

/// One change of the tree, whole; changes that do not apply are no changes.
fn change(io: &mut Blocking<SimIo>, prng: &mut Prng) {
    let path = any_path(prng);
    match prng.below(8) {
        0 => drop(io.unlink(&path)),
        1 => drop(io.rename(&path, &any_path(prng))),
        kind => {
            let file = io.open(&path, CREATE).unwrap();
            match kind {
                2 => io.truncate(file, prng.below(3000)).unwrap(),
                3 => io.fdatasync(file).unwrap(),
                4 => io.drop_cache(file).unwrap(),
                _ => {
                    let bytes = vec![1 + prng.below(255) as u8; 1 + prng.below(2000) as usize];
                    io.write_at(file, prng.below(2000), &bytes).unwrap();
                }
            }
            io.close(file).unwrap();
        }
    }
}

fn sync_all(world: &World, io: &mut Blocking<SimIo>) {
    for name in world.list("/d") {
        let file = io.open(&Path::new("/d").join(name), CREATE).unwrap();
        io.fdatasync(file).unwrap();
        io.close(file).unwrap();
    }
    io.sync_dir(Path::new("/d")).unwrap();
}

#[test]
fn a_synced_history_is_back_to_the_byte() {
    for seed in 0..SEEDS {
        let (world, mut prng) = (world(seed), Prng::new(seed));
        let mut io = world.engine();
        let mut io = Blocking::new(&mut io, pool());
        (0..prng.below(30)).for_each(|_| change(&mut io, &mut prng));
        sync_all(&world, &mut io);
        let synced = files(&world);
        let durable: Files = synced
            .keys()
            .map(|name| (name.clone(), world.durable_file(format!("/d/{name}")).unwrap()))
            .collect();
        assert_eq!(durable, synced, "seed {seed}");
        world.power_cut();
        assert_eq!(files(&world), synced, "seed {seed}");
    }
}

#[test]
fn an_unsynced_history_leaves_nothing_that_was_never_there() {
    let mut differing = 0;
    for seed in 0..SEEDS / 2 {
        let (world, mut prng) = (world(seed), Prng::new(seed));
        let mut io = world.engine();
        let mut io = Blocking::new(&mut io, pool());
        (0..prng.below(20)).for_each(|_| change(&mut io, &mut prng));
        sync_all(&world, &mut io);
        let (mut names, mut lens, mut seen) =
            (BTreeSet::new(), BTreeSet::from([0]), BTreeSet::new());
        let mut look = |world: &World| {
            for (name, bytes) in files(world) {
                names.insert(name);
                lens.insert(bytes.len());
                seen.extend(bytes.into_iter().enumerate());
            }
        };
        look(&world);
        for _ in 0..1 + prng.below(10) {
            change(&mut io, &mut prng);
            look(&world);
        }
        let live = files(&world);
        world.power_cut();
        let left = files(&world);
        differing += usize::from(left != live);
        for (name, bytes) in left {
            assert!(names.contains(&name), "seed {seed}: {name} was never there");
            assert!(lens.contains(&bytes.len()), "seed {seed}: {name} has {}", bytes.len());
            let foreign = bytes
                .iter()
                .enumerate()
                .find(|&(pos, &byte)| byte != 0 && !seen.contains(&(pos, byte)));
            assert_eq!(foreign, None, "seed {seed}: {name}");
        }
    }
    assert!(differing > SEEDS as usize / 8, "cuts that took something: {differing}");
}

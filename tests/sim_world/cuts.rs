//! What a power cut may take, and what it never may.

use std::collections::BTreeSet;
use std::path::Path;

use ringlog::io::blocking::Blocking;
use ringlog::io::op::OpenHow;
use ringlog::io::sim::{SECTOR_BYTES, SimIo, World};
use ringlog::io::{Errno, Op, Tag};

use crate::{CREATE, SEEDS, create, open, outcomes, pool, set, text, together, world, write_op};

const SECTOR: usize = SECTOR_BYTES as usize;

fn sync(io: &mut Blocking<SimIo>, dir: &str) {
    io.sync_dir(Path::new(dir)).unwrap();
}

fn rename(io: &mut Blocking<SimIo>, from: &str, to: &str) {
    io.rename(Path::new(from), Path::new(to)).unwrap();
}

fn f(world: &World) -> Option<String> {
    text(world.read_file("/d/f"))
}

#[test]
fn data_and_name_both_need_their_sync() {
    let kept = outcomes(
        |_, io| {
            let file = create(io, "/d/f", b"data");
            io.fdatasync(file).unwrap();
            sync(io, "/d");
        },
        f,
    );
    assert_eq!(kept, set([Some("data".into())]));
    let no_dir_sync = outcomes(
        |_, io| {
            let file = create(io, "/d/f", b"data");
            io.fdatasync(file).unwrap();
        },
        f,
    );
    assert_eq!(no_dir_sync, set([None, Some("data".into())]));
    let no_flush = outcomes(
        |_, io| {
            create(io, "/d/f", b"data");
            sync(io, "/d");
        },
        f,
    );
    // Size and data part ways: nothing, zeros, or all of it.
    assert_eq!(no_flush, set([Some("".into()), Some("....".into()), Some("data".into())]));
}

#[test]
fn what_was_flushed_stays_whatever_follows() {
    let found = outcomes(
        |world, io| {
            world.write_file_durably("/d/f", "");
            let file = create(io, "/d/f", b"good");
            io.fdatasync(file).unwrap();
            io.write_at(file, 600, b"later").unwrap();
            open(io, "/d/g");
        },
        |world| f(world).unwrap()[..4].to_string(),
    );
    assert_eq!(found, set(["good".into()]));
}

#[test]
fn a_truncate_waits_for_a_flush() {
    let act = |flush: bool| {
        outcomes(
            move |world, io| {
                world.write_file_durably("/d/f", "abcdef");
                let file = open(io, "/d/f");
                io.truncate(file, 2).unwrap();
                if flush {
                    io.fdatasync(file).unwrap();
                }
            },
            f,
        )
    };
    assert_eq!(act(false), set([Some("abcdef".into()), Some("ab".into())]));
    assert_eq!(act(true), set([Some("ab".into())]));
}

/// D4: appending behind a cut that was not flushed may bring the old bytes back beside the new.
#[test]
fn old_bytes_come_back_behind_an_unflushed_truncate() {
    let found = outcomes(
        |world, io| {
            world.write_file_durably("/d/f", vec![b'o'; 2 * SECTOR]);
            let file = open(io, "/d/f");
            io.truncate(file, 0).unwrap();
            io.write_at(file, 0, &[b'n'; 2 * SECTOR]).unwrap();
        },
        |world| f(world).unwrap().chars().step_by(SECTOR).collect::<String>(),
    );
    for possible in ["", "oo", "nn", "no", "on", "..", "n.", ".n"] {
        assert!(found.contains(possible), "{possible:?} is missing from {found:?}");
    }
    assert!(!found.contains("o."), "what a truncate took and a hole replaced: {found:?}");
}

#[test]
fn a_rename_is_lost_or_whole() {
    let look = |world: &World| (text(world.read_file("/d/new")), f(world));
    let act = |synced: bool| {
        outcomes(
            move |world, io| {
                world.write_file_durably("/d/new", "new");
                world.write_file_durably("/d/f", "old");
                rename(io, "/d/new", "/d/f");
                if synced {
                    sync(io, "/d");
                }
            },
            look,
        )
    };
    let (lost, whole) = ((Some("new".into()), Some("old".into())), (None, Some("new".into())));
    assert_eq!(act(false), set([lost, whole.clone()]));
    assert_eq!(act(true), set([whole]));
}

#[test]
fn changes_of_one_name_stand_on_each_other() {
    let flushed = |io: &mut Blocking<SimIo>, path: &str, bytes: &[u8]| {
        let file = create(io, path, bytes);
        io.fdatasync(file).unwrap();
    };
    let found = outcomes(
        |_, io| {
            flushed(io, "/d/a", b"1");
            rename(io, "/d/a", "/d/b");
            flushed(io, "/d/a", b"2");
        },
        |world| ["/d/a", "/d/b"].map(|path| text(world.read_file(path)).unwrap_or_default()),
    );
    // Never the second `a` without the rename that made room for it, never both names of one.
    let possible = [["", ""], ["1", ""], ["", "1"], ["2", "1"]];
    assert_eq!(found, set(possible.map(|files| files.map(String::from))));
}

#[test]
fn independent_names_come_and_go_in_any_order() {
    let found = outcomes(
        |world, io| {
            world.write_file_durably("/d/old", "");
            create(io, "/d/one", b"");
            create(io, "/d/two", b"");
            io.unlink(Path::new("/d/old")).unwrap();
        },
        |world| world.list("/d").join(" "),
    );
    assert_eq!(found.len(), 8, "each of three changes for itself: {found:?}");
    let synced = outcomes(
        |world, io| {
            world.write_file_durably("/d/old", "");
            io.unlink(Path::new("/d/old")).unwrap();
            sync(io, "/d");
        },
        |world| world.list("/d").len(),
    );
    assert_eq!(synced, set([0]));
}

#[test]
fn a_lost_directory_takes_what_was_synced_inside() {
    let act = |synced: bool| {
        outcomes(
            move |_, io| {
                io.create_dir(Path::new("/d/t")).unwrap();
                let file = create(io, "/d/t/f", b"data");
                io.fdatasync(file).unwrap();
                sync(io, "/d/t");
                if synced {
                    sync(io, "/d");
                }
            },
            |world| text(world.read_file("/d/t/f")),
        )
    };
    assert_eq!(act(false), set([None, Some("data".into())]));
    assert_eq!(act(true), set([Some("data".into())]));
}

#[test]
fn a_directory_sync_takes_along_what_its_names_stand_on() {
    let found = outcomes(
        |world, io| {
            world.make_dir_durably("/d/from");
            create(io, "/d/from/a", b"");
            rename(io, "/d/from/a", "/d/b");
            sync(io, "/d");
        },
        |world| (world.list("/d").join(" "), world.list("/d/from").join(" ")),
    );
    assert_eq!(found, set([("b from".into(), String::new())]));
}

#[test]
fn writes_tear_at_sectors_and_nowhere_else() {
    let found = outcomes(
        |world, io| {
            world.write_file_durably("/d/f", vec![b'o'; 4 * SECTOR]);
            create(io, "/d/f", &[b'n'; 4 * SECTOR]);
        },
        |world| {
            let bytes = world.read_file("/d/f").unwrap();
            let whole = |sector: &&[u8]| sector.iter().all(|&byte| byte == sector[0]);
            assert_eq!(bytes.chunks(SECTOR).filter(whole).count(), 4, "torn inside a sector");
            bytes.iter().step_by(SECTOR).map(|&byte| byte as char).collect::<String>()
        },
    );
    assert_eq!(found.len(), 16, "each sector for itself: {found:?}");
}

#[test]
fn overlapping_writes_land_in_either_order() {
    let found = outcomes(
        |world, io| {
            world.write_file_durably("/d/f", "ooo");
            let file = create(io, "/d/f", b"11");
            io.write_at(file, 1, b"22").unwrap();
        },
        f,
    );
    let possible = ["ooo", "11o", "o22", "122", "112"].map(|s| Some(s.to_string()));
    assert_eq!(found, set(possible));
}

#[test]
fn data_past_a_size_that_was_lost_is_gone() {
    let found = outcomes(
        |world, io| {
            world.write_file_durably("/d/f", "12");
            create(io, "/d/f", b"abcd");
        },
        f,
    );
    let possible = ["12", "ab", "12..", "abcd"].map(|s| Some(s.to_string()));
    assert_eq!(found, set(possible));
}

/// D2: only a flush submitted after the write's end is sure to cover it.
#[test]
fn a_flush_does_not_cover_a_write_in_flight_with_it() {
    let found: BTreeSet<_> = (0..SEEDS)
        .map(|seed| {
            let (world, pool) = (world(seed), pool());
            world.write_file_durably("/d/f", "old");
            let mut io = world.engine();
            let file = open(&mut Blocking::new(&mut io, pool.clone()), "/d/f");
            let ops = vec![write_op(&pool, file, 0, b"new"), Op::Fdatasync { file }];
            let write_first = together(&mut io, ops)[0].tag == Tag(0);
            assert_eq!(f(&world), Some("new".into()));
            (write_first, text(world.durable_file("/d/f")).unwrap())
        })
        .collect();
    // Also a write that ended before the flush did may have begun too late for it.
    let possible = [(false, "old"), (true, "old"), (true, "new")];
    assert_eq!(found, set(possible.map(|(first, text)| (first, text.to_string()))));
}

#[test]
fn a_dir_sync_does_not_cover_a_create_in_flight_with_it() {
    let found: BTreeSet<_> = (0..SEEDS)
        .map(|seed| {
            let world = world(seed);
            let create = Op::Open { path: "/d/f".into(), how: CREATE };
            together(&mut world.engine(), vec![create, Op::SyncDir { path: "/d".into() }]);
            world.durable_file("/d/f")
        })
        .collect();
    assert_eq!(found, set([None, Some(Vec::new())]));
}

/// D11: the pages of a failed flush are clean, so a second flush is a lie.
#[test]
fn a_failed_flush_loses_its_data_though_the_next_one_goes_well() {
    let found = outcomes(
        |world, io| {
            world.write_file_durably("/d/f", "old");
            let file = create(io, "/d/f", b"new!");
            world.faults(|faults| faults.fail_fdatasync("/d/f", 1, Errno::EIO));
            assert_eq!(io.fdatasync(file), Err(Errno::EIO));
            io.fdatasync(file).unwrap();
            assert_eq!(f(world), Some("new!".into()), "the page cache still shows it");
        },
        f,
    );
    assert_eq!(found, set([Some("old.".into()), Some("new!".into())]));
}

#[test]
fn a_failed_flush_shows_once_the_cache_is_dropped_or_passed_by() {
    let found: BTreeSet<_> = (0..SEEDS)
        .map(|seed| {
            let world = world(seed);
            world.write_file_durably("/d/f", vec![b'o'; SECTOR]);
            let mut io = world.engine();
            let mut io = Blocking::new(&mut io, pool());
            let file = create(&mut io, "/d/f", &[b'n'; SECTOR]);
            io.drop_cache(file).unwrap();
            assert_eq!(world.read_file("/d/f").unwrap()[0], b'n', "dirty pages stay");
            world.faults(|faults| faults.fail_fdatasync("/d/f", 1, Errno::EIO));
            io.fdatasync(file).unwrap_err();
            let direct = OpenHow { direct: true, ..OpenHow::default() };
            let direct = io.open(Path::new("/d/f"), direct).unwrap();
            let mut passed_by = [0; SECTOR];
            assert_eq!(io.read_at(direct, 0, &mut passed_by), Ok(SECTOR));
            io.drop_cache(file).unwrap();
            let mut dropped = [0; SECTOR];
            assert_eq!(io.read_at(file, 0, &mut dropped), Ok(SECTOR));
            assert_eq!(passed_by, dropped);
            dropped[0]
        })
        .collect();
    assert_eq!(found, set([b'o', b'n']));
}

/// D11: whoever closes a dirty file and opens it again never hears that its bytes were lost.
#[test]
fn a_failed_write_back_is_told_once_and_only_to_who_had_it_open() {
    let found = outcomes(
        |world, io| {
            world.write_file_durably("/d/f", "old");
            let (keeper, closer) = (create(io, "/d/f", b"new"), open(io, "/d/f"));
            world.fail_writeback("/d/f");
            io.close(closer).unwrap();
            let late = open(io, "/d/f");
            io.fdatasync(late).unwrap();
            assert_eq!(io.fdatasync(keeper), Err(Errno::EIO));
            io.fdatasync(keeper).unwrap();
        },
        f,
    );
    assert_eq!(found, set([Some("old".into()), Some("new".into())]));
}

/// The recipe that small files are replaced by holds at every single cut.
#[test]
fn a_replaced_file_is_the_old_or_the_new_one_at_every_cut() {
    let mut found = BTreeSet::new();
    for seed in 0..SEEDS / 4 {
        for cut in 0.. {
            let world = world(seed);
            world.write_file_durably("/d/f", "old");
            let mut io = world.engine();
            world.cut_after(cut);
            let replaced =
                Blocking::new(&mut io, pool()).replace_file(Path::new("/d/f"), b"new one");
            let finished = !world.stopped();
            world.power_cut();
            let left = f(&world).unwrap();
            assert!(left == "old" || left == "new one", "seed {seed}, cut {cut}: {left:?}");
            assert!(replaced.is_err() || left == "new one", "seed {seed}, cut {cut}: lost");
            found.insert((cut, left));
            if finished {
                break;
            }
        }
    }
    // create, write, flush, rename, sync: the sixth attempt is not cut any more.
    assert!(found.contains(&(4, "old".into())) && found.contains(&(4, "new one".into())));
    assert!(found.contains(&(5, "new one".into())) && !found.contains(&(5, "old".into())));
}

//! A failed directory takes only its partitions offline, and says which, why, and what to do.

use std::path::Path;

use ringlog::errors::ErrorCode;
use ringlog::io::Errno;
use ringlog::io::sim::{Effect, On, World};
use ringlog::log::datadir::Checkpoint;
use ringlog::protocol::api::Message;
use ringlog::protocol::log_dirs::{LogDirsRequest, LogDirsResponse};
use ringlog::server::control::Phase;
use ringlog::shard::mailbox::FromShard;

use super::harness::{Server, with};

const AB: [&str; 2] = ["/a", "/b"];

/// `t-0` and `t-2` in /a, `t-1` and `t-3` in /b, stopped cleanly.
fn two_dirs(seed: u64) -> World {
    let world = World::new(seed);
    let mut server = Server::start(&world, &AB).unwrap();
    server.create("t", 4, &[("segment.ms", "77000")]).unwrap();
    server.stop(&[]);
    world.kill();
    world
}

/// /b is offline for a reason that contains `why`; /a serves, and takes what is new.
fn only_b_is_offline(server: &mut Server, why: &str) {
    for index in [0, 2] {
        assert_eq!(server.why_offline("t", index), None);
    }
    for index in [1, 3] {
        let told = server.why_offline("t", index).expect("it is offline");
        assert!(told.contains("/b") && told.contains(why), "{told}");
    }
    server.create("new", 2, &[]).unwrap();
    assert_eq!([server.dir_of("new", 0), server.dir_of("new", 1)], ["/a", "/a"]);
}

#[test]
fn a_directory_that_is_not_mounted_takes_its_partitions_offline_and_is_not_made_anew() {
    let world = two_dirs(1);
    let mv = |from: &str, to: &str| {
        with(&world, |b| {
            b.rename(Path::new(from), Path::new(to)).unwrap();
            b.sync_dir(Path::new("/")).unwrap();
        });
    };
    mv("/b", "/unmounted");
    let mut server = Server::start(&world, &AB).unwrap();
    only_b_is_offline(&mut server, "is its file system mounted?");
    server.stop(&[]);
    world.kill();
    assert!(!world.list("/").contains(&"b".to_string()), "nothing was made in its place");
    // The usual form: the mount point is there, and empty.
    world.make_dir_durably("/b");
    let server = Server::start(&world, &AB).unwrap();
    assert!(server.why_offline("t", 1).unwrap().contains("no meta.properties any more"));
    assert_eq!(world.list("/b"), Vec::<String>::new());
    server.stop(&[]);
    world.kill();
    mv("/b", "/empty");
    mv("/unmounted", "/b");
    let server = Server::start(&world, &AB).unwrap();
    assert_eq!(server.offline.len(), 0, "back again");
    assert!(server.specs.values().all(|spec| spec.clean), "and its clean marker still counts");
}

#[test]
fn a_directory_that_is_not_named_any_more_is_told_of() {
    let world = two_dirs(2);
    let server = Server::start(&world, &["/a"]).unwrap();
    let told = server.why_offline("t", 1).expect("it is offline");
    assert!(told.contains("/b is not named by --data-dir"), "{told}");
    // Mounted elsewhere it is known by its id.
    drop(server);
    world.kill();
    with(&world, |b| b.rename(Path::new("/b"), Path::new("/elsewhere")).unwrap());
    let server = Server::start(&world, &["/a", "/elsewhere"]).unwrap();
    assert_eq!(server.offline.len(), 0);
    assert_eq!(server.dir_of("t", 3), "/elsewhere");
}

#[test]
fn a_garbled_checkpoint_takes_its_directory_offline_and_the_remedy_is_told() {
    for which in Checkpoint::ALL {
        let world = two_dirs(3);
        let path = format!("/b/{}", which.file_name());
        world.write_file_durably(&path, b"0\n2\nt 1 0\n".to_vec());
        let mut server = Server::start(&world, &AB).unwrap();
        only_b_is_offline(&mut server, which.file_name());
        let told = server.why_offline("t", 1).unwrap().to_string();
        assert!(told.contains("line 2") && told.contains("remove it"), "{told}");
        drop(server);
        world.kill();
        with(&world, |b| b.unlink(Path::new(&path)).unwrap());
        let server = Server::start(&world, &AB).unwrap();
        assert_eq!(server.offline.len(), 0, "the remedy works");
    }
    let world = two_dirs(4);
    let path = format!("/a/{}", Checkpoint::LogStart.file_name());
    world.write_file_durably(&path, b"1\n".to_vec());
    let why = Server::start(&world, &AB).err().expect("no start without the topics").to_string();
    assert!(why.contains(&path), "{why}");
}

#[test]
fn errors_of_the_disk_at_the_start_take_one_directory() {
    for errno in [Errno::EIO, Errno(libc_erofs()), Errno::EACCES] {
        let world = two_dirs(5);
        world.faults(|faults| {
            faults.plan(On::Unlink, "/b/.kafka_cleanshutdown", 1, Effect::Fail(errno));
        });
        let mut server = Server::start(&world, &AB).unwrap();
        only_b_is_offline(&mut server, &errno.to_string());
    }
    let world = two_dirs(6);
    with(&world, |b| b.rename(Path::new("/b"), Path::new("/c")).unwrap());
    world.write_file_durably("/b", b"a file".to_vec());
    let mut server = Server::start(&world, &AB).unwrap();
    only_b_is_offline(&mut server, "");
}

/// EROFS, which the io layer has no name for.
fn libc_erofs() -> i32 {
    30
}

#[test]
fn a_checkpoint_that_fails_takes_its_directory_offline_while_the_server_runs() {
    let world = two_dirs(7);
    let mut server = Server::start(&world, &AB).unwrap();
    server.mark(1);
    world.faults(|faults| faults.fail_write("/b/replication", 1, Errno::EIO));
    server.control.checkpoint();
    server.pump();
    only_b_is_offline(&mut server, "mend it and restart");
    assert_eq!(server.control.phase(), Phase::Serving);
    // A full disk is no failed one.
    server.mark(2);
    world.faults(|faults| faults.fail_write("/a/replication", 1, Errno::ENOSPC));
    server.control.checkpoint();
    server.pump();
    assert_eq!(server.why_offline("t", 0), None);
}

#[test]
fn a_poisoned_partition_has_its_directory_tried() {
    let world = two_dirs(8);
    let mut server = Server::start(&world, &AB).unwrap();
    let handle = server.handle("t", 1);
    server.control.handle(FromShard::Poisoned { handle });
    server.pump();
    assert_eq!(server.offline.len(), 0, "the directory takes files: only the partition is bad");
    world.faults(|faults| faults.plan(On::Open, "/b/", 1, Effect::Fail(Errno(libc_erofs()))));
    server.control.handle(FromShard::Poisoned { handle });
    server.pump();
    only_b_is_offline(&mut server, "checkpoint");
}

#[test]
fn with_every_directory_failed_the_server_ends_and_says_why() {
    let world = World::new(9);
    let mut server = Server::start(&world, &["/a"]).unwrap();
    server.create("t", 1, &[]).unwrap();
    server.mark(1);
    world.faults(|faults| faults.fail_write("/a/re", 1, Errno::EIO));
    server.control.checkpoint();
    server.pump();
    assert!(matches!(server.control.phase(), Phase::Stopping { .. }));
    let why = server.control.failure().expect("it failed");
    assert!(why.contains("no data directory is left") && why.contains("/a"), "{why}");
}

#[test]
fn d9_each_directory_has_a_clean_marker_of_its_own() {
    let world = two_dirs(10);
    let server = Server::start(&world, &AB).unwrap();
    assert!(server.specs.values().all(|spec| spec.clean));
    server.stop(&["/b/t-3"]);
    world.power_cut();
    let marker = |dir: &str| world.read_file(format!("{dir}/.kafka_cleanshutdown")).is_some();
    assert!(marker("/a"), "all its partitions closed cleanly");
    assert!(!marker("/b"), "one of its partitions did not");
    let server = Server::start(&world, &AB).unwrap();
    for spec in server.specs.values() {
        assert_eq!(spec.clean, spec.dir.starts_with("/a"), "{:?}", spec.dir);
    }
}

#[test]
fn a_creation_that_fails_half_way_leaves_nothing() {
    let world = two_dirs(11);
    let mut server = Server::start(&world, &AB).unwrap();
    world.faults(|faults| faults.fail_write("/b/half-1", 1, Errno::ENOSPC));
    let (code, why) = server.create("half", 3, &[]).unwrap_err();
    assert_eq!(code, ErrorCode::KafkaStorageError);
    assert!(why.contains("/b/half-1"), "{why}");
    assert!(server.topic("half").is_none());
    server.remove_all();
    let left = |dir: &str| world.list(dir).into_iter().filter(|n| n.starts_with("half")).count();
    assert_eq!((left("/a"), left("/b")), (0, 0));
    server.create("half", 3, &[]).unwrap();
    assert_eq!(server.offline.len(), 0);
}

#[test]
fn a_topic_deleted_while_a_directory_is_away_does_not_come_back_with_it() {
    let world = two_dirs(12);
    let rename = |from: &str, to: &str| {
        with(&world, |b| {
            b.rename(Path::new(from), Path::new(to)).unwrap();
            b.sync_dir(Path::new("/")).unwrap();
        });
    };
    rename("/b", "/away");
    let mut server = Server::start(&world, &AB).unwrap();
    server.delete("t").unwrap();
    server.create("t", 1, &[]).unwrap();
    let id = server.topic("t").unwrap().id;
    server.stop(&[]);
    world.kill();
    rename("/away", "/b");
    let mut server = Server::start(&world, &AB).unwrap();
    let topic = server.topic("t").unwrap();
    assert_eq!((topic.id, topic.partitions.len()), (id, 1));
    server.remove_all();
    assert!(world.list("/b").iter().all(|name| !name.starts_with("t-")), "{:?}", world.list("/b"));
}

#[test]
fn log_dirs_are_told_with_state_and_what_lies_where() {
    let world = two_dirs(13);
    let mut server = Server::start(&world, &AB).unwrap();
    server.create("u", 1, &[]).unwrap();
    server.mark(1);
    world.faults(|faults| faults.fail_write("/b/replication", 1, Errno::EIO));
    server.control.checkpoint();
    server.pump();
    let answer = |server: &mut Server, topics: Vec<&str>| {
        server.request(&LogDirsRequest { topics }).expect("an answer").unwrap()
    };
    let bytes = answer(&mut server, vec![]);
    let told = LogDirsResponse::parse(&bytes).unwrap();
    let paths: Vec<_> = told.dirs.iter().map(|dir| (dir.path, dir.error)).collect();
    assert_eq!(paths, [("/a", 0), ("/b", ErrorCode::KafkaStorageError.code())]);
    assert!(told.dirs[1].why.contains("/b/replication-offset-checkpoint"), "{}", told.dirs[1].why);
    assert!(told.dirs.iter().all(|dir| dir.id != [0; 16]));
    let held: Vec<_> = told.dirs[0]
        .topics
        .iter()
        .map(|t| (t.name, t.partitions.iter().map(|p| p.index).collect::<Vec<_>>()))
        .collect();
    assert_eq!(held, [("t", vec![0, 2]), ("u", vec![0])]);
    let bytes = answer(&mut server, vec!["u"]);
    let told = LogDirsResponse::parse(&bytes).unwrap();
    assert_eq!(told.dirs[0].topics.len(), 1);
    assert!(told.dirs[1].topics.is_empty());
}

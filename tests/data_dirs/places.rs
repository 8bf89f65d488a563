//! Where partitions go and are found, and whose the directories are.

use std::path::Path;

use ringlog::errors::ErrorCode;
use ringlog::format::checkpoint::parse_offsets;
use ringlog::format::identity::MetaProperties;
use ringlog::io::blocking::Blocking;
use ringlog::io::sim::{SimIo, World};
use ringlog::log::create;
use ringlog::log::datadir::Checkpoint;
use uuid::Uuid;

use super::harness::{Server, with};

const ABC: [&str; 3] = ["/a", "/b", "/c"];

fn meta(world: &World, dir: &str) -> MetaProperties {
    let bytes = world.durable_file(format!("{dir}/meta.properties")).expect("it is there");
    MetaProperties::parse(&bytes).expect("sound")
}

fn refusal(world: &World, dirs: &[&str]) -> String {
    match Server::start(world, dirs) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it started"),
    }
}

/// A log in `dir`, as a broker leaves one (it has no place in the topic file).
fn plant_log(world: &World, dir: &str, id: u128) {
    with(world, |b| create(b, Path::new(dir), Uuid::from_u128(id), 0).unwrap());
}

fn mv(b: &mut Blocking<'_, SimIo>, from: &str, to: &str) {
    b.rename(Path::new(from), Path::new(to)).unwrap();
    b.sync_dir(Path::new("/")).unwrap();
    b.sync_dir(Path::new(to).parent().unwrap()).unwrap();
}

#[test]
fn a_new_partition_goes_to_the_directory_with_the_fewest_and_is_found_there_again() {
    let world = World::new(1);
    let mut server = Server::start(&world, &ABC).unwrap();
    server.create("t", 4, &[]).unwrap();
    server.create("u", 1, &[]).unwrap();
    server.create("v", 1, &[]).unwrap();
    let places = |server: &Server| {
        let all = [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0), ("v", 0)];
        all.map(|(topic, index)| server.dir_of(topic, index))
    };
    assert_eq!(places(&server), ["/a", "/b", "/c", "/a", "/b", "/c"]);
    server.delete("u").unwrap();
    server.create("w", 1, &[]).unwrap();
    assert_eq!(server.dir_of("w", 0), "/b", "a deletion makes room");
    server.delete("w").unwrap();
    server.create("u", 1, &[]).unwrap();
    server.stop(&[]);
    world.kill();
    // Moved by hand between two runs: it is served from where it lies.
    with(&world, |b| mv(b, "/a/t-3", "/c/t-3"));
    let mut server = Server::start(&world, &["/a", "/c", "/b"]).unwrap();
    assert_eq!(places(&server), ["/a", "/b", "/c", "/c", "/b", "/c"]);
    server.create("x", 1, &[]).unwrap();
    assert_eq!(server.dir_of("x", 0), "/a");
}

#[test]
fn one_partition_in_two_directories_stops_the_start_and_both_are_named() {
    let world = World::new(2);
    let mut server = Server::start(&world, &ABC).unwrap();
    server.create("t", 2, &[]).unwrap();
    server.stop(&[]);
    world.kill();
    plant_log(&world, "/c/t-1", 9);
    let why = refusal(&world, &ABC);
    assert!(why.contains("/b/t-1") && why.contains("/c/t-1"), "{why}");
    // Nothing was taken: without the second one the start is as clean as before.
    with(&world, |b| mv(b, "/c/t-1", "/t-1"));
    let server = Server::start(&world, &ABC).unwrap();
    assert!(server.specs.values().all(|spec| spec.clean));
}

#[test]
fn directories_have_one_cluster_and_node_and_each_an_id_of_its_own() {
    let world = World::new(3);
    drop(Server::start(&world, &ABC).unwrap());
    for which in Checkpoint::ALL {
        for dir in ABC {
            let made = world.read_file(format!("{dir}/{}", which.file_name()));
            assert_eq!(made, Some(Vec::new()), "empty at the first start, as Kafka makes them");
        }
    }
    world.power_cut();
    let all = ABC.map(|dir| meta(&world, dir));
    assert!(all.iter().all(|one| one.version == 1 && one.directory_id.is_some()));
    assert!(all.iter().all(|one| one.cluster_id == all[0].cluster_id && one.node_id == Some(1)));
    assert_ne!(all[0].directory_id, all[1].directory_id);
    let plant = |dir: &str, meta: &MetaProperties| {
        world.write_file_durably(format!("{dir}/meta.properties"), meta.render("test"));
    };
    plant("/b", &MetaProperties { cluster_id: Some("other".into()), ..all[1].clone() });
    let why = refusal(&world, &ABC);
    assert!(why.starts_with("/b: ") && why.contains("cluster.id other, that of /a has"), "{why}");
    plant("/b", &MetaProperties { node_id: Some(7), ..all[1].clone() });
    let why = refusal(&world, &ABC);
    assert!(why.contains("node.id 7, that of /a has 1"), "{why}");
    plant("/b", &all[0]);
    let why = refusal(&world, &ABC);
    assert!(why.contains("directory.id of /a"), "a copy: {why}");
    // What an old broker left is completed as a new one completes it.
    let old = MetaProperties { version: 0, directory_id: None, ..all[1].clone() };
    plant("/b", &old);
    drop(Server::start(&world, &ABC).unwrap());
    let new = meta(&world, "/b");
    assert_eq!((new.version, new.node_id, &new.cluster_id), (1, Some(1), &all[0].cluster_id));
    assert!(new.directory_id.is_some_and(|id| Some(id) != all[0].directory_id));
}

#[test]
fn the_directory_with_the_topics_is_named_first() {
    let world = World::new(4);
    let mut server = Server::start(&world, &["/a", "/b"]).unwrap();
    server.create("t", 2, &[("segment.ms", "77000")]).unwrap();
    server.stop(&[]);
    world.kill();
    let why = refusal(&world, &["/b", "/a"]);
    assert!(why.contains("name /a first"), "{why}");
    let why = refusal(&world, &["/new", "/a", "/b"]);
    assert!(why.starts_with("/new: ") && why.contains("named behind"), "{why}");
    let server = Server::start(&world, &["/a", "/b", "/new"]).unwrap();
    assert_eq!(server.topic("t").unwrap().partitions.len(), 2);
    assert_eq!(server.offline.len(), 0);
}

#[test]
fn names_are_read_as_a_broker_reads_them() {
    let world = World::new(5);
    drop(Server::start(&world, &["/a", "/b"]).unwrap());
    world.kill();
    let id = "0123456789abcdef0123456789abcdef";
    for name in ["t-0", &format!("gone-0.{id}-delete"), &format!("s-0.{id}-stray")] {
        plant_log(&world, &format!("/b/{name}"), 5);
    }
    plant_log(&world, &format!("/a/t-0.{id}-future"), 5);
    world.make_dir_durably("/b/__cluster_metadata-0");
    world.make_dir_durably("/b/remote-log-index-cache");
    let mut server = Server::start(&world, &["/a", "/b"]).unwrap();
    let topics: Vec<_> = server.catalogue.topics().iter().map(|t| t.name.clone()).collect();
    assert_eq!(topics, ["t"], "adopted; its copy on the way is not it");
    assert_eq!(server.topic("t").unwrap().id, Uuid::from_u128(5).into_bytes());
    server.remove_all();
    let left: Vec<_> = world.list("/b").into_iter().filter(|n| n.contains(id)).collect();
    assert_eq!(left, [format!("s-0.{id}-stray")], "deleted ones go, others stay");
    assert_eq!(world.list("/a").iter().filter(|n| n.ends_with("-future")).count(), 1);
    drop(server);
    world.kill();
    world.make_dir_durably("/b/lost+found");
    let why = refusal(&world, &["/a", "/b"]);
    assert!(why.contains("/b/lost+found"), "{why}");
}

/// For KRaft a directory without `partition.metadata` is stray; here its topic is adopted and the
/// file written, so that it is known from then on.
#[test]
fn a_partition_without_an_id_is_adopted_and_a_foreign_one_is_not_served() {
    let world = World::new(6);
    drop(Server::start(&world, &["/a"]).unwrap());
    world.kill();
    plant_log(&world, "/a/old-0", 1);
    plant_log(&world, "/a/old-1", 1);
    with(&world, |b| {
        for index in [0, 1] {
            b.unlink(Path::new(&format!("/a/old-{index}/partition.metadata"))).unwrap();
            b.sync_dir(Path::new(&format!("/a/old-{index}"))).unwrap();
        }
    });
    let server = Server::start(&world, &["/a"]).unwrap();
    let id = server.topic("old").unwrap().id;
    assert_eq!(server.offline.len(), 0);
    drop(server);
    world.power_cut();
    plant_log(&world, "/a/old-2", 2);
    world.write_file_durably("/a/old-1/partition.metadata", b"version: 0\ntopic_id: ?".to_vec());
    let server = Server::start(&world, &["/a"]).unwrap();
    assert_eq!(server.topic("old").unwrap().id, id);
    assert_eq!(server.why_offline("old", 0), None);
    let garbled = server.why_offline("old", 1).expect("garbled");
    assert!(garbled.contains("/a/old-1/partition.metadata") && garbled.contains("line 2"));
    let foreign = server.why_offline("old", 2).expect("of another topic");
    assert!(foreign.contains("another topic of this name"), "{foreign}");
}

#[test]
fn rows_of_deleted_partitions_leave_all_four_checkpoints_before_the_answer() {
    let world = World::new(7);
    let mut server = Server::start(&world, &["/a"]).unwrap();
    server.create("t", 1, &[]).unwrap();
    server.create("u", 1, &[]).unwrap();
    server.stop(&[]);
    world.kill();
    for which in Checkpoint::ALL {
        let rows = b"0\n3\nt 0 0\nu 0 0\nnever 0 4\n".to_vec();
        world.write_file_durably(format!("/a/{}", which.file_name()), rows);
    }
    let mut server = Server::start(&world, &["/a"]).unwrap();
    let topics = |which: Checkpoint| {
        let bytes = world.durable_file(format!("/a/{}", which.file_name())).expect("there");
        let rows = parse_offsets(&bytes).expect("sound");
        rows.into_iter().map(|row| row.topic).collect::<Vec<_>>()
    };
    server.control.checkpoint();
    assert_eq!(topics(Checkpoint::Cleaner), ["t", "u"], "a broker's rows are kept for it");
    assert_eq!(topics(Checkpoint::LogStart), Vec::<String>::new(), "none is past its segment");
    server.delete("t").unwrap();
    for which in [Checkpoint::RecoveryPoint, Checkpoint::Replication, Checkpoint::Cleaner] {
        assert_eq!(topics(which), ["u"], "{which:?}");
    }
}

#[test]
fn topics_that_exist_and_names_that_none_may_have_are_refused() {
    let world = World::new(8);
    let mut server = Server::start(&world, &["/a"]).unwrap();
    server.create("t", 1, &[]).unwrap();
    assert_eq!(server.create("t", 1, &[]).unwrap_err().0, ErrorCode::TopicAlreadyExists);
    let (code, _) = server.create("a/b", 1, &[]).unwrap_err();
    assert_eq!(code, ErrorCode::InvalidTopicException);
    // The longest name still has room for the mark of a deletion.
    let long = "n".repeat(249);
    server.create(&long, 1, &[]).unwrap();
    server.delete(&long).unwrap();
    assert_eq!(world.list("/a").iter().filter(|name| name.ends_with("-delete")).count(), 1);
    assert!(world.list("/a").iter().all(|name| name.len() <= 255));
}

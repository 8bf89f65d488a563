//! The data directory: what a start reads there, and what a stop leaves.

mod support;

use ringlog::format::identity::MetaProperties;
use ringlog::format::name::DirState;
use ringlog::io::blocking::Blocking;
use ringlog::io::buffers::Pool;
use ringlog::io::sim::{SimIo, World};
use ringlog::log::datadir::{Checkpoint, DataDir, DataDirError, Offsets};
use support::{DATA, offset, world};
use uuid::Uuid;

fn with<T>(world: &World, work: impl FnOnce(&DataDir, &mut Blocking<'_, SimIo>) -> T) -> T {
    let mut io = world.engine();
    let mut b = Blocking::new(&mut io, Pool::new(8 << 20));
    work(&DataDir::new(DATA), &mut b)
}

#[test]
fn d9_a_taken_marker_is_gone_whatever_happens() {
    for seed in 0..20 {
        let world = world(seed);
        with(&world, |data, b| data.write_clean_marker(b).unwrap());
        world.power_cut();
        assert!(with(&world, |data, b| data.take_clean_marker(b).unwrap()), "it was durable");
        world.power_cut();
        assert!(!with(&world, |data, b| data.take_clean_marker(b).unwrap()), "its removal was");
    }
}

#[test]
fn checkpoints_come_back_and_garbled_ones_are_errors() {
    let world = world(1);
    let offsets: Offsets =
        [(("a-b".to_string(), 3), offset(70)), (("c".to_string(), 0), offset(0))].into();
    for which in Checkpoint::ALL {
        with(&world, |data, b| {
            assert_eq!(data.read_checkpoint(b, which).unwrap(), Offsets::new());
            data.replace_checkpoint(b, which, &offsets).unwrap();
        });
    }
    world.power_cut();
    for which in Checkpoint::ALL {
        with(&world, |data, b| assert_eq!(data.read_checkpoint(b, which).unwrap(), offsets));
        let path = DataDir::new(DATA).path().join(which.file_name());
        world.write_file_durably(path, b"0\n2\na 0 1\n".to_vec());
        let error = with(&world, |data, b| data.read_checkpoint(b, which).unwrap_err());
        assert!(error.is_of_storage(), "{error}");
        assert!(error.to_string().contains(which.file_name()), "{error}");
    }
}

#[test]
fn a_directory_knows_whose_it_is() {
    let world = world(1);
    let meta = MetaProperties {
        version: 1,
        node_id: Some(7),
        cluster_id: Some("cluster".to_string()),
        directory_id: Some(Uuid::from_u128(9)),
    };
    with(&world, |data, b| {
        assert_eq!(data.read_meta(b).unwrap(), None);
        data.write_meta(b, &meta, "a date").unwrap();
    });
    world.power_cut();
    with(&world, |data, b| assert_eq!(data.read_meta(b).unwrap(), Some(meta)));
}

#[test]
fn the_scan_tells_logs_from_what_is_none() {
    let world = world(1);
    for dir in
        ["b-1", "a-b-12", "remote-log-index-cache", "__cluster_metadata-0", "__cluster_metadata-7"]
    {
        world.make_dir_durably(format!("{DATA}/{dir}"));
    }
    world.make_dir_durably(format!("{DATA}/gone-0.0123456789abcdef0123456789abcdef-delete"));
    world.write_file_durably(format!("{DATA}/notes.txt"), Vec::new());
    let found = with(&world, |data, b| data.scan(b).unwrap());
    let found: Vec<_> =
        found.iter().map(|log| (log.topic.as_str(), log.partition, log.state)).collect();
    assert_eq!(
        found,
        [
            ("a-b", 12, DirState::Current),
            ("b", 1, DirState::Current),
            ("gone", 0, DirState::Delete)
        ]
    );
    world.make_dir_durably(format!("{DATA}/b-01"));
    let twice = with(&world, |data, b| data.scan(b).unwrap_err());
    assert!(matches!(twice, DataDirError::Twice { .. }), "{twice}");
    let told = twice.to_string();
    assert!(told.contains("/data/b-1 ") && told.contains("/data/b-01"), "both paths: {told}");
    let world = support::world(2);
    world.make_dir_durably(format!("{DATA}/lost+found"));
    let foreign = with(&world, |data, b| data.scan(b).unwrap_err());
    assert!(foreign.to_string().starts_with("/data/lost+found: "), "{foreign}");
    assert!(!foreign.is_of_storage(), "no broken disk, but a name that is no partition's");
}

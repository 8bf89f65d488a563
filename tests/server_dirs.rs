//! A real server over two data directories: records lie where their partition does, and a restart
//! finds them.
//!
//! Owns: several directories over TCP and real files. Never does: assert on time. Left:
//! `ringlog::{server, client}`. Right: nobody.

use std::path::Path;

use ringlog::client::{Backoff, Client, Options, Producer, ProducerOptions, Transport};
use ringlog::server::config::{EngineFlag, Flags};
use ringlog::server::{Running, start};
use ringlog::types::AckLevel;

fn serve(dirs: &[&Path]) -> Running {
    let flags = Flags {
        data_dir: Some(dirs.iter().map(|dir| dir.to_path_buf()).collect()),
        listen: Some("127.0.0.1:0".parse().unwrap()),
        engine: Some(EngineFlag::Syscall),
        shards: Some(2),
        ..Flags::default()
    };
    start(flags).unwrap()
}

fn client(server: &Running) -> Client {
    let options = Options { transport: Transport::Blocking, ..Options::default() };
    Client::connect(&server.addresses[0].to_string(), options, Backoff::default()).unwrap()
}

fn produce(client: &mut Client, partition: u32, records: usize) {
    let options = ProducerOptions { ack: AckLevel::Durable, ..ProducerOptions::default() };
    let mut producer = Producer::new(client, "t", partition, options).unwrap();
    for _ in 0..records {
        producer.send(None, Some(b"a value"), &[], 1_700_000_000_000).unwrap();
    }
    producer.finish().unwrap();
    assert!(producer.drain_acks().all(|ack| ack.result.is_ok()));
}

#[test]
fn two_directories_share_the_partitions_and_a_restart_finds_them() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dirs = [one.path(), two.path()];
    let server = serve(&dirs);
    let mut asking = client(&server);
    asking.create_topic("t", 4, &[]).unwrap();
    for partition in 0..4 {
        produce(&mut asking, partition, 10 + partition as usize);
    }
    server.stop().unwrap();
    for (dir, here) in dirs.iter().zip([["t-0", "t-2"], ["t-1", "t-3"]]) {
        assert!(dir.join(".kafka_cleanshutdown").exists());
        assert!(dir.join(".lock").exists(), "left, as a broker that was killed leaves it");
        for partition in here {
            let log = dir.join(partition).join("00000000000000000000.log");
            assert!(log.metadata().unwrap().len() > 0, "{log:?}");
        }
    }
    let server = serve(&dirs);
    let mut asking = client(&server);
    let told = asking.describe_log_dirs(&[]).unwrap();
    let held = |at: usize| told[at].partitions.iter().map(|one| one.index).collect::<Vec<_>>();
    assert_eq!((held(0), held(1)), (vec![0, 2], vec![1, 3]));
    for dir in &told {
        assert!(dir.offline.is_none() && dir.usable_bytes <= dir.total_bytes);
        assert!(dir.partitions.iter().all(|one| one.bytes > 0 && one.lag == Some(0)));
    }
    let ends: Vec<_> =
        asking.describe_topic("t").unwrap().partitions.iter().map(|one| one.durable).collect();
    assert_eq!(ends, [10, 11, 12, 13]);
    asking.delete_topic("t").unwrap();
    for dir in dirs {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        let aside = names.iter().filter(|name| name.ends_with("-delete")).count();
        assert_eq!(aside, 2, "renamed before the answer, removed later: {names:?}");
        assert!(!names.iter().any(|name| name.starts_with("t-") && !name.ends_with("-delete")));
    }
    server.stop().unwrap();
}

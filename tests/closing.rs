//! How a log ends: what a clean end promises is on the disk, and no descriptor goes with bytes on
//! it that a flush could still report as lost.
//!
//! Owns: D9's and D11's word about closing, directly (the crash sweep meets them on its way). Never
//! does: real I/O. Left: `support`. Right: nobody.

mod support;

use ringlog::format::batch::Codec;
use ringlog::io::Errno;
use ringlog::io::Io as _;
use ringlog::io::sim::World;
use ringlog::log::{AckError, LogConfig, PartitionState};
use ringlog::types::{AckLevel, Micros};
use support::{Driver, batch, log_dir, world};

fn with(flush: &str) -> LogConfig {
    LogConfig { flush: flush.parse().unwrap(), ..LogConfig::default() }
}

/// Rolls now and then, with indexes that have entries.
fn rolling(flush: &str) -> LogConfig {
    LogConfig { segment_bytes: 2_000, index_interval_bytes: 100, ..with(flush) }
}

fn one(value: &[u8]) -> Vec<u8> {
    batch(&[value], Codec::None, 1000)
}

/// Every file of the log: its name, and whether a power cut now would leave it as it is.
fn files(world: &World) -> Vec<(String, bool)> {
    let of = |name: String| {
        let path = log_dir().join(&name);
        let whole = world.durable_file(&path) == world.read_file(&path);
        (name, whole)
    };
    world.list(log_dir()).into_iter().map(of).collect()
}

/// D9: at the moment a log says that it closed cleanly, not one byte or name of it is only in a
/// cache: segments, both indexes, the producer snapshot.
#[test]
fn d9_closed_clean_means_that_every_file_is_on_the_disk() {
    for policy in ["os", "group", "each", "interval:10ms"] {
        for seed in 0..30 {
            let world = world(seed);
            let mut driver = Driver::fresh(&world, rolling(policy));
            for _ in 0..20 {
                driver.append_acked(&one(&[b'v'; 300]), AckLevel::Policy).unwrap();
            }
            driver.log.close(driver.io.now());
            while !driver.log.is_closed() {
                assert!(!driver.log.closed_clean());
                driver.tick().unwrap();
            }
            assert!(driver.log.closed_clean());
            let files = files(&world);
            for kind in [".log", ".index", ".timeindex", ".snapshot"] {
                let of_kind = |(name, _): &&(String, bool)| name.ends_with(kind);
                assert!(files.iter().filter(of_kind).count() > 1, "{kind}: {files:?}");
            }
            for (name, whole) in files {
                assert!(whole, "{policy}, seed {seed}: {name} is not on the disk");
            }
        }
    }
}

/// D9: a log whose indexes or snapshot did not reach the disk closes, but never cleanly.
#[test]
fn d9_an_index_or_snapshot_that_fails_is_no_clean_close() {
    for kind in [".index", ".timeindex", ".snapshot"] {
        let world = world(3);
        let mut driver = Driver::fresh(&world, with("group"));
        driver.append_acked(&one(b"kept"), AckLevel::Durable).unwrap();
        world.faults(|faults| faults.fail_fdatasync(kind, 1, Errno::EIO));
        driver.log.close(driver.io.now());
        driver.tick_until(|d| d.log.is_closed()).unwrap();
        assert!(!driver.log.closed_clean(), "{kind} is not on the disk");
    }
}

fn first_log() -> std::path::PathBuf {
    log_dir().join("00000000000000000000.log")
}

/// D11: the kernel's own write-back failed, and only the descriptor that wrote knows. Whatever the
/// log does next, it must hear of it before it lets go of that descriptor.
#[test]
fn d11_a_descriptor_with_unflushed_bytes_hears_of_its_loss_before_it_closes() {
    for seed in 0..20 {
        // By closing the log.
        let world = world(seed);
        let mut driver = Driver::fresh(&world, with("os"));
        driver.append_acked(&one(b"lost"), AckLevel::Written).unwrap();
        world.fail_writeback(first_log());
        driver.log.close(driver.io.now());
        driver.tick_until(|d| d.log.is_closed()).unwrap();
        assert!(matches!(driver.log.state(), PartitionState::Poisoned { .. }), "seed {seed}");
        assert!(!driver.log.closed_clean(), "seed {seed}: lost bytes called clean");
    }
}

/// D11: as above, by idling: files of a quiet log are closed only when there is nothing to lose.
#[test]
fn d11_an_idle_log_keeps_a_descriptor_with_unflushed_bytes_open() {
    let world = world(5);
    let mut driver = Driver::fresh(&world, with("os"));
    driver.append_acked(&one(b"lost"), AckLevel::Written).unwrap();
    driver.settle().unwrap();
    assert!(!driver.log.close_idle(), "it has bytes that no flush covers");
    driver.settle().unwrap();
    world.fail_writeback(first_log());
    let flush = driver.flush();
    driver.tick_until(|d| d.ack_of(flush).is_some()).unwrap();
    assert_eq!(driver.ack_of(flush).unwrap().result, Err(AckError::Poisoned));
}

/// D11: as above, by rolling: the old segment's descriptor hears of it, and what was in it never
/// counts as durable.
#[test]
fn d11_a_rolled_segment_hears_of_its_loss_before_it_closes() {
    let world = world(6);
    let mut driver = Driver::fresh(&world, rolling("os"));
    driver.append_acked(&one(&[b'v'; 1_200]), AckLevel::Written).unwrap();
    world.fail_writeback(first_log());
    let (rolls, _) = driver.append(&one(&[b'v'; 1_200]), AckLevel::Durable).unwrap();
    driver.tick_until(|d| d.ack_of(rolls).is_some()).unwrap();
    assert_eq!(driver.ack_of(rolls).unwrap().result, Err(AckError::Poisoned));
    world.advance(Micros(10_000_000));
    driver.settle().unwrap();
    assert_eq!(driver.log.durable_end().get(), 0);
    assert!(matches!(driver.log.state(), PartitionState::Poisoned { .. }));
}

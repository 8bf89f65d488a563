//! One log on the simulator: appends, rolls, lookups, stops and starts, faults.

mod support;

use ringlog::format::batch::Codec;
use ringlog::log::LogConfig;
use ringlog::types::AckLevel;
use support::{Driver, batch, offset, world};

fn small() -> LogConfig {
    LogConfig {
        segment_bytes: 1000,
        index_interval_bytes: 200,
        segment_index_bytes: 400,
        ..LogConfig::default()
    }
}

#[test]
fn what_is_acked_is_read_back_over_rolls_and_restarts() {
    let world = world(1);
    let mut driver = Driver::fresh(&world, small());
    let value = |i: usize| format!("value {i} {}", "x".repeat(i % 90)).into_bytes();
    for i in 0..40 {
        let ack =
            driver.append_acked(&batch(&[&value(i)], Codec::None, i as i64), AckLevel::Policy);
        assert_eq!(ack.unwrap().base_offset, offset(i as i64));
    }
    let all: Vec<_> = (0..40).map(|i| (i as i64, value(i))).collect();
    assert!(driver.log.segment_count() > 4, "{}", driver.log.segment_count());
    assert_eq!(driver.consume(offset(0), 300).unwrap(), all);
    driver.settle().unwrap();
    assert_eq!(driver.log.recovery_point(), offset(40));
    driver.stop().unwrap();
    let mut driver = Driver::start(&world, small()).unwrap();
    assert_eq!(driver.report.cuts, vec![]);
    assert_eq!(driver.report.damage, vec![]);
    assert_eq!(driver.log.high_watermark(), offset(40));
    assert_eq!(driver.consume(offset(0), 300).unwrap(), all);
    world.power_cut();
    let mut driver = Driver::start(&world, small()).unwrap();
    assert_eq!(driver.consume(offset(0), 300).unwrap(), all);
}

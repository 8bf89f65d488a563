//! A partition directory made of any bytes: opening it ends, never panics, loses nothing that it
//! served, takes appends, and agrees with itself the next time.

use ringlog::format::batch::{Codec, reseal, scan};
use ringlog::io::sim::World;
use ringlog::log::{Located, LogConfig, OpenError, OpenParams, Refusal};
use ringlog::types::{AckLevel, Offset};

use super::support::{Driver, batch, log_dir, params, world};

const FETCH_BYTES: u32 = 16 << 10;
/// Names and bytes.
type Files = Vec<(String, Vec<u8>)>;
/// Offset and bytes of each batch that was served.
type Served = Vec<(i64, Vec<u8>)>;

/// A directory as bytes: a head of four, then files. [`pack`] makes it.
pub struct Head {
    /// Bit 0: the clean marker was there. Bit 1: CRCs are made true. Bit 2: small segments.
    pub bits: u8,
    /// The recovery point, in tens of offsets; 255: not known.
    pub recovery_point: u8,
    /// The log start, in tens of offsets; 255: not known.
    pub log_start: u8,
}

const FILE_KINDS: [&str; 5] = ["log", "index", "timeindex", "snapshot", "txnindex"];
const SMALL_FILES: [&str; 2] = ["leader-epoch-checkpoint", "partition.metadata"];
const UNKNOWN: u8 = 255;

/// The input that stands for these files. None: one of them has no place in the form.
pub fn pack(head: &Head, files: &[(String, Vec<u8>)]) -> Option<Vec<u8>> {
    let mut out = vec![head.bits, head.recovery_point, head.log_start];
    for (name, bytes) in files {
        let (slot, base) = match SMALL_FILES.iter().position(|small| small == name) {
            Some(small) => (FILE_KINDS.len() + small, 0),
            None => {
                let (base, kind) = name.split_once('.')?;
                let slot = FILE_KINDS.iter().position(|known| *known == kind)?;
                (slot, u16::try_from(base.parse::<i64>().ok()?).ok()?)
            }
        };
        out.push(slot as u8);
        out.extend(base.to_be_bytes());
        out.extend(u16::try_from(bytes.len()).ok()?.to_be_bytes());
        out.extend(bytes);
    }
    Some(out)
}

fn unpack(input: &[u8]) -> Option<(Head, Files)> {
    let (&[bits, recovery_point, log_start], mut rest) = input.split_first_chunk()?;
    let mut files = Vec::new();
    while let Some((&[slot, b0, b1, l0, l1], behind)) = rest.split_first_chunk() {
        let base = u16::from_be_bytes([b0, b1]);
        let slot = usize::from(slot) % (FILE_KINDS.len() + SMALL_FILES.len());
        let name = match FILE_KINDS.get(slot) {
            Some(kind) => format!("{base:020}.{kind}"),
            None => SMALL_FILES[slot - FILE_KINDS.len()].to_owned(),
        };
        let len = usize::from(u16::from_be_bytes([l0, l1])).min(behind.len());
        let (bytes, after) = behind.split_at(len);
        files.push((name, bytes.to_vec()));
        rest = after;
    }
    Some((Head { bits, recovery_point, log_start }, files))
}

fn make_true(log: &mut [u8]) {
    let found: Vec<(usize, usize)> =
        scan(log).map(|found| (found.pos, found.bytes.len())).collect();
    for (pos, len) in found {
        reseal(&mut log[pos..pos + len]).expect("a whole batch");
    }
}

fn planted(head: &Head, files: &[(String, Vec<u8>)]) -> World {
    let world = world(1);
    world.make_dir_durably(log_dir());
    for (name, bytes) in files {
        let mut bytes = bytes.clone();
        if head.bits & 2 != 0 && name.ends_with(".log") {
            make_true(&mut bytes);
        }
        world.write_file_durably(log_dir().join(name), bytes);
    }
    world
}

fn first_params(head: &Head) -> OpenParams {
    let offset = |tens: u8| (tens != UNKNOWN).then(|| Offset::new(i64::from(tens) * 10)).flatten();
    OpenParams {
        clean: head.bits & 1 != 0,
        recovery_point: offset(head.recovery_point),
        log_start: offset(head.log_start),
        ..params(config(head))
    }
}

fn config(head: &Head) -> LogConfig {
    let segment_bytes = if head.bits & 4 != 0 { 4096 } else { 1 << 20 };
    let keep = LogConfig { retention_ms: -1, ..LogConfig::default() };
    LogConfig { segment_bytes, max_message_bytes: 4096, index_interval_bytes: 512, ..keep }
}

pub fn run(input: &[u8]) {
    let Some((head, files)) = unpack(input) else { return };
    let world = planted(&head, &files);
    let mut first = match Driver::open_with(&world, world.engine(), first_params(&head)) {
        Ok(driver) => driver,
        // Refusing is honest; failing on a disk that fails nothing is not.
        Err(error) => return assert!(!matches!(error, OpenError::Io { .. }), "{error}"),
    };
    let before = served(&mut first);
    let end = first.log.high_watermark();
    let value = b"appended after recovery";
    let one = batch(&[value], Codec::None, 1_700_000_000_000);
    match first.append(&one, AckLevel::Durable) {
        Ok((waiter, staged)) => {
            assert!(staged.base_offset >= end, "an offset is given twice");
            first.tick_until(|driver| driver.ack_of(waiter).is_some()).expect("no power cut");
            first.ack_of(waiter).expect("acked").result.expect("durable");
        }
        Err(Refusal::OffsetsExhausted) => {}
        Err(refusal) => panic!("{refusal}"),
    }
    let with_more = served(&mut first);
    assert_eq!(with_more[..before.len()], before, "an append changed what was served");
    let start = first.log.log_start();
    first.stop().expect("a clean stop");
    again(&world, &head, start, &with_more, true);
    again(&world, &head, start, &with_more, false);
}

/// Opened again, as after a clean stop and as after a crash, it has the same.
fn again(world: &World, head: &Head, start: Offset, served_before: &Served, clean: bool) {
    let started = match clean {
        true => Driver::start(world, config(head)),
        false => {
            let params = OpenParams { log_start: Some(start), ..params(config(head)) };
            Driver::open_with(world, world.engine(), params)
        }
    };
    let mut driver = started.expect("it was opened before");
    assert_eq!(driver.log.log_start(), start, "clean: {clean}");
    let served_now = served(&mut driver);
    assert_eq!(&served_now, served_before, "clean: {clean}");
    assert!(driver.report.cuts.is_empty(), "clean: {clean}: {:?}", driver.report.cuts);
}

/// Every batch that a reader gets from the log's start on, passing over what is damaged.
fn served(driver: &mut Driver) -> Served {
    let mut served = Served::new();
    let mut at = driver.log.log_start();
    while at < driver.log.high_watermark() {
        match driver.locate(at, FETCH_BYTES).expect("no power cut") {
            Located::Range(range) => {
                let len = u32::try_from(range.len).expect("bounded");
                let bytes = driver.read(range.file.id(), range.pos, len).expect("no power cut");
                let mut next = at;
                for found in scan(&bytes) {
                    next = Offset::new(found.header.next_offset()).expect("from 0 up");
                    assert!(next > at, "a batch below what was asked for");
                    served.push((found.header.base_offset, found.bytes.to_vec()));
                }
                assert!(next > at, "the first batch is whole");
                at = next;
            }
            Located::Corrupt { first, next, .. } => {
                assert!(next > at, "damage {first} to {next} does not hold {at}");
                at = next;
            }
            Located::AtEnd => break,
            other => panic!("at {at}: {other:?}"),
        }
    }
    served
}

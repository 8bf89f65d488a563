//! The tools read logs of any size in bounded memory: the kernel refuses them more.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use ringlog::format::batch::{self, Codec};
use ringlog::format::builder::BatchBuilder;

/// Address space, which the program itself takes a part of.
const LIMIT_KIB: u32 = 192 << 10;

fn made(records: usize, value: &[u8], codec: Codec, offset: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for _ in 0..records {
        builder.append(None, Some(value), &[], 5);
    }
    let mut made = builder.finish(codec, None).expect("packs").to_vec();
    batch::assign(&mut made, offset, 0).expect("a batch");
    made
}

/// 210 MiB of batches, one that expands to 220 MiB, and a hole of 1 GiB between two batches.
fn big_log(path: &Path) -> i64 {
    let file = File::create(path).expect("made");
    let (mut pos, mut offset) = (0, 0);
    let mut put = |bytes: &[u8], records: i64, hole: u64| {
        file.write_all_at(bytes, pos).expect("written");
        pos += bytes.len() as u64 + hole;
        offset += records;
        offset
    };
    let mut plain = made(1, &vec![7; 6 << 20], Codec::None, 0);
    let mut next = 0;
    for _ in 0..35 {
        batch::assign(&mut plain, next, 0).expect("a batch");
        next = put(&plain, 1, 0);
    }
    next = put(&made(220, &vec![0; 1 << 20], Codec::Zstd, next), 220, 0);
    next = put(&made(3, b"before", Codec::Gzip, next), 3, 1 << 30);
    put(&made(3, b"behind", Codec::Gzip, next), 3, 0)
}

fn limited(args: &[&str], path: &Path) -> (i32, String) {
    let command = format!("ulimit -v {LIMIT_KIB} && exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &command, env!("CARGO_BIN_EXE_ringlog")])
        .args(args)
        .arg(path)
        .stdout(Stdio::null())
        .output()
        .expect("runs");
    (output.status.code().expect("no signal"), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_large_log_is_read_in_bounded_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("00000000000000000000.log");
    let records = big_log(&path);
    let (code, stderr) = limited(&["dump", "--deep"], &path);
    assert_eq!(code, 1, "the hole is told: {stderr}");
    assert!(stderr.contains(&format!("records: {records},")), "{stderr}");
    assert!(stderr.contains(&format!("that are none: {}", 1u64 << 30)), "{stderr}");
    let (code, stderr) = limited(&["verify"], dir.path());
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("findings"), "{stderr}");
    let (code, stderr) = limited(&["index-rebuild", "--all"], dir.path());
    assert_eq!(code, 0, "{stderr}");
    let (code, stderr) = limited(&["explore", "--lookup-time", "6"], dir.path());
    assert_eq!(code, 0, "{stderr}");
}

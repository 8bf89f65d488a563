//! Tests of what a forbidden or starved ring looks like: this test binary again, in a child that
//! may not call io_uring_setup (R61), may lock little memory (R60), or may write little (R63).
//!
//! Owns: the seccomp filter and the limits of those children. Never does: anything in a release.
//! Left: `engine`, `probe`, `uring`, `syscall`. Right: nothing.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use super::blocking::Blocking;
use super::buffers::{Group, Pool};
use super::engine::{EngineKind, choose};
use super::kernel::{self, Version};
use super::op::{Errno, Io, Op, OpenHow, Outcome};
use super::probe::Features;
use super::setup::{KERNEL_MIN, SetupError};
use super::syscall::{SyscallIo, SyscallOptions};
use super::uring::{UringIo, UringOptions, WritePath};

/// The same on every architecture.
const IO_URING_SETUP: u32 = 425;

const MODULE: &str = "io::confined";

/// Makes io_uring_setup(2) fail with `errno` in this process and all it executes.
fn forbid_ring(errno: libc::c_int) -> io::Result<()> {
    let step =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal, answer) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let mut filter = [
        // The call's number is the first field of seccomp_data.
        step(load, 0, 0, 0),
        step(equal, 0, 1, IO_URING_SETUP),
        step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first call takes no memory; `program` and the filter it names are locals that
    // outlive the second, which copies them.
    let done = unsafe {
        let program: *const libc::sock_fprog = &program;
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Limits locked memory, for root too (whose capability would lift the limit).
fn limit_memlock(bytes: u64) -> io::Result<()> {
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let limit = libc::rlimit64 { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: `limit` is a local that the call reads; prctl takes no memory here, and its failure
    // (a plain user has no bounding set to change) is harmless: such a user has no capability.
    let done = unsafe {
        libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
        libc::setrlimit64(libc::RLIMIT_MEMLOCK, &limit)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes a file may have in the child below.
const FILE_MAX: u64 = 4096;

/// Files end at [`FILE_MAX`]: a write across it is short, the next one fails.
fn limit_file_size() -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: FILE_MAX, rlim_max: FILE_MAX };
    // SAFETY: `limit` is a local that the call reads; ignoring a signal takes no memory. Without
    // that, SIGXFSZ would end the child instead of failing the write.
    let done = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit64(libc::RLIMIT_FSIZE, &limit)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs tests of this binary in a child prepared by `prepare`.
fn run(args: &[&str], prepare: fn() -> io::Result<()>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(args);
    // SAFETY: the closures passed make system calls on locals only: nothing that a child of a
    // threaded process may not do between fork and exec.
    unsafe { command.pre_exec(prepare) };
    command.output().unwrap()
}

/// Runs one of the `#[ignore]`d tests below; it must exist and pass.
fn run_inner(name: &str, prepare: fn() -> io::Result<()>) {
    let name = format!("{MODULE}::{name}");
    let output = run(&["--ignored", "--exact", &name, "--nocapture"], prepare);
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{name}:\n{text}");
}

fn ring_is_possible() -> bool {
    let possible = Features::probe().has_uring();
    if !possible {
        println!("skipped: no ring here to take away");
    }
    possible
}

#[test]
fn a_forbidden_ring_is_found_at_start_and_system_calls_take_over() {
    if kernel::running() >= KERNEL_MIN {
        run_inner("inner_ring_is_forbidden", || forbid_ring(libc::EPERM));
        run_inner("inner_ring_is_forbidden", || forbid_ring(libc::ENOSYS));
    }
}

#[test]
#[ignore = "run by another test, in a child without io_uring"]
fn inner_ring_is_forbidden() {
    let features = Features::probe();
    let why = features.io_uring.refused.clone().unwrap();
    if features.io_uring.sysctl.unwrap_or(0) == 0 {
        assert!(why.contains("seccomp"), "{why}");
    }
    let auto = choose(EngineKind::Auto, &features).unwrap();
    assert_eq!((auto.kind, auto.is_fallback), (EngineKind::Syscall, true));
    assert!(auto.why.contains(&why));
    assert!(choose(EngineKind::Uring, &features).is_err());
    assert_eq!(UringIo::new(UringOptions::default()).err(), Some(SetupError::Forbidden { why }));
}

#[test]
fn every_test_of_io_passes_where_the_ring_is_forbidden() {
    let output = run(&["io::", "--skip", MODULE], || forbid_ring(libc::EPERM));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains(" 0 passed"), "{text}");
}

#[test]
fn little_locked_memory_makes_a_smaller_ring_none_makes_a_message() {
    // Rings were not charged from 5.12 up to 6.14.
    if kernel::running() >= Version::new(6, 15) && ring_is_possible() {
        run_inner("inner_ring_is_small", || limit_memlock(64 << 10));
        run_inner("inner_ring_has_no_memory", || limit_memlock(0));
    }
}

#[test]
#[ignore = "run by another test, in a child with 64 KiB of locked memory"]
fn inner_ring_is_small() {
    assert_eq!(kernel::memlock().soft, Some(64 << 10));
    let io = UringIo::new(UringOptions::default()).unwrap();
    assert!(io.entries() < UringOptions::default().entries, "{} entries", io.entries());
}

#[test]
#[ignore = "run by another test, in a child without locked memory"]
fn inner_ring_has_no_memory() {
    let error = UringIo::new(UringOptions::default()).err().unwrap();
    assert!(matches!(error, SetupError::Memlock { limit: Some(0), .. }), "{error:?}");
    let auto = choose(EngineKind::Auto, &Features::probe()).unwrap();
    assert_eq!(auto.kind, EngineKind::Syscall);
    assert!(auto.why.contains("LimitMEMLOCK"), "{}", auto.why);
}

#[test]
fn a_real_short_write_is_a_result_and_then_an_error() {
    run_inner("inner_writes_are_short", limit_file_size);
}

/// R63: 10,000 bytes of which 4,096 are taken, then none.
fn write_past_the_limit(mut io: impl Io) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i % 251) as u8).collect();
    let pool = Pool::new(4 << 20);
    let mut blocking = Blocking::new(&mut io, pool.clone());
    let how = OpenHow { write: true, create: true, ..OpenHow::default() };
    let file = blocking.open(&path, how).unwrap();
    let mut bufs = Group::of(pool.copied(&bytes[..1000]).unwrap());
    bufs.push(pool.copied(&bytes[1000..]).unwrap());
    match blocking.run(Op::Write { file, pos: 0, bufs }).unwrap() {
        (Outcome::Bytes(4096), Op::Write { bufs, .. }) => assert_eq!(bufs.len(), 10_000),
        other => panic!("{other:?} instead of a short write"),
    }
    assert_eq!(blocking.write_at(file, 0, &bytes), Err(Errno(libc::EFBIG)));
    blocking.close(file).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes[..4096]);
}

#[test]
#[ignore = "run by another test, in a child whose files end early"]
fn inner_writes_are_short() {
    write_past_the_limit(SyscallIo::new(SyscallOptions::default()).unwrap());
    for write_path in [WritePath::Direct, WritePath::Ring] {
        match UringIo::new(UringOptions { write_path, ..UringOptions::default() }) {
            Ok(io) => write_past_the_limit(io),
            Err(error) => println!("skipped on the ring: {error}"),
        }
    }
}

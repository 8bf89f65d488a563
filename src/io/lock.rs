//! The data directory's `.lock`: one server a directory, as Kafka's.
//!
//! Owns: an exclusive lock of the whole file for as long as [`DirLock`] lives.
//! Never does: write to the file, remove it. Left: `sys`. Right: `server`.
//!
//! Kafka removes the file when it stops; ringlog leaves it, empty, as a killed broker does. Who
//! removes it takes it from under whoever has opened it and not locked it yet, and a third one then
//! locks a new file beside them. Where a broker does that, the lock is taken anew here.
//!
//! Kafka takes a POSIX record lock. Ours is an open-file-description lock: it conflicts with
//! Kafka's, and also with another one of this very process, which a POSIX lock would not.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::op::Errno;
use super::sys::errno_of;

pub const LOCK_FILE: &str = ".lock";

/// A killed server's ring may hold its files for a moment longer (R69, E12).
const TRIES: u32 = 5;
const TRY_EVERY: Duration = Duration::from_millis(50);

/// What to do where the file system has no locks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WithoutLocks {
    Refuse,
    /// The operator answers for it that only one server runs.
    Proceed,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LockError {
    #[error("{} is in use by {}", dir.display(), holder_text(*holder))]
    Held { dir: PathBuf, holder: Option<u32> },
    #[error(
        "{}: its file system has no file locks ({errno}), so nothing would stop a second server; \
         choose another directory, or override the lock if you are sure",
        dir.display()
    )]
    Unsupported { dir: PathBuf, errno: Errno },
    #[error("{}: {errno}", path.display())]
    Failed { path: PathBuf, errno: Errno },
}

fn holder_text(holder: Option<u32>) -> String {
    match holder {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_string(),
    }
}

/// Holds the lock; dropping it, or the process's end, lets it go.
#[derive(Debug)]
pub struct DirLock {
    file: File,
    is_locked: bool,
}

impl DirLock {
    pub fn acquire(dir: &Path, without_locks: WithoutLocks) -> Result<DirLock, LockError> {
        let path = dir.join(LOCK_FILE);
        let failed = |errno| LockError::Failed { path: path.clone(), errno };
        loop {
            let opened =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let file = opened.map_err(|error| failed(errno_of(&error)))?;
            match lock_patiently(&file) {
                // A broker removes its lock file when it stops: what was locked may have no name
                // any more, and would stop nobody.
                Ok(()) if !is_named(&file, &path) => {}
                Ok(()) => return Ok(DirLock { file, is_locked: true }),
                Err(Errno::EAGAIN | Errno::EACCES) => {
                    let holder = holder_of(&file);
                    return Err(LockError::Held { dir: dir.to_path_buf(), holder });
                }
                Err(errno) if is_unsupported(errno) => {
                    return match without_locks {
                        WithoutLocks::Proceed => Ok(DirLock { file, is_locked: false }),
                        WithoutLocks::Refuse => {
                            Err(LockError::Unsupported { dir: dir.to_path_buf(), errno })
                        }
                    };
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// False where locks are missing and the operator said to go on.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// The lock file's descriptor stays open with this.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Whether `path` still leads to the open file.
fn is_named(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (open.st_dev(), open.st_ino()) == (named.st_dev(), named.st_ino())
}

fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP) | Errno::EINVAL)
}

fn lock_patiently(file: &File) -> Result<(), Errno> {
    let mut tries = 0;
    loop {
        match set_lock(file) {
            Err(Errno::EAGAIN | Errno::EACCES) if tries < TRIES => {
                tries += 1;
                std::thread::sleep(TRY_EVERY);
            }
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

/// The whole file, exclusively.
fn whole() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

fn set_lock(file: &File) -> Result<(), Errno> {
    let lock = whole();
    // SAFETY: `lock` is a local of the type the command reads.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

/// The process that holds the lock, where it can be found: the kernel names the owner of a POSIX
/// lock; an open-file-description lock shows only in its owner's fdinfo.
fn holder_of(file: &File) -> Option<u32> {
    let mut lock = whole();
    // SAFETY: `lock` is a local of the type the command reads and fills.
    let found = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    if found == 0 && lock.l_pid > 0 {
        return u32::try_from(lock.l_pid).ok();
    }
    let inode = file.metadata().ok()?.st_ino();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .find(|pid| holds_lock_on(*pid, inode))
}

/// Looks for `lock: 1: OFDLCK ADVISORY WRITE -1 fe:00:<inode> 0 EOF` in a process's descriptors.
fn holds_lock_on(pid: u32, inode: u64) -> bool {
    let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let ours = format!(":{inode} ");
    infos
        .filter_map(|info| std::fs::read_to_string(info.path()).ok())
        .any(|text| text.lines().any(|l| l.starts_with("lock:") && l.contains(&ours)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_is_refused_and_told_where_and_by_whom() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirLock::acquire(dir.path(), WithoutLocks::Refuse).unwrap();
        assert!(first.is_locked());
        let error = DirLock::acquire(dir.path(), WithoutLocks::Proceed).unwrap_err();
        let pid = std::process::id();
        assert_eq!(error, LockError::Held { dir: dir.path().to_path_buf(), holder: Some(pid) });
        let text = error.to_string();
        assert!(text.contains(&dir.path().display().to_string()), "{text}");
        assert!(text.contains(&format!("process {pid}")), "{text}");
        drop(first);
        DirLock::acquire(dir.path(), WithoutLocks::Refuse).unwrap();
    }

    #[test]
    fn a_posix_lock_such_as_kafkas_conflicts_both_ways() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCK_FILE);
        let kafka = File::create(&path).unwrap();
        let posix = whole();
        // SAFETY: `posix` is a local of the type the command reads.
        assert_eq!(unsafe { libc::fcntl(kafka.as_raw_fd(), libc::F_SETLK, &posix) }, 0);
        let error = DirLock::acquire(dir.path(), WithoutLocks::Refuse).unwrap_err();
        let holder = Some(std::process::id());
        assert_eq!(error, LockError::Held { dir: dir.path().to_path_buf(), holder });
        drop(kafka);
        let _ours = DirLock::acquire(dir.path(), WithoutLocks::Refuse).unwrap();
        let kafka = OpenOptions::new().write(true).open(&path).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::fcntl(kafka.as_raw_fd(), libc::F_SETLK, &posix) }, -1);
    }

    #[test]
    fn a_lock_let_go_in_the_last_moment_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let dying = DirLock::acquire(dir.path(), WithoutLocks::Refuse).unwrap();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(TRY_EVERY * 2);
            drop(dying);
        });
        DirLock::acquire(dir.path(), WithoutLocks::Refuse).unwrap();
        ends.join().unwrap();
    }

    #[test]
    fn a_lock_file_removed_by_a_stopping_broker_is_made_and_locked_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCK_FILE);
        let broker = DirLock::acquire(dir.path(), WithoutLocks::Refuse).unwrap();
        let ends = std::thread::spawn({
            let path = path.clone();
            move || {
                std::thread::sleep(TRY_EVERY * 2);
                std::fs::remove_file(path).unwrap();
                drop(broker);
            }
        });
        let ours = DirLock::acquire(dir.path(), WithoutLocks::Refuse).unwrap();
        ends.join().unwrap();
        assert!(is_named(ours.file(), &path), "the lock is on the file that others will open");
        DirLock::acquire(dir.path(), WithoutLocks::Refuse).unwrap_err();
    }

    #[test]
    fn missing_locks_are_told_apart_from_a_holder() {
        for errno in [libc::ENOLCK, libc::EOPNOTSUPP, libc::EINVAL] {
            assert!(is_unsupported(Errno(errno)));
            assert!(!is_unsupported(Errno::EAGAIN));
        }
        let dir = PathBuf::from("/data");
        let text = LockError::Unsupported { dir, errno: Errno(libc::ENOLCK) }.to_string();
        assert!(text.contains("/data") && text.contains("override"), "{text}");
    }
}

//! What a data directory's file system and device are, and what can be promised there.
//!
//! Owns: [`DirFacts`]: whether durable can hold (D15), direct I/O (R65), the device's queue, and
//! whether buffered writes run inline on the ring. Never does: leave a file behind.
//! Left: `mounts`, `ring`, `sys`. Right: `paths`, `render`, `server`.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use io_uring::{opcode, types};
use serde::Serialize;

use super::mounts::{self, Mount};
use crate::io::buffers::{Group, Pool};
use crate::io::op::{Errno, check};
use crate::io::ring::Ring;
use crate::io::setup::ENTRIES_MIN;
use crate::io::sys;
use crate::io::uring::WritePath;

/// What ringlog aligns direct I/O to, whatever the device would also take.
pub const DIRECT_ALIGN: u32 = 4096;

/// Buffered writes tried on the ring, and the bytes of each.
const TRIAL_WRITES: u64 = 16;
const TRIAL_BYTES: usize = 4096;

#[derive(Clone, Debug, Serialize)]
pub struct DirFacts {
    pub path: PathBuf,
    pub fs: String,
    pub source: String,
    pub mount_point: PathBuf,
    pub options: Vec<String>,
    pub durable: Verdict,
    pub direct: Direct,
    pub inline_writes: InlineWrites,
    /// Writing segments ahead of their use gains nothing where blocks are never overwritten.
    pub copies_on_write: bool,
    pub device: Option<Device>,
}

/// A yes or no, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub holds: bool,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Direct {
    /// An aligned O_DIRECT write of one block worked here.
    pub works: bool,
    pub why: String,
    /// What statx(STATX_DIOALIGN) says, where it says something.
    pub memory_align: Option<u32>,
    pub offset_align: Option<u32>,
}

/// Whether buffered writes through the ring run on the submitting thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InlineWrites {
    pub inline: bool,
    pub why: String,
}

/// A block device as sysfs describes it; absent where it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    pub name: String,
    pub model: Option<String>,
    pub scheduler: Option<String>,
    pub write_cache: Option<String>,
    pub fua: Option<bool>,
    pub rotational: Option<bool>,
    pub max_sectors_kb: Option<u64>,
    pub max_segments: Option<u64>,
    pub nr_requests: Option<u64>,
    pub logical_block_bytes: Option<u64>,
    pub physical_block_bytes: Option<u64>,
}

impl DirFacts {
    /// Looks at `dir`, which must exist, with a trial file that has no name after its opening.
    pub fn probe(dir: &Path) -> Result<DirFacts, Errno> {
        let path = dir.canonicalize().map_err(|error| sys::errno_of(&error))?;
        let meta = std::fs::metadata(&path).map_err(|error| sys::errno_of(&error))?;
        let mounts = mounts::read();
        let mount = mounts::holding(&mounts, &path).cloned().unwrap_or(Mount {
            point: PathBuf::from("/"),
            fs: "unknown".to_string(),
            source: String::new(),
            options: Vec::new(),
        });
        Ok(DirFacts {
            durable: durable(&mount),
            direct: direct(&path),
            inline_writes: inline_writes(&path, &mount.fs),
            copies_on_write: ["btrfs", "zfs", "bcachefs"].contains(&mount.fs.as_str()),
            device: device_of(meta.st_dev(), &mount.source),
            path,
            fs: mount.fs,
            source: mount.source,
            mount_point: mount.point,
            options: mount.options,
        })
    }

    /// How the ring engine should do buffered writes here.
    pub fn write_path(&self) -> WritePath {
        match self.inline_writes.inline {
            true => WritePath::Ring,
            false => WritePath::Direct,
        }
    }
}

/// Whether a successful flush survives a power cut here (D15).
fn durable(mount: &Mount) -> Verdict {
    let no = |why: String| Verdict { holds: false, why };
    let has = |option: &str| mount.options.iter().any(|known| known == option);
    let fs = mount.fs.as_str();
    match fs {
        "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => {
            no(format!("{fs} keeps files in memory: a power cut or restart loses all of them"))
        }
        "overlay" if has("volatile") => {
            no("overlay is mounted volatile: it leaves out every flush".to_string())
        }
        "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "ceph" | "9p" | "afs" | "glusterfs"
        | "virtiofs" | "fuseblk" => no(format!(
            "{fs} is a network or shared file system: what a flush means is up to \
                        the other side"
        )),
        _ if fs == "fuse" || fs.starts_with("fuse.") => {
            no(format!("{fs} runs in user space: what a flush means is up to that program"))
        }
        _ if has("nobarrier") || has("barrier=0") => {
            no("mounted without barriers: the device's cache is never flushed".to_string())
        }
        _ if has("ro") => no("mounted read-only".to_string()),
        "overlay" => Verdict {
            holds: true,
            why: "as far as the upper file system's own flush holds".to_string(),
        },
        "unknown" => no("the file system cannot be told (/proc/self/mountinfo)".to_string()),
        _ => Verdict { holds: true, why: format!("{fs} flushes the device's cache") },
    }
}

/// A file in `dir` that no name leads to any more.
fn trial_file(dir: &Path, flags: i32) -> Result<File, Errno> {
    let path = dir.join(format!(".ringlog-probe-{}-{}", std::process::id(), sys::now().0));
    let opened =
        OpenOptions::new().read(true).write(true).create_new(true).custom_flags(flags).open(&path);
    // A name is made even where O_DIRECT is then refused.
    let removed = std::fs::remove_file(&path);
    let file = opened.map_err(|error| sys::errno_of(&error))?;
    removed.map_err(|error| sys::errno_of(&error))?;
    Ok(file)
}

fn direct(dir: &Path) -> Direct {
    let refused = |why: String, (memory_align, offset_align)| Direct {
        works: false,
        why,
        memory_align,
        offset_align,
    };
    let file = match trial_file(dir, libc::O_DIRECT) {
        Ok(file) => file,
        Err(errno) => return refused(format!("O_DIRECT: {errno}"), (None, None)),
    };
    let aligns = dio_align(&file);
    let too_large = |align: Option<u32>| align.is_some_and(|align| align > DIRECT_ALIGN);
    if too_large(aligns.0) || too_large(aligns.1) {
        return refused(format!("the device wants more than {DIRECT_ALIGN} bytes"), aligns);
    }
    let pool = Pool::new(DIRECT_ALIGN as usize);
    let block = pool.copied(&[0; DIRECT_ALIGN as usize]).expect("room for one block");
    match sys::write_at(file.as_raw_fd(), &Group::of(block), 0, &mut Vec::new()) {
        Ok(DIRECT_ALIGN) => Direct {
            works: true,
            why: format!("an aligned write of {DIRECT_ALIGN} bytes worked"),
            memory_align: aligns.0,
            offset_align: aligns.1,
        },
        Ok(n) => refused(format!("an aligned write stopped after {n} bytes"), aligns),
        Err(errno) => refused(format!("an aligned write failed: {errno}"), aligns),
    }
}

/// Memory and offset alignment by STATX_DIOALIGN; zero means no direct I/O, which the write that
/// follows will show.
fn dio_align(file: &File) -> (Option<u32>, Option<u32>) {
    let mut buffer = sys::empty_statx();
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the empty path is a static string, `buffer` a local of the type the call fills.
    let found = unsafe {
        let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
        libc::statx(fd, c"".as_ptr(), flags, mask, &mut buffer)
    };
    if found != 0 || buffer.stx_mask & libc::STATX_DIOALIGN == 0 {
        return (None, None);
    }
    let told = |align: u32| (align != 0).then_some(align);
    (told(buffer.stx_dio_mem_align), told(buffer.stx_dio_offset_align))
}

/// Tries some, and looks whether the kernel had to start a worker thread for them. One worker is
/// proof only where the file system never writes inline: XFS hands out the first write of each
/// timestamp tick.
fn inline_writes(dir: &Path, fs: &str) -> InlineWrites {
    let by_name = ["xfs", "btrfs"].contains(&fs);
    let verdict = |inline, why: &str| InlineWrites { inline, why: why.to_string() };
    let dir = dir.to_path_buf();
    // On a thread of its own: the kernel names a ring's workers after the thread that owns it.
    let tried = std::thread::scope(|scope| scope.spawn(|| try_inline(&dir)).join());
    match (tried, by_name) {
        (Ok(Ok(false)), _) => verdict(true, "tried: no worker thread was needed"),
        (Ok(Ok(true)), true) => verdict(true, "known: inline but for timestamp updates"),
        (Ok(Ok(true)), false) => verdict(false, "tried: the ring needs a worker thread"),
        (_, true) => verdict(true, "not tried; known to write inline"),
        (_, false) => verdict(false, "not tried; not known to write inline"),
    }
}

/// Writes through a ring of the calling thread; true when a worker appeared.
fn try_inline(dir: &Path) -> Result<bool, Errno> {
    let file = trial_file(dir, 0)?;
    let mut ring = Ring::new(ENTRIES_MIN, 0, [1, 1]).map_err(|_| Errno(libc::ENOSYS))?;
    let bytes = vec![0u8; TRIAL_BYTES];
    let mut completions = Vec::new();
    for index in 0..TRIAL_WRITES {
        let fd = types::Fd(file.as_raw_fd());
        let entry = opcode::Write::new(fd, bytes.as_ptr(), TRIAL_BYTES as u32)
            .offset(index * TRIAL_BYTES as u64)
            .build();
        // SAFETY: `bytes` is not dropped or moved before the loop below has seen the completion,
        // or, when the ring breaks, is leaked.
        assert!(unsafe { ring.push(&entry) }, "an empty queue has room");
        while completions.is_empty() {
            if let Err(errno) = ring.enter(1, None) {
                std::mem::forget(bytes);
                return Err(errno);
            }
            ring.take(&mut completions);
        }
        check(completions.remove(0).result)?;
    }
    Ok(has_worker())
}

/// The kernel's workers for a ring are threads of this process named after the ring's thread.
fn has_worker() -> bool {
    // SAFETY: gettid(2) takes no memory and cannot fail.
    let name = format!("iou-wrk-{}", unsafe { libc::gettid() });
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
        .any(|comm| comm.trim_end() == name)
}

/// The disk under a device number, or under the mount's source when the file system has a number
/// of its own (btrfs, overlay).
fn device_of(number: u64, source: &str) -> Option<Device> {
    let of_source = || std::fs::metadata(source).ok().map(|meta| meta.st_rdev());
    [Some(number), of_source()].into_iter().flatten().find_map(|number| {
        let (major, minor) = (libc::major(number), libc::minor(number));
        let at = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
        // A partition's queue is its disk's.
        let disk = [Some(at.as_path()), at.parent()]
            .into_iter()
            .flatten()
            .find(|dir| dir.join("queue").is_dir())?;
        Some(read_device(disk))
    })
}

fn read_device(disk: &Path) -> Device {
    let text = |name: &str| {
        let text = std::fs::read_to_string(disk.join(name)).ok()?;
        Some(text.trim().to_string()).filter(|text| !text.is_empty())
    };
    let number = |name: &str| text(name)?.parse().ok();
    let flag = |name: &str| text(name).map(|text| text == "1");
    Device {
        name: disk.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        model: text("device/model"),
        scheduler: text("queue/scheduler").map(|all| active_scheduler(&all).to_string()),
        write_cache: text("queue/write_cache"),
        fua: flag("queue/fua"),
        rotational: flag("queue/rotational"),
        max_sectors_kb: number("queue/max_sectors_kb"),
        max_segments: number("queue/max_segments"),
        nr_requests: number("queue/nr_requests"),
        logical_block_bytes: number("queue/logical_block_size"),
        physical_block_bytes: number("queue/physical_block_size"),
    }
}

/// `none [mq-deadline] kyber` -> `mq-deadline`.
fn active_scheduler(all: &str) -> &str {
    all.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(all, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(fs: &str, options: &[&str]) -> Mount {
        Mount {
            point: PathBuf::from("/"),
            fs: fs.to_string(),
            source: String::new(),
            options: options.iter().map(|option| option.to_string()).collect(),
        }
    }

    #[test]
    fn durable_is_denied_where_a_flush_reaches_no_disk() {
        for (fs, options, holds) in [
            ("ext4", &["rw"][..], true),
            ("xfs", &["rw", "noatime"], true),
            ("ext4", &["rw", "nobarrier"], false),
            ("ext4", &["rw", "barrier=0"], false),
            ("ext4", &["ro"], false),
            ("tmpfs", &["rw"], false),
            ("overlay", &["rw"], true),
            ("overlay", &["rw", "volatile"], false),
            ("nfs4", &["rw"], false),
            ("fuse.sshfs", &["rw"], false),
            ("unknown", &[], false),
        ] {
            assert_eq!(durable(&mount(fs, options)).holds, holds, "{fs} {options:?}");
        }
    }

    #[test]
    fn the_active_scheduler_stands_in_brackets() {
        assert_eq!(active_scheduler("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(active_scheduler("none"), "none");
    }

    #[test]
    fn a_directory_is_looked_at_without_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        let facts = DirFacts::probe(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(facts.path.starts_with(&facts.mount_point));
        // /dev/shm is tmpfs wherever it exists (R65, D15).
        if let Ok(facts) = DirFacts::probe(Path::new("/dev/shm")) {
            assert_eq!((facts.fs.as_str(), facts.durable.holds), ("tmpfs", false));
        }
        assert_eq!(DirFacts::probe(&dir.path().join("no")).unwrap_err(), Errno::ENOENT);
    }
}

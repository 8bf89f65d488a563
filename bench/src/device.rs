//! The block device below a directory: what it is, what it does, and when it rests.
//!
//! Owns: mount and queue facts, block-layer counters, the clean start of a row (M9) with its
//! fdatasync sentinel. Never does: judge a row (`quick` does).
//! Left: `/proc`, `/sys`, `sys`. Right: `env`, `meter`, `quick`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::sys;

/// Dirty plus writeback below which a row may start (M9).
const DIRTY_BYTES_MAX: u64 = 16 << 20;
/// How long the device must have done nothing.
const QUIET: Duration = Duration::from_millis(40);
/// Sector of `/proc/diskstats`, whatever the device's own is.
const SECTOR_BYTES: u64 = 512;

/// Flushes of one sentinel; the median of so many is steady enough to compare.
const SENTINEL_FLUSHES: usize = 32;
const SENTINEL_BLOCK: usize = 4096;
const SENTINEL_BLOCKS: u64 = 64;

/// File systems on which a figure says nothing about a disk (M11, D15).
const NO_VERDICT: [&str; 14] = [
    "tmpfs",
    "ramfs",
    "overlay",
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "virtiofs",
    "ceph",
    "fuse",
    "fuseblk",
    "afs",
    "glusterfs",
];

/// Where a directory lives: file system, mount, and the disk if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    pub fs: String,
    pub source: String,
    pub point: PathBuf,
    pub options: String,
    pub super_options: String,
}

impl Mount {
    /// Whether figures taken here say anything about a disk.
    pub fn is_disk(&self) -> bool {
        !NO_VERDICT.contains(&self.fs.as_str())
            && !self.fs.starts_with("fuse.")
            && !self.fs.is_empty()
    }
}

/// The mount that holds device `major:minor` at `path`, from `/proc/self/mountinfo` text.
pub fn find_mount(mountinfo: &str, major_minor: &str, path: &Path) -> Option<Mount> {
    let mut best: Option<Mount> = None;
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (Some(dev), Some(point), Some(options)) = (left.get(2), left.get(4), left.get(5))
        else {
            continue;
        };
        let point = PathBuf::from(point.replace("\\040", " "));
        // btrfs and overlay report another device number for files than for the mount.
        let same = *dev == major_minor || dev.starts_with("0:");
        if !same || !path.starts_with(&point) {
            continue;
        }
        let longer = |other: &Mount| point.as_os_str().len() >= other.point.as_os_str().len();
        if best.as_ref().is_none_or(longer) {
            best = Some(Mount {
                fs: right.first().unwrap_or(&"").to_string(),
                source: right.get(1).unwrap_or(&"").to_string(),
                point,
                options: options.to_string(),
                super_options: right.get(2).unwrap_or(&"").to_string(),
            });
        }
    }
    best
}

/// Block-layer counters since boot, in the units they are used in.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub in_flight: u64,
    pub busy_ms: u64,
    pub flushes: u64,
}

impl DiskCounters {
    /// What happened since `earlier`; `in_flight` stays the present number.
    pub fn since(&self, earlier: &DiskCounters) -> DiskCounters {
        DiskCounters {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            in_flight: self.in_flight,
            busy_ms: self.busy_ms.saturating_sub(earlier.busy_ms),
            flushes: self.flushes.saturating_sub(earlier.flushes),
        }
    }
}

/// The line of `name` in `/proc/diskstats` text; columns that an old kernel lacks are zero.
pub fn parse_diskstats(text: &str, name: &str) -> Option<DiskCounters> {
    let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(name))?;
    let numbers: Vec<u64> =
        line.split_whitespace().skip(3).map(|word| word.parse().unwrap_or(0)).collect();
    let at = |index: usize| numbers.get(index).copied().unwrap_or(0);
    (numbers.len() >= 11).then(|| DiskCounters {
        reads: at(0),
        read_bytes: at(2).saturating_mul(SECTOR_BYTES),
        writes: at(4),
        written_bytes: at(6).saturating_mul(SECTOR_BYTES),
        in_flight: at(8),
        busy_ms: at(9),
        flushes: at(15),
    })
}

/// Dirty plus writeback bytes of `/proc/meminfo` text; `None` when either line is missing.
pub fn parse_dirty(meminfo: &str) -> Option<u64> {
    Some(meminfo_bytes(meminfo, "Dirty")?.saturating_add(meminfo_bytes(meminfo, "Writeback")?))
}

/// One line of `/proc/meminfo` in bytes.
pub fn meminfo_bytes(meminfo: &str, key: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The directory under test and the device below it.
pub struct Device {
    dir: PathBuf,
    dir_file: File,
    pub mount: Option<Mount>,
    /// Kernel name of the whole disk (`nvme0n1`, `vda`); `None` without one.
    pub disk: Option<String>,
    /// Kernel name of the partition or volume itself, the one whose counters are read.
    pub volume: Option<String>,
    sentinel: Sentinel,
    limits: Patience,
}

/// How long a clean start may wait.
#[derive(Copy, Clone, Debug)]
pub struct Patience {
    pub clean: Duration,
    pub sentinel_tries: u32,
}

/// What the clean start of a row found.
#[derive(Clone, Debug, Default)]
pub struct CleanStart {
    pub sentinel_us: f64,
    /// Why the start was not clean; the row is then invalid.
    pub reason: Option<String>,
}

impl Device {
    pub fn open(dir: &Path, limits: Patience) -> io::Result<Device> {
        let dir = dir.canonicalize()?;
        let dir_file = File::open(&dir)?;
        let dev = dir_file.metadata()?.dev();
        let major_minor = format!("{}:{}", libc::major(dev), libc::minor(dev));
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = find_mount(&mountinfo, &major_minor, &dir);
        let (disk, volume) = block_names(Path::new("/sys/dev/block"), &major_minor);
        let sentinel = Sentinel::create(&dir.join("sentinel"))?;
        Ok(Device { dir, dir_file, mount, disk, volume, sentinel, limits })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether figures taken here say anything about a disk.
    pub fn is_disk(&self) -> bool {
        self.mount.as_ref().is_some_and(Mount::is_disk)
    }

    pub fn counters(&self) -> Option<DiskCounters> {
        let name = self.volume.as_deref()?;
        parse_diskstats(&fs::read_to_string("/proc/diskstats").ok()?, name)
    }

    pub fn syncfs(&self) -> io::Result<()> {
        sys::syncfs(&self.dir_file)
    }

    /// M9: everything written back, the device at rest, and the sentinel near `usual_us`.
    pub fn clean_start(&mut self, usual_us: Option<f64>) -> io::Result<CleanStart> {
        self.syncfs()?;
        let deadline = Instant::now() + self.limits.clean;
        let mut reason = self.wait_until_quiet(deadline);
        let mut sentinel_us = self.sentinel.median_us()?;
        for _ in 1..self.limits.sentinel_tries {
            let near = usual_us.is_none_or(|usual| (sentinel_us / usual - 1.0).abs() <= 0.15);
            if near || sys::stopped() {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
            reason = self.wait_until_quiet(deadline);
            sentinel_us = self.sentinel.median_us()?;
        }
        Ok(CleanStart { sentinel_us, reason })
    }

    fn wait_until_quiet(&self, deadline: Instant) -> Option<String> {
        loop {
            let reason = self.unquiet();
            if reason.is_none() || sys::stopped() || Instant::now() >= deadline {
                return reason;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn unquiet(&self) -> Option<String> {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        if let Some(dirty) = parse_dirty(&meminfo).filter(|&dirty| dirty >= DIRTY_BYTES_MAX) {
            return Some(format!("{} MiB dirty at the start", dirty >> 20));
        }
        let before = self.counters()?;
        std::thread::sleep(QUIET);
        let did = self.counters()?.since(&before);
        let rested = did.in_flight == 0 && did.reads + did.writes + did.flushes == 0;
        (!rested).then(|| "device busy at the start".to_string())
    }

    /// One fact of the disk's queue directory, as the kernel prints it.
    pub fn queue_fact(&self, name: &str) -> Option<String> {
        read_trimmed(&Path::new("/sys/block").join(self.disk.as_deref()?).join("queue").join(name))
    }

    /// One fact of the disk's own directory (`device/model`).
    pub fn disk_fact(&self, name: &str) -> Option<String> {
        read_trimmed(&Path::new("/sys/block").join(self.disk.as_deref()?).join(name))
    }
}

/// First lines of small kernel files, without surrounding blanks; `None` when empty or missing.
pub fn read_trimmed(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

/// Names of (whole disk, volume) behind `major:minor`, by the links of `/sys/dev/block`.
fn block_names(by_number: &Path, major_minor: &str) -> (Option<String>, Option<String>) {
    let Ok(real) = by_number.join(major_minor).canonicalize() else { return (None, None) };
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let volume = name(&real);
    let disk = match real.join("partition").exists() {
        true => real.parent().and_then(name),
        false => volume.clone(),
    };
    (disk, volume)
}

/// A fixed small durable write, repeated before each row: if it moved, the device has (M9).
struct Sentinel {
    file: File,
    next: u64,
}

impl Sentinel {
    fn create(path: &Path) -> io::Result<Sentinel> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(&vec![0x5a; SENTINEL_BLOCK * SENTINEL_BLOCKS as usize], 0)?;
        file.sync_all()?;
        Ok(Sentinel { file, next: 0 })
    }

    /// Median of [`SENTINEL_FLUSHES`] overwrites of 4 KiB, each with its own fdatasync.
    fn median_us(&mut self) -> io::Result<f64> {
        let block = [0x5au8; SENTINEL_BLOCK];
        let mut took = Vec::with_capacity(SENTINEL_FLUSHES);
        for _ in 0..SENTINEL_FLUSHES {
            let pos = (self.next % SENTINEL_BLOCKS) * SENTINEL_BLOCK as u64;
            self.next += 1;
            let start = Instant::now();
            self.file.write_all_at(&block, pos)?;
            self.file.sync_data()?;
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(&mut took).unwrap_or(0.0))
    }
}

/// The middle of some numbers (of two middles, their mean); `None` of none.
pub fn median(numbers: &mut [f64]) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let half = numbers.len() / 2;
    let upper = *numbers.get(half)?;
    match numbers.len() % 2 {
        0 => Some((numbers[half - 1] + upper) / 2.0),
        _ => Some(upper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diskstats_of_new_and_old_kernels() {
        let text = " 254 0 vda 10 1 200 3 20 2 400 5 1 60 70 8 9 10 11 12 13\n\
                    \u{20}254 1 vda1 1 1 8 3 2 2 16 5 0 6 7\n  8 0 sda 1 2\n";
        let new = parse_diskstats(text, "vda").unwrap();
        assert_eq!((new.reads, new.read_bytes, new.writes), (10, 200 * 512, 20));
        assert_eq!((new.written_bytes, new.in_flight, new.busy_ms), (400 * 512, 1, 60));
        assert_eq!(new.flushes, 12);
        assert_eq!(parse_diskstats(text, "vda1").unwrap().flushes, 0);
        assert_eq!(parse_diskstats(text, "sda"), None);
        assert_eq!(parse_diskstats("", "vda"), None);
        assert_eq!(parse_diskstats("garbage\n\n 1 2\n", "vda"), None);
    }

    #[test]
    fn dirty_needs_both_lines() {
        let text = "MemTotal: 100 kB\nDirty:  4 kB\nWriteback: 8 kB\nWritebackTmp: 99 kB\n";
        assert_eq!(parse_dirty(text), Some(12 * 1024));
        assert_eq!(parse_dirty("Dirty: 4 kB\n"), None);
        assert_eq!(parse_dirty("Dirty: four kB\nWriteback: 8 kB\n"), None);
    }

    #[test]
    fn the_deepest_mount_wins_and_odd_lines_are_passed_over() {
        let info = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
                    junk\n\
                    30 22 0:40 / /tmp rw - tmpfs none rw,size=1g\n\
                    31 22 8:1 / /tmp/deep rw - xfs /dev/sda1 rw\n";
        let root = find_mount(info, "254:0", Path::new("/data/x")).unwrap();
        assert_eq!((root.fs.as_str(), root.options.as_str()), ("ext4", "rw,relatime"));
        assert_eq!(root.super_options, "rw,discard");
        assert!(root.is_disk());
        let tmp = find_mount(info, "0:40", Path::new("/tmp/y")).unwrap();
        assert_eq!(tmp.fs, "tmpfs");
        assert!(!tmp.is_disk());
        assert_eq!(find_mount(info, "8:1", Path::new("/tmp/deep/z")).unwrap().fs, "xfs");
        assert_eq!(find_mount("", "8:1", Path::new("/")), None);
    }

    #[test]
    fn network_and_memory_file_systems_get_no_verdict() {
        let of = |fs: &str| Mount { fs: fs.into(), ..Mount::default() }.is_disk();
        assert!(of("ext4") && of("xfs") && of("btrfs"));
        assert!(!of("overlay") && !of("nfs4") && !of("fuse.sshfs") && !of(""));
    }

    #[test]
    fn median_of_even_odd_and_none() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }
}

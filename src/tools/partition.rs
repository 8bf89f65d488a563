//! What lies in a partition's directory, and in the data directory around it, by name.
//!
//! Owns: the listing, and what the checkpoints of the data directory say. Never does: open a log.
//! Left: `format::name`, `format::checkpoint`. Right: `verify`, `explore`, `rebuild`, `cuts`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::format::checkpoint::parse_offsets;
use crate::format::cut_name::CutFile;
use crate::format::damage;
use crate::format::name::{FileKind, FileState, PartitionDir, SegmentFile, file_name};

/// Checkpoints and their like are smaller.
const TEXT_BYTES_MAX: u64 = 64 << 20;

pub const CLEAN_MARKER: &str = ".kafka_cleanshutdown";
pub const EPOCHS: &str = "leader-epoch-checkpoint";
pub const METADATA: &str = "partition.metadata";
/// What a broker calls its checkpoints, and what each of them holds.
pub const CHECKPOINTS: [&str; 4] = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
];

/// A segment: its log, and which of its other files are there.
#[derive(Clone, Debug, Default)]
pub struct SegmentFiles {
    pub base_offset: i64,
    /// None: its log is missing.
    pub log_bytes: Option<u64>,
    /// Of the others, by kind, their lengths.
    pub others: BTreeMap<FileKind, u64>,
}

/// A side file of what recovery cut.
#[derive(Clone, Debug)]
pub struct Cut {
    pub path: PathBuf,
    pub origin: CutFile,
    pub bytes: u64,
    pub modified: Option<std::time::SystemTime>,
}

#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub dir: PathBuf,
    /// By base offset.
    pub segments: BTreeMap<i64, SegmentFiles>,
    /// Offsets of producer snapshots, with lengths.
    pub snapshots: BTreeMap<i64, u64>,
    pub cuts: Vec<Cut>,
    /// Renamed, to be unlinked soon.
    pub deleted: Vec<(PathBuf, u64)>,
    /// Being made, by a compaction or a server that writes an index: a start removes them.
    pub cleaned: Vec<PathBuf>,
    /// Of a compaction that was about to swap its files in.
    pub swaps: Vec<PathBuf>,
    pub foreign: Vec<PathBuf>,
}

impl Listing {
    /// Nothing is opened but the directory.
    pub fn read(dir: &Path) -> io::Result<Listing> {
        let mut listing = Listing { dir: dir.to_path_buf(), ..Listing::default() };
        let mut entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            // A live server may have unlinked it meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            let name = entry.file_name();
            listing.put(&name.to_string_lossy(), &metadata);
        }
        Ok(listing)
    }

    fn put(&mut self, name: &str, metadata: &fs::Metadata) {
        let path = self.dir.join(name);
        let bytes = metadata.len();
        if metadata.is_dir() {
            return self.foreign.push(path);
        }
        if let Some(origin) = CutFile::parse(name) {
            let modified = metadata.modified().ok();
            return self.cuts.push(Cut { path, origin, bytes, modified });
        }
        let known = [EPOCHS, METADATA, damage::FILE_NAME];
        let temporary = name.strip_suffix(".tmp").is_some_and(|name| known.contains(&name));
        let Some(file) = SegmentFile::parse(name) else {
            if !known.contains(&name) && !temporary {
                self.foreign.push(path);
            }
            return;
        };
        match (file.state, file.kind) {
            (FileState::Deleted, _) => self.deleted.push((path, bytes)),
            (FileState::Cleaned, _) => self.cleaned.push(path),
            (FileState::Swap, _) => self.swaps.push(path),
            (FileState::Live, FileKind::Snapshot) => {
                self.snapshots.insert(file.offset, bytes);
            }
            (FileState::Live, kind) => {
                let base_offset = file.offset;
                let segment = self
                    .segments
                    .entry(base_offset)
                    .or_insert_with(|| SegmentFiles { base_offset, ..SegmentFiles::default() });
                match kind {
                    FileKind::Log => segment.log_bytes = Some(bytes),
                    kind => drop(segment.others.insert(kind, bytes)),
                }
            }
        }
    }

    pub fn path(&self, base_offset: i64, kind: FileKind) -> PathBuf {
        self.dir.join(file_name(base_offset, kind))
    }

    /// The base offset of the last segment that has a log.
    pub fn last_base(&self) -> Option<i64> {
        let with_log = self.segments.values().filter(|segment| segment.log_bytes.is_some());
        with_log.map(|segment| segment.base_offset).next_back()
    }
}

/// A small file as a whole; None if there is none.
pub fn read_small(path: &Path) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read;
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(io::Error::other(format!("longer than {TEXT_BYTES_MAX} bytes")));
    }
    Ok(Some(bytes))
}

/// What the data directory says of one of its partitions. All None for a directory that stands
/// alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The last stop was clean, and no server has started since.
    pub clean: Option<bool>,
    pub recovery_point: Option<i64>,
    pub high_watermark: Option<i64>,
    pub log_start: Option<i64>,
}

impl Around {
    /// From the directory above `dir`; checkpoints that cannot be read say nothing.
    pub fn read(dir: &Path) -> Around {
        let full = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
        let (Some(root), Some(name)) = (full.parent(), full.file_name()) else {
            return Around::default();
        };
        let is_data_dir = is_data_dir(root);
        let name = name.to_string_lossy();
        let Some(partition) = PartitionDir::parse(&name).ok().filter(|_| is_data_dir) else {
            return Around::default();
        };
        let offset = |file: &str| {
            let bytes = read_small(&root.join(file)).ok()??;
            let rows = parse_offsets(&bytes).ok()?;
            let is_it =
                |topic: &str, number| topic == partition.topic && number == partition.partition;
            rows.iter().find(|row| is_it(&row.topic, row.partition)).map(|row| row.offset)
        };
        let [recovery, replication, log_start, _] = CHECKPOINTS;
        Around {
            clean: Some(root.join(CLEAN_MARKER).exists()),
            recovery_point: offset(recovery),
            high_watermark: offset(replication),
            log_start: offset(log_start),
        }
    }
}

/// Whether a directory holds partitions, and is none itself.
pub fn is_data_dir(dir: &Path) -> bool {
    let marks = ["meta.properties", CLEAN_MARKER].into_iter().chain(CHECKPOINTS);
    marks.map(|name| dir.join(name)).any(|path| path.is_file())
}

/// The partition directories of `dir`: itself, unless it is a data directory. In name order.
pub fn partition_dirs(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut dirs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_one = PartitionDir::parse(&name.to_string_lossy()).is_ok();
        if is_one && entry.file_type()?.is_dir() {
            dirs.push(entry.path());
        }
    }
    if dirs.is_empty() && !is_data_dir(dir) {
        return Ok(vec![dir.to_path_buf()]);
    }
    dirs.sort();
    Ok(dirs)
}

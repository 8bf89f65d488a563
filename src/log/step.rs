//! How a lookup asks for what it does not hold: it never waits, whoever drives it does.
//!
//! Owns: the vocabulary, and making a segment readable (file open, index in memory). Never does:
//! I/O. Left: `segment`. Right: `locate`, `by_time`, and the shard that drives them.

use std::path::PathBuf;

use super::held::HeldFile;
use super::partition::Partition;
use super::segment::{IndexBytes, Phase};
use crate::format::index;
use crate::format::name::{FileKind, file_name};
use crate::io::op::OpenHow;
use crate::io::{Errno, FileId};

/// What a lookup wants next.
#[derive(Debug)]
pub enum Step<T> {
    /// Read at most `max` bytes there and give what came to the next step (nothing at the end).
    Read {
        file: FileId,
        pos: u64,
        max: u32,
    },
    /// Open this file and give the result to `opened`, then step again.
    Open {
        path: PathBuf,
        how: OpenHow,
    },
    Ready(T),
    /// A file could not be opened, or is shorter than it was.
    Failed {
        path: PathBuf,
        errno: Errno,
    },
}

/// What stands between a lookup and a segment.
#[derive(Debug)]
pub(super) enum Access {
    Ready(FileId),
    Read { file: FileId, pos: u64, max: u32 },
    Open(PathBuf, OpenHow),
    Failed { path: PathBuf, errno: Errno },
}

/// Largest read of an index file.
const INDEX_READ_BYTES: u32 = 128 << 10;

#[derive(Debug, Default)]
enum Loading {
    #[default]
    Nothing,
    OpeningLog,
    Opening(FileKind),
    Reading(FileKind, HeldFile),
}

/// Makes one segment at a time readable, for one lookup.
#[derive(Debug, Default)]
pub(super) struct Reader {
    loading: Loading,
    offset: Vec<u8>,
    time: Vec<u8>,
    failed: Option<Errno>,
    /// The segment's file, kept open while its bytes are read.
    held: Option<HeldFile>,
}

impl Reader {
    /// The file that was given last, to be kept open while a range of it is in use.
    pub fn held(&self) -> HeldFile {
        self.held.clone().expect("a scanned segment's file is held")
    }

    /// Takes the result of the open that was asked for.
    pub fn opened(
        &mut self,
        partition: &mut Partition,
        number: u32,
        result: Result<FileId, Errno>,
    ) {
        match (std::mem::take(&mut self.loading), result) {
            (Loading::OpeningLog, Ok(file)) => partition.attach(number, file),
            (Loading::Opening(kind), Ok(file)) => {
                self.loading = Loading::Reading(kind, partition.lend(file));
            }
            // Without its index a segment is scanned from its start.
            (Loading::Opening(kind), Err(Errno::ENOENT)) => self.next(partition, number, kind),
            (_, Err(errno)) => self.failed = Some(errno),
            (loading, Ok(_)) => unreachable!("nothing was to be opened: {loading:?}"),
        }
    }

    /// Goes on towards a readable segment; `bytes` answer its own last read.
    pub fn step(&mut self, partition: &mut Partition, number: u32, bytes: Option<&[u8]>) -> Access {
        if let (Loading::Reading(kind, _), Some(bytes)) = (&self.loading, bytes) {
            let kind = *kind;
            let into =
                if kind == FileKind::OffsetIndex { &mut self.offset } else { &mut self.time };
            into.extend_from_slice(bytes);
            if bytes.is_empty() || into.len() > partition.config.segment_index_bytes {
                self.next(partition, number, kind);
                partition.wake();
            }
        }
        let segment = partition.segments.get(number).expect("a lookup's segment is there");
        let path = |kind| partition.dir.join(file_name(segment.base.get(), kind));
        if let Some(errno) = self.failed.take() {
            return Access::Failed { path: path(FileKind::Log), errno };
        }
        match (&self.loading, segment.open_file()) {
            (Loading::Opening(kind), _) => Access::Open(path(*kind), OpenHow::default()),
            (Loading::Reading(kind, file), _) => {
                let read = if *kind == FileKind::OffsetIndex { &self.offset } else { &self.time };
                Access::Read { file: file.id(), pos: read.len() as u64, max: INDEX_READ_BYTES }
            }
            (_, None) => {
                self.loading = Loading::OpeningLog;
                // What may still be appended to is opened for that too.
                let write = segment.phase != Phase::Sealed;
                Access::Open(path(FileKind::Log), OpenHow { write, ..OpenHow::default() })
            }
            (_, Some(_)) if matches!(segment.index.bytes, IndexBytes::OnDisk) => {
                self.loading = Loading::Opening(FileKind::OffsetIndex);
                Access::Open(path(FileKind::OffsetIndex), OpenHow::default())
            }
            (_, Some(file)) => {
                self.held = segment.held_file();
                partition.note_use(number);
                Access::Ready(file)
            }
        }
    }

    /// One index file is in memory; then the other one; then the segment has both.
    fn next(&mut self, partition: &mut Partition, number: u32, kind: FileKind) {
        if kind == FileKind::OffsetIndex {
            self.loading = Loading::Opening(FileKind::TimeIndex);
            return;
        }
        self.loading = Loading::Nothing;
        let (offset, time) = (std::mem::take(&mut self.offset), std::mem::take(&mut self.time));
        partition.keep_index(number, offset, time);
    }
}

impl Partition {
    fn keep_index(&mut self, number: u32, offset: Vec<u8>, time: Vec<u8>) {
        let dir = self.dir.display().to_string();
        let Some(segment) = self.segments.get_mut(number) else { return };
        let sound = index::check_offset_index(&offset, segment.written.pos)
            .and_then(|()| index::check_time_index(&time));
        segment.index.bytes = match sound {
            Ok(()) => IndexBytes::Held { offset, time },
            Err(fault) => {
                tracing::warn!(dir, base = %segment.base, %fault, "index ignored");
                IndexBytes::Held { offset: Vec::new(), time: Vec::new() }
            }
        };
        self.segments.trim_indexes(self.config.index_cache_bytes_max, number);
    }
}

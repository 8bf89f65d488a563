//! Names in a data directory: segment files, partition directories, topics.
//!
//! Owns the text; which of these files exist, and what becomes of them, is `log`'s business.

/// What a file of a segment holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    Log,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
    Snapshot,
}

impl FileKind {
    pub const ALL: [FileKind; 5] = [
        FileKind::Log,
        FileKind::OffsetIndex,
        FileKind::TimeIndex,
        FileKind::TxnIndex,
        FileKind::Snapshot,
    ];

    pub const fn extension(self) -> &'static str {
        match self {
            FileKind::Log => "log",
            FileKind::OffsetIndex => "index",
            FileKind::TimeIndex => "timeindex",
            FileKind::TxnIndex => "txnindex",
            FileKind::Snapshot => "snapshot",
        }
    }
}

/// What a file is on its way to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileState {
    Live,
    /// Being built by compaction: worthless after a crash.
    Cleaned,
    /// Complete, being put in the place of others.
    Swap,
    /// Gone, only not unlinked yet.
    Deleted,
}

impl FileState {
    pub const ALL: [FileState; 4] =
        [FileState::Live, FileState::Cleaned, FileState::Swap, FileState::Deleted];

    /// What stands behind the extension.
    pub const fn suffix(self) -> &'static str {
        match self {
            FileState::Live => "",
            FileState::Cleaned => ".cleaned",
            FileState::Swap => ".swap",
            FileState::Deleted => ".deleted",
        }
    }
}

/// The name of a segment's file, parsed. The offset is the segment's base (a lower bound of the
/// offsets in a `.log`), or for a snapshot the offset it reaches to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentFile {
    pub offset: i64,
    pub kind: FileKind,
    pub state: FileState,
}

impl SegmentFile {
    pub const fn live(offset: i64, kind: FileKind) -> SegmentFile {
        SegmentFile { offset, kind, state: FileState::Live }
    }

    /// None if `name` is not the name of a segment's file.
    pub fn parse(name: &str) -> Option<SegmentFile> {
        let (digits, rest) = name.split_once('.')?;
        let offset = parse_offset(digits)?;
        let (extension, suffix) = match rest.find('.') {
            Some(dot) => rest.split_at_checked(dot)?,
            None => (rest, ""),
        };
        let kind = FileKind::ALL.into_iter().find(|kind| kind.extension() == extension)?;
        let state = FileState::ALL.into_iter().find(|state| state.suffix() == suffix)?;
        Some(SegmentFile { offset, kind, state })
    }
}

impl std::fmt::Display for SegmentFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (extension, suffix) = (self.kind.extension(), self.state.suffix());
        write!(f, "{:020}.{extension}{suffix}", self.offset)
    }
}

/// `00000000000000000042.log`
pub fn file_name(offset: i64, kind: FileKind) -> String {
    SegmentFile::live(offset, kind).to_string()
}

/// `00000000000000000042.log.deleted`
pub fn deleted_name(offset: i64, kind: FileKind) -> String {
    SegmentFile { offset, kind, state: FileState::Deleted }.to_string()
}

/// At least the 20 digits that the names are padded to, or two files could mean one offset.
fn parse_offset(digits: &str) -> Option<i64> {
    let decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
    (digits.len() == 20 && decimal).then(|| digits.parse().ok()).flatten()
}

/// What a partition's directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirState {
    Current,
    /// Waits to be deleted.
    Delete,
    /// A copy on its way from another disk.
    Future,
    /// Kept aside: its topic is not known here.
    Stray,
}

impl DirState {
    const MARKED: [DirState; 3] = [DirState::Delete, DirState::Future, DirState::Stray];

    pub const fn suffix(self) -> &'static str {
        match self {
            DirState::Current => "",
            DirState::Delete => "-delete",
            DirState::Future => "-future",
            DirState::Stray => "-stray",
        }
    }
}

/// The name of a partition's directory, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionDir<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub state: DirState,
}

/// Why a directory's name is no partition's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not the directory of a partition (<topic>-<number>): {0}")]
pub struct DirError(&'static str);

impl<'a> PartitionDir<'a> {
    pub fn parse(name: &'a str) -> Result<PartitionDir<'a>, DirError> {
        let state = DirState::MARKED
            .into_iter()
            .find(|s| name.ends_with(s.suffix()))
            .unwrap_or(DirState::Current);
        let plain = match state {
            DirState::Current => name,
            marked => cut_mark(name, marked).ok_or(DirError("no id before the mark"))?,
        };
        let (topic, digits) = plain.rsplit_once('-').ok_or(DirError("no hyphen"))?;
        if topic.is_empty() {
            return Err(DirError("no topic"));
        }
        let decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let partition = digits.parse().ok().filter(|_| decimal);
        let partition = partition.ok_or(DirError("no partition number"))?;
        Ok(PartitionDir { topic, partition, state })
    }
}

/// `<topic>-<partition>.<id>-delete` without the id and the mark.
fn cut_mark(name: &str, state: DirState) -> Option<&str> {
    let unmarked = name.strip_suffix(state.suffix())?;
    let (plain, id) = unmarked.rsplit_once('.')?;
    let blank = name.contains(char::is_whitespace);
    (!blank && !id.is_empty() && !plain.is_empty()).then_some(plain)
}

/// `<topic>-<partition>`
pub fn dir_name(topic: &str, partition: i32) -> String {
    format!("{topic}-{partition}")
}

/// The longest name that common file systems take.
const DIR_NAME_LEN_MAX: usize = 255;

/// `<topic>-<partition>.<id>-delete` and the like. As in Kafka the topic is shortened where the
/// name of a directory to be deleted or set aside would grow too long; `topic` is a legal one, so
/// ASCII.
pub fn marked_dir_name(topic: &str, partition: i32, id: u128, state: DirState) -> String {
    let tail = format!("-{partition}.{id:032x}{}", state.suffix());
    let room = match state {
        DirState::Delete | DirState::Stray => DIR_NAME_LEN_MAX.saturating_sub(tail.len()),
        DirState::Current | DirState::Future => topic.len(),
    };
    let kept: String = topic.chars().take(room).collect();
    kept + &tail
}

pub const TOPIC_NAME_LEN_MAX: usize = 249;

/// Why a topic may not have this name (R87).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TopicError {
    #[error("a topic name may not be empty")]
    Empty,
    #[error("a topic name has at most 249 characters, not {len}")]
    TooLong { len: usize },
    #[error("a topic may not be named \".\" or \"..\"")]
    Dots,
    #[error("a topic name has letters, digits, '.', '_' and '-' only (byte {at} is none)")]
    Character { at: usize },
}

/// Whether a topic may have this name. What passes is safe as a part of a path.
pub fn check_topic(name: &str) -> Result<(), TopicError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() {
        return Err(TopicError::Empty);
    }
    if name.len() > TOPIC_NAME_LEN_MAX {
        return Err(TopicError::TooLong { len: name.len() });
    }
    if name == "." || name == ".." {
        return Err(TopicError::Dots);
    }
    match name.bytes().position(|byte| !legal(byte)) {
        Some(at) => Err(TopicError::Character { at }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_files() {
        assert_eq!(file_name(32_000, FileKind::Log), "00000000000000032000.log");
        assert_eq!(file_name(i64::MAX, FileKind::Snapshot), "09223372036854775807.snapshot");
        for kind in FileKind::ALL {
            for state in FileState::ALL {
                let file = SegmentFile { offset: 42, kind, state };
                assert_eq!(SegmentFile::parse(&file.to_string()), Some(file));
            }
        }
        let swap = SegmentFile::parse("00000000000000000042.index.swap").expect("a segment file");
        assert_eq!((swap.kind, swap.state), (FileKind::OffsetIndex, FileState::Swap));
        for name in [
            "",
            ".log",
            "42.log",
            "0000000000000000042x.log",
            "+0000000000000000042.log",
            "99999999999999999999.log",
            "00000000000000000042.log.",
            "00000000000000000042.log.swap.deleted",
            "00000000000000000042.checkpoint",
            "00000000000000000042",
        ] {
            assert_eq!(SegmentFile::parse(name), None, "{name}");
        }
    }

    #[test]
    fn partition_directories() {
        let id = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
        let name = marked_dir_name("a-b.c", 7, id, DirState::Delete);
        assert_eq!(name, "a-b.c-7.0123456789abcdef0123456789abcdef-delete");
        let dir = |topic, partition, state| Ok(PartitionDir { topic, partition, state });
        assert_eq!(PartitionDir::parse(&name), dir("a-b.c", 7, DirState::Delete));
        assert_eq!(PartitionDir::parse(&dir_name("a-b", 12)), dir("a-b", 12, DirState::Current));
        assert_eq!(PartitionDir::parse("x-delete-0"), dir("x-delete", 0, DirState::Current));
        for name in [
            "",
            "tmp",
            "lost+found",
            "-1",
            "a-",
            "a-x",
            "a--1x",
            "a-3000000000",
            "a-0-delete",
            "a-0.-stray",
        ] {
            assert!(PartitionDir::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn marked_names_fit_a_directory_entry() {
        let topic = "t".repeat(TOPIC_NAME_LEN_MAX);
        for state in [DirState::Delete, DirState::Stray] {
            let name = marked_dir_name(&topic, 100, u128::MAX, state);
            assert_eq!(name.len(), 255);
            assert_eq!(PartitionDir::parse(&name).map(|dir| dir.partition), Ok(100));
        }
        assert!(marked_dir_name(&topic, 100, 0, DirState::Future).starts_with(&topic));
    }
}

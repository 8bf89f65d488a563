//! Names of the files that keep what recovery took out of a log, and the words for why.
//!
//! Owns: the name, which says all there is to say: segment, position, reason. Never does: I/O.
//! Left: nothing. Right: `log::recovery` (makes them), `tools` (list and remove them).
//!
//! `cut-<base offset>-<position>-<reason>`, and `-<number>` behind it when the same place was cut
//! before. A broker that finishes an interrupted compaction deletes every file whose name begins
//! with a number of the compacted range and a dot; so this one does not.

/// Why bytes do not count (D5, D6), in one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CutReason {
    /// No batch has such a header, length or count.
    Header,
    Checksum,
    /// The file ends inside a batch.
    Short,
    /// An offset that was there before.
    Order,
    /// An offset that does not fit the segment.
    Range,
    /// A segment that does not continue the one before.
    Gap,
    /// A segment behind one that was cut.
    Behind,
    /// The log ended before its start.
    Start,
    /// An empty file that the log does not begin with.
    Stray,
}

impl CutReason {
    pub const ALL: [CutReason; 9] = [
        CutReason::Header,
        CutReason::Checksum,
        CutReason::Short,
        CutReason::Order,
        CutReason::Range,
        CutReason::Gap,
        CutReason::Behind,
        CutReason::Start,
        CutReason::Stray,
    ];

    /// As it stands in names.
    pub const fn name(self) -> &'static str {
        match self {
            CutReason::Header => "header",
            CutReason::Checksum => "checksum",
            CutReason::Short => "short",
            CutReason::Order => "order",
            CutReason::Range => "range",
            CutReason::Gap => "gap",
            CutReason::Behind => "behind",
            CutReason::Start => "start",
            CutReason::Stray => "stray",
        }
    }

    pub fn parse(name: &str) -> Option<CutReason> {
        CutReason::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// For people.
    pub const fn meaning(self) -> &'static str {
        match self {
            CutReason::Header => "a header that no batch has",
            CutReason::Checksum => "a checksum that does not hold",
            CutReason::Short => "the file ended inside a batch",
            CutReason::Order => "offsets that were there before",
            CutReason::Range => "offsets that do not fit the segment",
            CutReason::Gap => "the end of the segment before was missing",
            CutReason::Behind => "the segment before was cut",
            CutReason::Start => "the log ended before its start",
            CutReason::Stray => "an empty file before the first segment",
        }
    }
}

impl std::fmt::Display for CutReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.meaning())
    }
}

/// A side file's name, parsed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CutFile {
    /// Of the segment it was cut from.
    pub base_offset: i64,
    /// Where in that segment's `.log` its first byte lay.
    pub pos: u64,
    pub reason: CutReason,
    /// Tells cuts of one place and reason apart.
    pub number: u32,
}

impl CutFile {
    /// None if `name` is not that of a side file.
    pub fn parse(name: &str) -> Option<CutFile> {
        let mut words = name.strip_prefix("cut-")?.split('-');
        let base = words.next().filter(|base| base.len() == 20 && is_decimal(base))?;
        let pos = words.next().filter(|pos| is_decimal(pos))?;
        let reason = CutReason::parse(words.next()?)?;
        let number = match words.next() {
            None => 0,
            Some(number) => number.parse().ok().filter(|n| is_decimal(number) && *n > 0)?,
        };
        let base_offset = base.parse().ok()?;
        let file = CutFile { base_offset, pos: pos.parse().ok()?, reason, number };
        words.next().is_none().then_some(file)
    }
}

impl std::fmt::Display for CutFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cut-{:020}-{}-{}", self.base_offset, self.pos, self.reason.name())?;
        match self.number {
            0 => Ok(()),
            number => write!(f, "-{number}"),
        }
    }
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::name::SegmentFile;

    #[test]
    fn names_say_all_and_no_broker_reads_them() {
        for reason in CutReason::ALL {
            for (base_offset, pos, number) in [(0, 0, 0), (42, 4096, 7), (i64::MAX, u64::MAX, 1)] {
                let file = CutFile { base_offset, pos, reason, number };
                let name = file.to_string();
                assert_eq!(CutFile::parse(&name), Some(file), "{name}");
                assert_eq!(SegmentFile::parse(&name), None, "{name}");
                // What a broker looks at: a number before the first dot, and the end.
                assert!(!name.contains('.'), "{name}");
            }
        }
        for other in [
            "cut-42-7-short",
            "cut-00000000000000000042-7-because",
            "cut-00000000000000000042--short",
            "cut-00000000000000000042-7-short-0",
            "cut-00000000000000000042-7-short-1-2",
            "cut-00000000000000000042-+7-short",
            "cut-00000000000000000042-7",
            "00000000000000000042.log",
        ] {
            assert_eq!(CutFile::parse(other), None, "{other}");
        }
    }
}

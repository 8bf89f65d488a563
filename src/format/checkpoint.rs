//! Kafka's checkpoint files as text: offsets by partition, and the leader epochs of one partition.
//!
//! Owns the container (version, count, rows) and the rules of the leader-epoch cache. Never reads
//! or replaces the files: `log` does, by temporary file and rename.

use std::fmt::Write;

/// What is wrong with a text file, and on which line (counted from 1).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct TextError {
    pub line: usize,
    pub fault: TextFault,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TextFault {
    #[error("not UTF-8")]
    Encoding,
    #[error("version {found:?}, {want} is the one known")]
    Version { found: String, want: &'static str },
    #[error("{found:?} is no number of rows")]
    Count { found: String },
    #[error("{have} rows where the file declares {declared}")]
    Rows { have: usize, declared: usize },
    #[error("{found:?} does not have {want}")]
    Columns { found: String, want: &'static str },
    #[error("epochs and offsets must both rise from row to row")]
    Order,
    #[error("{name} is missing")]
    Missing { name: &'static str },
    #[error("{name} may not be {found:?}")]
    Value { name: &'static str, found: String },
}

impl TextFault {
    pub(super) fn at(self, line: usize) -> TextError {
        TextError { line, fault: self }
    }
}

pub(super) fn utf8(bytes: &[u8]) -> Result<&str, TextError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        TextFault::Encoding.at(1 + before.iter().filter(|byte| **byte == b'\n').count())
    })
}

const VERSION: &str = "0";

/// The rows of a checkpoint: version, count, rows. An empty file and one with a version alone have
/// none. The declared count is compared, never allocated for.
pub(super) fn parse_rows<T>(
    bytes: &[u8],
    columns: &'static str,
    row: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, TextError> {
    let mut lines = utf8(bytes)?.lines();
    match lines.next().map(str::trim) {
        None => return Ok(Vec::new()),
        Some(VERSION) => {}
        Some(found) => {
            return Err(TextFault::Version { found: found.into(), want: VERSION }.at(1));
        }
    }
    let Some(count) = lines.next().map(str::trim) else { return Ok(Vec::new()) };
    let declared: usize =
        count.parse().map_err(|_| TextFault::Count { found: count.into() }.at(2))?;
    let mut rows = Vec::new();
    for (i, line) in lines.enumerate() {
        let found = || TextFault::Columns { found: line.into(), want: columns }.at(3 + i);
        rows.push(row(line).ok_or_else(found)?);
    }
    let have = rows.len();
    if have != declared {
        return Err(TextFault::Rows { have, declared }.at(2));
    }
    Ok(rows)
}

/// Version and count, as every such file begins.
pub(super) fn rows_head(rows: usize) -> String {
    format!("{VERSION}\n{rows}\n")
}

pub(super) fn columns<const N: usize>(line: &str) -> Option<[&str; N]> {
    let mut words = line.split_whitespace();
    let mut columns = [""; N];
    for column in &mut columns {
        *column = words.next()?;
    }
    words.next().is_none().then_some(columns)
}

/// A row of `recovery-point-offset-checkpoint` and its like.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OffsetRow {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

pub fn parse_offsets(bytes: &[u8]) -> Result<Vec<OffsetRow>, TextError> {
    parse_rows(bytes, "topic, partition and offset", |line| {
        let [topic, partition, offset] = columns(line)?;
        let (partition, offset) = (partition.parse().ok()?, offset.parse().ok()?);
        Some(OffsetRow { topic: topic.into(), partition, offset })
    })
}

pub fn render_offsets(rows: &[OffsetRow]) -> String {
    let mut text = rows_head(rows.len());
    for OffsetRow { topic, partition, offset } in rows {
        let _ = writeln!(text, "{topic} {partition} {offset}"); // a String takes all
    }
    text
}

/// From which offset on a leader epoch wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochStart {
    pub epoch: i32,
    pub start_offset: i64,
}

/// The content of `leader-epoch-checkpoint`: epochs and their start offsets, both strictly rising.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EpochCache {
    entries: Vec<EpochStart>,
}

impl EpochCache {
    pub fn new() -> EpochCache {
        EpochCache::default()
    }

    pub fn parse(bytes: &[u8]) -> Result<EpochCache, TextError> {
        let entries = parse_rows(bytes, "epoch and start offset, neither below 0", |line| {
            let [epoch, start_offset] = columns(line)?;
            let (epoch, start_offset) = (epoch.parse().ok()?, start_offset.parse().ok()?);
            (epoch >= 0 && start_offset >= 0).then_some(EpochStart { epoch, start_offset })
        })?;
        let rises = |(a, b): (&EpochStart, &EpochStart)| {
            a.epoch < b.epoch && a.start_offset < b.start_offset
        };
        match entries.iter().zip(entries.iter().skip(1)).position(|pair| !rises(pair)) {
            Some(i) => Err(TextFault::Order.at(4 + i)),
            None => Ok(EpochCache { entries }),
        }
    }

    pub fn render(&self) -> String {
        let mut text = rows_head(self.entries.len());
        for EpochStart { epoch, start_offset } in &self.entries {
            let _ = writeln!(text, "{epoch} {start_offset}"); // a String takes all
        }
        text
    }

    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    pub fn latest(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// Notes that `epoch` writes from `start_offset` on. Returns whether anything changed, and so
    /// must be stored.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        assert!(epoch >= 0, "epoch {epoch}");
        assert!(start_offset >= 0, "start offset {start_offset}");
        if self.latest().is_some_and(|l| l.epoch == epoch && l.start_offset <= start_offset) {
            return false;
        }
        while self.latest().is_some_and(|l| l.epoch >= epoch || l.start_offset >= start_offset) {
            self.entries.pop();
        }
        self.entries.push(EpochStart { epoch, start_offset });
        true
    }

    /// The log now ends at `end_offset`. Returns whether anything changed.
    pub fn truncate_end(&mut self, end_offset: i64) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.start_offset < end_offset);
        self.entries.len() != before
    }

    /// The log now starts at `start_offset`, and the oldest entry covers it. Returns whether
    /// anything changed.
    pub fn truncate_start(&mut self, start_offset: i64) -> bool {
        let below = self.entries.partition_point(|entry| entry.start_offset <= start_offset);
        let Some(covering) = self.entries.drain(..below).next_back() else { return false };
        self.entries.insert(0, EpochStart { start_offset, ..covering });
        below > 1 || covering.start_offset != start_offset
    }

    /// Where the records of `epoch` end, and the epoch that is true of: of the latest epoch the
    /// log's end, of an earlier one the start of the next. None if `epoch` is newer than all that
    /// is known.
    pub fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> Option<(i32, i64)> {
        if self.latest()?.epoch == epoch {
            return Some((epoch, log_end_offset));
        }
        let above = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let next = self.entries.get(above)?;
        let floor = above.checked_sub(1).and_then(|i| self.entries.get(i));
        Some((floor.map_or(epoch, |entry| entry.epoch), next.start_offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fault(text: &str) -> (usize, TextFault) {
        let error = parse_offsets(text.as_bytes()).expect_err("refused");
        (error.line, error.fault)
    }

    #[test]
    fn offset_checkpoints() {
        let rows = [("a", 0, 5), ("b-c.d", 12, i64::MAX)]
            .map(|(topic, partition, offset)| OffsetRow { topic: topic.into(), partition, offset });
        let text = render_offsets(&rows);
        assert_eq!(text, "0\n2\na 0 5\nb-c.d 12 9223372036854775807\n");
        assert_eq!(parse_offsets(text.as_bytes()), Ok(rows.to_vec()));
        assert_eq!(render_offsets(&[]), "0\n0\n");
        for none in ["", "0\n", "0\n0\n"] {
            assert_eq!(parse_offsets(none.as_bytes()), Ok(vec![]));
        }
        let spaced = parse_offsets(b"0\n1\n a \t 0  7 \n").expect("any whitespace");
        assert_eq!(spaced[0].offset, 7);
    }

    #[test]
    fn faults_name_the_line() {
        assert_eq!(fault("1\n0\n").0, 1);
        assert_eq!(fault("0\nx\n"), (2, TextFault::Count { found: "x".into() }));
        assert_eq!(fault("0\n2\na 0 1\n"), (2, TextFault::Rows { have: 1, declared: 2 }));
        assert_eq!(
            fault("0\n99999999999\n").1,
            TextFault::Rows { have: 0, declared: 99_999_999_999 }
        );
        for row in ["a 0", "a 0 1 2", "a x 1", "a 0 1.5", ""] {
            assert_eq!(fault(&format!("0\n2\na 0 1\n{row}\n")).0, 4, "{row}");
        }
        let error = parse_offsets(b"0\n1\na \xff 1\n").expect_err("refused");
        assert_eq!(error.to_string(), "line 3: not UTF-8");
    }

    fn cache(entries: &[(i32, i64)]) -> EpochCache {
        let entries = entries
            .iter()
            .map(|&(epoch, start_offset)| EpochStart { epoch, start_offset })
            .collect();
        EpochCache { entries }
    }

    #[test]
    fn r13_a_garbled_epoch_file_is_noticed() {
        assert_eq!(EpochCache::parse(b""), Ok(EpochCache::new()));
        assert_eq!(EpochCache::parse(b"0\n2\n0 0\n4 120\n"), Ok(cache(&[(0, 0), (4, 120)])));
        for text in
            ["0\n2\n0 0\n", "0\n2\n1 0\n0 5\n", "0\n2\n0 5\n1 5\n", "0\n1\n-1 0\n", "\x01\x02"]
        {
            assert!(EpochCache::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert_eq!(EpochCache::parse(b"0\n3\n0 0\n1 5\n1 9\n"), Err(TextFault::Order.at(5)));
    }

    #[test]
    fn assigning_an_epoch() {
        let mut epochs = EpochCache::new();
        assert!(epochs.assign(0, 0));
        assert!(!epochs.assign(0, 10), "known since 0");
        assert!(epochs.assign(3, 10));
        assert!(epochs.assign(4, 20));
        assert_eq!(epochs, cache(&[(0, 0), (3, 10), (4, 20)]));
        assert!(epochs.assign(5, 10), "what began at or behind 10 is gone");
        assert_eq!(epochs, cache(&[(0, 0), (5, 10)]));
        assert!(epochs.assign(5, 7), "an earlier start");
        assert_eq!(epochs, cache(&[(0, 0), (5, 7)]));
    }

    #[test]
    fn truncating() {
        let full = cache(&[(0, 0), (3, 10), (4, 20)]);
        let end = |offset| {
            let mut epochs = full.clone();
            let changed = epochs.truncate_end(offset);
            (changed, epochs)
        };
        assert_eq!(end(20), (true, cache(&[(0, 0), (3, 10)])));
        assert_eq!(end(21), (false, full.clone()));
        assert_eq!(end(0), (true, EpochCache::new()));
        let start = |offset| {
            let mut epochs = full.clone();
            let changed = epochs.truncate_start(offset);
            (changed, epochs)
        };
        assert_eq!(start(0), (false, full.clone()));
        assert_eq!(start(5), (true, cache(&[(0, 5), (3, 10), (4, 20)])));
        assert_eq!(start(10), (true, cache(&[(3, 10), (4, 20)])));
        assert_eq!(start(99), (true, cache(&[(4, 99)])));
        assert!(!EpochCache::new().truncate_start(5));
    }

    #[test]
    fn where_an_epoch_ends() {
        let epochs = cache(&[(2, 5), (4, 20), (7, 30)]);
        assert_eq!(epochs.end_offset_for(7, 44), Some((7, 44)));
        assert_eq!(epochs.end_offset_for(8, 44), None);
        assert_eq!(epochs.end_offset_for(4, 44), Some((4, 30)));
        assert_eq!(epochs.end_offset_for(5, 44), Some((4, 30)));
        assert_eq!(epochs.end_offset_for(1, 44), Some((1, 5)));
        assert_eq!(EpochCache::new().end_offset_for(0, 0), None);
    }

    proptest! {
        #[test]
        fn the_cache_always_rises_and_comes_back(
            calls in prop::collection::vec((0u8..3, 0i32..20, 0i64..100), 0..40)
        ) {
            let mut epochs = EpochCache::new();
            for (call, epoch, offset) in calls {
                let before = epochs.clone();
                let changed = match call {
                    0 => epochs.assign(epoch, offset),
                    1 => epochs.truncate_end(offset),
                    _ => epochs.truncate_start(offset),
                };
                prop_assert_eq!(changed, epochs != before);
                prop_assert_eq!(EpochCache::parse(epochs.render().as_bytes()), Ok(epochs.clone()));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (parse_offsets(&bytes), EpochCache::parse(&bytes));
        }
    }
}

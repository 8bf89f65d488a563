//! The sparse indexes of a segment: entries as bytes, search over them, and the rule that adds
//! them.
//!
//! Owns `.index` and `.timeindex` content. Never holds the files: `log::segment` keeps the bytes,
//! asks `IndexBuilder` after each batch what to append, and asks the searches where to begin a
//! scan.

/// An `.index` entry: a batch whose last offset is `relative_offset` begins at or before `pos`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetEntry {
    /// Offset minus the segment's base offset, at most i32::MAX.
    pub relative_offset: u32,
    /// Byte in the `.log`, at most i32::MAX.
    pub pos: u32,
}

/// A `.timeindex` entry: no record up to `relative_offset` is newer than `timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeEntry {
    pub timestamp: i64,
    pub relative_offset: u32,
}

pub const OFFSET_ENTRY_LEN: usize = 8;
pub const TIME_ENTRY_LEN: usize = 12;
/// Relative offsets and positions are non-negative i32 on disk.
pub const COLUMN_MAX: u32 = i32::MAX as u32;

impl OffsetEntry {
    pub fn encode(self) -> [u8; OFFSET_ENTRY_LEN] {
        let entry = u64::from(self.relative_offset) << 32 | u64::from(self.pos);
        entry.to_be_bytes()
    }

    pub fn decode(bytes: [u8; OFFSET_ENTRY_LEN]) -> OffsetEntry {
        let entry = u64::from_be_bytes(bytes);
        OffsetEntry { relative_offset: (entry >> 32) as u32, pos: entry as u32 }
    }
}

impl TimeEntry {
    pub fn encode(self) -> [u8; TIME_ENTRY_LEN] {
        let mut bytes = [0; TIME_ENTRY_LEN];
        let (timestamp, offset) = bytes.split_at_mut(8);
        timestamp.copy_from_slice(&self.timestamp.to_be_bytes());
        offset.copy_from_slice(&self.relative_offset.to_be_bytes());
        bytes
    }

    pub fn decode(bytes: [u8; TIME_ENTRY_LEN]) -> TimeEntry {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        TimeEntry {
            timestamp: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
            relative_offset: u32::from_be_bytes([i, j, k, l]),
        }
    }
}

/// The `.index` entries in `bytes`; what is left of a cut last one is not an entry.
pub fn offset_entries(bytes: &[u8]) -> impl DoubleEndedIterator<Item = OffsetEntry> + '_ {
    bytes.as_chunks().0.iter().map(|entry| OffsetEntry::decode(*entry))
}

/// The `.timeindex` entries in `bytes`; what is left of a cut last one is not an entry.
pub fn time_entries(bytes: &[u8]) -> impl DoubleEndedIterator<Item = TimeEntry> + '_ {
    bytes.as_chunks().0.iter().map(|entry| TimeEntry::decode(*entry))
}

/// The entry with the greatest offset at or below `relative_offset`. None: begin at position 0.
pub fn floor_offset(entries: &[u8], relative_offset: u32) -> Option<OffsetEntry> {
    let entries = entries.as_chunks().0;
    let above = entries
        .partition_point(|entry| OffsetEntry::decode(*entry).relative_offset <= relative_offset);
    entries.get(above.checked_sub(1)?).map(|entry| OffsetEntry::decode(*entry))
}

/// The entry with the greatest timestamp at or below `timestamp`. None: begin at the base offset.
pub fn floor_time(entries: &[u8], timestamp: i64) -> Option<TimeEntry> {
    let entries = entries.as_chunks().0;
    let above = entries.partition_point(|entry| TimeEntry::decode(*entry).timestamp <= timestamp);
    entries.get(above.checked_sub(1)?).map(|entry| TimeEntry::decode(*entry))
}

/// How many bytes of an `.index` stay when the log is truncated to `relative_offset`.
pub fn offset_len_below(entries: &[u8], relative_offset: u32) -> usize {
    let entries = entries.as_chunks().0;
    OFFSET_ENTRY_LEN
        * entries
            .partition_point(|entry| OffsetEntry::decode(*entry).relative_offset < relative_offset)
}

/// How many bytes of a `.timeindex` stay when the log is truncated to `relative_offset`.
pub fn time_len_below(entries: &[u8], relative_offset: u32) -> usize {
    let entries = entries.as_chunks().0;
    TIME_ENTRY_LEN
        * entries
            .partition_point(|entry| TimeEntry::decode(*entry).relative_offset < relative_offset)
}

/// `offset` as an index column holds it; None if it does not fit there (R05: roll first).
pub fn relative_offset(base_offset: i64, offset: i64) -> Option<u32> {
    let relative = u32::try_from(offset.checked_sub(base_offset)?).ok()?;
    (relative <= COLUMN_MAX).then_some(relative)
}

/// What is wrong with an index file (R12).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IndexFault {
    #[error("{len} bytes are not whole entries of {entry_len} bytes")]
    Length { len: usize, entry_len: usize },
    #[error("entry {entry} does not lie behind the one before it")]
    Order { entry: usize },
    #[error("entry {entry} points beyond the log's {log_len} bytes")]
    BeyondLog { entry: usize, log_len: u64 },
    #[error("entry {entry} holds a number that no entry can")]
    Column { entry: usize },
}

/// Checks a trimmed `.index` against the length of its log. A first entry for the base offset
/// itself is sound, if unusual.
pub fn check_offset_index(bytes: &[u8], log_len: u64) -> Result<(), IndexFault> {
    check_len(bytes.len(), OFFSET_ENTRY_LEN)?;
    let mut last: Option<OffsetEntry> = None;
    for (entry, at) in offset_entries(bytes).enumerate() {
        if at.relative_offset > COLUMN_MAX || at.pos > COLUMN_MAX {
            return Err(IndexFault::Column { entry });
        }
        if last.is_some_and(|l| at.relative_offset <= l.relative_offset || at.pos <= l.pos) {
            return Err(IndexFault::Order { entry });
        }
        if u64::from(at.pos) >= log_len {
            return Err(IndexFault::BeyondLog { entry, log_len });
        }
        last = Some(at);
    }
    Ok(())
}

/// Checks a trimmed `.timeindex`.
pub fn check_time_index(bytes: &[u8]) -> Result<(), IndexFault> {
    check_len(bytes.len(), TIME_ENTRY_LEN)?;
    let mut last: Option<TimeEntry> = None;
    for (entry, at) in time_entries(bytes).enumerate() {
        if at.relative_offset > COLUMN_MAX {
            return Err(IndexFault::Column { entry });
        }
        let behind =
            |l: TimeEntry| at.timestamp <= l.timestamp || at.relative_offset < l.relative_offset;
        if last.is_some_and(behind) {
            return Err(IndexFault::Order { entry });
        }
        last = Some(at);
    }
    Ok(())
}

fn check_len(len: usize, entry_len: usize) -> Result<(), IndexFault> {
    if len.is_multiple_of(entry_len) { Ok(()) } else { Err(IndexFault::Length { len, entry_len }) }
}

/// How large the indexes of a segment may grow, and how dense they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexLimits {
    /// `index.interval.bytes`: an entry is due once more than this lies behind the last one.
    pub interval_bytes: u32,
    /// `segment.index.bytes`, of either file.
    pub index_bytes_max: usize,
}

impl IndexLimits {
    const fn offset_capacity(&self) -> usize {
        self.index_bytes_max / OFFSET_ENTRY_LEN
    }

    /// One slot stays free for the closing entry.
    const fn time_capacity(&self) -> usize {
        (self.index_bytes_max / TIME_ENTRY_LEN).saturating_sub(1)
    }
}

/// Decides, batch by batch, which entries the two indexes of one segment get. The same rule serves
/// appends and recovery, so that a rebuilt index equals the live one (R04): an entry is due when
/// more than `interval_bytes` lie between the position of the last entry (at first 0) and this
/// batch.
#[derive(Clone, Debug)]
pub struct IndexBuilder {
    base_offset: i64,
    limits: IndexLimits,
    /// Entries so far, of each file.
    offset_count: usize,
    time_count: usize,
    /// The last entry of `.index`; (0, 0) before there is one, which is how the first interval is
    /// measured.
    last: OffsetEntry,
    /// The timestamp of the last entry of `.timeindex`, -1 before there is one.
    last_timestamp: i64,
    /// The greatest batch timestamp so far, and the last offset of the first batch that has it.
    max_timestamp: i64,
    relative_offset_of_max: u32,
}

impl IndexBuilder {
    /// For an empty segment.
    pub fn new(base_offset: i64, limits: IndexLimits) -> IndexBuilder {
        IndexBuilder {
            base_offset,
            limits,
            offset_count: 0,
            time_count: 0,
            last: OffsetEntry { relative_offset: 0, pos: 0 },
            last_timestamp: -1,
            max_timestamp: -1,
            relative_offset_of_max: 0,
        }
    }

    /// For a segment that has these (trimmed, checked) indexes. The running maximum is that of the
    /// last time entry: it is complete if the segment was closed, else the batches behind that
    /// entry must be shown to `on_stored`.
    pub fn resume(base_offset: i64, limits: IndexLimits, index: &[u8], timeindex: &[u8]) -> Self {
        let mut builder = IndexBuilder::new(base_offset, limits);
        builder.offset_count = index.len() / OFFSET_ENTRY_LEN;
        builder.time_count = timeindex.len() / TIME_ENTRY_LEN;
        if let Some(last) = offset_entries(index).next_back() {
            builder.last = last;
        }
        if let Some(last) = time_entries(timeindex).next_back() {
            builder.last_timestamp = last.timestamp;
            builder.max_timestamp = last.timestamp;
            builder.relative_offset_of_max = last.relative_offset;
        }
        builder
    }

    /// Takes note of a batch at `pos` and returns the entries it earns. Called for each batch in
    /// the order of the log. No entry comes once a file is full or where an offset does not fit:
    /// lookups stay right, they only scan more; the roll rule is there to prevent it.
    pub fn on_batch(
        &mut self,
        pos: u64,
        last_offset: i64,
        max_timestamp: i64,
    ) -> Option<(OffsetEntry, Option<TimeEntry>)> {
        self.on_stored(last_offset, max_timestamp);
        let relative_offset = relative_offset(self.base_offset, last_offset)?;
        let pos = u32::try_from(pos).ok().filter(|pos| *pos <= COLUMN_MAX)?;
        if pos.saturating_sub(self.last.pos) <= self.limits.interval_bytes || self.is_full() {
            return None;
        }
        if self.offset_count > 0 && relative_offset <= self.last.relative_offset {
            return None;
        }
        self.last = OffsetEntry { relative_offset, pos };
        self.offset_count += 1;
        Some((self.last, self.time_entry()))
    }

    /// Takes note of a batch that the indexes know already (see `resume`).
    pub fn on_stored(&mut self, last_offset: i64, max_timestamp: i64) {
        match relative_offset(self.base_offset, last_offset) {
            Some(relative_offset) => self.note_timestamp(relative_offset, max_timestamp),
            // Behind all that an entry can name (R05): it is true of every offset up to there.
            None if last_offset > self.base_offset => {
                self.note_timestamp(COLUMN_MAX, max_timestamp);
            }
            None => {}
        }
    }

    /// The entry that a segment's time index ends with when it is rolled, closed or recovered: its
    /// true maximum, unless that is there already. Takes the slot kept free for it.
    pub fn close(&mut self) -> Option<TimeEntry> {
        self.time_entry()
    }

    /// Whether either index refuses a further entry: the segment must roll.
    pub fn is_full(&self) -> bool {
        self.offset_count >= self.limits.offset_capacity()
            || self.time_count >= self.limits.time_capacity()
    }

    /// The greatest timestamp of the segment (-1: none), and the last offset of the first batch
    /// with it.
    pub fn max_timestamp(&self) -> (i64, i64) {
        let offset = self.base_offset.saturating_add(i64::from(self.relative_offset_of_max));
        (self.max_timestamp, offset)
    }

    fn note_timestamp(&mut self, relative_offset: u32, max_timestamp: i64) {
        if max_timestamp > self.max_timestamp {
            self.max_timestamp = max_timestamp;
            self.relative_offset_of_max = relative_offset;
        }
    }

    fn time_entry(&mut self) -> Option<TimeEntry> {
        if self.max_timestamp <= self.last_timestamp {
            return None;
        }
        self.last_timestamp = self.max_timestamp;
        self.time_count += 1;
        Some(TimeEntry {
            timestamp: self.max_timestamp,
            relative_offset: self.relative_offset_of_max,
        })
    }
}

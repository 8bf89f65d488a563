//! The batches of a `.log` one after the other, and the way through damaged bytes.
//!
//! Owns: where each batch lies, whether it can be trusted, and how to go on behind what cannot be.
//! Never does: look into records; hold more than one batch.
//! Left: `source`, `format::stored`. Right: `verify`, `rebuild`, `explore`, the CLI's dump.

use std::io;

use super::source::{STEP_BYTES, Source, Window};
use crate::format::batch::{
    BatchError, BatchHeader, HEADER_LEN, MAGIC, MAGIC_V0, MAGIC_V2, RECORDS, counts_possible,
};
use crate::format::stored;

/// A batch that declares more is taken for damage: it bounds the window.
pub const BATCH_BYTES_MAX: usize = 128 << 20;
/// Checksums tried in one search may cover this many times the file; then it is given up.
const EFFORT: u64 = 4;

/// What comes next in a log.
#[derive(Debug)]
pub enum Item<'a> {
    Batch(Batch<'a>),
    Bad(Bad),
}

/// A whole batch, trusted or at least as long as its header says.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub pos: u64,
    pub header: BatchHeader,
    /// Header included.
    pub bytes: &'a [u8],
    /// Its checksum does not hold, or its counts are impossible (R01).
    pub fault: Option<BatchError>,
}

impl<'a> Batch<'a> {
    pub fn crc_ok(&self) -> bool {
        !matches!(self.fault, Some(BatchError::Crc { .. }))
    }

    /// The records, or the compressed stream of them. Only of magic 2.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(RECORDS..).unwrap_or_default()
    }
}

/// Bytes that are no batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bad {
    pub pos: u64,
    pub len: u64,
    /// Why none begins at `pos`.
    pub why: BatchError,
    /// No batch that can be trusted follows.
    pub at_end: bool,
    /// Nothing was ever written there: space prepared for batches to come.
    pub zeros: bool,
    /// The next offset that can be trusted lies at or above this.
    pub offset_min: i64,
}

/// A step's outcome before its bytes are borrowed.
enum Step {
    Batch(BatchHeader, Option<BatchError>),
    Bad(Bad),
    End,
}

#[derive(Debug)]
pub struct Walk<S> {
    window: Window<S>,
    pos: u64,
    /// What is read ends here: the file's length when the walk began.
    end: u64,
    /// The reader asked for no more than this.
    limit: u64,
    offset_min: i64,
    /// Formats only get newer: what looks like an older message behind a newer one is chance.
    magic_min: i8,
}

impl<S: Source> Walk<S> {
    pub fn new(source: S) -> io::Result<Walk<S>> {
        Walk::part(source, 0, u64::MAX)
    }

    /// From `pos`, where a batch must begin, and no further than `limit`.
    pub fn part(source: S, pos: u64, limit: u64) -> io::Result<Walk<S>> {
        let end = source.size()?;
        Ok(Walk {
            window: Window::new(source),
            pos,
            end,
            limit,
            offset_min: 0,
            magic_min: MAGIC_V0,
        })
    }

    /// Where the next item begins.
    pub fn pos(&self) -> u64 {
        self.pos
    }

    pub fn read_bytes(&self) -> u64 {
        self.window.read_bytes()
    }

    /// Nothing behind it is read.
    fn stop(&self) -> u64 {
        self.end.min(self.limit)
    }

    /// The walk ended because no whole batch fits before the limit.
    pub fn is_at_limit(&self) -> bool {
        self.limit < self.end
    }

    /// None at the end of the file, or of what was asked for.
    pub fn next_item(&mut self) -> io::Result<Option<Item<'_>>> {
        match self.step()? {
            Step::End => Ok(None),
            Step::Bad(bad) => {
                self.pos = bad.pos + bad.len;
                Ok(Some(Item::Bad(bad)))
            }
            Step::Batch(header, fault) => {
                let (pos, len) = (self.pos, header.total_len());
                if fault.is_none() {
                    self.offset_min = self.offset_min.max(header.next_offset());
                    self.magic_min = self.magic_min.max(header.magic);
                }
                self.pos = pos + len as u64;
                let bytes = self.window.get(pos, len, self.end)?;
                let bytes = bytes.get(..len).ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok(Some(Item::Batch(Batch { pos, header, bytes, fault })))
            }
        }
    }

    fn step(&mut self) -> io::Result<Step> {
        if self.pos >= self.stop() {
            return Ok(Step::End);
        }
        let mut judged = self.judge(self.pos)?;
        if self.may_still_come(&judged)? {
            judged = self.judge(self.pos)?;
        }
        match judged {
            Ok((header, _)) if self.pos + header.total_len() as u64 > self.limit => Ok(Step::End),
            Err(BatchError::NeedMore { need, .. })
                if self.limit < self.end && self.pos + need as u64 <= self.end =>
            {
                Ok(Step::End)
            }
            Ok((header, None)) => Ok(Step::Batch(header, None)),
            Ok((header, Some(fault))) if self.length_holds(&header)? => {
                Ok(Step::Batch(header, Some(fault)))
            }
            Ok((_, Some(why))) | Err(why) => self.search(why),
        }
    }

    /// The batch at `pos`, whole; with what is wrong in it.
    fn judge(
        &mut self,
        pos: u64,
    ) -> io::Result<Result<(BatchHeader, Option<BatchError>), BatchError>> {
        let header = match self.header(pos)? {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        let (need, left) = (header.total_len(), self.end - pos);
        if need as u64 > left || need > BATCH_BYTES_MAX {
            let have = usize::try_from(left).unwrap_or(usize::MAX);
            return Ok(Err(BatchError::NeedMore { have, need }));
        }
        if pos + need as u64 > self.limit {
            return Ok(Ok((header, None)));
        }
        let bytes = self.window.get(pos, need, self.stop())?;
        let Some(bytes) = bytes.get(..need) else {
            return Ok(Err(BatchError::NeedMore { have: bytes.len(), need }));
        };
        let (records_count, last_offset_delta) = (header.records_count, header.last_offset_delta);
        let fault = match stored::verify(bytes) {
            Err(error) => Some(error),
            Ok(_) if counts_possible(&header) => None,
            Ok(_) => Some(BatchError::Count { records_count, last_offset_delta }),
        };
        Ok(Ok((header, fault)))
    }

    /// Whether a server may be writing the last bytes just now: they are then read once more, and
    /// the walk goes on as far as that one batch.
    fn may_still_come(
        &mut self,
        judged: &Result<(BatchHeader, Option<BatchError>), BatchError>,
    ) -> io::Result<bool> {
        match judged {
            Err(BatchError::NeedMore { need, .. }) if *need <= BATCH_BYTES_MAX => {
                let now = self.window.source.size()?;
                let grown = now > self.end;
                self.end = self.end.max(now.min(self.pos.saturating_add(*need as u64)));
                Ok(grown)
            }
            Ok((header, Some(BatchError::Crc { .. }))) => {
                let last = self.pos + header.total_len() as u64 == self.end;
                if last {
                    self.window.forget();
                }
                Ok(last)
            }
            _ => Ok(false),
        }
    }

    /// A batch whose checksum is wrong is as long as it says if the next one follows it.
    fn length_holds(&mut self, header: &BatchHeader) -> io::Result<bool> {
        let behind = self.pos + header.total_len() as u64;
        if behind >= self.stop() {
            return Ok(true);
        }
        let offset_min = self.offset_min;
        let bytes = self.window.get(behind, HEADER_LEN, self.stop())?;
        let next = stored::parse_header(bytes);
        Ok(next.is_ok_and(|next| plausible(bytes, &next) && next.base_offset >= offset_min))
    }

    /// Steps over bytes until a batch begins that can be trusted: possible in all its numbers, not
    /// before what was read already, its checksum true.
    fn search(&mut self, why: BatchError) -> io::Result<Step> {
        let mut effort = self.end.saturating_mul(EFFORT);
        let (pos, end) = (self.pos, self.stop());
        let (offset_min, magic_min) = (self.offset_min, self.magic_min);
        let mut zeros = true;
        let mut at = pos;
        while at < end {
            let bytes = self.window.get(at, STEP_BYTES, end)?;
            let bytes = bytes.get(..STEP_BYTES).unwrap_or(bytes);
            if bytes.is_empty() {
                break; // the file was truncated meanwhile
            }
            zeros = zeros && bytes.chunks(4096).all(is_zero);
            let skip = usize::from(at == pos);
            let Some(candidate) = candidate(bytes, skip, end - at, offset_min, magic_min) else {
                let step = bytes.len().saturating_sub(HEADER_LEN - 1);
                at = if step == 0 || at + bytes.len() as u64 == end {
                    end
                } else {
                    at + step as u64
                };
                continue;
            };
            at += candidate as u64;
            if let Ok((header, None)) = self.judge(at)?
                && at + header.total_len() as u64 <= self.limit
            {
                let len = at - pos;
                return Ok(Step::Bad(Bad {
                    pos,
                    len,
                    why,
                    at_end: false,
                    zeros: false,
                    offset_min,
                }));
            } else if let Ok(header) = self.header(at)? {
                effort = effort.saturating_sub(header.total_len() as u64);
            }
            if effort == 0 {
                break;
            }
            at += 1;
        }
        Ok(Step::Bad(Bad { pos, len: end - pos, why, at_end: true, zeros, offset_min }))
    }

    fn header(&mut self, pos: u64) -> io::Result<Result<BatchHeader, BatchError>> {
        Ok(stored::parse_header(self.window.get(pos, HEADER_LEN, self.stop())?))
    }
}

/// The first place from `skip` on where something looks like a header whose batch may end within
/// `left` bytes.
fn candidate(
    bytes: &[u8],
    skip: usize,
    left: u64,
    offset_min: i64,
    magic_min: i8,
) -> Option<usize> {
    let [a, b, c] = [magic_min, magic_min.max(1), MAGIC_V2].map(|magic| magic as u8);
    let magics = bytes.get(skip + MAGIC..)?;
    memchr::memchr3_iter(a, b, c, magics).map(|i| i + skip).find(|at| {
        let rest = bytes.get(*at..).unwrap_or_default();
        stored::parse_header(rest).is_ok_and(|header| {
            plausible(rest, &header)
                && header.base_offset >= offset_min
                && header.total_len() as u64 <= left - *at as u64
        })
    })
}

/// Without a branch a byte.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |seen, byte| seen | byte) == 0
}

fn plausible(bytes: &[u8], header: &BatchHeader) -> bool {
    stored::plausible(bytes, header) && header.total_len() <= BATCH_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::{self, Codec};
    use crate::format::builder::BatchBuilder;
    use proptest::prelude::*;

    fn log(batches: usize) -> (Vec<u8>, Vec<u64>) {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        for i in 0..batches {
            let mut builder = BatchBuilder::new();
            let value = vec![i as u8; 40 + 37 * i];
            builder.append(None, Some(&value), &[], 1_700_000_000_000 + i as i64);
            let mut made = builder.finish(Codec::None, None).expect("plain").to_vec();
            batch::assign(&mut made, i as i64, 0).expect("a batch");
            starts.push(bytes.len() as u64);
            bytes.extend(made);
        }
        (bytes, starts)
    }

    /// Positions of sound batches, of those with a fault, and the bad stretches.
    fn seen(bytes: &[u8]) -> (Vec<u64>, Vec<u64>, Vec<Bad>) {
        let (mut sound, mut faulty, mut bad) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = Walk::new(bytes).expect("a slice");
        let mut end = 0;
        while let Some(item) = walk.next_item().expect("a slice") {
            match item {
                Item::Batch(batch) => {
                    assert_eq!(batch.pos, end);
                    end += batch.bytes.len() as u64;
                    if batch.fault.is_some() { &mut faulty } else { &mut sound }.push(batch.pos);
                }
                Item::Bad(found) => {
                    assert_eq!(found.pos, end);
                    end += found.len;
                    bad.push(found);
                }
            }
        }
        assert_eq!(end, bytes.len() as u64, "every byte is accounted for");
        (sound, faulty, bad)
    }

    #[test]
    fn damage_costs_one_batch() {
        let (log, starts) = log(8);
        let without = |pos: u64| starts.iter().copied().filter(|p| *p != pos).collect::<Vec<_>>();
        let bad_at = starts[3] as usize;

        let mut damaged = log.clone();
        damaged[bad_at + MAGIC] = 9;
        let (sound, _, bad) = seen(&damaged);
        assert_eq!(sound, without(starts[3]));
        assert_eq!((bad[0].pos, bad[0].pos + bad[0].len), (starts[3], starts[4]));
        assert!(!bad[0].at_end);

        for wrong in [0x7f, 0x01] {
            let mut oversized = log.clone();
            oversized[bad_at + 8] = wrong; // more than the file, more than a window
            assert_eq!(seen(&oversized).0, without(starts[3]));
        }
        let mut longer = log.clone();
        longer[bad_at + 11] = longer[bad_at + 11].wrapping_add(9); // it ends inside the next
        let (sound, faulty, _) = seen(&longer);
        assert_eq!((sound, faulty), (without(starts[3]), vec![]));

        let mut flipped = log.clone();
        flipped[bad_at + 70] ^= 4;
        let (sound, faulty, bad) = seen(&flipped);
        assert_eq!((sound, faulty, bad), (without(starts[3]), vec![starts[3]], vec![]));
    }

    #[test]
    fn what_is_older_than_what_was_read_is_not_brought_back() {
        let (log, starts) = log(4);
        let old = &log[starts[1] as usize..starts[2] as usize];
        let torn = [&log, &[0xee; 100][..], old].concat();
        let (sound, _, bad) = seen(&torn);
        assert_eq!(sound, starts);
        assert_eq!((bad[0].pos, bad[0].at_end), (log.len() as u64, true));
    }

    #[test]
    fn space_never_written_is_told_from_a_torn_tail() {
        let (log, _) = log(3);
        for len in [5, 61, 400_000] {
            let (_, _, bad) = seen(&[&log[..], &vec![0; len]].concat());
            assert!(bad[0].zeros && bad[0].at_end && bad[0].len == len as u64, "{bad:?}");
            let (_, _, bad) = seen(&[&log[..], &vec![0; len], &[1]].concat());
            assert!(!bad[0].zeros, "{bad:?}");
        }
    }

    /// Nothing but plausible headers, each of a batch that goes on to the end.
    #[test]
    fn a_search_ends_in_hostile_bytes() {
        let (one, _) = log(1);
        let mut header = one[..HEADER_LEN].to_vec();
        header[8..12].copy_from_slice(&(1i32 << 20).to_be_bytes());
        let hostile = header.repeat(40_000);
        let (sound, _, bad) = seen(&[&[9; 10][..], &hostile].concat());
        assert!(sound.is_empty() && bad.iter().all(|bad| bad.len > 0));
    }

    proptest! {
        #[test]
        fn every_cut_ends_before_the_batch_that_it_cuts(cut in any::<prop::sample::Index>()) {
            let (log, starts) = log(6);
            let cut = cut.index(log.len());
            let (sound, faulty, bad) = seen(&log[..cut]);
            let wholes = starts.iter().skip(1).copied().chain([log.len() as u64]);
            let whole = wholes.filter(|end| *end <= cut as u64).count();
            prop_assert_eq!(sound, &starts[..whole]);
            prop_assert!(faulty.is_empty());
            prop_assert_eq!(bad.len(), usize::from(cut as u64 != starts[whole]));
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(0u8..4, 0..2000)) {
            seen(&bytes);
        }
    }
}

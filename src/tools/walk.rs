//! The batches of a `.log` one after the other, and the way through damaged bytes.
//!
//! Owns: where each batch lies, whether it can be trusted, and how to go on behind what cannot be.
//! Never does: look into records; hold more than one batch.
//! Left: `source`, `format::batch`. Right: `verify`, `rebuild`, `explore`, the CLI's dump.

use std::io;

use super::source::{STEP_BYTES, Source, Window};
use crate::format::batch::{
    self, ATTRIBUTES, BatchError, BatchHeader, HEADER_LEN, MAGIC, MAGIC_V2, RECORDS,
    counts_possible,
};
use crate::format::checksum::crc32c;

/// A batch that declares more is taken for damage: it bounds the window.
pub const BATCH_BYTES_MAX: usize = 128 << 20;
/// Checksums tried in one search may cover this many times the file; then it is given up.
const EFFORT: u64 = 4;
/// Attribute bits with a meaning.
const KNOWN_ATTRIBUTES: i16 = 0x7f;

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

    /// The records, or the compressed stream of them.
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
}

impl<S: Source> Walk<S> {
    pub fn new(source: S) -> io::Result<Walk<S>> {
        Walk::part(source, 0, u64::MAX)
    }

    /// From `pos`, where a batch must begin, and no further than `limit`.
    pub fn part(source: S, pos: u64, limit: u64) -> io::Result<Walk<S>> {
        let end = source.len()?;
        Ok(Walk { window: Window::new(source), pos, end, limit, offset_min: 0 })
    }

    /// Where the next item begins.
    pub fn pos(&self) -> u64 {
        self.pos
    }

    pub fn read_bytes(&self) -> u64 {
        self.window.read_bytes()
    }

    /// The walk ended because no whole batch fits before the limit.
    pub fn is_at_limit(&self) -> bool {
        self.limit < self.end
    }

    /// None at the end of the file, or of what was asked for.
    pub fn next(&mut self) -> io::Result<Option<Item<'_>>> {
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
                }
                self.pos = pos + len as u64;
                let bytes = self.window.get(pos, len, self.end)?;
                let bytes = bytes.get(..len).ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok(Some(Item::Batch(Batch { pos, header, bytes, fault })))
            }
        }
    }

    fn step(&mut self) -> io::Result<Step> {
        if self.pos >= self.end.min(self.limit) {
            return Ok(Step::End);
        }
        let mut judged = self.judge(self.pos)?;
        if self.may_still_come(&judged)? {
            judged = self.judge(self.pos)?;
        }
        match judged {
            Ok((header, _)) if self.pos + header.total_len() as u64 > self.limit => Ok(Step::End),
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
        let header = match batch::parse_header(self.window.get(pos, HEADER_LEN, self.end)?) {
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
        let bytes = self.window.get(pos, need, self.end)?;
        let Some(body) = bytes.get(ATTRIBUTES..need) else {
            return Ok(Err(BatchError::NeedMore { have: bytes.len(), need }));
        };
        let (stored, computed) = (header.crc, crc32c(body));
        let (records_count, last_offset_delta) = (header.records_count, header.last_offset_delta);
        let fault = match counts_possible(&header) {
            _ if stored != computed => Some(BatchError::Crc { stored, computed }),
            true => None,
            false => Some(BatchError::Count { records_count, last_offset_delta }),
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
                let now = self.window.source.len()?;
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
        if behind == self.end {
            return Ok(true);
        }
        let next = batch::parse_header(self.window.get(behind, HEADER_LEN, self.end)?);
        Ok(next.is_ok_and(|next| plausible(&next) && next.base_offset >= self.offset_min))
    }

    /// Steps over bytes until a batch begins that can be trusted: possible in all its numbers, not
    /// before what was read already, its checksum true.
    fn search(&mut self, why: BatchError) -> io::Result<Step> {
        let mut effort = self.end.saturating_mul(EFFORT);
        let (pos, end, offset_min) = (self.pos, self.end, self.offset_min);
        let mut zeros = true;
        let mut at = pos;
        while at < end.min(self.limit) {
            let bytes = self.window.get(at, STEP_BYTES, end)?;
            let bytes = bytes.get(..STEP_BYTES).unwrap_or(bytes);
            if bytes.is_empty() {
                break; // the file was truncated meanwhile
            }
            zeros = zeros && bytes.iter().all(|byte| *byte == 0);
            let skip = usize::from(at == pos);
            let Some(candidate) = candidate(bytes, skip, end - at, offset_min) else {
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
        let stop = end.min(self.limit);
        Ok(Step::Bad(Bad { pos, len: stop - pos, why, at_end: true, zeros, offset_min }))
    }

    fn header(&mut self, pos: u64) -> io::Result<Result<BatchHeader, BatchError>> {
        Ok(batch::parse_header(self.window.get(pos, HEADER_LEN, self.end)?))
    }
}

/// The first place from `skip` on where something looks like a header whose batch may end within
/// `left` bytes.
fn candidate(bytes: &[u8], skip: usize, left: u64, offset_min: i64) -> Option<usize> {
    let magics = bytes.get(skip + MAGIC..)?;
    memchr::memchr_iter(MAGIC_V2 as u8, magics).map(|i| i + skip).find(|at| {
        let rest = bytes.get(*at..).unwrap_or_default();
        batch::parse_header(rest).is_ok_and(|header| {
            plausible(&header)
                && header.base_offset >= offset_min
                && header.total_len() as u64 <= left - *at as u64
        })
    })
}

fn plausible(header: &BatchHeader) -> bool {
    counts_possible(header)
        && header.codec().is_some()
        && header.attributes.0 & !KNOWN_ATTRIBUTES == 0
        && header.total_len() <= BATCH_BYTES_MAX
}

//! Behind a bad batch: the next one that can be trusted, and how long a chain it begins.
//!
//! Owns: the search. Never does: deciding what it means (`scan` does). Left: `cursor`. Right:
//! `scan`.

use super::cursor::{FileCursor, WINDOW_BYTES};
use crate::format::batch::{BatchHeader, HEADER_LEN};
use crate::format::stored::{self, STORED_LEN_MIN};
use crate::format::unpack::Unpacker;
use crate::io::blocking::Blocking;
use crate::io::{Errno, Io};
use crate::types::Offset;

/// Checksums tried in one search may cover the file this many times; then it is given up.
const EFFORT: u64 = 4;
/// What a set of old messages may expand to while its first one is looked for (R88).
const SET_BYTES_MAX: u64 = 64 << 20;
/// Bytes looked at together.
const STEP_BYTES: usize = 64 << 10;

/// The first sound batch behind `pos` whose base offset is at least `next`.
pub(super) fn next_batch<I: Io>(
    b: &mut Blocking<'_, I>,
    cursor: &mut FileCursor,
    pos: u64,
    next: Offset,
) -> Result<Option<(u64, BatchHeader)>, Errno> {
    let mut effort = cursor.len.saturating_mul(EFFORT);
    // Most often the length is sound and something else is not.
    if let Ok(header) = cursor.header(b, pos)? {
        let behind = pos + header.total_len() as u64;
        if let Some(found) = sound(b, cursor, behind, next)? {
            return Ok(Some((behind, found)));
        }
    }
    let mut at = pos + 1;
    while at + STORED_LEN_MIN as u64 <= cursor.len {
        let Some(candidate) = candidate(b, cursor, at, next)? else {
            at += (STEP_BYTES - HEADER_LEN + 1) as u64;
            continue;
        };
        if let Some(found) = sound(b, cursor, candidate, next)? {
            return Ok(Some((candidate, found)));
        }
        let cost = cursor.header(b, candidate)?.map_or(0, |header| header.total_len() as u64);
        effort = effort.saturating_sub(cost);
        if effort == 0 {
            return Ok(None);
        }
        at = candidate + 1;
    }
    Ok(None)
}

/// Where in the next step something looks like a header.
fn candidate<I: Io>(
    b: &mut Blocking<'_, I>,
    cursor: &mut FileCursor,
    at: u64,
    next: Offset,
) -> Result<Option<u64>, Errno> {
    let (len, newest) = (cursor.len, cursor.newest_magic);
    let bytes = cursor.bytes(b, at, STEP_BYTES)?;
    let bytes = bytes.get(..STEP_BYTES).unwrap_or(bytes);
    // A header that the step cuts is looked at in the next one, but what ends the file is not cut.
    let ends = at + bytes.len() as u64 == len;
    let last = bytes.len() + 1 - if ends { STORED_LEN_MIN } else { HEADER_LEN }.min(bytes.len());
    let found = (0..last).find(|i| {
        let left = len - (at + *i as u64);
        let window = bytes.get(*i..).unwrap_or_default();
        stored::parse_header(window).is_ok_and(|header| {
            let ahead = header.base_offset.saturating_sub(next.get());
            (0..=i64::from(i32::MAX)).contains(&ahead)
                && header.magic >= newest
                && header.total_len() as u64 <= left
                && stored::plausible(window, &header)
        })
    });
    Ok(found.map(|i| at + i as u64))
}

/// Where the records of a sound batch behind damage begin. A compressed set of old messages says
/// only where it ends, so it is opened.
pub(super) fn first_offset<I: Io>(
    b: &mut Blocking<'_, I>,
    cursor: &mut FileCursor,
    pos: u64,
    header: &BatchHeader,
    next: Offset,
) -> Result<Offset, Errno> {
    let base = Offset::new(header.base_offset).expect("at least the expected one");
    let len = header.total_len();
    if !header.is_legacy() || len > WINDOW_BYTES {
        return Ok(base);
    }
    let bytes = cursor.bytes(b, pos, len)?.get(..len).unwrap_or_default();
    let mut unpacker = Unpacker::new(SET_BYTES_MAX);
    let first = unpacker.open_bytes(bytes, header).ok().and_then(|mut records| {
        let first = records.next()?.ok()?;
        Offset::new(first.record.offset)
    });
    Ok(first.map_or(base, |first| first.clamp(next, base)))
}

fn sound<I: Io>(
    b: &mut Blocking<'_, I>,
    cursor: &mut FileCursor,
    pos: u64,
    next: Offset,
) -> Result<Option<BatchHeader>, Errno> {
    if pos >= cursor.len {
        return Ok(None);
    }
    Ok(cursor.verify(b, pos)?.ok().filter(|header| header.base_offset >= next.get()))
}

/// Bytes of the unbroken chain of sound batches that begins at `pos`, as far as `enough`.
pub(super) fn chain_len<I: Io>(
    b: &mut Blocking<'_, I>,
    cursor: &mut FileCursor,
    pos: u64,
    next: Offset,
    enough: u64,
) -> Result<u64, Errno> {
    let (mut at, mut next) = (pos, next.get());
    while at - pos <= enough && at < cursor.len {
        match cursor.verify(b, at)? {
            Ok(header) if header.base_offset >= next => {
                next = header.next_offset();
                at += header.total_len() as u64;
            }
            _ => break,
        }
    }
    Ok(at - pos)
}

//! A fetch as a job: find each partition's range, wait for data if asked to, build the reply.
//!
//! Owns: the order of its steps and the rules of which partition gets how many bytes. Never
//! does: wait, or read past what a reader may see (the lookup bounds every range).
//! Left: `log` lookups, `protocol::fetch`. Right: `tick` (drives it), `conn` (takes the reply).
//!
//! ```text
//! Locate each part -> enough bytes? -> send: read into one window behind the heads -> reply
//!                  \                \-> sendfile: heads and file ranges -> reply
//!                   \-> park on the partitions until bytes, the deadline or a disconnect
//! ```

use super::conn::{ConnId, Piece};
use crate::errors::ErrorCode;
use crate::io::buffers::Slice;
use crate::log::{FileRange, OffsetLookup, View};
use crate::protocol::error::{Detail, ErrorBody};
use crate::protocol::fetch::{
    FRAME_HEAD, FetchRequest, Isolation, PART_HEAD, PartHead, frame_head, part_head,
};
use crate::protocol::frame::FRAME_BYTES_CEILING;
use crate::types::{Handle, Micros};

/// A fetch request, checked against this server's limits.
#[derive(Clone, Debug)]
pub struct Ask {
    pub max_bytes: u32,
    pub min_bytes: u32,
    pub max_wait: Micros,
    pub view: View,
    pub parts: Vec<AskPart>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AskPart {
    pub handle: Handle,
    pub offset: i64,
    pub last_epoch: i32,
    pub max_bytes: u32,
}

/// Longest wait a client may ask for.
pub const WAIT_MAX: Micros = Micros(5 * 60 * 1_000_000);

/// All the bytes of a reply that are not record data fit a frame with room to spare.
const _: () = assert!(u16::MAX as usize * (PART_HEAD + 2048) < FRAME_BYTES_CEILING as usize);

/// What an isolation level lets a reader see.
pub fn view(isolation: Isolation) -> View {
    match isolation {
        Isolation::ReadUncommitted => View::Uncommitted,
        Isolation::ReadCommitted => View::Committed,
    }
}

impl Ask {
    pub fn of(request: &FetchRequest<'_>, bytes_max: usize) -> Ask {
        let bytes_max = bytes_max.min(u32::MAX as usize) as u32;
        let wait = Micros::from_ms(u64::from(request.max_wait_ms)).min(WAIT_MAX);
        let part = |part: crate::protocol::fetch::FetchPart| AskPart {
            handle: part.handle,
            offset: part.offset,
            last_epoch: part.last_epoch,
            max_bytes: part.max_bytes,
        };
        Ask {
            max_bytes: request.max_bytes.min(bytes_max),
            min_bytes: request.min_bytes,
            max_wait: wait,
            view: view(request.isolation),
            parts: request.parts.iter().map(part).collect(),
        }
    }
}

/// What is known of one part.
#[derive(Clone, Debug)]
pub enum Found {
    Error {
        code: ErrorCode,
        message: String,
        detail: Detail,
        start: i64,
        high_watermark: i64,
    },
    /// `limited`: the limits, not the log, are why there is nothing.
    Empty {
        start: i64,
        high_watermark: i64,
        limited: bool,
    },
    /// `limited`: there is more behind it.
    Range {
        range: FileRange,
        start: i64,
        high_watermark: i64,
        limited: bool,
    },
}

impl Found {
    fn bytes(&self) -> u32 {
        match self {
            Found::Range { range, .. } => range.len as u32,
            _ => 0,
        }
    }
}

#[derive(Debug)]
pub enum Phase {
    /// Looking up part number `found.len()`.
    Locating,
    /// Waiting for bytes on every part's partition.
    Parked,
    /// Filling the reply; `at` is the part being read, `have` its bytes so far.
    Reading { at: usize, have: u32 },
    /// Waiting for buffer memory.
    Starved,
}

#[derive(Debug)]
pub struct Fetch {
    pub conn: ConnId,
    pub sequence: u32,
    pub correlation: u32,
    pub ask: Box<Ask>,
    /// The reply leaves by then, whatever was found.
    pub deadline: Micros,
    pub began: Micros,
    pub located: Micros,
    found: Vec<Found>,
    /// Record bytes of `found`, summed as it grows: a request may name 65535 parts.
    found_bytes: u64,
    pub lookup: Option<OffsetLookup>,
    pub phase: Phase,
}

impl Fetch {
    pub fn new(conn: ConnId, sequence: u32, correlation: u32, ask: Box<Ask>, now: Micros) -> Fetch {
        let deadline = now.plus(ask.max_wait);
        Fetch {
            conn,
            sequence,
            correlation,
            found: Vec::with_capacity(ask.parts.len()),
            found_bytes: 0,
            ask,
            deadline,
            began: now,
            located: now,
            lookup: None,
            phase: Phase::Locating,
        }
    }

    /// Lets go of the files that were found: a wait may be long.
    pub fn forget_found(&mut self) {
        self.found.clear();
        self.found_bytes = 0;
        self.lookup = None;
    }

    /// Starts over: after bytes arrived or the deadline passed.
    pub fn restart(&mut self, now: Micros) {
        self.forget_found();
        self.began = now;
        self.phase = Phase::Locating;
    }

    /// The part to look up now, with the bytes it may have: (part, max, whether its first batch
    /// comes whole whatever the limits say).
    pub fn next_part(&self) -> Option<(AskPart, u32, bool)> {
        let part = *self.ask.parts.get(self.found.len())?;
        let left = u64::from(self.ask.max_bytes).saturating_sub(self.found_bytes);
        let max = u64::from(part.max_bytes).min(left) as u32;
        // R22: the first batch of the first part that has one comes whole.
        Some((part, max, self.found_bytes == 0))
    }

    /// The next part is looked up.
    pub fn push(&mut self, found: Found) {
        self.found_bytes += u64::from(found.bytes());
        self.found.push(found);
        self.lookup = None;
    }

    pub fn parts_found(&self) -> usize {
        self.found.len()
    }

    pub fn total_bytes(&self) -> u64 {
        self.found_bytes
    }

    /// Enough to answer: the minimum is met, or waiting could not add to what was found (a limit
    /// cut a range, or a part failed; R24).
    pub fn is_enough(&self, now: Micros) -> bool {
        let cannot_grow = self.found.iter().any(|found| match found {
            Found::Error { .. } => true,
            Found::Range { limited, .. } | Found::Empty { limited, .. } => *limited,
        });
        cannot_grow
            || self.total_bytes() >= u64::from(self.ask.min_bytes)
            || now >= self.deadline
            || self.ask.parts.is_empty()
    }

    fn error_body(found: &Found) -> Vec<u8> {
        let Found::Error { message, detail, .. } = found else { return Vec::new() };
        let mut body = Vec::new();
        ErrorBody { message, detail: *detail }.encode(&mut body);
        body
    }

    /// Bytes of the whole reply frame.
    pub fn reply_len(&self) -> usize {
        FRAME_HEAD + self.parts_len()
    }

    fn parts_len(&self) -> usize {
        self.found
            .iter()
            .map(|found| PART_HEAD + Self::error_body(found).len() + found.bytes() as usize)
            .sum()
    }

    pub fn frame_head(&self) -> [u8; FRAME_HEAD] {
        frame_head(self.correlation, self.found.len() as u16, self.parts_len())
    }

    /// Part `at`'s head and, if it failed, its error body: all of it but the record bytes.
    pub fn part_bytes(&self, at: usize, out: &mut Vec<u8>) {
        let found = &self.found[at];
        let body = Self::error_body(found);
        let (error, start, high_watermark) = match found {
            Found::Error { code, start, high_watermark, .. } => {
                (code.code(), *start, *high_watermark)
            }
            Found::Empty { start, high_watermark, .. }
            | Found::Range { start, high_watermark, .. } => {
                (ErrorCode::None.code(), *start, *high_watermark)
            }
        };
        let handle = self.ask.parts[at].handle;
        let len = body.len() as u32 + found.bytes();
        out.extend_from_slice(&part_head(&PartHead { handle, error, start, high_watermark, len }));
        out.extend_from_slice(&body);
    }

    pub fn range(&self, at: usize) -> Option<&FileRange> {
        match self.found.get(at) {
            Some(Found::Range { range, .. }) => Some(range),
            _ => None,
        }
    }

    /// The reply as heads and file ranges. `copy` puts bytes into a pooled slice.
    pub fn pieces(&self, mut copy: impl FnMut(&[u8]) -> Slice) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut heads = self.frame_head().to_vec();
        for at in 0..self.found.len() {
            self.part_bytes(at, &mut heads);
            if let Some(range) = self.range(at) {
                pieces.push(Piece::Bytes(copy(&heads)));
                heads.clear();
                pieces.push(Piece::File {
                    file: range.file.clone(),
                    pos: range.pos,
                    len: range.len as u32,
                });
            }
        }
        if !heads.is_empty() {
            pieces.push(Piece::Bytes(copy(&heads)));
        }
        pieces
    }
}

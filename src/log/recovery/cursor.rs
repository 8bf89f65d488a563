//! Batches of a file, read through one window of memory whatever their headers claim.
//!
//! Owns: the window. Never does: judging offsets (`scan` does). Left: `io::blocking`, `format`.
//! Right: `scan`, `resync`, `load`.

use super::Fault;
use crate::format::batch::{BatchError, BatchHeader, HEADER_LEN, counts_possible};
use crate::format::stored::{self, Checksum};
use crate::io::blocking::Blocking;
use crate::io::{Errno, FileId, Io};
use crate::types::Micros;

/// Bytes read at once; a longer batch is checked piece by piece.
pub(super) const WINDOW_BYTES: usize = 1 << 20;
/// A scan that takes longer says so, and how far it is, this often.
const SAY_EVERY: Micros = Micros(2_000_000);

#[derive(Debug)]
pub(super) struct FileCursor {
    pub file: FileId,
    pub len: u64,
    window: Vec<u8>,
    at: u64,
    /// Bytes read from the file so far.
    pub read: u64,
    /// When to say next how far a long scan is.
    say_at: Option<Micros>,
    /// Of all that was found sound: formats only get newer.
    pub newest_magic: i8,
}

impl FileCursor {
    pub fn new(file: FileId, len: u64) -> FileCursor {
        let (window, at, read, say_at) = (Vec::new(), 0, 0, None);
        FileCursor { file, len, window, at, read, say_at, newest_magic: 0 }
    }

    /// The bytes at `pos`: at least `want` of them unless the file ends. `want` is at most a
    /// window.
    pub fn bytes<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        pos: u64,
        want: usize,
    ) -> Result<&[u8], Errno> {
        assert!(want <= WINDOW_BYTES, "a window holds what is wanted");
        let end = self.len.min(pos.saturating_add(want as u64));
        if pos < self.at || end > self.at + self.window.len() as u64 {
            let len = (self.len.saturating_sub(pos)).min(WINDOW_BYTES as u64) as usize;
            self.window.resize(len, 0);
            let read = b.read_at(self.file, pos, &mut self.window)?;
            self.window.truncate(read);
            self.at = pos;
            self.read += read as u64;
            self.say(b.io.now());
        }
        let skip = usize::try_from(pos - self.at).expect("inside the window");
        Ok(self.window.get(skip..).unwrap_or_default())
    }

    fn say(&mut self, now: Micros) {
        let (pos, len) = (self.at, self.len);
        if now >= *self.say_at.get_or_insert(now.plus(SAY_EVERY)) {
            self.say_at = Some(now.plus(SAY_EVERY));
            tracing::info!(pos, len, read = self.read, "recovering: still reading this segment");
        }
    }

    /// The header at `pos`, if a whole batch can lie there.
    pub fn header<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        pos: u64,
    ) -> Result<Result<BatchHeader, Fault>, Errno> {
        let left = self.len.saturating_sub(pos);
        let header = match stored::parse_header(self.bytes(b, pos, HEADER_LEN)?) {
            Ok(header) => header,
            Err(BatchError::NeedMore { need, .. }) => {
                return Ok(Err(Fault::CutShort { have: left, need: need as u64 }));
            }
            Err(error) => return Ok(Err(error.into())),
        };
        let need = header.total_len() as u64;
        if need > left {
            return Ok(Err(Fault::CutShort { have: left, need }));
        }
        Ok(Ok(header))
    }

    /// The batch at `pos`, checksum and counts included.
    pub fn verify<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        pos: u64,
    ) -> Result<Result<BatchHeader, Fault>, Errno> {
        let header = match self.header(b, pos)? {
            Ok(header) => header,
            Err(fault) => return Ok(Err(fault)),
        };
        let end = pos + header.total_len() as u64;
        let mut at = pos + Checksum::from(&header) as u64;
        let mut crc = Checksum::new(&header);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(WINDOW_BYTES);
            let bytes = self.bytes(b, at, want)?;
            let Some(bytes) = bytes.get(..want) else { return Err(Errno::EIO) };
            crc.update(bytes);
            at += want as u64;
        }
        let (stored, computed) = (header.crc, crc.value());
        Ok(match stored == computed {
            false => Err(BatchError::Crc { stored, computed }.into()),
            true if !counts_possible(&header) => Err(BatchError::Count {
                records_count: header.records_count,
                last_offset_delta: header.last_offset_delta,
            }
            .into()),
            true => {
                self.newest_magic = self.newest_magic.max(header.magic);
                Ok(header)
            }
        })
    }
}

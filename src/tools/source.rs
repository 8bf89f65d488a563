//! Bytes of a file through one window of memory that no number in the file can size.
//!
//! Owns: the window, and how many bytes were read. Never does: judging them; writing.
//! Left: `std::fs`. Right: `walk`, `index_file`, `lookup`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes a read, where no batch asks for more.
pub const STEP_BYTES: usize = 256 << 10;
/// A window that grew beyond this for one batch is given back behind it.
const KEPT_BYTES: usize = 4 << 20;

/// What can be read at a position, and may grow meanwhile.
pub trait Source {
    fn read_at(&self, into: &mut [u8], pos: u64) -> io::Result<usize>;
    fn size(&self) -> io::Result<u64>;
}

impl Source for File {
    fn read_at(&self, into: &mut [u8], pos: u64) -> io::Result<usize> {
        FileExt::read_at(self, into, pos)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl Source for &[u8] {
    fn read_at(&self, into: &mut [u8], pos: u64) -> io::Result<usize> {
        let from = usize::try_from(pos).unwrap_or(usize::MAX);
        let rest = self.get(from..).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn size(&self) -> io::Result<u64> {
        Ok((**self).len() as u64)
    }
}

/// As many bytes as there are at `pos`, up to the length of `into`.
pub fn read_full(source: &impl Source, into: &mut [u8], pos: u64) -> io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = into.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match source.read_at(rest, pos + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[derive(Debug)]
pub struct Window<S> {
    pub source: S,
    bytes: Vec<u8>,
    /// Where in the file they begin.
    at: u64,
    read_bytes: u64,
}

impl<S: Source> Window<S> {
    pub fn new(source: S) -> Window<S> {
        Window { source, bytes: Vec::new(), at: 0, read_bytes: 0 }
    }

    /// The bytes at `pos`: at least `want` of them, unless the file (or `end`) comes first.
    pub fn get(&mut self, pos: u64, want: usize, end: u64) -> io::Result<&[u8]> {
        let due = end.saturating_sub(pos).min(want as u64);
        let have = self.at + self.bytes.len() as u64;
        if pos < self.at || pos + due > have {
            self.fill(pos, want, end)?;
        }
        let skip = usize::try_from(pos - self.at).unwrap_or(usize::MAX);
        let room = usize::try_from(end.saturating_sub(pos)).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(skip..).unwrap_or_default();
        Ok(bytes.get(..room).unwrap_or(bytes))
    }

    fn fill(&mut self, pos: u64, want: usize, end: u64) -> io::Result<()> {
        let known = pos.checked_sub(self.at).and_then(|skip| usize::try_from(skip).ok());
        match known.filter(|skip| *skip <= self.bytes.len()) {
            Some(skip) => drop(self.bytes.drain(..skip)),
            None => self.bytes.clear(),
        }
        self.at = pos;
        let left = usize::try_from(end.saturating_sub(pos)).unwrap_or(usize::MAX);
        let len = want.max(STEP_BYTES).min(left).max(self.bytes.len());
        let have = self.bytes.len();
        if self.bytes.capacity() > KEPT_BYTES && len <= STEP_BYTES {
            self.bytes.shrink_to(STEP_BYTES);
        }
        self.bytes.reserve_exact(len - have);
        self.bytes.resize(len, 0);
        let from = pos + have as u64;
        let read = read_full(&self.source, &mut self.bytes[have..], from);
        self.bytes.truncate(have + *read.as_ref().unwrap_or(&0));
        self.read_bytes += read? as u64;
        Ok(())
    }

    /// What was read may have been written meanwhile: the next call reads again.
    pub fn forget(&mut self) {
        self.bytes.clear();
    }

    /// Bytes taken from the source so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_comes_from_where_it_was_asked_for(
            asks in prop::collection::vec((0u64..900_000, 0usize..300_000), 1..20)
        ) {
            let bytes: Vec<u8> = (0..700_000u32).map(|i| (i / 3) as u8).collect();
            let mut window = Window::new(bytes.as_slice());
            for (pos, want) in asks {
                let end = bytes.len() as u64;
                let got = window.get(pos, want, end).expect("a slice").to_vec();
                let from = (pos as usize).min(bytes.len());
                prop_assert!(got.len() >= want.min(bytes.len() - from));
                prop_assert_eq!(&got[..], &bytes[from..from + got.len()]);
            }
        }
    }
}

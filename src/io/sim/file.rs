//! One simulated file: what reads see, what the disk holds, and every change in between.
//!
//! Owns: the bytes of one inode, its unflushed changes, what a flush, a failed flush and a power
//! cut make of them. Never does: names, time, error numbers. Left: `prng`. Right: `tree`.
//!
//! A change is durable once a flush that started after it has ended. Until then a power cut takes
//! or leaves it: each sector of each write for itself, overlapping writes in any order, the size
//! apart from the data (size without data reads as zeros, data without size is gone).

use super::prng::Prng;

/// What a device writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// The unit the page cache keeps or drops.
pub const PAGE_BYTES: usize = 4096;

/// Simulated files live in memory twice: nothing larger is meant.
const FILE_BYTES_MAX: u64 = 1 << 32;

#[derive(Debug)]
enum Change {
    Write {
        pos: u64,
        bytes: Vec<u8>,
    },
    /// Only the size of a write whose pages a failed flush has marked clean.
    Extend {
        to: u64,
    },
    Truncate {
        len: u64,
    },
}

#[derive(Debug)]
struct Pending {
    /// When it took effect, counted over the whole tree.
    seq: u64,
    change: Change,
}

#[derive(Debug, Default)]
pub struct FileData {
    /// What reads see; its length is the file's size.
    cache: Vec<u8>,
    /// Blocks on the disk; may reach past `disk_len`, and then those bytes belong to no one yet.
    disk: Vec<u8>,
    disk_len: u64,
    /// In the order they took effect.
    pending: Vec<Pending>,
}

impl FileData {
    pub fn durable(bytes: Vec<u8>) -> FileData {
        let disk_len = bytes.len() as u64;
        FileData { cache: bytes.clone(), disk: bytes, disk_len, pending: Vec::new() }
    }

    pub fn len(&self) -> u64 {
        self.cache.len() as u64
    }

    pub fn bytes(&self) -> &[u8] {
        &self.cache
    }

    /// What is on the disk whatever happens next, unless something overwrites it.
    pub fn durable_bytes(&self) -> Vec<u8> {
        let mut bytes = self.disk.clone();
        bytes.resize(self.disk_len as usize, 0);
        bytes
    }

    pub fn write(&mut self, seq: u64, pos: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        put(&mut self.cache, pos, bytes);
        self.pending.push(Pending { seq, change: Change::Write { pos, bytes: bytes.to_vec() } });
    }

    pub fn truncate(&mut self, seq: u64, len: u64) {
        assert!(len <= FILE_BYTES_MAX, "a simulated file of {len} bytes");
        self.cache.resize(len as usize, 0);
        self.pending.push(Pending { seq, change: Change::Truncate { len } });
    }

    /// A flush that started at `until` has ended well: what took effect before is durable.
    pub fn flush(&mut self, until: u64) {
        for Pending { change, .. } in self.take_before(until) {
            match change {
                Change::Write { pos, bytes } => {
                    put(&mut self.disk, pos, &bytes);
                    self.disk_len = self.disk_len.max(pos + bytes.len() as u64);
                }
                Change::Extend { to } => self.disk_len = self.disk_len.max(to),
                Change::Truncate { len } => {
                    self.disk.truncate(len as usize);
                    self.disk_len = len;
                }
            }
        }
    }

    /// A flush that started at `until` has failed: its pages are clean now, so no later flush
    /// writes them, though some sectors may have arrived. Sizes stay undecided.
    pub fn fail_flush(&mut self, until: u64, prng: &mut Prng) {
        let arrive = if prng.coin() { 0 } else { prng.chance() };
        let mut kept = Vec::new();
        for Pending { seq, change } in self.take_before(until) {
            let change = match change {
                Change::Write { pos, bytes } => {
                    let pieces = sectors(pos, &bytes).filter(|_| prng.per_mille(arrive));
                    let pieces: Vec<_> = pieces.collect();
                    pieces.into_iter().for_each(|(pos, piece)| put(&mut self.disk, pos, piece));
                    Change::Extend { to: pos + bytes.len() as u64 }
                }
                other => other,
            };
            kept.push(Pending { seq, change });
        }
        kept.append(&mut self.pending);
        self.pending = kept;
    }

    /// The power goes: the disk's state is drawn from all that the promises allow.
    pub fn cut(&mut self, prng: &mut Prng) {
        let pending = std::mem::take(&mut self.pending);
        let sizes = prng.share(pending.len());
        let mut len = self.disk_len;
        let mut pieces = Vec::new();
        for (i, Pending { change, .. }) in pending.iter().enumerate() {
            let sized = i < sizes;
            match change {
                Change::Write { pos, bytes } => {
                    let arrive = prng.chance();
                    pieces.extend(sectors(*pos, bytes).filter(|_| prng.per_mille(arrive)));
                    len = if sized { len.max(pos + bytes.len() as u64) } else { len };
                }
                Change::Extend { to } => len = if sized { len.max(*to) } else { len },
                Change::Truncate { len: to } if sized => {
                    land(&mut self.disk, &mut pieces, prng);
                    self.disk.truncate(*to as usize);
                    len = *to;
                }
                Change::Truncate { .. } => {}
            }
        }
        land(&mut self.disk, &mut pieces, prng);
        self.disk.resize(len as usize, 0);
        self.disk_len = len;
        self.cache.clone_from(&self.disk);
    }

    /// Forgets clean pages: reads see the disk again, which a failed flush did not reach.
    pub fn drop_cache(&mut self) {
        self.cache = self.uncached();
    }

    /// The bytes as a reader past the page cache gets them: dirty pages are written back first,
    /// clean ones come from the disk.
    pub fn uncached(&self) -> Vec<u8> {
        let mut view = self.disk.clone();
        let mut dirty = vec![false; self.cache.len().div_ceil(PAGE_BYTES)];
        for Pending { change, .. } in &self.pending {
            match change {
                Change::Write { pos, bytes } => {
                    let first = *pos as usize / PAGE_BYTES;
                    let end = (*pos as usize + bytes.len()).div_ceil(PAGE_BYTES);
                    dirty.iter_mut().take(end).skip(first).for_each(|page| *page = true);
                }
                Change::Truncate { len } => view.truncate(*len as usize),
                Change::Extend { .. } => {}
            }
        }
        view.resize(self.cache.len(), 0);
        let pages = view.chunks_mut(PAGE_BYTES).zip(self.cache.chunks(PAGE_BYTES)).zip(dirty);
        for ((page, cached), _) in pages.filter(|(_, dirty)| *dirty) {
            page.copy_from_slice(cached);
        }
        view
    }

    fn take_before(&mut self, until: u64) -> Vec<Pending> {
        let covered = self.pending.partition_point(|change| change.seq < until);
        self.pending.drain(..covered).collect()
    }
}

/// Writes `bytes` at `pos`, zeros in front of it where nothing was.
fn put(data: &mut Vec<u8>, pos: u64, bytes: &[u8]) {
    let end = pos.checked_add(bytes.len() as u64).filter(|&end| end <= FILE_BYTES_MAX);
    let end = end.unwrap_or_else(|| panic!("a simulated write at {pos} is out of bounds")) as usize;
    if data.len() < end {
        data.resize(end, 0);
    }
    data[pos as usize..end].copy_from_slice(bytes);
}

/// Puts the pieces that arrived, in an order of the device's own choice.
fn land(disk: &mut Vec<u8>, pieces: &mut Vec<(u64, &[u8])>, prng: &mut Prng) {
    prng.shuffle(pieces);
    pieces.drain(..).for_each(|(pos, piece)| put(disk, pos, piece));
}

/// A write cut at the sector boundaries of the file.
pub fn sectors(pos: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let here = pos + at as u64;
        let room = (SECTOR_BYTES - here % SECTOR_BYTES) as usize;
        let piece = &bytes[at..bytes.len().min(at + room)];
        at += piece.len();
        (!piece.is_empty()).then_some((here, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_split_at_the_files_boundaries() {
        let bytes = [7; 1100];
        let cut: Vec<_> = sectors(500, &bytes).map(|(pos, piece)| (pos, piece.len())).collect();
        assert_eq!(cut, [(500, 12), (512, 512), (1024, 512), (1536, 64)]);
        assert_eq!(sectors(9, &[]).count(), 0);
    }

    #[test]
    fn a_flush_takes_only_what_came_before_it() {
        let mut file = FileData::default();
        file.write(1, 0, b"first");
        file.write(2, 5, b"second");
        file.flush(2);
        assert_eq!(file.durable_bytes(), b"first");
        file.truncate(3, 2);
        assert_eq!((file.bytes(), file.durable_bytes()), (&b"fi"[..], b"first".to_vec()));
        file.flush(4);
        assert_eq!(file.durable_bytes(), b"fi");
    }

    #[test]
    fn regrown_after_a_truncate_reads_as_zeros_also_past_the_cache() {
        let mut file = FileData::durable(b"abcdef".to_vec());
        file.truncate(1, 2);
        file.truncate(2, 6);
        assert_eq!(file.uncached(), b"ab\0\0\0\0");
        file.drop_cache();
        file.flush(3);
        assert_eq!(file.durable_bytes(), b"ab\0\0\0\0");
    }
}

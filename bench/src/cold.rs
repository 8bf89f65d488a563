//! Cold, proven: nothing of the range in this kernel's memory before, device reads after (M11).
//!
//! Owns: dropping the cache, the proof, and the test for a cache below this kernel. Never does:
//! fetch. Left: `sys`, `device`. Right: `quick`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::sys::{self, AlignedBuf, Residency};

/// A second direct pass faster by this factor was answered from a cache below (M11).
const CACHED_BELOW_FACTOR: f64 = 1.2;
/// Share of the bytes served that the device must have read.
const READ_SHARE_MIN: f64 = 0.9;
const STEP_BYTES: usize = 1 << 20;

/// What is known of a range before it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Before {
    /// No page of it is cached.
    Cold,
    /// So many pages stayed, in spite of the request to drop them.
    Cached(u64),
    /// The kernel does not tell.
    Unknown(String),
}

/// Writes the files back, drops them from the cache and looks whether they are gone.
pub fn make(files: &[File]) -> io::Result<Before> {
    let mut cached = 0;
    for file in files {
        file.sync_data()?;
        sys::drop_cache(file)?;
    }
    for file in files {
        match judge(sys::residency(file, file.metadata()?.len())) {
            Before::Cold => {}
            Before::Cached(pages) => cached += pages,
            unknown => return Ok(unknown),
        }
    }
    Ok(if cached == 0 { Before::Cold } else { Before::Cached(cached) })
}

fn judge(residency: io::Result<Residency>) -> Before {
    match residency {
        Ok(pages) if pages.cached == 0 => Before::Cold,
        Ok(pages) => Before::Cached(pages.cached),
        Err(error) => Before::Unknown(format!("cachestat: {error}")),
    }
}

/// Reads files into the cache; the share of their pages that is there afterwards, if known.
pub fn warm(files: &[File]) -> io::Result<Option<f64>> {
    const PAGE_BYTES: u64 = 4096;
    let mut buf = vec![0; STEP_BYTES];
    let (mut cached, mut all) = (0, 0);
    for file in files {
        let len = file.metadata()?.len();
        let mut pos = 0;
        while pos < len && !sys::stopped() {
            match file.read_at(&mut buf, pos)? {
                0 => break,
                n => pos += n as u64,
            }
        }
        all += len.div_ceil(PAGE_BYTES);
        match sys::residency(file, len) {
            Ok(pages) => cached += pages.cached,
            Err(_) => return Ok(None),
        }
    }
    Ok((all > 0).then(|| cached as f64 / all as f64))
}

/// Why a row that should have been cold was not, or cannot be shown to have been; `None` when
/// both halves of the proof hold.
pub fn doubt(before: &Before, served: u64, device_read: Option<u64>) -> Option<String> {
    match (before, device_read) {
        (Before::Cached(pages), _) => Some(format!("not cold: {pages} pages stayed cached")),
        (Before::Unknown(why), _) => Some(format!("cold unknown: {why}")),
        (Before::Cold, None) => Some("cold unknown: no counters of a device".to_string()),
        (Before::Cold, Some(read)) if (read as f64) < served as f64 * READ_SHARE_MIN => {
            Some(format!("not cold: the device read {} of {} MiB", read >> 20, served >> 20))
        }
        (Before::Cold, Some(_)) => None,
    }
}

/// Two direct passes over a range, in bytes a second.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Below {
    pub first: f64,
    pub second: f64,
}

impl Below {
    /// Whether something below this kernel (a hypervisor, a controller) answered from a cache.
    pub fn cached(&self) -> bool {
        self.second > self.first * CACHED_BELOW_FACTOR
    }
}

/// Reads up to `len` bytes twice with `O_DIRECT`; `None` where that is refused.
pub fn look_below(path: &Path, len: u64) -> Option<Below> {
    let file = sys::open_direct(path, false).ok()?;
    let mut buf = AlignedBuf::zeroed(STEP_BYTES);
    let mut pass = || -> Option<f64> {
        let start = Instant::now();
        let mut pos = 0;
        while pos + STEP_BYTES as u64 <= len && !sys::stopped() {
            match file.read_at(&mut buf, pos).ok()? {
                0 => break,
                n => pos += n as u64,
            }
            // A short read ends at the file's end; what follows would not be aligned.
            if pos % STEP_BYTES as u64 != 0 {
                break;
            }
        }
        (pos > 0).then(|| pos as f64 / start.elapsed().as_secs_f64().max(1e-9))
    };
    Some(Below { first: pass()?, second: pass()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_cannot_be_proven_is_called_unknown() {
        let refused = judge(Err(io::Error::from_raw_os_error(libc::ENOSYS)));
        let Before::Unknown(why) = &refused else { panic!("{refused:?}") };
        assert!(why.contains("cachestat"));
        assert!(doubt(&refused, 100, Some(100)).unwrap().starts_with("cold unknown"));
        assert!(doubt(&Before::Cold, 100, None).unwrap().starts_with("cold unknown"));
    }

    #[test]
    fn both_halves_of_the_proof_are_needed() {
        assert_eq!(doubt(&Before::Cold, 1000, Some(900)), None);
        assert!(doubt(&Before::Cold, 1000, Some(899)).unwrap().starts_with("not cold"));
        assert!(doubt(&Before::Cached(3), 1000, Some(1000)).unwrap().contains("3 pages"));
    }

    #[test]
    fn one_cached_page_is_not_cold() {
        let pages = |cached| Ok(Residency { cached, dirty: 0, writeback: 0 });
        assert_eq!(judge(pages(0)), Before::Cold);
        assert_eq!(judge(pages(1)), Before::Cached(1));
    }

    #[test]
    fn warming_a_file_makes_it_resident_or_says_that_nobody_knows() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 300_000]).unwrap();
        assert!(warm(&[file]).unwrap().is_none_or(|share| share > 0.99));
    }

    #[test]
    fn a_second_pass_faster_by_a_fifth_says_cached_below() {
        assert!(Below { first: 1.0, second: 1.21 }.cached());
        assert!(!Below { first: 1.0, second: 1.19 }.cached());
    }
}

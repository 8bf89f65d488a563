//! Cores: which this process may use, and pinning a thread to one.
//!
//! Owns: the two calls. Never does: decide who gets which core.
//! Left: `op`. Right: `probe`, `server`.

use super::op::Errno;

/// Cores the mask below can name.
const CORES_MAX: usize = 8192;

type Mask = [u64; CORES_MAX / 64];

/// Cores the calling thread may run on, ascending: a container or taskset may leave few.
pub fn allowed_cores() -> Result<Vec<usize>, Errno> {
    let mut mask: Mask = [0; CORES_MAX / 64];
    // SAFETY: `mask` is a local of exactly the size told, and cpu_set_t is a bit array of words.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
    if got < 0 {
        return Err(Errno::last());
    }
    Ok((0..CORES_MAX).filter(|core| mask[core / 64] >> (core % 64) & 1 == 1).collect())
}

/// Pins the calling thread to one core.
pub fn pin(core: usize) -> Result<(), Errno> {
    if core >= CORES_MAX {
        return Err(Errno::EINVAL);
    }
    let mut mask: Mask = [0; CORES_MAX / 64];
    mask[core / 64] |= 1 << (core % 64);
    // SAFETY: `mask` is a local of exactly the size told, and cpu_set_t is a bit array of words.
    match unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), mask.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_on_its_core_only() {
        let cores = allowed_cores().unwrap();
        let last = *cores.last().unwrap();
        std::thread::spawn(move || {
            pin(last).unwrap();
            assert_eq!(allowed_cores().unwrap(), [last]);
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cores().unwrap(), cores, "other threads keep theirs");
        assert_eq!(pin(CORES_MAX), Err(Errno::EINVAL));
    }
}

//! Making a ring: which set-up flags this kernel takes, and a ring small enough for its limits.
//!
//! Owns: the optional flags and how they are dropped, ring sizes, set-up errors.
//! Never does: submit anything. Left: `kernel`. Right: `ring`, `probe`.

use std::fmt;

use io_uring::IoUring;

use super::kernel::{self, Gate, Version};
use super::op::Errno;

/// Below it too much is missing: 6.1 brought DEFER_TASKRUN and sound cancellation.
pub const KERNEL_MIN: Version = Version::new(6, 1);

/// The smallest submission queue worth having.
pub const ENTRIES_MIN: u32 = 64;

/// Completion entries for each submission entry: ops in flight outnumber one tick's submits.
const CQ_FACTOR: u32 = 4;

/// A set-up flag that a ring can do without.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Flag {
    NoSqarray,
    DeferTaskrun,
    SingleIssuer,
    CoopTaskrun,
    SubmitAll,
    CqSize,
}

impl Flag {
    /// Newest first: the order in which they are dropped.
    pub const ALL: [Flag; 6] = [
        Flag::NoSqarray,
        Flag::DeferTaskrun,
        Flag::SingleIssuer,
        Flag::CoopTaskrun,
        Flag::SubmitAll,
        Flag::CqSize,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Flag::NoSqarray => "NO_SQARRAY",
            Flag::DeferTaskrun => "DEFER_TASKRUN",
            Flag::SingleIssuer => "SINGLE_ISSUER",
            Flag::CoopTaskrun => "COOP_TASKRUN",
            Flag::SubmitAll => "SUBMIT_ALL",
            Flag::CqSize => "CQSIZE",
        }
    }

    pub fn since(self) -> Version {
        match self {
            Flag::NoSqarray => Version::new(6, 6),
            Flag::DeferTaskrun => Version::new(6, 1),
            Flag::SingleIssuer => Version::new(6, 0),
            Flag::CoopTaskrun => Version::new(5, 19),
            Flag::SubmitAll => Version::new(5, 18),
            Flag::CqSize => Version::new(5, 5),
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of [`Flag`]s that the kernel's own rules allow together.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    fn all() -> Flags {
        Flags(Flag::ALL.iter().fold(0, |bits, flag| bits | flag.bit()))
    }

    pub fn has(self, flag: Flag) -> bool {
        self.0 & flag.bit() != 0
    }

    fn with(self, flag: Flag) -> Flags {
        Flags(self.0 | flag.bit())
    }

    fn without(self, flag: Flag) -> Flags {
        Flags(self.0 & !flag.bit())
    }

    /// DEFER_TASKRUN needs SINGLE_ISSUER, and COOP_TASKRUN is only its stand-in.
    fn allowed(self) -> Flags {
        let mut flags = self;
        if !flags.has(Flag::SingleIssuer) {
            flags = flags.without(Flag::DeferTaskrun);
        }
        if flags.has(Flag::DeferTaskrun) {
            flags = flags.without(Flag::CoopTaskrun);
        }
        flags
    }

    pub fn names(self) -> Vec<&'static str> {
        Flag::ALL.into_iter().filter(|flag| self.has(*flag)).map(Flag::name).collect()
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join("|"))
    }
}

/// Finds a set of flags that `try_setup` takes: all of them, else the newest dropped one by one
/// while the answer is EINVAL, then each dropped one offered again alone, so that one refused flag
/// does not cost the others (R62). Gives the last success.
pub fn settle<R>(
    mut try_setup: impl FnMut(Flags) -> Result<R, Errno>,
) -> Result<(R, Flags), Errno> {
    let mut wanted = Flags::all();
    let mut dropped = Vec::new();
    let mut settled = None;
    for flag in Flag::ALL.into_iter().map(Some).chain([None]) {
        match try_setup(wanted.allowed()) {
            Ok(ring) => {
                settled = Some((ring, wanted));
                break;
            }
            Err(Errno::EINVAL) => {}
            Err(errno) => return Err(errno),
        }
        if let Some(flag) = flag {
            wanted = wanted.without(flag);
            dropped.push(flag);
        }
    }
    let (mut ring, mut flags) = settled.ok_or(Errno::EINVAL)?;
    // The last one dropped is the one whose absence helped.
    dropped.pop();
    for flag in dropped.into_iter().rev() {
        let more = flags.with(flag);
        if more.allowed() == flags.allowed() {
            continue;
        }
        if let Ok(better) = try_setup(more.allowed()) {
            (ring, flags) = (better, more);
        }
    }
    Ok((ring, flags.allowed()))
}

/// Why there is no ring.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SetupError {
    #[error("Linux {running} is older than {KERNEL_MIN}, the first whose io_uring is used")]
    TooOld { running: Version },
    #[error("{why}")]
    Forbidden { why: String },
    #[error("{}", memlock_text(*limit, *need))]
    Memlock { limit: Option<u64>, need: u64 },
    #[error("io_uring_setup: {0}")]
    Failed(Errno),
}

/// The limit, the need, and where to raise it (R60).
fn memlock_text(limit: Option<u64>, need: u64) -> String {
    let limit = limit.map_or("unlimited".to_string(), |bytes| format!("{} KiB", bytes >> 10));
    format!(
        "no memory for a ring: the locked-memory limit is {limit}, shared by all processes of \
         this user, and the smallest ring needs {} KiB more. Raise it: shell: ulimit -l \
         unlimited; systemd: LimitMEMLOCK=infinity in the unit; Docker: --ulimit memlock=-1:-1; \
         Kubernetes: LimitMEMLOCK of the node's container runtime, or add the capability \
         IPC_LOCK to the container; or run with --engine syscall",
        need.div_ceil(1024)
    )
}

/// Registering `bytes` of buffers failed; the ring works without.
pub fn buffers_text(bytes: usize, errno: Errno) -> String {
    let limit = kernel::memlock().soft;
    let limit = limit.map_or("unlimited".to_string(), |bytes| format!("{} KiB", bytes >> 10));
    format!(
        "buffers are not registered with the kernel, so direct I/O costs more CPU: {} KiB of \
         locked memory refused ({errno}); the limit is {limit}",
        bytes >> 10
    )
}

/// Memory the kernel charges for a ring of `entries`.
pub fn ring_bytes(entries: u32) -> u64 {
    let (sqe, cqe, page) = (64, 16, 4096);
    let submission = u64::from(entries) * sqe;
    let completion = u64::from(entries * CQ_FACTOR) * cqe + 512;
    submission.next_multiple_of(page) + completion.next_multiple_of(page)
}

pub struct Made {
    pub uring: IoUring,
    pub flags: Flags,
}

fn build(entries: u32, flags: Flags) -> Result<IoUring, Errno> {
    let mut builder = IoUring::builder();
    // The memory map is not passed on to children: a fork would copy it on write (E11).
    builder.dontfork();
    if flags.has(Flag::CqSize) {
        builder.setup_cqsize(entries * CQ_FACTOR);
    }
    if flags.has(Flag::SubmitAll) {
        builder.setup_submit_all();
    }
    if flags.has(Flag::SingleIssuer) {
        builder.setup_single_issuer();
    }
    if flags.has(Flag::DeferTaskrun) {
        builder.setup_defer_taskrun().setup_taskrun_flag();
    }
    if flags.has(Flag::CoopTaskrun) {
        builder.setup_coop_taskrun().setup_taskrun_flag();
    }
    if flags.has(Flag::NoSqarray) {
        builder.setup_no_sqarray();
    }
    builder.build(entries).map_err(|error| super::sys::errno_of(&error))
}

/// Tries sizes from `entries` down to [`ENTRIES_MIN`] while memory is what is missing.
fn shrink<R>(entries: u32, mut try_size: impl FnMut(u32) -> Result<R, Errno>) -> Result<R, Errno> {
    let mut size = entries.max(ENTRIES_MIN).next_power_of_two();
    loop {
        match try_size(size) {
            Err(Errno(libc::ENOMEM)) if size > ENTRIES_MIN => size /= 2,
            result => return result,
        }
    }
}

/// A ring for the calling thread (SINGLE_ISSUER binds it), of `entries` or fewer.
pub fn make(entries: u32) -> Result<Made, SetupError> {
    make_on(kernel::running(), entries, build).map(|(uring, flags)| Made { uring, flags })
}

fn make_on<R>(
    running: Version,
    entries: u32,
    mut build: impl FnMut(u32, Flags) -> Result<R, Errno>,
) -> Result<(R, Flags), SetupError> {
    if running < KERNEL_MIN {
        return Err(SetupError::TooOld { running });
    }
    shrink(entries, |size| settle(|flags| build(size, flags))).map_err(|errno| match errno {
        Errno(libc::ENOMEM) => {
            SetupError::Memlock { limit: kernel::memlock().soft, need: ring_bytes(ENTRIES_MIN) }
        }
        Errno(libc::EPERM | libc::ENOSYS | libc::EACCES) => {
            SetupError::Forbidden { why: Gate::read().explain(errno) }
        }
        errno => SetupError::Failed(errno),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that knows only flags up to its own version.
    fn kernel_at(version: Version) -> impl FnMut(Flags) -> Result<u32, Errno> {
        let mut calls = 0;
        move |flags| {
            calls += 1;
            let known = |flag: &Flag| !flags.has(*flag) || flag.since() <= version;
            assert!(!flags.has(Flag::DeferTaskrun) || flags.has(Flag::SingleIssuer));
            if Flag::ALL.iter().all(known) { Ok(calls) } else { Err(Errno::EINVAL) }
        }
    }

    #[test]
    fn older_kernels_get_every_flag_they_know_and_no_other() {
        for (version, names) in [
            ((5, 4), vec![]),
            ((5, 15), vec!["CQSIZE"]),
            ((5, 18), vec!["SUBMIT_ALL", "CQSIZE"]),
            ((5, 19), vec!["COOP_TASKRUN", "SUBMIT_ALL", "CQSIZE"]),
            ((6, 0), vec!["SINGLE_ISSUER", "COOP_TASKRUN", "SUBMIT_ALL", "CQSIZE"]),
            ((6, 1), vec!["DEFER_TASKRUN", "SINGLE_ISSUER", "SUBMIT_ALL", "CQSIZE"]),
            ((6, 6), vec!["NO_SQARRAY", "DEFER_TASKRUN", "SINGLE_ISSUER", "SUBMIT_ALL", "CQSIZE"]),
        ] {
            let version = Version::new(version.0, version.1);
            let (_, flags) = settle(kernel_at(version)).unwrap();
            assert_eq!(flags.names(), names, "{version}");
        }
    }

    #[test]
    fn one_refused_flag_costs_only_itself_and_what_needs_it() {
        for refused in Flag::ALL {
            let mut tries = 0;
            let (_, flags) = settle(|flags| {
                tries += 1;
                if flags.has(refused) { Err(Errno::EINVAL) } else { Ok(()) }
            })
            .unwrap();
            let best = Flags::all().without(refused).allowed();
            assert_eq!(flags, best, "without {}", refused.name());
            assert!(tries <= 2 * Flag::ALL.len() + 1);
        }
        assert_eq!(settle(|_| Err::<(), _>(Errno::EINVAL)).unwrap_err(), Errno::EINVAL);
        assert_eq!(settle(|_| Err::<(), _>(Errno(libc::EPERM))).unwrap_err().0, libc::EPERM);
    }

    #[test]
    fn an_old_kernel_is_named_before_anything_is_tried() {
        let made = make_on(Version::new(5, 15), 256, |_, _| -> Result<(), Errno> {
            panic!("no set-up on an old kernel")
        });
        let text = made.unwrap_err().to_string();
        assert!(text.contains("5.15") && text.contains("6.1"), "{text}");
    }

    #[test]
    fn a_small_memlock_makes_a_smaller_ring_then_one_message() {
        let fits = |max: u32| {
            move |size: u32, _| if size <= max { Ok(size) } else { Err(Errno(libc::ENOMEM)) }
        };
        assert_eq!(make_on(KERNEL_MIN, 1024, fits(300)).unwrap().0, 256);
        let text = make_on(KERNEL_MIN, 1024, fits(0)).unwrap_err().to_string();
        for part in ["KiB", "LimitMEMLOCK", "--ulimit memlock", "Kubernetes", "ulimit -l"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}

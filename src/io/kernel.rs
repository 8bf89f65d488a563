//! Which kernel runs, what it refuses, and what its administrator can do about it.
//!
//! Owns: the version, the reasons for a refused ring, resource limits. Never does: open a ring.
//! Left: `op`. Right: `setup`, `probe`, `engine`.

use std::fmt;

use serde::Serialize;

use super::op::Errno;

/// A kernel's version as uname(2) gives it. Distributions add features to old numbers, so it only
/// decides where the kernel itself cannot be asked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl Version {
    pub const fn new(major: u32, minor: u32) -> Version {
        Version { major, minor }
    }

    /// The first two numbers of a release such as `6.1.0-18-amd64`.
    pub fn parse(release: &str) -> Option<Version> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        Some(Version { major, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The running kernel's release string.
pub fn release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_string()
}

/// The running kernel; 0.0 where it cannot be told.
pub fn running() -> Version {
    Version::parse(&release()).unwrap_or(Version::new(0, 0))
}

/// What decides whether this process may have a ring, beside the kernel's age.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// kernel.io_uring_disabled: 0 for all, 1 for a group, 2 for nobody; `None` before 6.6.
    pub sysctl: Option<u32>,
    /// A seccomp filter is on this process.
    pub seccomp: bool,
}

impl Gate {
    pub fn read() -> Gate {
        let sysctl = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        Gate {
            sysctl: sysctl.and_then(|text| text.trim().parse().ok()),
            seccomp: mode.is_some_and(|mode| mode.trim() == "2"),
        }
    }

    /// Why io_uring_setup failed with `errno`, and what helps (R61).
    pub fn explain(&self, errno: Errno) -> String {
        let seccomp = "a seccomp profile forbids io_uring (the default of Docker 25 and later, \
                       containerd 2 and Kubernetes RuntimeDefault): run with a profile that \
                       allows io_uring_setup, io_uring_enter and io_uring_register \
                       (docker run --security-opt seccomp=FILE)";
        match (errno, self.sysctl) {
            (Errno(libc::EPERM), Some(2)) => "the sysctl kernel.io_uring_disabled is 2, which \
                 forbids io_uring to everyone: sysctl -w kernel.io_uring_disabled=0 allows it"
                .to_string(),
            (Errno(libc::EPERM), Some(1)) if !self.seccomp => "the sysctl \
                 kernel.io_uring_disabled is 1, which allows io_uring only to members of \
                 kernel.io_uring_group and to CAP_SYS_ADMIN: join the group or set it to 0"
                .to_string(),
            (Errno(libc::EPERM | libc::ENOSYS), _) if self.seccomp => seccomp.to_string(),
            (Errno(libc::EPERM | libc::EACCES), _) => "a security module forbids io_uring to this \
                 process (SELinux, AppArmor or a container runtime): ask its administrator"
                .to_string(),
            (Errno(libc::ENOSYS), _) => "this kernel is built without io_uring \
                 (CONFIG_IO_URING)"
                .to_string(),
            (errno, _) => format!("io_uring_setup failed: {errno}"),
        }
    }
}

/// A resource limit in bytes or counts; `None` is unlimited.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// A limit of this process.
pub fn limit(resource: libc::__rlimit_resource_t) -> Limit {
    let mut raw = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `raw` is a local of the type the call fills.
    unsafe { libc::getrlimit64(resource, &mut raw) };
    let known = |value: u64| (value != libc::RLIM64_INFINITY).then_some(value);
    Limit { soft: known(raw.rlim_cur), hard: known(raw.rlim_max) }
}

pub fn memlock() -> Limit {
    limit(libc::RLIMIT_MEMLOCK)
}

pub fn nofile() -> Limit {
    limit(libc::RLIMIT_NOFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_all_shapes_are_read() {
        assert_eq!(Version::parse("6.18.44-fc-v657"), Some(Version::new(6, 18)));
        assert_eq!(Version::parse("6.1-rc3"), Some(Version::new(6, 1)));
        assert_eq!(Version::parse("5.15.0"), Some(Version::new(5, 15)));
        assert_eq!(Version::parse(""), None);
        assert_eq!(Version::parse("six"), None);
        assert!(Version::new(5, 19) < Version::new(6, 0));
    }

    #[test]
    fn each_refusal_names_what_to_change() {
        let gate = |sysctl, seccomp| Gate { sysctl, seccomp };
        let (eperm, enosys) = (Errno(libc::EPERM), Errno(libc::ENOSYS));
        for (gate, errno, part) in [
            (gate(Some(2), true), eperm, "kernel.io_uring_disabled is 2"),
            (gate(Some(1), false), eperm, "kernel.io_uring_group"),
            (gate(Some(0), true), eperm, "seccomp"),
            (gate(None, true), enosys, "seccomp"),
            (gate(Some(0), false), eperm, "security module"),
            (gate(None, false), enosys, "CONFIG_IO_URING"),
            (gate(None, false), Errno(libc::EMFILE), "failed"),
        ] {
            let text = gate.explain(errno);
            assert!(text.contains(part), "{gate:?} {errno:?}: {text}");
        }
    }
}

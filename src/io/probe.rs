//! What this kernel and this process can do, asked of them rather than guessed.
//!
//! Owns: [`Features`] (the kernel's side); [`dir`], the same for a data directory; [`paths`],
//! which way each operation will go; [`render`], all of it as text.
//! Never does: choose (that is `engine` and `server`).
//! Left: `setup`, `ring`, `kernel`. Right: `engine`, `server`, `cli`.

pub mod dir;
mod mounts;
pub mod paths;
pub mod render;

use std::path::Path;

use io_uring::opcode;
use serde::Serialize;

use super::affinity;
use super::engine::{self, Chosen, EngineKind};
use super::kernel::{self, Gate, Limit, Version};
use super::op::Errno;
use super::ring::Ring;
use super::setup::{ENTRIES_MIN, KERNEL_MIN};

pub use dir::DirFacts;
pub use paths::OpPath;

/// Slots asked of the fixed-file table when probing.
const PROBE_FILES: u32 = 16;

/// The kernel's side of things.
#[derive(Clone, Debug, Serialize)]
pub struct Features {
    /// The release, in full.
    pub kernel: String,
    pub version: Version,
    pub io_uring: UringFacts,
    pub memlock_bytes: Limit,
    pub open_files: Limit,
    /// Cores this process may run on.
    pub cores: Vec<usize>,
}

/// All that `ringlog probe` tells, for its text ([`render::render`]) and its JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub features: Features,
    /// What `--engine auto` takes here.
    pub engine: Chosen,
    pub dir: Option<DirFacts>,
    /// Which way each operation goes; empty without a directory.
    pub paths: Vec<OpPath>,
}

impl Report {
    /// Fails only when the directory cannot be looked at.
    pub fn probe(dir: Option<&Path>) -> Result<Report, Errno> {
        let features = Features::probe();
        let engine = engine::choose(EngineKind::Auto, &features).expect("auto always has one");
        let dir = dir.map(DirFacts::probe).transpose()?;
        let paths = dir.as_ref().map(|dir| paths::table(engine.kind, &features, dir));
        Ok(Report { features, engine, dir, paths: paths.unwrap_or_default() })
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct UringFacts {
    /// Why there is no ring, with the remedy; `None`: it works.
    pub refused: Option<String>,
    /// kernel.io_uring_disabled, where the kernel has it.
    pub sysctl: Option<u32>,
    /// A seccomp filter is on this process.
    pub seccomp: bool,
    /// Set-up flags the kernel took.
    pub flags: Vec<&'static str>,
    pub fixed_files: bool,
    pub registered_ring: bool,
    /// Opcodes used here that the kernel has, and those it has not.
    pub opcodes: Vec<&'static str>,
    pub opcodes_missing: Vec<&'static str>,
}

/// The opcodes the ring engine uses, and those the experiments want.
const OPCODES: [(&str, u8); 24] = [
    ("ACCEPT", opcode::Accept::CODE),
    ("RECV", opcode::Recv::CODE),
    ("SEND", opcode::Send::CODE),
    ("SENDMSG", opcode::SendMsg::CODE),
    ("POLL_ADD", opcode::PollAdd::CODE),
    ("OPENAT", opcode::OpenAt::CODE),
    ("CLOSE", opcode::Close::CODE),
    ("READ", opcode::Read::CODE),
    ("WRITE", opcode::Write::CODE),
    ("WRITEV", opcode::Writev::CODE),
    ("READ_FIXED", opcode::ReadFixed::CODE),
    ("WRITE_FIXED", opcode::WriteFixed::CODE),
    ("FSYNC", opcode::Fsync::CODE),
    ("SYNC_FILE_RANGE", opcode::SyncFileRange::CODE),
    ("FALLOCATE", opcode::Fallocate::CODE),
    ("FADVISE", opcode::Fadvise::CODE),
    ("FTRUNCATE", opcode::Ftruncate::CODE),
    ("STATX", opcode::Statx::CODE),
    ("RENAMEAT", opcode::RenameAt::CODE),
    ("UNLINKAT", opcode::UnlinkAt::CODE),
    ("MKDIRAT", opcode::MkDirAt::CODE),
    ("ASYNC_CANCEL", opcode::AsyncCancel::CODE),
    ("SPLICE", opcode::Splice::CODE),
    ("SEND_ZC", opcode::SendZc::CODE),
];

impl Features {
    /// Asks the kernel. Makes a small ring and lets it go again.
    pub fn probe() -> Features {
        let kernel = kernel::release();
        Features {
            version: kernel::running(),
            kernel,
            io_uring: UringFacts::probe(),
            memlock_bytes: kernel::memlock(),
            open_files: kernel::nofile(),
            cores: affinity::allowed_cores().unwrap_or_default(),
        }
    }

    pub fn has_uring(&self) -> bool {
        self.io_uring.refused.is_none()
    }

    pub fn has_opcode(&self, name: &str) -> bool {
        self.io_uring.opcodes.contains(&name)
    }

    /// Old enough that the ring is never tried.
    pub fn is_too_old(&self) -> bool {
        self.version < KERNEL_MIN
    }
}

impl UringFacts {
    fn probe() -> UringFacts {
        let gate = Gate::read();
        let mut facts = UringFacts {
            refused: None,
            sysctl: gate.sysctl,
            seccomp: gate.seccomp,
            flags: Vec::new(),
            fixed_files: false,
            registered_ring: false,
            opcodes: Vec::new(),
            opcodes_missing: Vec::new(),
        };
        // Zero leaves the kernel's own worker limits.
        let ring = match Ring::new(ENTRIES_MIN, PROBE_FILES, [0, 0]) {
            Ok(ring) => ring,
            Err(error) => {
                facts.refused = Some(error.to_string());
                return facts;
            }
        };
        facts.flags = ring.flags().names();
        facts.fixed_files = ring.fixed_files() > 0;
        facts.registered_ring = ring.is_registered();
        for (name, code) in OPCODES {
            match ring.supports(code) {
                true => facts.opcodes.push(name),
                false => facts.opcodes_missing.push(name),
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_and_the_facts_agree() {
        let features = Features::probe();
        assert!(features.version > Version::new(3, 0), "{}", features.kernel);
        assert!(!features.cores.is_empty());
        let facts = &features.io_uring;
        assert_eq!(features.has_uring(), !facts.opcodes.is_empty());
        assert!(!features.has_uring() || features.has_opcode("READ"));
        assert!(!features.has_uring() || !features.is_too_old());
        let json = serde_json::to_value(&features).unwrap();
        assert_eq!(json["io_uring"]["fixed_files"], facts.fixed_files);
    }
}

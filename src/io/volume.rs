//! How large a directory's file system is, and how much of it is left.
//!
//! Owns: that question to the kernel. Never does: reserve anything. Left: `op`. Right: `server`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::op::Errno;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    /// What a process without privileges may still take.
    pub usable_bytes: u64,
}

pub fn space(dir: &Path) -> Result<Space, Errno> {
    let path = CString::new(dir.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: statvfs is plain integers, for which all zeros is a value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a C string and `found` a local of the type the call fills.
    match unsafe { libc::statvfs(path.as_ptr(), &mut found) } {
        0 => Ok(Space {
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            usable_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        }),
        _ => Err(Errno::last()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_room_and_a_missing_one_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let found = space(dir.path()).unwrap();
        assert!(found.total_bytes > 0 && found.usable_bytes <= found.total_bytes, "{found:?}");
        assert_eq!(space(&dir.path().join("no")), Err(Errno::ENOENT));
    }
}

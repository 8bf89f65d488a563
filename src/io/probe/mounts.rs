//! Which mount a directory lies on: /proc/self/mountinfo, read and searched.
//!
//! Owns: the format. Never does: judge it. Left: nothing. Right: `dir`.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    pub fs: String,
    pub source: String,
    /// Options of the mount and of the file system, in one list.
    pub options: Vec<String>,
}

/// The mount that holds `path` (absolute, symlinks resolved): the longest mount point above it,
/// and of equal ones the last, which covers the others.
pub fn holding<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

pub fn read() -> Vec<Mount> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue`
fn parse_line(line: &str) -> Option<Mount> {
    let (mount, fs) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(4);
    let (point, per_mount) = (mount.next()?, mount.next()?);
    let mut fs = fs.split(' ');
    let (name, source, per_fs) = (fs.next()?, fs.next()?, fs.next().unwrap_or(""));
    let mut options: Vec<String> = Vec::new();
    for option in per_mount.split(',').chain(per_fs.split(',')).filter(|o| !o.is_empty()) {
        if !options.iter().any(|known| known == option) {
            options.push(option.to_string());
        }
    }
    Some(Mount {
        point: PathBuf::from(unescape(point)),
        fs: name.to_string(),
        source: unescape(source),
        options,
    })
}

/// Space, tab, newline and backslash stand there as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = text.to_string();
    for (octal, plain) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        out = out.replace(octal, plain);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,nobarrier,data=ordered
30 27 0:30 / /data rw shared:1 - tmpfs tmpfs rw,size=1k
31 27 8:1 / /data rw,noatime shared:1 master:2 - xfs /dev/sda1 rw,attr2
32 27 0:40 / /with\\040space rw - overlay overlay rw,lowerdir=/l,volatile
garbage
";

    #[test]
    fn the_longest_and_last_mount_holds_a_path() {
        let mounts: Vec<Mount> = TEXT.lines().filter_map(parse_line).collect();
        assert_eq!(mounts.len(), 5);
        let fs_of = |path: &str| holding(&mounts, Path::new(path)).map(|m| m.fs.as_str());
        assert_eq!(fs_of("/data/topic"), Some("xfs"));
        assert_eq!(fs_of("/database"), Some("ext4"));
        assert_eq!(fs_of("/with space/x"), Some("overlay"));
        assert_eq!(mounts[1].options, ["rw", "relatime", "nobarrier", "data=ordered"]);
    }
}

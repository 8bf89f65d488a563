//! A new log on the disk: directory, identity, epochs, first segment, every name of it synced.
//!
//! Owns: the order, so that whatever a crash leaves can be created again (D10, R15). Never does:
//! opening. Left: `format`, `io::blocking`. Right: `server` (create topic).

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::recovery::epochs;
use crate::format::checkpoint::EpochCache;
use crate::format::identity::render_partition_metadata;
use crate::format::name::{FileKind, file_name};
use crate::io::blocking::Blocking;
use crate::io::op::OpenHow;
use crate::io::{Errno, Io};

pub const METADATA_NAME: &str = "partition.metadata";

/// An empty log as a clean stop leaves one: its first opening need not recover anything.
const FILES: [FileKind; 3] = [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::Log];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    #[error("{} holds a log already", path.display())]
    Exists { path: PathBuf },
    #[error("{what} {}: {errno}", path.display())]
    Io { what: &'static str, path: PathBuf, errno: Errno },
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> CreateError {
    let path = path.to_path_buf();
    move |errno| CreateError::Io { what, path, errno }
}

/// Makes the partition directory `dir` and an empty log in it. When this returns, a power cut no
/// longer takes it away. What an interrupted creation left is completed.
pub fn create<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
    topic_id: Uuid,
    leader_epoch: i32,
) -> Result<(), CreateError> {
    match b.create_dir(dir) {
        Ok(()) => {}
        Err(Errno::EEXIST) => must_be_empty(b, dir)?,
        Err(errno) => return Err(io("creating", dir)(errno)),
    }
    let mut cache = EpochCache::new();
    cache.assign(leader_epoch.max(0), 0);
    let path = dir.join(epochs::FILE_NAME);
    b.replace_file(&path, cache.render().as_bytes()).map_err(io("writing", &path))?;
    let path = dir.join(METADATA_NAME);
    let metadata = render_partition_metadata(topic_id);
    b.replace_file(&path, metadata.as_bytes()).map_err(io("writing", &path))?;
    for kind in FILES {
        let path = dir.join(file_name(0, kind));
        let how = OpenHow { write: true, create: true, truncate: true, ..OpenHow::default() };
        let file = b.open(&path, how).map_err(io("creating", &path))?;
        b.fdatasync(file).map_err(io("flushing", &path))?;
        b.close(file).map_err(io("closing", &path))?;
    }
    b.sync_dir(dir).map_err(io("syncing", dir))?;
    let parent = dir.parent().unwrap_or(Path::new("."));
    b.sync_dir(parent).map_err(io("syncing", parent))
}

/// Only what `create` itself leaves behind may be there.
fn must_be_empty<I: Io>(b: &mut Blocking<'_, I>, dir: &Path) -> Result<(), CreateError> {
    let files = FILES.map(|kind| file_name(0, kind));
    for entry in b.list(dir).map_err(io("listing", dir))? {
        let path = dir.join(&entry.name);
        let ours = entry.name.starts_with(epochs::FILE_NAME)
            || entry.name.starts_with(METADATA_NAME)
            || files.contains(&entry.name);
        let stat = b.stat(&path).map_err(io("looking at", &path))?;
        if !ours || entry.is_dir || (files.contains(&entry.name) && stat.len > 0) {
            return Err(CreateError::Exists { path: dir.to_path_buf() });
        }
    }
    Ok(())
}

//! The start of the data directories: each is met, locked and read, and they must belong together.
//!
//! Owns: what stops a start and what only takes a directory offline. Never does: change a directory
//! that did not belong (`Homes` is all of them or nothing). Left: `datadir`, `topics`, `io::lock`.
//! Right: `run`, which starts with it.
//!
//! A directory whose storage fails is offline, and its partitions with it. What nobody may guess
//! about stops the start: directories of different servers, one partition twice, a name that is no
//! partition's, a directory that another process holds. So does a failing first directory: without
//! the topic file in it nobody knows what there is.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::control::{ControlError, fault};
use super::datadir::{self, Home, random_id};
use super::homes::{Dir, Homes, set_place};
use super::topics::{self, TopicFile};
use crate::format::identity::{MetaProperties, parse_uuid, render_uuid};
use crate::io::Io;
use crate::io::blocking::Blocking;
use crate::io::lock::{DirLock, LockError};
use crate::log::datadir::DataDirError;

/// Takes a directory's lock; gives none where there are no locks (simulation).
pub type Locker<'l> = &'l mut dyn FnMut(&Path) -> Result<Option<DirLock>, LockError>;

/// What a start finds at one `--data-dir`.
enum Met {
    /// Nobody has used it.
    New,
    Known(MetaProperties),
    Failed(String),
}

/// A directory that was met, with the lock on it.
struct Candidate {
    path: PathBuf,
    lock: Option<DirLock>,
    met: Met,
}

impl Homes {
    /// Locks and reads the directories and makes them what a first start needs. Where this
    /// succeeds no directory that is online has a clean marker any more (D9).
    pub fn open<I: Io>(
        b: &mut Blocking<'_, I>,
        paths: &[PathBuf],
        lock: Locker<'_>,
    ) -> Result<(Homes, TopicFile), ControlError> {
        let (first, others) = paths.split_first().expect("the settings have a directory");
        let met = meet(b, first, false, lock)?;
        if let Met::Failed(why) = &met.met {
            let why = format!("{why} (it is the first data directory, which has the topics)");
            return Err(fault(first, why));
        }
        let read = read_topics(b, first)?;
        let mut file = read.clone().unwrap_or_default();
        let mut found = vec![met];
        for path in others {
            let is_remembered = file.directory_at(path).is_some();
            found.push(meet(b, path, is_remembered, lock)?);
        }
        must_be_first(b, &found, read.is_none())?;
        let (cluster_id, node_id) = identity(&found)?;
        let mut homes = Homes { dirs: Vec::new(), cluster_id, node_id, lies: HashMap::new() };
        for candidate in found {
            let dir = homes.read(b, candidate, &mut file)?;
            homes.dirs.push(dir);
        }
        homes.find_all()?;
        homes.prepare(b, &file)?;
        Ok((homes, file))
    }

    /// Reads one directory that was met, and gives it a number in the topic file.
    fn read<I: Io>(
        &self,
        b: &mut Blocking<'_, I>,
        Candidate { path, lock, met }: Candidate,
        file: &mut TopicFile,
    ) -> Result<Dir, ControlError> {
        let read = match met {
            Met::Failed(why) => Err(why),
            Met::New => self.read_home(b, &path, None)?,
            Met::Known(meta) => self.read_home(b, &path, Some(&meta))?,
        };
        let mut dir = Dir { path, number: None, home: None, failed: None, held: 0, _lock: lock };
        match read {
            Ok(home) => {
                self.must_be_single(&dir.path, home.id())?;
                dir.number = Some(file.number_of(&render_uuid(home.id()), &dir.path));
                dir.home = Some(home);
            }
            Err(why) => {
                tracing::error!("data directory {} is offline: {why}", dir.path.display());
                dir.number = file.directory_at(&dir.path).map(|known| known.number);
                dir.failed = Some(why);
            }
        }
        Ok(dir)
    }

    /// The inner error takes the directory offline, the outer one stops the start.
    fn read_home<I: Io>(
        &self,
        b: &mut Blocking<'_, I>,
        path: &Path,
        meta: Option<&MetaProperties>,
    ) -> Result<Result<Home, String>, ControlError> {
        let settled = datadir::settle_meta(b, path, meta, &self.cluster_id, self.node_id);
        match settled.and_then(|id| Home::read(b, path, id)) {
            Ok(home) => Ok(Ok(home)),
            Err(error)
                if !self.dirs.is_empty() && (error.is_of_storage() || error.is_no_space()) =>
            {
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(fault(path, error)),
        }
    }

    fn must_be_single(&self, path: &Path, id: Uuid) -> Result<(), ControlError> {
        let Some(twin) = self.dirs.iter().find(|dir| dir.id() == Some(id)) else { return Ok(()) };
        let why = format!(
            "it has the directory.id of {}: one is a copy of the other; name one of them only",
            twin.path.display()
        );
        Err(fault(path, why))
    }

    /// Notes where every partition lies; one that lies in two places stops the start.
    fn find_all(&mut self) -> Result<(), ControlError> {
        let Homes { dirs, lies, .. } = self;
        for at in 0..dirs.len() {
            let Some(home) = &dirs[at].home else { continue };
            for found in home.partitions() {
                let twin = set_place(lies, &found.topic, found.index, at);
                let Some(twin) = twin.and_then(|twin| dirs[twin].home.as_ref()) else { continue };
                let path = home.log_dir(&found.topic, found.index);
                let other = twin.log_dir(&found.topic, found.index);
                return Err(fault(home.path(), DataDirError::Twice { path, other }));
            }
            dirs[at].held = home.partitions().len();
        }
        Ok(())
    }

    fn prepare<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        file: &TopicFile,
    ) -> Result<(), ControlError> {
        let deleted: HashSet<Uuid> =
            file.deleted.iter().filter_map(|one| parse_uuid(&one.id)).collect();
        for at in 0..self.dirs.len() {
            let Some(home) = self.dirs[at].online() else { continue };
            match home.prepare(b, &deleted) {
                Ok(()) => {}
                Err(error) if at > 0 => self.fail(at, error.to_string()),
                Err(error) => return Err(fault(&self.dirs[at].path, error)),
            }
        }
        // What was doomed is not there any more.
        self.lies.clear();
        self.find_all()
    }
}

/// Looks at a directory for the first time. One that is `remembered` held data before: if it is
/// missing now, or empty, its file system is not mounted, and nothing may be made in its place.
fn meet<I: Io>(
    b: &mut Blocking<'_, I>,
    path: &Path,
    remembered: bool,
    lock: Locker<'_>,
) -> Result<Candidate, ControlError> {
    let candidate = |lock, met| Ok(Candidate { path: path.to_path_buf(), lock, met });
    let failed = |why: String| candidate(None, Met::Failed(why));
    if remembered {
        if let Err(errno) = b.stat(path) {
            return failed(format!("{errno}; {}", not_mounted(path)));
        }
    } else if let Err(error) = datadir::make(b, path) {
        return failed(error.to_string());
    }
    let held = match lock(path) {
        Ok(held) => held,
        Err(LockError::Failed { path, errno }) => {
            return failed(format!("{}: {errno}", path.display()));
        }
        Err(error) => return Err(fault(path, error)),
    };
    let met = match datadir::read_meta(b, path) {
        Ok(Some(meta)) => Met::Known(meta),
        Ok(None) if remembered => {
            Met::Failed(format!("it has no meta.properties any more; {}", not_mounted(path)))
        }
        Ok(None) => Met::New,
        Err(error) => Met::Failed(error.to_string()),
    };
    candidate(held, met)
}

fn not_mounted(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    format!(
        "is its file system mounted? Mount it and start again; if what it held is lost, take the \
         [[directory]] with path {path:?} out of {}",
        topics::FILE_NAME
    )
}

fn read_topics<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &Path,
) -> Result<Option<TopicFile>, ControlError> {
    let path = dir.join(topics::FILE_NAME);
    let bytes = b.read_file(&path, topics::FILE_BYTES_MAX).map_err(|e| fault(&path, e))?;
    let parsed = bytes.map(|bytes| TopicFile::parse(&bytes)).transpose();
    parsed.map_err(|why| {
        fault(&path, format!("{why}; restore it or move it away to adopt what is there"))
    })
}

/// The topic file is in the first directory, or nowhere; a new directory is not named before one
/// that is in use.
fn must_be_first<I: Io>(
    b: &mut Blocking<'_, I>,
    found: &[Candidate],
    has_none: bool,
) -> Result<(), ControlError> {
    let Some((first, others)) = found.split_first() else { return Ok(()) };
    for Candidate { path, met, .. } in others {
        let Met::Known(_) = met else { continue };
        let topics = path.join(topics::FILE_NAME);
        if matches!(first.met, Met::New) {
            let why = format!(
                "it is new, but {} is in use: name the directory first that was first before, or \
                 mount its file system; a new one is named behind those in use",
                path.display()
            );
            return Err(fault(&first.path, why));
        }
        if b.stat(&topics).is_ok() {
            let why = match has_none {
                true => format!("name {} first: it has the topics", path.display()),
                false => format!(
                    "{} has one, too: move the one that is out of date away",
                    first.path.display()
                ),
            };
            return Err(fault(&topics, why));
        }
    }
    Ok(())
}

/// The cluster and node that all directories belong to.
fn identity(found: &[Candidate]) -> Result<(String, i32), ControlError> {
    let mut cluster: Option<(&str, &Path)> = None;
    let mut node: Option<(i32, &Path)> = None;
    for Candidate { path, met, .. } in found {
        let Met::Known(meta) = met else { continue };
        if let Some(id) = meta.cluster_id.as_deref() {
            let (known, other) = *cluster.get_or_insert((id, path));
            agree(path, "cluster.id", &id, other, &known)?;
        }
        if let Some(id) = meta.node_id {
            let (known, other) = *node.get_or_insert((id, path));
            agree(path, "node.id", &id, other, &known)?;
        }
    }
    let cluster = cluster.map_or_else(|| render_uuid(random_id()), |(id, _)| id.to_string());
    Ok((cluster, node.map_or(1, |(id, _)| id)))
}

fn agree<T: PartialEq + std::fmt::Display>(
    path: &Path,
    what: &str,
    id: &T,
    other: &Path,
    known: &T,
) -> Result<(), ControlError> {
    if id == known {
        return Ok(());
    }
    let why = format!(
        "its meta.properties has {what} {id}, that of {} has {known}: they belong to different \
         servers; name the directories of one only",
        other.display()
    );
    Err(fault(path, why))
}

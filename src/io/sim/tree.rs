//! The simulated file system: inodes, directories, and which names a power cut takes.
//!
//! Owns: path resolution, the live and the durable state of every directory, the changes between
//! them. Never does: time, open-file tables, faults. Left: `file`, `prng`. Right: `machine`.
//!
//! A name is durable once its directory has been synced after it was made; a rename is one change,
//! made durable by syncing the directory it leads into. Until then a power cut takes or leaves each
//! change for itself, in no order, except that a change of a name stands on the earlier changes of
//! the same name.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use super::file::FileData;
use super::prng::Prng;
use crate::io::op::{DirEntry, Errno, OpenHow, Stat};
use crate::types::WallMs;

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inode(u64);

const ROOT: Inode = Inode(0);
const NAME_BYTES_MAX: usize = 255;

/// One name: its directory and its spelling there.
type Name = (Inode, String);
type Names = BTreeMap<String, Inode>;

#[derive(Debug)]
enum Node {
    File(FileData),
    Dir { live: Names, durable: Names },
}

#[derive(Debug)]
struct Entry {
    node: Node,
    modified_ms: WallMs,
}

#[derive(Debug)]
enum NameChange {
    Link { at: Name, inode: Inode },
    Unlink { at: Name, inode: Inode },
    Rename { from: Name, to: Name, inode: Inode },
}

impl NameChange {
    fn touches(&self, other: &NameChange) -> bool {
        self.names().any(|name| other.names().any(|theirs| name == theirs))
    }

    fn names(&self) -> impl Iterator<Item = &Name> {
        let (first, second) = match self {
            NameChange::Link { at, .. } | NameChange::Unlink { at, .. } => (at, None),
            NameChange::Rename { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    /// The directory whose sync makes it durable.
    fn synced_by(&self) -> Inode {
        match self {
            NameChange::Link { at, .. } | NameChange::Unlink { at, .. } => at.0,
            NameChange::Rename { to, .. } => to.0,
        }
    }
}

#[derive(Debug)]
struct PendingName {
    seq: u64,
    change: NameChange,
}

#[derive(Debug)]
pub struct Tree {
    entries: BTreeMap<Inode, Entry>,
    next_inode: u64,
    next_seq: u64,
    names: Vec<PendingName>,
}

impl Tree {
    pub fn new() -> Tree {
        let node = Node::Dir { live: Names::new(), durable: Names::new() };
        let root = Entry { node, modified_ms: 0 };
        Tree {
            entries: BTreeMap::from([(ROOT, root)]),
            next_inode: 1,
            next_seq: 0,
            names: Vec::new(),
        }
    }

    /// Changes made from here on carry this number or a higher one.
    pub fn seq(&self) -> u64 {
        self.next_seq
    }

    fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    // Paths.

    pub fn lookup(&self, path: &Path) -> Result<Inode, Errno> {
        let mut here = ROOT;
        for name in components(path)? {
            here = *self.dir(here)?.get(&name).ok_or(Errno::ENOENT)?;
        }
        Ok(here)
    }

    fn parent(&self, path: &Path) -> Result<Name, Errno> {
        let mut names = components(path)?;
        let last = names.pop().ok_or(Errno::EINVAL)?;
        let mut here = ROOT;
        for name in names {
            here = *self.dir(here)?.get(&name).ok_or(Errno::ENOENT)?;
        }
        self.dir(here)?;
        Ok((here, last))
    }

    fn dir(&self, inode: Inode) -> Result<&Names, Errno> {
        match &self.entry(inode).node {
            Node::Dir { live, .. } => Ok(live),
            Node::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn live_mut(&mut self, inode: Inode) -> &mut Names {
        match &mut self.entry_mut(inode).node {
            Node::Dir { live, .. } => live,
            Node::File(_) => unreachable!("names live in directories"),
        }
    }

    fn durable_mut(&mut self, inode: Inode) -> &mut Names {
        match &mut self.entry_mut(inode).node {
            Node::Dir { durable, .. } => durable,
            Node::File(_) => unreachable!("names live in directories"),
        }
    }

    fn entry(&self, inode: Inode) -> &Entry {
        self.entries.get(&inode).expect("inodes live until a power cut")
    }

    fn entry_mut(&mut self, inode: Inode) -> &mut Entry {
        self.entries.get_mut(&inode).expect("inodes live until a power cut")
    }

    fn is_dir(&self, inode: Inode) -> bool {
        matches!(self.entry(inode).node, Node::Dir { .. })
    }

    fn find(&self, at: &Name) -> Result<Option<Inode>, Errno> {
        Ok(self.dir(at.0)?.get(&at.1).copied())
    }

    fn make(&mut self, node: Node, modified_ms: WallMs) -> Inode {
        let inode = Inode(self.next_inode);
        self.next_inode += 1;
        self.entries.insert(inode, Entry { node, modified_ms });
        inode
    }

    // Changes of names.

    fn record(&mut self, change: NameChange) {
        match &change {
            NameChange::Link { at, inode } => {
                self.live_mut(at.0).insert(at.1.clone(), *inode);
            }
            NameChange::Unlink { at, .. } => {
                self.live_mut(at.0).remove(&at.1);
            }
            NameChange::Rename { from, to, inode } => {
                self.live_mut(from.0).remove(&from.1);
                self.live_mut(to.0).insert(to.1.clone(), *inode);
            }
        }
        let seq = self.take_seq();
        self.names.push(PendingName { seq, change });
    }

    /// Gives the file and the bytes that a truncation freed.
    pub fn open(&mut self, path: &Path, how: OpenHow, now: WallMs) -> Result<(Inode, u64), Errno> {
        let at = self.parent(path).map_err(|errno| match errno {
            Errno::EINVAL => Errno(libc::EISDIR),
            other => other,
        })?;
        let inode = match self.find(&at)? {
            Some(_) if how.create && how.exclusive => return Err(Errno::EEXIST),
            Some(inode) => inode,
            None if how.create => {
                let inode = self.make(Node::File(FileData::default()), now);
                self.record(NameChange::Link { at, inode });
                return Ok((inode, 0));
            }
            None => return Err(Errno::ENOENT),
        };
        if self.is_dir(inode) {
            return Err(Errno(libc::EISDIR));
        }
        let freed = if how.truncate { self.file(inode).len() } else { 0 };
        if how.truncate {
            self.truncate(inode, 0, now);
        }
        Ok((inode, freed))
    }

    pub fn create_dir(&mut self, path: &Path, now: WallMs) -> Result<(), Errno> {
        let at = self.parent(path).map_err(|errno| match errno {
            Errno::EINVAL => Errno::EEXIST,
            other => other,
        })?;
        if self.find(&at)?.is_some() {
            return Err(Errno::EEXIST);
        }
        let inode = self.make(Node::Dir { live: Names::new(), durable: Names::new() }, now);
        self.record(NameChange::Link { at, inode });
        Ok(())
    }

    pub fn remove_dir(&mut self, path: &Path) -> Result<(), Errno> {
        let at = self.parent(path)?;
        let inode = self.find(&at)?.ok_or(Errno::ENOENT)?;
        if !self.dir(inode)?.is_empty() {
            return Err(Errno(libc::ENOTEMPTY));
        }
        self.record(NameChange::Unlink { at, inode });
        Ok(())
    }

    /// Gives the bytes that the file held.
    pub fn unlink(&mut self, path: &Path) -> Result<u64, Errno> {
        let at = self.parent(path)?;
        let inode = self.find(&at)?.ok_or(Errno::ENOENT)?;
        if self.is_dir(inode) {
            return Err(Errno(libc::EISDIR));
        }
        self.record(NameChange::Unlink { at, inode });
        Ok(self.file(inode).len())
    }

    /// Gives the bytes of a file that it replaced.
    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<u64, Errno> {
        let (from_at, to_at) = (self.parent(from)?, self.parent(to)?);
        let inode = self.find(&from_at)?.ok_or(Errno::ENOENT)?;
        let (from_names, to_names) = (components(from)?, components(to)?);
        if to_names.len() > from_names.len() && to_names.starts_with(&from_names) {
            return Err(Errno::EINVAL);
        }
        if from_names.len() > to_names.len() && from_names.starts_with(&to_names) {
            return Err(Errno(libc::ENOTEMPTY));
        }
        let mut replaced = 0;
        match self.find(&to_at)? {
            Some(old) if old == inode => return Ok(0),
            Some(old) if self.is_dir(old) && !self.is_dir(inode) => {
                return Err(Errno(libc::EISDIR));
            }
            Some(old) if self.is_dir(inode) && !self.dir(old)?.is_empty() => {
                return Err(Errno(libc::ENOTEMPTY));
            }
            Some(old) if !self.is_dir(old) => replaced = self.file(old).len(),
            _ => {}
        }
        self.record(NameChange::Rename { from: from_at, to: to_at, inode });
        Ok(replaced)
    }

    /// A sync of the directory that started at `until` has ended.
    pub fn sync_dir(&mut self, dir: Inode, until: u64) {
        let mut covered: Vec<bool> = self
            .names
            .iter()
            .map(|name| name.seq < until && name.change.synced_by() == dir)
            .collect();
        // What a covered change stands on comes with it.
        for later in (0..self.names.len()).rev() {
            if covered[later] {
                let change = &self.names[later].change;
                for (earlier, covered) in covered.iter_mut().enumerate().take(later) {
                    *covered |= self.names[earlier].change.touches(change);
                }
            }
        }
        let names = std::mem::take(&mut self.names);
        for (name, covered) in names.into_iter().zip(covered) {
            match covered {
                true => self.settle(name.change),
                false => self.names.push(name),
            }
        }
    }

    fn settle(&mut self, change: NameChange) {
        let drop_name = |tree: &mut Tree, at: Name, inode| {
            let durable = tree.durable_mut(at.0);
            if durable.get(&at.1) == Some(&inode) {
                durable.remove(&at.1);
            }
        };
        match change {
            NameChange::Link { at, inode } => {
                self.durable_mut(at.0).insert(at.1, inode);
            }
            NameChange::Unlink { at, inode } => drop_name(self, at, inode),
            NameChange::Rename { from, to, inode } => {
                drop_name(self, from, inode);
                self.durable_mut(to.0).insert(to.1, inode);
            }
        }
    }

    /// The power goes: names and data fall to what the disk may hold.
    pub fn cut(&mut self, prng: &mut Prng) {
        let names = std::mem::take(&mut self.names);
        let chance = prng.chance();
        let mut lost: Vec<NameChange> = Vec::new();
        for PendingName { change, .. } in names {
            let stands = !lost.iter().any(|earlier| earlier.touches(&change));
            if stands && prng.per_mille(chance) {
                self.settle(change);
            } else {
                lost.push(change);
            }
        }
        for entry in self.entries.values_mut() {
            match &mut entry.node {
                Node::File(file) => file.cut(prng),
                Node::Dir { live, durable } => live.clone_from(durable),
            }
        }
        self.forget_unreachable();
    }

    fn forget_unreachable(&mut self) {
        let mut found = vec![ROOT];
        let mut next = 0;
        while let Some(&inode) = found.get(next) {
            found.extend(self.dir(inode).into_iter().flat_map(|names| names.values()));
            next += 1;
        }
        found.sort_unstable();
        self.entries.retain(|inode, _| found.binary_search(inode).is_ok());
    }

    // Files.

    pub fn file(&self, inode: Inode) -> &FileData {
        match &self.entry(inode).node {
            Node::File(file) => file,
            Node::Dir { .. } => unreachable!("only files are opened"),
        }
    }

    pub fn file_mut(&mut self, inode: Inode) -> &mut FileData {
        match &mut self.entry_mut(inode).node {
            Node::File(file) => file,
            Node::Dir { .. } => unreachable!("only files are opened"),
        }
    }

    pub fn write(&mut self, inode: Inode, pos: u64, bytes: &[u8], now: WallMs) {
        let seq = self.take_seq();
        self.entry_mut(inode).modified_ms = now;
        self.file_mut(inode).write(seq, pos, bytes);
    }

    pub fn truncate(&mut self, inode: Inode, len: u64, now: WallMs) {
        let seq = self.take_seq();
        self.entry_mut(inode).modified_ms = now;
        self.file_mut(inode).truncate(seq, len);
    }

    pub fn stat(&self, path: &Path) -> Result<Stat, Errno> {
        let entry = self.entry(self.lookup(path)?);
        let (len, is_dir) = match &entry.node {
            Node::File(file) => (file.len(), false),
            Node::Dir { .. } => (0, true),
        };
        Ok(Stat { len, is_dir, modified_ms: entry.modified_ms })
    }

    pub fn list(&self, path: &Path) -> Result<Vec<DirEntry>, Errno> {
        let names = self.dir(self.lookup(path)?)?;
        let entry = |(name, inode): (&String, &Inode)| DirEntry {
            name: name.clone(),
            is_dir: self.is_dir(*inode),
        };
        Ok(names.iter().map(entry).collect())
    }

    /// The inode to sync: a directory.
    pub fn lookup_dir(&self, path: &Path) -> Result<Inode, Errno> {
        let inode = self.lookup(path)?;
        self.dir(inode).map(|_| inode)
    }

    // The test's own hand: durable at once, no op.

    /// The bytes that are sure to be there after a power cut, name and all.
    pub fn durable_file(&self, path: &Path) -> Option<Vec<u8>> {
        let mut here = ROOT;
        for name in components(path).ok()? {
            match &self.entry(here).node {
                Node::Dir { durable, .. } => here = *durable.get(&name)?,
                Node::File(_) => return None,
            }
        }
        match &self.entry(here).node {
            Node::File(file) => Some(file.durable_bytes()),
            Node::Dir { .. } => None,
        }
    }

    pub fn plant_dir(&mut self, path: &Path, now: WallMs) -> Inode {
        let mut here = ROOT;
        for name in components(path).expect("a plain path") {
            here = match self.find(&(here, name.clone())).expect("only directories on the way") {
                Some(inode) => {
                    self.sync_name(here, &name);
                    inode
                }
                None => {
                    let node = Node::Dir { live: Names::new(), durable: Names::new() };
                    self.plant(here, name, node, now)
                }
            };
        }
        here
    }

    pub fn plant_file(&mut self, path: &Path, bytes: Vec<u8>, now: WallMs) {
        let dir = self.plant_dir(path.parent().unwrap_or(Path::new("/")), now);
        let name = components(path).expect("a plain path").pop().expect("a file has a name");
        self.sync_name(dir, &name);
        self.plant(dir, name, Node::File(FileData::durable(bytes)), now);
    }

    fn plant(&mut self, dir: Inode, name: String, node: Node, now: WallMs) -> Inode {
        let inode = self.make(node, now);
        self.live_mut(dir).insert(name.clone(), inode);
        self.durable_mut(dir).insert(name, inode);
        inode
    }

    /// Settles what is pending on one name (and, for simplicity, on its whole directory).
    fn sync_name(&mut self, dir: Inode, name: &str) {
        let concerned = |change: &NameChange| change.names().any(|at| at.0 == dir && at.1 == name);
        if self.names.iter().any(|pending| concerned(&pending.change)) {
            self.sync_dir(dir, self.next_seq);
        }
    }
}

/// A path's names from the root; relative paths start there too.
fn components(path: &Path) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) if name.len() > NAME_BYTES_MAX => {
                return Err(Errno(libc::ENAMETOOLONG));
            }
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => drop(names.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(names)
}

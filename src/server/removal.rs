//! What deletions left behind, removed in the background: one file at a time, when it is due.
//!
//! Owns: the queue and how far the removal has come. Never does: rename (`datadir` did, durably),
//! or remember anything over a restart (the names say what is to go). Left: `io::blocking`. Right:
//! `control`, which takes a step whenever no message waits (R42: nothing waits for a deletion).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use crate::io::blocking::Blocking;
use crate::io::{Errno, Io};
use crate::types::Micros;

#[derive(Debug)]
enum Step {
    /// Look what it is, and what is in it.
    Look(PathBuf),
    File(PathBuf),
    EmptyDir(PathBuf),
}

#[derive(Debug, Default)]
pub struct Removals {
    waiting: BinaryHeap<Reverse<(Micros, PathBuf)>>,
    /// What is left of the directory that is being removed; the last step is next.
    left: Vec<Step>,
}

impl Removals {
    pub fn add(&mut self, path: PathBuf, due: Micros) {
        self.waiting.push(Reverse((due, path)));
    }

    /// When there is something to do.
    pub fn due(&self) -> Micros {
        match (self.left.is_empty(), self.waiting.peek()) {
            (false, _) => Micros(0),
            (true, Some(Reverse((due, _)))) => *due,
            (true, None) => Micros::NEVER,
        }
    }

    /// Removes one file or empty directory of what is due.
    pub fn step<I: Io>(&mut self, b: &mut Blocking<'_, I>) {
        if self.left.is_empty()
            && self.due() <= b.io.now()
            && let Some(Reverse((_, path))) = self.waiting.pop()
        {
            tracing::info!("removing {}", path.display());
            self.left.push(Step::Look(path));
        }
        let Some(step) = self.left.pop() else { return };
        let (path, done) = match step {
            Step::Look(path) => {
                let listed = self.look(b, &path);
                (path, listed)
            }
            Step::File(path) => {
                let gone = b.unlink(&path);
                (path, gone)
            }
            Step::EmptyDir(path) => {
                let gone = b.remove_dir(&path);
                (path, gone)
            }
        };
        match done {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => {
                tracing::warn!("removing {}: {errno}; the next start tries again", path.display());
                self.left.clear();
            }
        }
    }

    fn look<I: Io>(&mut self, b: &mut Blocking<'_, I>, path: &Path) -> Result<(), Errno> {
        let entries = b.list(path)?;
        self.left.push(Step::EmptyDir(path.to_path_buf()));
        self.left.extend(entries.into_iter().map(|entry| {
            let path = path.join(&entry.name);
            if entry.is_dir { Step::Look(path) } else { Step::File(path) }
        }));
        Ok(())
    }
}

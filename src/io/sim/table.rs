//! One engine's open files, sockets and listeners: slots with generations.
//!
//! Owns: which id names what. Never does: open or close anything itself. Left: `tree`, `net`.
//! Right: `machine`, `perform`.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

use super::net::{ConnId, ListenerId};
use super::tree::Inode;
use crate::io::op::{Errno, FileId};

/// An open file of a process: a file and how it was opened.
#[derive(Debug)]
pub struct OpenFile {
    pub inode: Inode,
    pub path: PathBuf,
    pub write: bool,
    pub direct: bool,
    /// A write-back failed while it was open: its next flush tells, once.
    pub write_error: Cell<bool>,
}

/// What a slot stands for. Ops in flight share it, and keep it open past a `Close`.
#[derive(Debug)]
pub enum Open {
    File(OpenFile),
    Socket(ConnId),
    Listener(ListenerId),
}

impl Open {
    pub fn file(&self) -> Option<&OpenFile> {
        match self {
            Open::File(file) => Some(file),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    open: Option<Rc<Open>>,
}

#[derive(Debug, Default)]
pub struct Table(Vec<Slot>);

impl Table {
    pub fn get(&self, id: FileId) -> Result<&Rc<Open>, Errno> {
        let slot = self.0.get(id.slot as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.open.as_ref()).ok_or(Errno::EBADF)
    }

    /// EMFILE when all `files_max` slots are taken; asked before anything is created.
    pub fn check_room(&self, files_max: usize) -> Result<(), Errno> {
        let open = self.0.iter().filter(|slot| slot.open.is_some()).count();
        if open < files_max { Ok(()) } else { Err(Errno(libc::EMFILE)) }
    }

    pub fn insert(&mut self, open: Open) -> FileId {
        let free = self.0.iter().position(|slot| slot.open.is_none());
        let at = free.unwrap_or_else(|| {
            self.0.push(Slot::default());
            self.0.len() - 1
        });
        let slot = &mut self.0[at];
        slot.open = Some(Rc::new(open));
        FileId { slot: at as u32, generation: slot.generation }
    }

    pub fn remove(&mut self, id: FileId) -> Result<Rc<Open>, Errno> {
        self.get(id)?;
        let slot = &mut self.0[id.slot as usize];
        slot.generation += 1;
        Ok(slot.open.take().expect("checked above"))
    }

    pub fn files(&self) -> impl Iterator<Item = &OpenFile> {
        self.0.iter().filter_map(|slot| slot.open.as_ref()?.file())
    }

    /// Everything that was open, with the table left empty.
    pub fn drain(&mut self) -> Vec<Rc<Open>> {
        self.0.drain(..).filter_map(|slot| slot.open).collect()
    }
}

//! The table of an engine's open files: slot and generation to descriptor.
//!
//! Owns: the descriptors, slot reuse, the count of ops that hold a file open.
//! Never does: a system call except the close that dropping a descriptor is.
//! Left: `op`. Right: `calls`, the engines.
//!
//! A closed file keeps its slot until the last op on it is done: the ring resolves a fixed slot
//! only when an entry is issued, so a slot given away earlier could send an old op to a new file.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::op::{Errno, FileId};

/// What a slot holds, as far as the engine must know.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Buffered file.
    File,
    /// File opened with O_DIRECT.
    DirectFile,
    Socket,
    Listener,
}

impl Kind {
    pub fn is_socket(self) -> bool {
        matches!(self, Kind::Socket | Kind::Listener)
    }
}

struct Slot {
    generation: u32,
    open: Option<Open>,
}

struct Open {
    fd: OwnedFd,
    kind: Kind,
    /// Ops in flight on it.
    held: u32,
    /// `Close` was asked for: no new op finds it.
    closed: bool,
}

#[derive(Default)]
pub struct Files {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Files {
    pub fn new() -> Files {
        Files::default()
    }

    pub fn insert(&mut self, fd: OwnedFd, kind: Kind) -> FileId {
        let open = Some(Open { fd, kind, held: 0, closed: false });
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            assert!(entry.open.is_none(), "slot {slot} is free and taken");
            entry.open = open;
            return FileId { slot, generation: entry.generation };
        }
        let slot = u32::try_from(self.slots.len()).expect("fewer files than 2^32");
        self.slots.push(Slot { generation: 0, open });
        FileId { slot, generation: 0 }
    }

    fn find(&self, id: FileId) -> Option<&Open> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.open.as_ref().filter(|open| slot.generation == id.generation && !open.closed)
    }

    /// The descriptor of an open file; EBADF for a stale or closed id.
    pub fn fd(&self, id: FileId) -> Result<RawFd, Errno> {
        self.find(id).map(|open| open.fd.as_raw_fd()).ok_or(Errno::EBADF)
    }

    pub fn kind(&self, id: FileId) -> Result<Kind, Errno> {
        self.find(id).map(|open| open.kind).ok_or(Errno::EBADF)
    }

    /// The descriptor of a file that an op in flight holds, closed by now or not.
    pub fn held_fd(&self, id: FileId) -> RawFd {
        let slot = &self.slots[id.slot as usize];
        assert_eq!(slot.generation, id.generation, "a held file keeps its slot");
        slot.open.as_ref().expect("a held file stays open").fd.as_raw_fd()
    }

    /// True when this id's slot still belongs to it, closed or not.
    pub fn is_current(&self, id: FileId) -> bool {
        let slot = self.slots.get(id.slot as usize);
        slot.is_some_and(|slot| slot.generation == id.generation && slot.open.is_some())
    }

    /// Keeps the file open until [`Files::release`]. The id must be open.
    pub fn hold(&mut self, id: FileId) {
        let open = self.slots[id.slot as usize].open.as_mut().expect("hold of a checked id");
        open.held += 1;
    }

    /// Ends a hold; gives the descriptor when the file was closed and this was the last one.
    pub fn release(&mut self, id: FileId) -> Option<(OwnedFd, Kind)> {
        let slot = &mut self.slots[id.slot as usize];
        assert_eq!(slot.generation, id.generation, "a held file keeps its slot");
        let open = slot.open.as_mut().expect("a held file stays open");
        assert!(open.held > 0, "release without hold");
        open.held -= 1;
        (open.closed && open.held == 0).then(|| self.take(id.slot))
    }

    /// Closes an id. Gives the descriptor if no op holds it; `None` when the last op will.
    pub fn close(&mut self, id: FileId) -> Result<Option<(OwnedFd, Kind)>, Errno> {
        self.find(id).ok_or(Errno::EBADF)?;
        let open = self.slots[id.slot as usize].open.as_mut().expect("found above");
        open.closed = true;
        Ok((open.held == 0).then(|| self.take(id.slot)))
    }

    fn take(&mut self, slot: u32) -> (OwnedFd, Kind) {
        let entry = &mut self.slots[slot as usize];
        let open = entry.open.take().expect("taken once");
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
        (open.fd, open.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sys;

    #[test]
    fn a_slot_is_not_reused_before_its_last_op_is_done() {
        let mut files = Files::new();
        let first = files.insert(sys::eventfd(true).unwrap(), Kind::File);
        files.hold(first);
        assert!(files.close(first).unwrap().is_none());
        assert_eq!(files.fd(first), Err(Errno::EBADF));
        assert!(files.close(first).is_err());
        let second = files.insert(sys::eventfd(true).unwrap(), Kind::File);
        assert_ne!(first.slot, second.slot);
        assert!(files.release(first).is_some());
        let third = files.insert(sys::eventfd(true).unwrap(), Kind::File);
        assert_eq!(third.slot, first.slot);
        assert_ne!(third.generation, first.generation);
        assert_eq!(files.fd(first), Err(Errno::EBADF));
    }
}

//! What each op does at the instant it takes effect.
//!
//! Owns: the meaning of every op over `tree`, `net` and the open-file tables, error numbers
//! included. Never does: choose the instant (that is `machine`). Left: `tree`, `net`, `table`.
//! Right: `machine`.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::faults::Order;
use super::machine::{Flight, Machine};
use super::net::SOCKET_BYTES;
use super::prng::Prng;
use super::table::{Open, OpenFile};
use super::tree::Inode;
use crate::io::op::{Errno, FileId, Op, OpenHow, Outcome, Token};

/// Direct I/O wants positions, lengths and memory in multiples of this.
const DIRECT_ALIGN: usize = 512;

impl Machine {
    /// Carries the op out; `None` when it has to wait for its socket.
    pub(super) fn perform(&mut self, flight: &mut Flight) -> Option<Result<Outcome, Errno>> {
        if let Some(errno) = flight.refusal {
            self.perform_failing(flight);
            return Some(Err(errno));
        }
        match &flight.op {
            Op::Accept { .. } | Op::Recv { .. } | Op::Send { .. } | Op::Sendfile { .. } => {
                self.perform_on_socket(flight).transpose()
            }
            Op::Shutdown { .. } | Op::Close { .. } | Op::Timeout { .. } | Op::Cancel { .. } => {
                Some(self.perform_on_table(flight).map(|()| Outcome::Nothing))
            }
            _ if flight.open.is_some() => Some(self.perform_on_file(flight)),
            _ => Some(self.perform_on_names(flight)),
        }
    }

    /// A flush that fails still does harm: its pages count as clean from here on.
    fn perform_failing(&mut self, flight: &Flight) {
        let file = flight.open.as_ref().and_then(|open| open.file());
        if let (Op::Fdatasync { .. }, Some(file)) = (&flight.op, file) {
            let until = flight.until.unwrap_or(self.tree.seq());
            self.tree.file_mut(file.inode).fail_flush(until, &mut self.prng);
        }
    }

    fn perform_on_table(&mut self, flight: &Flight) -> Result<(), Errno> {
        match &flight.op {
            Op::Close { file } => {
                let open = self.engines[flight.engine].table.remove(*file)?;
                self.release(open);
            }
            Op::Shutdown { .. } => {
                let Some(Open::Socket(conn)) = flight.open.as_deref() else {
                    return Err(Errno(libc::ENOTSOCK));
                };
                self.net.shutdown(*conn);
                self.rouse_socket(*conn);
            }
            Op::Cancel { token } => self.cancel(flight.engine, *token)?,
            _ => {}
        }
        Ok(())
    }

    fn perform_on_names(&mut self, flight: &Flight) -> Result<Outcome, Errno> {
        let wall = self.wall_ms();
        match &flight.op {
            Op::Open { path, how } => {
                return self.open(flight.engine, path.clone(), *how).map(Outcome::File);
            }
            Op::List { path } => {
                self.check_access(path)?;
                return self.tree.list(path).map(Outcome::Entries);
            }
            Op::Stat { path } => return self.tree.stat(path).map(Outcome::Stat),
            Op::SyncDir { path } => {
                let dir = self.tree.lookup_dir(path)?;
                self.tree.sync_dir(dir, flight.until.unwrap_or(self.tree.seq()));
            }
            Op::Rename { from, to } => {
                let freed = self.tree.rename(from, to)?;
                self.give_space(freed);
            }
            Op::Unlink { path } => {
                let freed = self.tree.unlink(path)?;
                self.give_space(freed);
            }
            Op::CreateDir { path } => self.tree.create_dir(path, wall)?,
            Op::RemoveDir { path } => self.tree.remove_dir(path)?,
            other => unreachable!("{other:?} names an open file"),
        }
        Ok(Outcome::Nothing)
    }

    fn perform_on_file(&mut self, flight: &mut Flight) -> Result<Outcome, Errno> {
        let wall = self.wall_ms();
        let Some(Open::File(file)) = flight.open.as_deref() else {
            return Err(Errno(libc::ESPIPE));
        };
        let inode = file.inode;
        match &mut flight.op {
            Op::Read { .. } | Op::Write { .. } => return self.transfer(flight),
            Op::Fdatasync { .. } => {
                let until = flight.until.unwrap_or(self.tree.seq());
                self.tree.file_mut(inode).flush(until);
                if file.write_error.take() {
                    return Err(Errno::EIO);
                }
            }
            Op::Truncate { len, .. } => {
                if !file.write {
                    return Err(Errno::EINVAL);
                }
                let freed = self.tree.file(inode).len().saturating_sub(*len);
                self.tree.truncate(inode, *len, wall);
                self.give_space(freed);
            }
            Op::Len { .. } => return Ok(Outcome::Len(self.tree.file(inode).len())),
            Op::DropCache { .. } => self.tree.file_mut(inode).drop_cache(),
            // A cut already takes or leaves each sector: early write-back changes nothing.
            Op::SyncRange { .. } => {}
            other => unreachable!("{other:?} is no file op"),
        }
        Ok(Outcome::Nothing)
    }

    fn transfer(&mut self, flight: &mut Flight) -> Result<Outcome, Errno> {
        let wall = self.wall_ms();
        let Some(Open::File(file)) = flight.open.as_deref() else { return Err(Errno::EBADF) };
        let short = flight.short.map_or(usize::MAX, |n| n as usize);
        let moved = match &mut flight.op {
            Op::Read { pos, max, into, .. } => {
                let max = (*max as usize).min(into.room()).min(short);
                check_direct(file, *pos, &[&*into.spare_mut()])?;
                let data = self.tree.file(file.inode);
                let bytes = match file.direct {
                    true => Cow::Owned(data.uncached()),
                    false => Cow::Borrowed(data.bytes()),
                };
                let found = part(&bytes, *pos, max);
                into.extend_from_slice(found);
                found.len()
            }
            Op::Write { pos, bufs, .. } => {
                if !file.write {
                    return Err(Errno::EBADF);
                }
                check_direct(file, *pos, &bufs.remaining().collect::<Vec<_>>())?;
                let bytes = joined(bufs.remaining(), short);
                let fits = self.take_space(file.inode, *pos, bytes.len())?;
                self.tree.write(file.inode, *pos, &bytes[..fits], wall);
                fits
            }
            other => unreachable!("{other:?} moves no bytes of a file"),
        };
        Ok(Outcome::Bytes(moved as u32))
    }

    fn perform_on_socket(&mut self, flight: &mut Flight) -> Result<Option<Outcome>, Errno> {
        let order = self.faults.order;
        match (&mut flight.op, flight.open.as_deref()) {
            (Op::Accept { .. }, Some(Open::Listener(listener))) => {
                self.engines[flight.engine].table.check_room(self.faults.files_max)?;
                let Some((conn, peer)) = self.net.accept(*listener) else { return Ok(None) };
                let socket = self.engines[flight.engine].table.insert(Open::Socket(conn));
                Ok(Some(Outcome::Accepted { socket, peer: Some(peer) }))
            }
            (Op::Accept { .. }, Some(Open::Socket(_))) => Err(Errno::EINVAL),
            (Op::Recv { into, .. }, Some(Open::Socket(conn))) => {
                let dice = partial(order, &mut self.prng);
                let Some(bytes) = self.net.recv(*conn, into.room(), dice).transpose()? else {
                    return Ok(None);
                };
                into.extend_from_slice(&bytes);
                Ok(Some(Outcome::Bytes(bytes.len() as u32)))
            }
            (Op::Send { bufs, .. }, Some(Open::Socket(conn))) => {
                let bytes = joined(bufs.remaining(), SOCKET_BYTES);
                let dice = partial(order, &mut self.prng);
                Ok(self.net.send(*conn, &bytes, dice).transpose()?.map(Outcome::Bytes))
            }
            (Op::Sendfile { pos, len, .. }, Some(Open::Socket(conn))) => {
                let file = flight.source.as_ref().and_then(|open| open.file());
                let file = file.ok_or(Errno::EINVAL)?;
                let bytes = part(self.tree.file(file.inode).bytes(), *pos, *len as usize);
                let dice = partial(order, &mut self.prng);
                Ok(self.net.send(*conn, bytes, dice).transpose()?.map(Outcome::Bytes))
            }
            _ => Err(Errno(libc::ENOTSOCK)),
        }
    }

    fn open(&mut self, engine: usize, path: PathBuf, how: OpenHow) -> Result<FileId, Errno> {
        self.check_access(&path)?;
        self.engines[engine].table.check_room(self.faults.files_max)?;
        let (inode, freed) = self.tree.open(&path, how, self.wall_ms())?;
        self.give_space(freed);
        let (write, direct, write_error) = (how.write, how.direct, Cell::default());
        let file = OpenFile { inode, path, write, direct, write_error };
        Ok(self.engines[engine].table.insert(Open::File(file)))
    }

    fn check_access(&self, path: &Path) -> Result<(), Errno> {
        if self.faults.denies(path) { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// How many of these bytes the disk has room for.
    fn take_space(&mut self, inode: Inode, pos: u64, len: usize) -> Result<usize, Errno> {
        let size = self.tree.file(inode).len();
        let Some(space) = &mut self.faults.space_bytes else { return Ok(len) };
        let inside = (size.saturating_sub(pos) as usize).min(len);
        let grows = ((len - inside) as u64).min(*space);
        *space -= grows;
        match inside + grows as usize {
            0 if len > 0 => Err(Errno::ENOSPC),
            moved => Ok(moved),
        }
    }

    fn give_space(&mut self, bytes: u64) {
        if let Some(space) = &mut self.faults.space_bytes {
            *space += bytes;
        }
    }

    /// An op that waits ends now; one under way ends now or runs on, as the seed says.
    fn cancel(&mut self, engine: usize, token: Token) -> Result<(), Errno> {
        let coin = self.prng.coin();
        let found = self.flights.get_mut(&token.0).filter(|flight| flight.engine == engine);
        let flight = found.ok_or(Errno::ENOENT)?;
        if matches!(flight.op, Op::Timeout { .. }) || flight.waiting || coin {
            flight.cancelled = true;
            self.finish_at(self.now, token.0);
        }
        Ok(())
    }

    /// One holder less; the last one closes a socket or listener for its peers.
    pub(super) fn release(&mut self, open: Rc<Open>) {
        match Rc::into_inner(open) {
            Some(Open::Socket(conn)) => self.net.close(conn),
            Some(Open::Listener(listener)) => self.net.close_listener(listener),
            Some(Open::File(_)) | None => {}
        }
    }
}

fn partial(order: Order, prng: &mut Prng) -> Option<&mut Prng> {
    (order == Order::Shuffled).then_some(prng)
}

fn part(bytes: &[u8], pos: u64, len: usize) -> &[u8] {
    let from = bytes.len().min(usize::try_from(pos).unwrap_or(usize::MAX));
    &bytes[from..bytes.len().min(from.saturating_add(len))]
}

/// The first `max` bytes of the slices.
pub(super) fn joined<'a>(slices: impl Iterator<Item = &'a [u8]>, max: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for slice in slices {
        let n = slice.len().min(max - all.len());
        all.extend_from_slice(&slice[..n]);
        if all.len() == max {
            break;
        }
    }
    all
}

fn check_direct(file: &OpenFile, pos: u64, memory: &[&[u8]]) -> Result<(), Errno> {
    let aligned = |slice: &[u8]| {
        slice.len().is_multiple_of(DIRECT_ALIGN)
            && slice.as_ptr().addr().is_multiple_of(DIRECT_ALIGN)
    };
    let fits = pos.is_multiple_of(DIRECT_ALIGN as u64) && memory.iter().all(|one| aligned(one));
    if file.direct && !fits { Err(Errno::EINVAL) } else { Ok(()) }
}

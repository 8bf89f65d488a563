//! The simulator: the third engine, on memory files, a virtual clock and seeded dice.
//!
//! Owns: [`World`], the test's hand on a simulated machine, and [`SimIo`], the engine of one
//! thread of its process. Never does: a system call, a read of a real clock, `unsafe`.
//! Left: `op`, `buffers`. Right: tests of `log`, `shard` and `server`.
//!
//! As unkind as the world, and no unkinder than the promises of a disk allow: see `sim/file.rs`
//! for data, `sim/tree.rs` for names, `sim/machine.rs` for order and time. The same seed and the
//! same calls give the same world.
#![forbid(unsafe_code)]

mod faults;
mod file;
mod machine;
mod net;
mod perform;
mod prng;
mod table;
mod tree;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::op::{Done, Errno, FileId, Io, IoCounters, Op, Refused, Tag, Token, Wait, Waker};
use crate::types::{Micros, WallMs};
use machine::Machine;
use net::ConnId;
use table::Open;

pub use faults::{Effect, Faults, On, Order};
pub use file::SECTOR_BYTES;
pub use net::SOCKET_BYTES;
pub use prng::Prng;

/// A simulated machine; a clone is another handle on the same one.
#[derive(Clone)]
pub struct World(Rc<RefCell<Machine>>);

impl World {
    pub fn new(seed: u64) -> World {
        World(Rc::new(RefCell::new(Machine::new(seed))))
    }

    /// An engine of the running process; several are its threads.
    pub fn engine(&self) -> SimIo {
        let engine = self.0.borrow_mut().new_engine();
        SimIo { machine: self.0.clone(), engine }
    }

    pub fn now(&self) -> Micros {
        self.0.borrow().now
    }

    /// Moves the clock; whatever is due by then happens.
    pub fn advance(&self, by: Micros) {
        let at = self.now().plus(by);
        self.0.borrow_mut().advance_to(at);
    }

    /// Sets the wall clock; it goes on from there with the virtual one.
    pub fn set_wall_ms(&self, ms: WallMs) {
        let mut machine = self.0.borrow_mut();
        machine.wall_offset_ms += ms - machine.wall_ms();
    }

    /// kill -9 of the process. Ops in flight have happened, or partly, or not; the page cache
    /// stays. Its engines are dead: they refuse every submit, and `reap` gives EBADF.
    pub fn kill(&self) {
        self.0.borrow_mut().kill();
    }

    /// A kill, and whatever was not durable falls to the dice.
    pub fn power_cut(&self) {
        self.0.borrow_mut().power_cut();
    }

    /// Steps completed so far: creates, writes, truncates, flushes, syncs, changes of names. The
    /// coordinate of a crash sweep.
    pub fn ops(&self) -> u64 {
        self.0.borrow().steps
    }

    /// Lets `n` more steps happen, and hands out their completions; after the last one nothing of
    /// this process completes any more. A `reap` then gives nothing, moves the clock as far as it
    /// may, and fails with ECANCELED where it would sleep for ever. `kill` or `power_cut` ends it.
    pub fn cut_after(&self, n: u64) {
        self.0.borrow_mut().stop_after(n);
    }

    pub fn stopped(&self) -> bool {
        self.0.borrow().stopped
    }

    pub fn faults(&self, configure: impl FnOnce(&mut Faults)) {
        configure(&mut self.0.borrow_mut().faults);
    }

    /// Write-back by the kernel itself fails now: the file's dirty pages are lost and count as
    /// clean. Descriptors that are open hear of it at their next flush, once; one that is opened
    /// later never does (D11: a dirty descriptor is not closed).
    ///
    /// # Panics
    /// When there is no such file.
    pub fn fail_writeback(&self, path: impl AsRef<Path>) {
        let mut machine = self.0.borrow_mut();
        let inode = machine.tree.lookup(path.as_ref()).expect("a file to fail");
        machine.fail_writeback(inode);
    }

    /// What a reader sees now.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let machine = self.0.borrow();
        let inode = machine.tree.lookup(path.as_ref()).ok()?;
        let is_dir = machine.tree.lookup_dir(path.as_ref()).is_ok();
        (!is_dir).then(|| machine.tree.file(inode).bytes().to_vec())
    }

    /// What is sure to be there after a power cut now: name, size and data.
    pub fn durable_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.0.borrow().tree.durable_file(path.as_ref())
    }

    /// Plants a file, and the directories on its way, as if it had always been there.
    pub fn write_file_durably(&self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
        let mut machine = self.0.borrow_mut();
        let now = machine.wall_ms();
        machine.tree.plant_file(path.as_ref(), bytes.into(), now);
    }

    /// Plants a directory, and those on its way, as if it had always been there.
    pub fn make_dir_durably(&self, path: impl AsRef<Path>) {
        let mut machine = self.0.borrow_mut();
        let now = machine.wall_ms();
        machine.tree.plant_dir(path.as_ref(), now);
    }

    /// Connects a peer to a listener of the process.
    ///
    /// # Panics
    /// When nobody listens there.
    pub fn connect(&self, listener: SocketAddr) -> SimSocket {
        let mut machine = self.0.borrow_mut();
        let Some((listener, conn)) = machine.net.connect(listener) else {
            panic!("connection refused: nobody listens on {listener}");
        };
        machine.rouse_listener(listener);
        SimSocket { machine: self.0.clone(), conn }
    }

    /// The names in a directory as they are now, sorted; none if it is missing.
    pub fn list(&self, dir: impl AsRef<Path>) -> Vec<String> {
        let entries = self.0.borrow().tree.list(dir.as_ref()).unwrap_or_default();
        entries.into_iter().map(|entry| entry.name).collect()
    }
}

/// A peer's end of a connection to the process; dropping it closes it.
pub struct SimSocket {
    machine: Rc<RefCell<Machine>>,
    conn: ConnId,
}

impl SimSocket {
    /// Sends all of it: what the connection has no room for follows as the process reads.
    pub fn send(&self, bytes: &[u8]) {
        self.act(|machine, conn| machine.net.peer_send(conn, bytes));
    }

    /// What the process has no room for yet.
    pub fn unsent(&self) -> usize {
        self.machine.borrow().net.peer_unsent(self.conn)
    }

    /// All that has arrived; empty when nothing has.
    pub fn recv(&self) -> Vec<u8> {
        self.act(|machine, conn| machine.net.peer_recv(conn))
    }

    /// The process has closed its end, and all it sent has been received.
    pub fn at_end(&self) -> bool {
        self.machine.borrow().net.peer_at_end(self.conn)
    }

    /// Closes in good order: the process reads what was sent, then the end.
    pub fn close(&self) {
        self.act(|machine, conn| machine.net.peer_close(conn, false));
    }

    /// Breaks the connection off: the process gets ECONNRESET.
    pub fn reset(&self) {
        self.act(|machine, conn| machine.net.peer_close(conn, true));
    }

    fn act<T>(&self, act: impl FnOnce(&mut Machine, ConnId) -> T) -> T {
        let mut machine = self.machine.borrow_mut();
        let out = act(&mut machine, self.conn);
        machine.rouse_socket(self.conn);
        out
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        // A panic inside the machine unwinds through here with the machine still borrowed.
        if let Ok(mut machine) = self.machine.try_borrow_mut() {
            machine.net.peer_close(self.conn, false);
            machine.rouse_socket(self.conn);
        }
    }
}

/// The engine of one thread of a simulated process. Dropping it ends its ops as a kill does.
pub struct SimIo {
    machine: Rc<RefCell<Machine>>,
    engine: usize,
}

impl Drop for SimIo {
    fn drop(&mut self) {
        // A panic inside the machine unwinds through here with the machine still borrowed.
        if let Ok(mut machine) = self.machine.try_borrow_mut()
            && machine.is_alive(self.engine)
        {
            machine.retire(self.engine);
        }
    }
}

impl Io for SimIo {
    fn submit(&mut self, op: Op, tag: Tag) -> Result<Token, Refused> {
        self.machine.borrow_mut().submit(self.engine, op, tag)
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), Errno> {
        self.machine.borrow_mut().reap(self.engine, wait, done)
    }

    fn in_flight(&self) -> usize {
        self.machine.borrow().in_flight(self.engine)
    }

    fn now(&self) -> Micros {
        self.machine.borrow().now
    }

    fn wall_ms(&self) -> WallMs {
        self.machine.borrow().wall_ms()
    }

    fn listen(&mut self, addr: SocketAddr) -> Result<(FileId, SocketAddr), Errno> {
        let mut machine = self.machine.borrow_mut();
        if !machine.is_alive(self.engine) {
            return Err(Errno::EBADF);
        }
        let files_max = machine.faults.files_max;
        machine.engines[self.engine].table.check_room(files_max)?;
        let (listener, addr) = machine.net.listen(addr)?;
        let file = machine.engines[self.engine].table.insert(Open::Listener(listener));
        Ok((file, addr))
    }

    fn waker(&self) -> Waker {
        let flag = self.machine.borrow().wake_flag(self.engine);
        Waker(Arc::new(move || flag.store(true, Ordering::Release)))
    }

    fn counters(&self) -> IoCounters {
        self.machine.borrow().counters(self.engine)
    }

    fn name(&self) -> &'static str {
        "sim"
    }
}

//! Simulated TCP: listeners, connections with bounded buffers, and the peers' end of them.
//!
//! Owns: bytes in transit, who has closed what. Never does: time, open-file tables.
//! Left: `prng`. Right: `machine`, `perform`, and [`super::SimSocket`] for the peers.
//!
//! Receives and sends may move a part only, as on any stream, when `partial` dice are passed.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::prng::Prng;
use crate::io::op::Errno;

/// Bytes a connection holds in each direction before its writer has to wait.
pub const SOCKET_BYTES: usize = 64 << 10;

/// First port for listeners that asked for any.
const FREE_PORTS_FROM: u16 = 40_000;
/// First port of the peers.
const PEER_PORTS_FROM: u16 = 50_000;

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerId(u64);

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(u64);

#[derive(Debug)]
struct Listener {
    addr: SocketAddr,
    backlog: VecDeque<ConnId>,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// The writer has closed: after these bytes comes the end.
    ended: bool,
}

impl Pipe {
    fn room(&self) -> usize {
        SOCKET_BYTES - self.bytes.len()
    }
}

#[derive(Debug)]
struct Conn {
    peer: SocketAddr,
    to_process: Pipe,
    to_peer: Pipe,
    /// What the peer has sent beyond the buffer; flows in as room appears.
    outbox: VecDeque<u8>,
    peer_closed: bool,
    /// Broken off by either side: what was in transit is lost.
    reset: bool,
    /// `Shutdown` was called on the process's side.
    shut: bool,
}

impl Conn {
    fn refill(&mut self) {
        let n = self.to_process.room().min(self.outbox.len());
        self.to_process.bytes.extend(self.outbox.drain(..n));
        self.to_process.ended = self.peer_closed && self.outbox.is_empty();
    }
}

#[derive(Debug, Default)]
pub struct Net {
    listeners: BTreeMap<ListenerId, Listener>,
    conns: BTreeMap<ConnId, Conn>,
    next_id: u64,
}

impl Net {
    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    pub fn listen(&mut self, addr: SocketAddr) -> Result<(ListenerId, SocketAddr), Errno> {
        let taken = |addr: SocketAddr| self.listeners.values().any(|other| other.addr == addr);
        let mut bound = addr;
        if addr.port() == 0 {
            let free = (FREE_PORTS_FROM..PEER_PORTS_FROM)
                .find(|&port| !taken(SocketAddr::new(addr.ip(), port)));
            bound.set_port(free.ok_or(Errno(libc::EADDRINUSE))?);
        } else if taken(addr) {
            return Err(Errno(libc::EADDRINUSE));
        }
        let id = ListenerId(self.take_id());
        self.listeners.insert(id, Listener { addr: bound, backlog: VecDeque::new() });
        Ok((id, bound))
    }

    /// A peer connects; `None` if nobody listens there.
    pub fn connect(&mut self, to: SocketAddr) -> Option<(ListenerId, ConnId)> {
        let id = ConnId(self.take_id());
        let (&listener, found) = self.listeners.iter_mut().find(|(_, one)| one.addr == to)?;
        found.backlog.push_back(id);
        let port = PEER_PORTS_FROM + (id.0 % u64::from(u16::MAX - PEER_PORTS_FROM)) as u16;
        let conn = Conn {
            peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            to_process: Pipe::default(),
            to_peer: Pipe::default(),
            outbox: VecDeque::new(),
            peer_closed: false,
            reset: false,
            shut: false,
        };
        self.conns.insert(id, conn);
        Some((listener, id))
    }

    // The process's side. `None` means: it would have to wait.

    pub fn accept(&mut self, id: ListenerId) -> Option<(ConnId, SocketAddr)> {
        let conn = self.listeners.get_mut(&id)?.backlog.pop_front()?;
        Some((conn, self.conns[&conn].peer))
    }

    pub fn recv(
        &mut self,
        id: ConnId,
        room: usize,
        partial: Option<&mut Prng>,
    ) -> Option<Result<Vec<u8>, Errno>> {
        let conn = self.conn(id);
        if conn.reset {
            return Some(Err(Errno(libc::ECONNRESET)));
        }
        let n = some_of(conn.to_process.bytes.len().min(room), partial);
        let bytes: Vec<u8> = conn.to_process.bytes.drain(..n).collect();
        conn.refill();
        let over = conn.shut || conn.to_process.ended || room == 0;
        (!bytes.is_empty() || over).then_some(Ok(bytes))
    }

    pub fn send(
        &mut self,
        id: ConnId,
        bytes: &[u8],
        partial: Option<&mut Prng>,
    ) -> Option<Result<u32, Errno>> {
        let conn = self.conn(id);
        if conn.shut || conn.reset || conn.peer_closed {
            return Some(Err(Errno(libc::EPIPE)));
        }
        let n = some_of(conn.to_peer.room().min(bytes.len()), partial);
        conn.to_peer.bytes.extend(&bytes[..n]);
        (n > 0 || bytes.is_empty()).then_some(Ok(n as u32))
    }

    pub fn shutdown(&mut self, id: ConnId) {
        let conn = self.conn(id);
        conn.shut = true;
        conn.to_peer.ended = true;
    }

    /// The process has let go of its end.
    pub fn close(&mut self, id: ConnId) {
        let conn = self.conn(id);
        // Closing with bytes unread resets, as TCP does; else the peer reads to the end.
        conn.reset |= !conn.to_process.bytes.is_empty();
        conn.shut = true;
        conn.to_peer.ended = true;
    }

    pub fn close_listener(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.remove(&id) else { return };
        for conn in listener.backlog {
            self.conn(conn).reset = true;
            self.close(conn);
        }
    }

    // The peer's side.

    pub fn peer_send(&mut self, id: ConnId, bytes: &[u8]) {
        let conn = self.conn(id);
        assert!(!conn.peer_closed, "the peer sends after its close");
        conn.outbox.extend(bytes);
        conn.refill();
    }

    /// Bytes of the peer that the process's side has no room for yet.
    pub fn peer_unsent(&self, id: ConnId) -> usize {
        self.conns[&id].outbox.len()
    }

    pub fn peer_recv(&mut self, id: ConnId) -> Vec<u8> {
        self.conn(id).to_peer.bytes.drain(..).collect()
    }

    /// The process has closed, and all that it sent was read.
    pub fn peer_at_end(&self, id: ConnId) -> bool {
        let conn = &self.conns[&id];
        conn.reset || (conn.to_peer.ended && conn.to_peer.bytes.is_empty())
    }

    pub fn peer_close(&mut self, id: ConnId, reset: bool) {
        let conn = self.conn(id);
        conn.peer_closed = true;
        conn.reset |= reset;
        conn.refill();
    }

    fn conn(&mut self, id: ConnId) -> &mut Conn {
        self.conns.get_mut(&id).expect("connections live as long as their world")
    }
}

/// All of `n`, or with dice sometimes less, but never nothing of something.
fn some_of(n: usize, partial: Option<&mut Prng>) -> usize {
    let Some(prng) = partial else { return n };
    let less = prng.per_mille(250) && n > 1;
    if less { 1 + prng.below(n as u64 - 1) as usize } else { n }
}

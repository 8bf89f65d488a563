//! All connections of a shard: accepting, receiving, sending, closing.
//!
//! Owns: the slots and their generations, which connections have work this turn, the life of a
//! socket from accept to close. Never does: read requests. Left: `conn`, `io`. Right: `tick`.

use std::collections::VecDeque;

use super::conn::{Answer, Conn, ConnId, LeavingKind, Piece, State};
use super::histograms::Stage;
use super::tick::Label;
use super::{Life, Shard};
use crate::io::buffers::Window;
use crate::io::{Errno, FileId, Io, Op, Outcome};
use crate::protocol::produce::response_frame;
use crate::types::Micros;

/// The slots.
#[derive(Debug)]
pub struct Conns {
    slots: Vec<Option<Conn>>,
    generations: Vec<u32>,
    free: Vec<usize>,
    slots_max: usize,
    /// Connections with unread bytes, a blocked frame or a receive to start.
    pub parse: VecDeque<ConnId>,
    /// Connections that wait for room: in the pool, or in their partition. They try again at the
    /// next turn, which comes with a completion or soon.
    pub retry: Vec<ConnId>,
    /// The connection that may go past the memory bound until its frame is whole.
    pub overdraft: Option<ConnId>,
    /// Connections with answers to send.
    pub reply: Vec<ConnId>,
}

impl Conns {
    pub fn new(slots_max: usize) -> Conns {
        Conns {
            slots: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            slots_max,
            parse: VecDeque::new(),
            retry: Vec::new(),
            overdraft: None,
            reply: Vec::new(),
        }
    }

    pub fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn add(&mut self, socket: FileId, peer: String, now: Micros) -> Option<ConnId> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < self.slots_max => {
                self.slots.push(None);
                self.generations.push(0);
                self.slots.len() - 1
            }
            None => return None,
        };
        let id = ConnId::new(slot, self.generations[slot]);
        self.slots[slot] = Some(Conn::new(id, socket, peer, now));
        Some(id)
    }

    /// `None` once the connection is gone: its late completions find nothing.
    pub fn get(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.slots.get_mut(id.slot as usize)?.as_mut().filter(|conn| conn.id == id)
    }

    fn remove(&mut self, id: ConnId) {
        if self.overdraft == Some(id) {
            self.overdraft = None;
        }
        let slot = id.slot as usize;
        self.slots[slot] = None;
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        self.free.push(slot);
    }

    /// Of those that keep memory waiting and have not moved a byte since `before`, the stillest.
    pub fn stalled(&self, before: Micros) -> Option<&Conn> {
        let still = |conn: &&Conn| !conn.closing && conn.moved_at < before && conn.waits_for_peer();
        self.slots.iter().flatten().filter(still).min_by_key(|conn| conn.moved_at)
    }

    pub fn ids(&self) -> Vec<ConnId> {
        self.slots.iter().flatten().map(|conn| conn.id).collect()
    }
}

impl<I: Io> Shard<I> {
    pub(super) fn accept(&mut self) {
        if !self.accepting && matches!(self.life, Life::Serving) {
            self.accepting = true;
            self.submit(Op::Accept { listener: self.listener }, Label::Accept);
        }
    }

    pub(super) fn accepted(&mut self, result: Result<Outcome, Errno>) {
        self.accepting = false;
        match result {
            Ok(Outcome::Accepted { socket, peer }) => {
                let peer = peer.map_or("unknown".to_string(), |peer| peer.to_string());
                self.welcome(socket, peer);
            }
            Ok(other) => unreachable!("accept gave {other:?}"),
            Err(Errno::ECANCELED) => return,
            Err(errno) => {
                // Out of descriptors or memory: others go on, this one waits in the backlog.
                tracing::warn!(shard = %self.config.id, "accept failed: {errno}");
                self.accepting = true;
                let at = self.now.plus(Micros::from_ms(100));
                self.submit(Op::Timeout { at }, Label::AcceptAgain);
                return;
            }
        }
        self.accept();
    }

    fn welcome(&mut self, socket: FileId, peer: String) {
        match self.conns.add(socket, peer, self.now) {
            Some(id) => {
                self.counters.connections_accepted += 1;
                self.conns.parse.push_back(id);
            }
            None => {
                self.counters.connections_refused += 1;
                self.submit(Op::Close { file: socket }, Label::Ignore);
            }
        }
    }

    pub(super) fn received(&mut self, id: ConnId, into: Window, result: Result<Outcome, Errno>) {
        let Some(conn) = self.conns.get(id) else { return };
        let bytes = match result {
            Ok(Outcome::Bytes(bytes)) => bytes as usize,
            Ok(other) => unreachable!("receive gave {other:?}"),
            Err(errno) if errno.is_transient() => {
                conn.received(into, usize::MAX);
                self.conns.parse.push_back(id);
                return;
            }
            Err(_) => 0,
        };
        conn.received(into, bytes);
        conn.moved_at = self.now;
        if bytes == 0 {
            self.close(id);
        } else {
            self.conns.parse.push_back(id);
        }
    }

    /// Moves answers whose turn has come into the connection's output and starts the next send.
    pub(super) fn reply(&mut self, id: ConnId) {
        let pool = self.pool.clone();
        let Some(conn) = self.conns.get(id).filter(|conn| !conn.closing) else { return };
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        let mut marks = Vec::new();
        // Small answers of one turn leave as one slice; a fetch's pieces keep their own.
        while let Some((request, answer)) = conn.pop_ready() {
            let (received, settled) = (request.received, self.now);
            match answer {
                Answer::Produce { response, settled } => {
                    encoded.extend_from_slice(&response_frame(request.correlation, &response));
                    marks.push((encoded.len(), LeavingKind::Produce, received, settled));
                }
                Answer::Frame(frame) => {
                    encoded.extend_from_slice(&frame);
                    marks.push((encoded.len(), LeavingKind::Other, received, settled));
                }
                Answer::Pieces { pieces, began } => {
                    flush_encoded(conn, &pool, &mut encoded, &mut marks);
                    pieces.into_iter().for_each(|piece| conn.queue(piece));
                    conn.mark_leaving(LeavingKind::Fetch, began, settled);
                }
            }
        }
        flush_encoded(conn, &pool, &mut encoded, &mut marks);
        let send = conn.next_send();
        // The next request in line may be a fetch that was waiting for its turn.
        let waiting = matches!(
            conn.pending.front().map(|request| &request.state),
            Some(State::FetchQueued(_))
        );
        self.encoded = encoded;
        if let Some(op) = send {
            self.submit(op, Label::Send(id));
        }
        if waiting {
            self.start_fetch(id);
        }
    }

    pub(super) fn sent(&mut self, id: ConnId, op: Op, result: Result<Outcome, Errno>) {
        let Some(conn) = self.conns.get(id) else { return };
        let bytes = match result {
            Ok(Outcome::Bytes(bytes)) if bytes > 0 => bytes,
            Err(errno) if errno.is_transient() => 0,
            Ok(_) | Err(_) => {
                conn.sending = false;
                self.close(id);
                return;
            }
        };
        let rest = conn.sent(op, bytes);
        conn.moved_at = self.now;
        let has_ready = conn.has_ready();
        while let Some(left) = conn.pop_left() {
            let took = |from| self.now.since(from);
            match left.kind {
                LeavingKind::Produce => {
                    self.stages.record(Stage::Ack, took(left.settled));
                    self.stages.record(Stage::Produce, took(left.received));
                }
                LeavingKind::Fetch => {
                    self.stages.record(Stage::Send, took(left.settled));
                    self.stages.record(Stage::Fetch, took(left.received));
                }
                LeavingKind::Other => {}
            }
        }
        let next = rest.or_else(|| conn.next_send());
        if conn.closing && conn.is_idle() && next.is_none() {
            self.close(id);
            return;
        }
        if let Some(op) = next {
            self.submit(op, Label::Send(id));
        }
        if has_ready {
            self.conns.reply.push(id);
        }
        // A reply left: requests held back by the in-flight bound may go on.
        self.conns.parse.push_back(id);
    }

    /// Ends a connection: nothing more is read; what the kernel still holds is waited for.
    pub(super) fn close(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get(id) else { return };
        conn.closing = true;
        let jobs: Vec<u32> = conn
            .pending
            .iter()
            .filter_map(|request| match request.state {
                State::Job(job) => Some(job),
                _ => None,
            })
            .collect();
        let (socket, idle, told) = (conn.socket, conn.is_idle(), conn.shutdown_sent);
        conn.shutdown_sent = true;
        for job in jobs {
            self.drop_job(job);
        }
        if idle {
            self.conns.remove(id);
            self.submit(Op::Close { file: socket }, Label::Ignore);
        } else if !told {
            self.submit(Op::Shutdown { socket }, Label::Ignore);
        }
    }
}

/// Puts the small answers collected so far behind what the connection has queued.
fn flush_encoded(
    conn: &mut Conn,
    pool: &crate::io::buffers::Pool,
    encoded: &mut Vec<u8>,
    marks: &mut Vec<(usize, LeavingKind, Micros, Micros)>,
) {
    if encoded.is_empty() {
        return;
    }
    // Answers must leave even at the bound: a connection holds at most `in_flight_max` small ones.
    let slice = pool.copied_past_bound(encoded);
    let len = encoded.len();
    conn.queue(Piece::Bytes(slice));
    for (end, kind, received, settled) in marks.drain(..) {
        conn.mark_leaving_before((len - end) as u64, kind, received, settled);
    }
    encoded.clear();
}

//! One connection: its receive window, its requests in order, its replies on their way out.
//!
//! Owns: the order of responses, the bound on unanswered requests, window growth, resuming short
//! sends. Never does: know what a request means, or touch the ring (it hands out ops). Left:
//! `io::buffers`. Right: `tick`, `produce`, `fetch`, `control`.

use std::collections::VecDeque;

use super::mailbox::Waiter;
use crate::io::buffers::{CLASS_BYTES, Group, Pool, Slice, Window};
use crate::io::{FileId, Op};
use crate::log::HeldFile;
use crate::protocol::produce::ProduceResponse;
use crate::types::{Micros, WallMs};

/// Smallest and largest chunk a connection receives into; it moves between them with its traffic.
/// The largest is small enough that its bytes are still in the core's own cache when they are
/// checked and written.
const CHUNK_BYTES_MIN: usize = CLASS_BYTES[0];
const CHUNK_BYTES_MAX: usize = CLASS_BYTES[3];
/// Slices one send carries at most.
const SEND_SLICES_MAX: usize = 64;
/// Answers a connection may be owed, in bytes, before its next request has to wait: whoever asks
/// and does not read costs others nothing.
const OWED_BYTES_MAX: u64 = 64 << 10;
/// Receives in a row that used under an eighth of their room before the chunk shrinks.
const SMALL_RECEIVES: u8 = 16;

const SLOT_BITS: u32 = 20;
const GENERATION_BITS: u32 = 12;

/// A connection by slot and generation: late completions of its predecessor find nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnId {
    pub slot: u32,
    pub generation: u32,
}

impl ConnId {
    pub fn new(slot: usize, generation: u32) -> ConnId {
        assert!(slot < 1 << SLOT_BITS, "connection slot {slot} beyond its bits");
        ConnId { slot: slot as u32, generation: generation & ((1 << GENERATION_BITS) - 1) }
    }

    pub fn waiter(self, sequence: u32) -> Waiter {
        let place = u64::from(self.generation) << SLOT_BITS | u64::from(self.slot);
        Waiter(place << 32 | u64::from(sequence))
    }

    pub fn of(waiter: Waiter) -> (ConnId, u32) {
        let place = (waiter.0 >> 32) as u32;
        let slot = place & ((1 << SLOT_BITS) - 1);
        (ConnId { slot, generation: place >> SLOT_BITS }, waiter.0 as u32)
    }

    /// This connection as 32 bits, for op tags.
    pub fn to_bits(self) -> u32 {
        self.generation << SLOT_BITS | self.slot
    }

    pub fn from_bits(bits: u32) -> ConnId {
        ConnId { slot: bits & ((1 << SLOT_BITS) - 1), generation: bits >> SLOT_BITS }
    }
}

/// Part of a reply.
#[derive(Debug)]
pub enum Piece {
    Bytes(Slice),
    File { file: HeldFile, pos: u64, len: u32 },
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Bytes(slice) => slice.len(),
            Piece::File { len, .. } => *len as usize,
        }
    }
}

/// What is answered.
#[derive(Debug)]
pub enum Answer {
    /// A produce that met its level at `settled`; encoded when its turn comes.
    Produce { response: ProduceResponse, settled: Micros },
    /// A whole response frame.
    Frame(Vec<u8>),
    /// A fetch's response frame in pieces.
    Pieces { pieces: Vec<Piece>, began: Micros },
}

/// Where a request stands.
#[derive(Debug)]
pub enum State {
    /// Waits for its batches' ack; under LogAppendTime the server's clock when they came, else -1.
    Produce {
        append_time: WallMs,
    },
    /// Waits until what was staged before it is durable.
    Flush,
    /// Waits until the log start it moved is on the disk.
    DeleteRecords,
    /// Parsed, runs when it is the first unanswered one.
    FetchQueued(Box<super::fetch::Ask>),
    /// Runs as this job.
    Job(u32),
    /// The control thread has it.
    Control,
    Ready(Answer),
}

#[derive(Debug)]
pub struct Pending {
    pub api: u8,
    pub correlation: u32,
    pub received: Micros,
    pub state: State,
}

/// A response that was handed to the socket: when its last byte has left, its times are recorded.
#[derive(Copy, Clone, Debug)]
pub struct Leaving {
    /// Bytes sent on this connection when the response is out.
    pub at: u64,
    pub kind: LeavingKind,
    pub received: Micros,
    pub settled: Micros,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LeavingKind {
    Produce,
    Fetch,
    Other,
}

#[derive(Debug)]
pub struct Conn {
    pub id: ConnId,
    pub socket: FileId,
    pub peer: String,
    /// Absent while a receive owns it.
    pub window: Option<Window>,
    pub receiving: bool,
    pub sending: bool,
    /// No more receives: the peer closed, or we are closing.
    pub closing: bool,
    pub shutdown_sent: bool,
    /// A whole produce frame that waits because its partition or the shard is full.
    pub blocked: Option<Slice>,
    /// Requests in order; the front is answered next.
    pub pending: VecDeque<Pending>,
    /// Sequence number of `pending`'s front.
    base: u32,
    out: VecDeque<Piece>,
    leaving: VecDeque<Leaving>,
    /// Bytes put into `out` and bytes sent, since the start.
    queued_bytes: u64,
    sent_bytes: u64,
    chunk_bytes: usize,
    small_receives: u8,
    /// Bytes of whole frames in `pending` that wait for their turn.
    ready_bytes: u64,
    /// Its last receive went behind the first bytes of a frame, or found no room to.
    half_frame: bool,
    /// When bytes last came or left.
    pub moved_at: Micros,
    /// Spare group, kept for its capacity.
    group: Option<Group>,
    /// The file that a sendfile under way sends from.
    sending_from: Option<HeldFile>,
}

impl Conn {
    pub fn new(id: ConnId, socket: FileId, peer: String, now: Micros) -> Conn {
        Conn {
            id,
            socket,
            peer,
            window: None,
            receiving: false,
            sending: false,
            closing: false,
            shutdown_sent: false,
            blocked: None,
            pending: VecDeque::new(),
            base: 0,
            out: VecDeque::new(),
            leaving: VecDeque::new(),
            queued_bytes: 0,
            sent_bytes: 0,
            chunk_bytes: CHUNK_BYTES_MIN,
            small_receives: 0,
            ready_bytes: 0,
            half_frame: false,
            moved_at: now,
            group: None,
            sending_from: None,
        }
    }

    /// Adds a request; its sequence number finds it again.
    pub fn push(&mut self, pending: Pending) -> u32 {
        if let State::Ready(Answer::Frame(frame)) = &pending.state {
            self.ready_bytes += frame.len() as u64;
        }
        self.pending.push_back(pending);
        self.base.wrapping_add(self.pending.len() as u32 - 1)
    }

    pub fn pending_mut(&mut self, sequence: u32) -> Option<&mut Pending> {
        self.pending.get_mut(sequence.wrapping_sub(self.base) as usize)
    }

    /// Answers a request; it leaves in its turn.
    pub fn answer(&mut self, sequence: u32, answer: Answer) {
        let len = match &answer {
            Answer::Frame(frame) => frame.len() as u64,
            _ => 0,
        };
        if let Some(request) = self.pending_mut(sequence) {
            request.state = State::Ready(answer);
            self.ready_bytes += len;
        }
    }

    /// More than its share of answers waits for this connection to read.
    pub fn owes_too_much(&self) -> bool {
        self.unsent_bytes() + self.ready_bytes >= OWED_BYTES_MAX
    }

    fn unsent_bytes(&self) -> u64 {
        self.queued_bytes - self.sent_bytes
    }

    /// Buffer memory waits here for the peer, not for the disk: answers that it has not read, or
    /// part of a frame.
    pub fn waits_for_peer(&self) -> bool {
        let on_us = |request: &Pending| {
            matches!(request.state, State::Produce { .. } | State::Flush | State::Control)
        };
        let part = self.half_frame && self.blocked.is_none() && !self.pending.iter().any(on_us);
        self.unsent_bytes() > 0 || part
    }

    /// The sequence number that the next `push` gives.
    pub fn next_sequence(&self) -> u32 {
        self.base.wrapping_add(self.pending.len() as u32)
    }

    pub fn front_sequence(&self) -> u32 {
        self.base
    }

    /// Takes the front request once it is answered, and once the peer has read enough of what it
    /// was sent before: one large reply is on its way and one waits, never more.
    pub fn pop_ready(&mut self) -> Option<(Pending, Answer)> {
        if !self.has_ready() || self.unsent_bytes() >= OWED_BYTES_MAX {
            return None;
        }
        let mut front = self.pending.pop_front()?;
        self.base = self.base.wrapping_add(1);
        match std::mem::replace(&mut front.state, State::Control) {
            State::Ready(answer) => {
                if let Answer::Frame(frame) = &answer {
                    self.ready_bytes -= frame.len() as u64;
                }
                Some((front, answer))
            }
            other => unreachable!("the front was ready, not {other:?}"),
        }
    }

    /// Queues a reply's part behind what is on its way out.
    pub fn queue(&mut self, piece: Piece) {
        self.queued_bytes += piece.len() as u64;
        self.out.push_back(piece);
    }

    /// Marks everything queued so far as one response's end.
    pub fn mark_leaving(&mut self, kind: LeavingKind, received: Micros, settled: Micros) {
        self.mark_leaving_before(0, kind, received, settled);
    }

    /// As `mark_leaving`, for a response whose end lies `behind` bytes before the queued end.
    pub fn mark_leaving_before(
        &mut self,
        behind: u64,
        kind: LeavingKind,
        received: Micros,
        settled: Micros,
    ) {
        self.leaving.push_back(Leaving { at: self.queued_bytes - behind, kind, received, settled });
    }

    /// Replies queued and not handed to a send.
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// An answer is next in line.
    pub fn has_ready(&self) -> bool {
        matches!(self.pending.front().map(|request| &request.state), Some(State::Ready(_)))
    }

    /// The next send, if none is in flight.
    pub fn next_send(&mut self) -> Option<Op> {
        if self.sending {
            return None;
        }
        if let Some(Piece::File { file, pos, len }) = self.out.front() {
            let (held, pos, len) = (file.clone(), *pos, *len);
            self.out.pop_front();
            self.sending = true;
            let file = held.id();
            self.sending_from = Some(held);
            return Some(Op::Sendfile { socket: self.socket, file, pos, len });
        }
        let mut bufs = self.group.take().unwrap_or_default();
        while bufs.slices() < SEND_SLICES_MAX {
            match self.out.pop_front() {
                Some(Piece::Bytes(slice)) => bufs.push(slice),
                Some(file) => {
                    self.out.push_front(file);
                    break;
                }
                None => break,
            }
        }
        if bufs.is_empty() {
            self.group = Some(bufs);
            return None;
        }
        self.sending = true;
        Some(Op::Send { socket: self.socket, bufs, more: !self.out.is_empty() })
    }

    /// Counts sent bytes; gives the op to go on with when it was short.
    pub fn sent(&mut self, op: Op, bytes: u32) -> Option<Op> {
        self.sent_bytes += u64::from(bytes);
        let rest = match op {
            Op::Send { socket, mut bufs, more } => {
                bufs.advance(bytes as usize);
                if bufs.is_empty() {
                    bufs.clear();
                    self.group = Some(bufs);
                    None
                } else {
                    Some(Op::Send { socket, bufs, more })
                }
            }
            Op::Sendfile { socket, file, pos, len } => {
                assert!(bytes <= len, "sendfile sent {bytes} of {len}");
                (bytes < len).then(|| Op::Sendfile {
                    socket,
                    file,
                    pos: pos + u64::from(bytes),
                    len: len - bytes,
                })
            }
            other => unreachable!("{other:?} sends nothing"),
        };
        self.sending = rest.is_some();
        if rest.is_none() {
            self.sending_from = None;
        }
        rest
    }

    /// The next response whose last byte has left.
    pub fn pop_left(&mut self) -> Option<Leaving> {
        let front = self.leaving.front()?;
        if front.at > self.sent_bytes {
            return None;
        }
        self.leaving.pop_front()
    }

    /// Takes the window back after a receive of `bytes` and learns the chunk size from it.
    pub fn received(&mut self, window: Window, bytes: usize) {
        self.receiving = false;
        if window.room() == 0 {
            self.chunk_bytes = (self.chunk_bytes * 2).min(CHUNK_BYTES_MAX);
            self.small_receives = 0;
        } else if bytes < self.chunk_bytes / 8 {
            self.small_receives += 1;
            if self.small_receives >= SMALL_RECEIVES {
                self.chunk_bytes = (self.chunk_bytes / 2).max(CHUNK_BYTES_MIN);
                self.small_receives = 0;
            }
        } else {
            self.small_receives = 0;
        }
        self.window = Some(window);
    }

    /// The next receive into a window with room for more of a frame of which `missing` bytes are
    /// still to come (0: not known). A fresh chunk grows with the bytes that arrived, never by the
    /// length prefix alone. `None` when the pool has no room and `past_bound` is not set: try again
    /// later.
    pub fn next_receive(&mut self, pool: &Pool, missing: usize, past_bound: bool) -> Option<Op> {
        let fresh = |bytes| match past_bound {
            true => Some(pool.window_past_bound(bytes)),
            false => pool.window(bytes),
        };
        assert!(!self.receiving, "one receive a connection at a time");
        let mut window = match self.window.take() {
            Some(window) => window,
            None => fresh(self.chunk_bytes)?,
        };
        self.half_frame = !window.is_empty();
        if window.is_empty() && !window.rewind() && window.room() < self.chunk_bytes / 2 {
            window = match fresh(self.chunk_bytes) {
                Some(fresh) => fresh,
                None if window.room() > 0 => window,
                None => return self.keep(window),
            };
        }
        if window.room() < missing.max(1) && !window.is_empty() {
            let have = window.len();
            let wanted = (have + missing).min((2 * have).max(self.chunk_bytes));
            if wanted > have + window.room() || window.room() == 0 {
                match fresh(wanted.max(have + 1)) {
                    Some(mut larger) => {
                        larger.extend_from_slice(window.bytes());
                        window = larger;
                    }
                    None if window.room() > 0 => {}
                    None => return self.keep(window),
                }
            }
        }
        self.receiving = true;
        Some(Op::Recv { socket: self.socket, into: window })
    }

    fn keep(&mut self, window: Window) -> Option<Op> {
        self.window = Some(window);
        None
    }

    /// Nothing of this connection is in the kernel any more.
    pub fn is_idle(&self) -> bool {
        !self.receiving && !self.sending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn() -> Conn {
        let socket = FileId { slot: 1, generation: 1 };
        Conn::new(ConnId::new(3, 5), socket, "peer".into(), Micros(0))
    }

    fn receive(conn: &mut Conn, pool: &Pool, missing: usize, bytes: usize) -> usize {
        let Some(Op::Recv { mut into, .. }) = conn.next_receive(pool, missing, false) else {
            panic!("a receive");
        };
        let room = into.room();
        let got = bytes.min(room);
        into.grow(got);
        conn.received(into, got);
        room
    }

    #[test]
    fn waiters_find_their_connection_and_request_again() {
        let id = ConnId::new(77, 4097);
        let (back, sequence) = ConnId::of(id.waiter(u32::MAX));
        assert_eq!((back, sequence), (id, u32::MAX));
        assert_eq!(ConnId::from_bits(id.to_bits()), id);
        assert_eq!(id.generation, 1, "generations wrap within their bits");
    }

    #[test]
    fn a_window_grows_with_bytes_received_never_by_the_prefix() {
        let pool = Pool::new(64 << 20);
        let mut conn = conn();
        let first = receive(&mut conn, &pool, 0, 100);
        assert_eq!(first, CHUNK_BYTES_MIN);
        let claimed = 8 << 20;
        let mut have = 100;
        while have < claimed {
            assert!(
                pool.in_use() <= (4 * have).max(2 * CHUNK_BYTES_MIN),
                "{} in use for {have} received",
                pool.in_use()
            );
            have += receive(&mut conn, &pool, claimed - have, claimed - have);
        }
        assert_eq!(conn.window.as_ref().map(Window::len), Some(claimed));
    }

    #[test]
    fn answers_leave_in_request_order() {
        let mut conn = conn();
        let pending = |correlation| Pending {
            api: 6,
            correlation,
            received: Micros(1),
            state: State::Control,
        };
        let first = conn.push(pending(1));
        let second = conn.push(pending(2));
        conn.answer(second, Answer::Frame(vec![2]));
        assert!(conn.pop_ready().is_none());
        conn.answer(first, Answer::Frame(vec![1]));
        assert_eq!(conn.pop_ready().unwrap().0.correlation, 1);
        assert_eq!(conn.pop_ready().unwrap().0.correlation, 2);
        assert!(conn.pending_mut(first).is_none());
    }

    #[test]
    fn short_sends_resume_and_responses_are_told_apart() {
        let pool = Pool::new(1 << 20);
        let mut conn = conn();
        conn.queue(Piece::Bytes(pool.copied(b"abcd").unwrap()));
        conn.mark_leaving(LeavingKind::Produce, Micros(1), Micros(2));
        conn.queue(Piece::File { file: HeldFile::new(conn.socket), pos: 10, len: 6 });
        conn.mark_leaving(LeavingKind::Fetch, Micros(1), Micros(2));
        let op = conn.next_send().unwrap();
        assert!(matches!(op, Op::Send { more: true, .. }));
        assert!(conn.next_send().is_none(), "one send at a time keeps the order");
        let op = conn.sent(op, 3).unwrap();
        assert!(conn.pop_left().is_none());
        assert!(conn.sent(op, 1).is_none());
        assert_eq!(conn.pop_left().unwrap().kind, LeavingKind::Produce);
        let op = conn.next_send().unwrap();
        let Some(Op::Sendfile { pos: 12, len: 4, .. }) = conn.sent(op, 2) else { panic!("rest") };
        assert!(conn.pop_left().is_none());
    }
}

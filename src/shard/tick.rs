//! One turn of a shard: reap, advance, parse, plan, reply; the next reap submits.
//!
//! Owns: the order of a turn and where each completion goes. Never does: the work itself. Left:
//! `io`. Right: `conns`, `parts`, `jobs`, `control`.

use super::conn::ConnId;
use super::mailbox::FromShard;
use super::{Life, Shard};
use crate::io::{Done, Errno, Io, Op, Tag, Wait};
use crate::log::LocalTag;
use crate::types::Micros;

/// Whose op it is; travels as the op's tag.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// Nobody asks how it went.
    Ignore,
    Accept,
    /// A pause after a failed accept is over.
    AcceptAgain,
    Receive(ConnId),
    Send(ConnId),
    Part {
        slot: u32,
        local: LocalTag,
    },
    Job(u32),
}

/// How soon a connection that waits for room looks again when nothing completes meanwhile.
const RETRY_AFTER: Micros = Micros(200);
/// A connection that moves no byte for this long gives up its memory when others need it.
const STALLED_AFTER: Micros = Micros(5_000_000);
/// How long memory must have been short before one is closed, and then before the next one.
const RELIEVE_EVERY: Micros = Micros(250_000);

/// Nobody was refused memory for this long: it has come back.
const HUNGER_PASSED: Micros = Micros(10_000);

const KIND_SHIFT: u32 = 56;
const SLOT_SHIFT: u32 = 32;
const SLOT_MASK: u64 = (1 << (KIND_SHIFT - SLOT_SHIFT)) - 1;

impl Label {
    pub fn to_tag(self) -> Tag {
        let (kind, rest) = match self {
            Label::Ignore => (0u64, 0u64),
            Label::Accept => (1, 0),
            Label::AcceptAgain => (2, 0),
            Label::Receive(id) => (3, u64::from(id.to_bits())),
            Label::Send(id) => (4, u64::from(id.to_bits())),
            Label::Part { slot, local } => {
                assert!(u64::from(slot) <= SLOT_MASK, "partition slot {slot} beyond its bits");
                (5, u64::from(slot) << SLOT_SHIFT | u64::from(local.0))
            }
            Label::Job(id) => (6, u64::from(id)),
        };
        Tag(kind << KIND_SHIFT | rest)
    }

    pub fn of(tag: Tag) -> Label {
        let low = tag.0 as u32;
        match tag.0 >> KIND_SHIFT {
            0 => Label::Ignore,
            1 => Label::Accept,
            2 => Label::AcceptAgain,
            3 => Label::Receive(ConnId::from_bits(low)),
            4 => Label::Send(ConnId::from_bits(low)),
            5 => {
                Label::Part { slot: (tag.0 >> SLOT_SHIFT & SLOT_MASK) as u32, local: LocalTag(low) }
            }
            6 => Label::Job(low),
            kind => unreachable!("no op of a shard has kind {kind}"),
        }
    }
}

impl<I: Io> Shard<I> {
    /// One turn. Sleeps in the kernel when there is nothing to do.
    ///
    /// # Errors
    /// When the engine itself is broken; the shard must end.
    pub fn tick(&mut self) -> Result<(), Errno> {
        self.reap()?;
        self.advance();
        self.parse();
        self.plan();
        self.reply_all();
        self.relieve();
        self.counters.ticks += 1;
        Ok(())
    }

    fn reap(&mut self) -> Result<(), Errno> {
        while let Some((op, tag)) = self.backlog.pop_front() {
            if let Err(refused) = self.io.submit(op, tag) {
                self.backlog.push_front((refused.op, tag));
                break;
            }
        }
        let busy = self.restless || !self.conns.parse.is_empty() || !self.conns.reply.is_empty();
        let wait = match self.next_deadline() {
            _ if busy => Wait::No,
            deadline if !self.conns.retry.is_empty() => {
                Wait::Until(deadline.min(self.now.plus(RETRY_AFTER)))
            }
            Micros::NEVER => Wait::Forever,
            deadline => Wait::Until(deadline),
        };
        self.restless = false;
        self.io.reap(wait, &mut self.done)?;
        self.now = self.io.now();
        self.wall = self.io.wall_ms();
        self.conns.parse.extend(self.conns.retry.drain(..));
        Ok(())
    }

    fn next_deadline(&mut self) -> Micros {
        let stop = match self.life {
            Life::Stopping { deadline } => deadline,
            _ => Micros::NEVER,
        };
        self.parts.next_deadline().min(self.jobs.next_deadline()).min(stop)
    }

    fn advance(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        for one in done.drain(..) {
            self.dispatch(one);
        }
        self.done = done;
        self.read_mail();
        while let Some(job) = self.jobs.pop_due(self.now) {
            self.wake_job(job);
        }
        self.parts.touch_due(self.now);
    }

    fn dispatch(&mut self, done: Done) {
        match (Label::of(done.tag), done.op) {
            (Label::Ignore, _) => {}
            (Label::Accept, _) => self.accepted(done.result),
            (Label::AcceptAgain, _) => {
                self.accepting = false;
                self.accept();
            }
            (Label::Receive(id), Op::Recv { into, .. }) => self.received(id, into, done.result),
            (Label::Send(id), op) => self.sent(id, op, done.result),
            (Label::Part { slot, local }, op) => self.part_done(slot, local, op, done.result),
            (Label::Job(id), op) => self.job_done(id, op, done.result),
            (label, op) => unreachable!("{label:?} never submits {op:?}"),
        }
    }

    fn reply_all(&mut self) {
        let mut ids = std::mem::take(&mut self.conns.reply);
        for id in ids.drain(..) {
            self.reply(id);
        }
        // Replying may have readied more: those take the next turn, which comes at once.
        ids.append(&mut self.conns.reply);
        self.conns.reply = ids;
        self.step_stop();
        self.restless |= !self.control.push_held();
    }

    /// Memory has run out and does not come back: whoever sits on it and has not moved a byte for
    /// `STALLED_AFTER` is closed, one at a time, so that half frames and replies that nobody reads
    /// cannot keep everybody else out for ever.
    fn relieve(&mut self) {
        // A refused fetch asks again now and then: turns without it in between are no relief.
        if !std::mem::take(&mut self.hungry) {
            if self.now.since(self.hungry_at) > HUNGER_PASSED {
                self.hungry_since = Micros::NEVER;
            }
            return;
        }
        self.hungry_at = self.now;
        self.hungry_since = self.hungry_since.min(self.now);
        if self.now.since(self.hungry_since) < RELIEVE_EVERY || self.now <= STALLED_AFTER {
            return;
        }
        let before = Micros(self.now.0 - STALLED_AFTER.0);
        let Some(conn) = self.conns.stalled(before) else { return };
        let (id, peer, shard) = (conn.id, conn.peer.clone(), self.config.id);
        tracing::warn!(%shard, "{peer} closed: it stands still and holds memory that others need");
        self.counters.stalled_closed += 1;
        self.hungry_since = self.now;
        self.close(id);
    }

    /// Stopping: closed when every partition is, and every answer has left or the time is up.
    fn step_stop(&mut self) {
        let Life::Stopping { deadline } = self.life else { return };
        let late = self.now >= deadline;
        if !late && !self.parts.all_closed() {
            return;
        }
        for id in self.conns.ids() {
            let left = self.conns.get(id).is_some_and(|conn| {
                conn.closing || (!conn.sending && !conn.has_output() && !conn.has_ready())
            });
            if left || late {
                self.close(id);
            }
        }
        let quiet = self.conns.open() == 0 && self.backlog.is_empty();
        if quiet || self.now >= deadline.plus(Micros::from_ms(1000)) {
            let closed = std::mem::take(&mut self.closed);
            self.control.send(FromShard::Stopped { shard: self.config.id, closed });
            self.life = Life::Ended;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_survive_the_tag() {
        let id = ConnId::new(9, 3);
        for label in [
            Label::Ignore,
            Label::Accept,
            Label::AcceptAgain,
            Label::Receive(id),
            Label::Send(id),
            Label::Part { slot: SLOT_MASK as u32, local: LocalTag(u32::MAX) },
            Label::Job(u32::MAX),
        ] {
            assert_eq!(Label::of(label.to_tag()), label);
        }
    }
}

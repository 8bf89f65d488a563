//! Where a partition puts the ops it wants done, each with a word that finds its way back.
//!
//! Owns: the tags' layout. Never does: submitting. Left: `io::op`. Right: all of `log`, `shard`.

use crate::io::Op;

const KIND_SHIFT: u32 = 28;
const ID_MASK: u32 = (1 << KIND_SHIFT) - 1;

/// A partition's own name for an op in flight.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalTag(pub u32);

/// What an op was for; the number is a flight's or a segment's, modulo 2^28.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Write(u32),
    Flush(u32),
    Create(u32),
    Name(u32),
    Seal,
    Space,
    Close,
    /// The age of a segment's file.
    Age,
    Remove,
    /// The checkpoint of leader epochs, truncated at its start.
    Epochs,
}

impl Task {
    pub(super) fn tag(self) -> LocalTag {
        let (kind, id) = match self {
            Task::Write(id) => (0, id),
            Task::Flush(id) => (1, id),
            Task::Create(id) => (2, id),
            Task::Name(id) => (3, id),
            Task::Seal => (4, 0),
            Task::Space => (5, 0),
            Task::Close => (6, 0),
            Task::Age => (7, 0),
            Task::Remove => (8, 0),
            Task::Epochs => (9, 0),
        };
        LocalTag(kind << KIND_SHIFT | id & ID_MASK)
    }

    /// # Panics
    /// For a tag that no partition gave out.
    pub(super) fn of(tag: LocalTag) -> Task {
        let id = tag.0 & ID_MASK;
        match tag.0 >> KIND_SHIFT {
            0 => Task::Write(id),
            1 => Task::Flush(id),
            2 => Task::Create(id),
            3 => Task::Name(id),
            4 => Task::Seal,
            5 => Task::Space,
            6 => Task::Close,
            7 => Task::Age,
            8 => Task::Remove,
            9 => Task::Epochs,
            kind => panic!("no task of kind {kind}"),
        }
    }

    /// Whether `number`, counted without a bound, is what `id` stands for.
    pub(super) fn is(id: u32, number: u32) -> bool {
        number & ID_MASK == id
    }
}

/// Ops of one tick, in the order they were wanted.
#[derive(Debug, Default)]
pub struct OpSink {
    ops: Vec<(LocalTag, Op)>,
}

impl OpSink {
    pub fn new() -> OpSink {
        OpSink::default()
    }

    pub(super) fn push(&mut self, task: Task, op: Op) {
        self.ops.push((task.tag(), op));
    }

    pub fn drain(&mut self) -> impl Iterator<Item = (LocalTag, Op)> + '_ {
        self.ops.drain(..)
    }

    pub fn len(&self) -> usize {
        self.ops.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_comes_back_as_its_task() {
        for task in [Task::Write(7), Task::Flush(ID_MASK), Task::Create(0), Task::Name(1)] {
            assert_eq!(Task::of(task.tag()), task);
        }
        assert_eq!(Task::of(Task::Write(ID_MASK + 1 + 5).tag()), Task::Write(5));
        assert!(Task::is(5, ID_MASK + 1 + 5));
    }
}

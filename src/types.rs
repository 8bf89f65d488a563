//! The quantities every layer shares: offsets, file positions, times, identities.
//!
//! Owns: the newtypes and their checked conversions. Never does: I/O, parsing, policy.
//! Left: nothing (the bottom layer). Right: every other module.

use std::fmt;

/// A record's number in its partition (Kafka's offset). Never negative.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(i64);

impl Offset {
    pub const ZERO: Offset = Offset(0);

    /// `None` below zero: offsets that come from outside may be anything.
    pub fn new(raw: i64) -> Option<Offset> {
        (raw >= 0).then_some(Offset(raw))
    }

    pub fn get(self) -> i64 {
        self.0
    }

    /// The offset `count` records further; `None` past `i64::MAX`.
    pub fn checked_add(self, count: i64) -> Option<Offset> {
        self.0.checked_add(count).and_then(Offset::new)
    }

    /// The next offset.
    ///
    /// # Panics
    /// At `i64::MAX`, which no partition reaches.
    pub fn next(self) -> Offset {
        assert!(self.0 < i64::MAX, "offset space exhausted");
        Offset(self.0 + 1)
    }

    /// Records from `start` up to here; negative when `start` lies behind.
    pub fn since(self, start: Offset) -> i64 {
        self.0 - start.0
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// Microseconds on a monotonic clock whose zero is arbitrary (the simulator's clock is virtual).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub u64);

impl Micros {
    pub const NEVER: Micros = Micros(u64::MAX);

    /// Time from `earlier` to here; zero when `earlier` lies ahead.
    pub fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    pub fn plus(self, more: Micros) -> Micros {
        Micros(self.0.saturating_add(more.0))
    }

    pub fn from_ms(ms: u64) -> Micros {
        Micros(ms.saturating_mul(1000))
    }
}

/// Milliseconds since 1970, as records carry them; -1 means "no timestamp".
pub type WallMs = i64;

/// A partition as clients name it on the wire: the low bits index the catalogue, the high bits
/// carry the generation, so that a deleted topic's handle is refused, never taken for its
/// successor.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u32);

/// A shard: one core, one ring, one listening port.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a produce request waits for, and what its response says was met.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AckLevel {
    /// Accepted and given offsets; nothing more.
    None,
    /// The write completed: survives the process, not the power.
    Written,
    /// A flush submitted after the write completed has succeeded.
    Durable,
    /// Whatever the partition's flush policy promises (never a level that was met).
    Policy,
}

impl AckLevel {
    pub fn to_wire(self) -> u8 {
        match self {
            AckLevel::None => 0,
            AckLevel::Written => 1,
            AckLevel::Durable => 2,
            AckLevel::Policy => 3,
        }
    }

    pub fn from_wire(raw: u8) -> Option<AckLevel> {
        [AckLevel::None, AckLevel::Written, AckLevel::Durable, AckLevel::Policy]
            .into_iter()
            .find(|level| level.to_wire() == raw)
    }

    pub fn name(self) -> &'static str {
        match self {
            AckLevel::None => "none",
            AckLevel::Written => "written",
            AckLevel::Durable => "durable",
            AckLevel::Policy => "policy",
        }
    }
}

//! Deadlines of `Op::Timeout`, earliest first.
//!
//! Owns: the heap. Never does: read a clock. Left: `types`. Right: the engines.
//!
//! A cancelled deadline stays in the heap until it is due or the heap is mostly dead: its token
//! is stale by then and finds nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::op::Token;
use crate::types::Micros;

/// Dead entries tolerated beyond the living before the heap is rebuilt.
const DEAD_MAX: usize = 64;

#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Micros, u64)>>,
    cancelled: usize,
}

impl Timers {
    pub fn add(&mut self, at: Micros, token: Token) {
        self.heap.push(Reverse((at, token.0)));
    }

    /// Notes that one entry died; `is_live` tells which tokens still count.
    pub fn cancelled(&mut self, is_live: impl Fn(Token) -> bool) {
        self.cancelled += 1;
        if self.cancelled > DEAD_MAX && self.cancelled * 2 > self.heap.len() {
            self.heap.retain(|Reverse((_, token))| is_live(Token(*token)));
            self.cancelled = 0;
        }
    }

    /// The earliest deadline; it may belong to a cancelled timer (a spurious wake-up).
    pub fn next(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes one deadline that `now` has reached.
    pub fn pop_due(&mut self, now: Micros) -> Option<Token> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, token))| Token(token))
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_timers_come_in_order_and_dead_ones_do_not_pile_up() {
        let mut timers = Timers::default();
        for at in [30, 10, 20] {
            timers.add(Micros(at), Token(at));
        }
        assert_eq!(timers.pop_due(Micros(9)), None);
        assert_eq!(timers.pop_due(Micros(20)), Some(Token(10)));
        assert_eq!(timers.pop_due(Micros(20)), Some(Token(20)));
        assert_eq!(timers.pop_due(Micros(20)), None);
        for round in 0..10_000 {
            timers.add(Micros(1 << 40), Token(1000 + round));
            timers.cancelled(|token| token == Token(30));
            assert!(timers.heap.len() <= 2 * DEAD_MAX + 2, "round {round}");
        }
        assert_eq!(timers.pop_due(Micros(30)), Some(Token(30)));
    }
}

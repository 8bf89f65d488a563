//! Ops in flight: token (index and generation) to the state that owns them until they are done.
//!
//! Owns: a bounded slab. Never does: look into what it holds.
//! Left: `op`. Right: the engines.
//!
//! The ring's user_data is the token, so a completion that comes late, for a slot that has moved
//! on, finds nothing (E5).

use super::op::Token;

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

pub struct Inflight<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    capacity: usize,
}

impl<T> Inflight<T> {
    pub fn new(capacity: usize) -> Inflight<T> {
        assert!(capacity > 0 && u32::try_from(capacity).is_ok(), "capacity {capacity}");
        Inflight {
            entries: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            capacity,
        }
    }

    pub fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// # Panics
    /// When full: ask first.
    pub fn insert(&mut self, value: T) -> Token {
        assert!(!self.is_full(), "insert into a full slab");
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        assert!(entry.value.is_none(), "slot {index} is free and taken");
        entry.value = Some(value);
        Token(u64::from(entry.generation) << 32 | u64::from(index))
    }

    pub fn get(&self, token: Token) -> Option<&T> {
        let entry = self.entries.get(index_of(token))?;
        entry.value.as_ref().filter(|_| entry.generation == generation_of(token))
    }

    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let entry = self.entries.get_mut(index_of(token))?;
        entry.value.as_mut().filter(|_| entry.generation == generation_of(token))
    }

    pub fn remove(&mut self, token: Token) -> Option<T> {
        self.get(token)?;
        let entry = &mut self.entries[index_of(token)];
        entry.generation = entry.generation.wrapping_add(1) & GENERATION_MASK;
        self.free.push(index_of(token) as u32);
        entry.value.take()
    }
}

/// The top bit of a token is never set: user_data above it belongs to the engine itself.
const GENERATION_MASK: u32 = u32::MAX >> 1;

fn index_of(token: Token) -> usize {
    (token.0 & u64::from(u32::MAX)) as usize
}

fn generation_of(token: Token) -> u32 {
    (token.0 >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_token_finds_nothing() {
        let mut slab = Inflight::new(2);
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(first.0 as u32, second.0 as u32, "the slot is reused");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        slab.insert("third");
        assert!(slab.is_full());
        assert_eq!(slab.get(Token(u64::MAX)), None);
    }

    #[test]
    fn generations_wrap_below_the_engines_own_bit() {
        let mut slab = Inflight::new(1);
        let token = slab.insert(());
        slab.remove(token);
        slab.entries[0].generation = GENERATION_MASK;
        let last = slab.insert(());
        assert_eq!(last.0 >> 63, 0);
        slab.remove(last);
        assert_eq!(slab.insert(()).0, 0);
    }
}

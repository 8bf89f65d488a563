//! The memory that ops own: pooled chunks, the growing window on one, slices cut from it.
//!
//! Owns: chunk allocation and reuse, a pool's bound, disjointness of the ranges handed out.
//! Never does: I/O. Left: nothing. Right: `op` (ops carry windows and groups), `log`, `shard`.
//!
//! A [`Window`] is filled by receives and reads; [`Window::take`] cuts whole frames off its front
//! as [`Slice`]s. Slices of one chunk are disjoint, so each is written through by its only owner
//! (base offset and leader epoch go in place) while its neighbours are under a write. When the
//! last range of a chunk is dropped the chunk goes back to its pool.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::{Rc, Weak};

/// Chunk sizes the pool keeps for reuse; larger ones are allocated and freed each time. The large
/// ones have room for a power of two of record bytes behind the heads of a reply: a chunk of
/// exactly a power of two would send every such reply to the allocator, and its fresh pages cost
/// as much as the copy into them.
pub const CLASS_BYTES: [usize; 7] = [
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    (1 << 20) + REPLY_ROOM,
    (4 << 20) + REPLY_ROOM,
    (8 << 20) + REPLY_ROOM,
];

const REPLY_ROOM: usize = 64 << 10;

/// The larger of the two classes that an arena is cut into; the smaller one divides it.
const ARENA_CLASS: usize = 3;
const _: () = assert!(CLASS_BYTES[ARENA_CLASS].is_multiple_of(CLASS_BYTES[ARENA_CLASS - 1]));

/// Alignment of every chunk: direct I/O wants a block, and 4 KiB satisfies every device.
pub const CHUNK_ALIGN: usize = 4096;

/// One zero-initialised allocation, or a part of an arena. Its bytes are reached only through the
/// disjoint ranges of [`Window`] and [`Slice`].
struct Memory {
    ptr: NonNull<u8>,
    len: usize,
    /// The arena this is a part of, which owns the bytes then.
    arena: Option<Rc<Memory>>,
}

impl Memory {
    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, CHUNK_ALIGN).expect("chunk length fits isize")
    }

    fn new(len: usize) -> Memory {
        assert!(len > 0, "chunks are never empty");
        let layout = Self::layout(len);
        // SAFETY: `len` > 0 was asserted above, so the layout is not zero-sized.
        let raw = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else { std::alloc::handle_alloc_error(layout) };
        Memory { ptr, len, arena: None }
    }

    /// Its length, or 0 for a part of an arena, which lives as long as the pool.
    fn own_len(&self) -> usize {
        if self.arena.is_none() { self.len } else { 0 }
    }

    /// `len` bytes of an arena at `at`; the carver gives each range away once.
    fn part(arena: &Rc<Memory>, at: usize, len: usize) -> Memory {
        assert!(at + len <= arena.len, "a part past the arena's end");
        // SAFETY: `at` was checked above to lie inside the arena's allocation.
        let ptr = unsafe { arena.ptr.add(at) };
        Memory { ptr, len, arena: Some(Rc::clone(arena)) }
    }
}

/// Memory that an engine may register with the kernel once, instead of having its pages looked up
/// for each direct transfer. Holding it keeps the memory.
#[derive(Clone)]
pub struct Arena(Rc<Memory>);

impl Arena {
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.0.ptr.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len
    }

    pub(super) fn contains(&self, bytes: &[u8]) -> bool {
        let from = self.as_ptr() as usize;
        let at = bytes.as_ptr() as usize;
        at >= from && at + bytes.len() <= from + self.len()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.arena.is_some() {
            return;
        }
        // SAFETY: it is not a part, so `ptr` came from `alloc_zeroed` with this same layout in
        // `Memory::new`, and `Memory` is not Clone, so it is freed once.
        unsafe { std::alloc::dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
    }
}

struct Chunk {
    memory: Memory,
    class: Option<usize>,
    home: Weak<PoolInner>,
}

struct PoolInner {
    free: RefCell<[Vec<Rc<Chunk>>; CLASS_BYTES.len()]>,
    /// Bytes of chunks that some window or slice still holds.
    in_use: Cell<usize>,
    /// Bytes of chunks kept for reuse, the arena's left out.
    idle: Cell<usize>,
    bytes_max: usize,
    arena: Option<Arena>,
}

/// A shard's chunks, bounded: past `bytes_max` in use no window is given and the caller stops
/// reading sockets.
#[derive(Clone)]
pub struct Pool(Rc<PoolInner>);

impl Pool {
    pub fn new(bytes_max: usize) -> Pool {
        Pool::of(bytes_max, None)
    }

    fn of(bytes_max: usize, arena: Option<Arena>) -> Pool {
        let (free, in_use, idle) = (RefCell::default(), Cell::new(0), Cell::new(0));
        Pool(Rc::new(PoolInner { free, in_use, idle, bytes_max, arena }))
    }

    /// A pool whose first chunks of two classes are parts of one arena of about `arena_bytes`: half
    /// of it in the larger ones, the rest in the smaller ones.
    pub fn with_arena(bytes_max: usize, arena_bytes: usize) -> Pool {
        let (small, large) = (CLASS_BYTES[ARENA_CLASS - 1], CLASS_BYTES[ARENA_CLASS]);
        let memory = Rc::new(Memory::new(arena_bytes.next_multiple_of(large)));
        let arena = Some(Arena(Rc::clone(&memory)));
        let pool = Pool::of(bytes_max, arena);
        let mut at = 0;
        while at < memory.len {
            let len = if at < memory.len / 2 { large } else { small };
            let class = CLASS_BYTES.iter().position(|size| *size == len);
            let home = Rc::downgrade(&pool.0);
            let chunk = Chunk { memory: Memory::part(&memory, at, len), class, home };
            pool.0.free.borrow_mut()[class.expect("a class")].push(Rc::new(chunk));
            at += len;
        }
        pool
    }

    /// What [`Pool::with_arena`] made, for an engine to register.
    pub fn arena(&self) -> Option<Arena> {
        self.0.arena.clone()
    }

    /// A fresh window with at least `capacity` bytes of room, or `None` at the pool's bound.
    pub fn window(&self, capacity: usize) -> Option<Window> {
        let (class, len) = Self::fit(capacity);
        if self.0.in_use.get().saturating_add(len) > self.0.bytes_max {
            return None;
        }
        Some(self.chunk(class, len))
    }

    /// A window even past the pool's bound: for replies and lookups, which must be done before
    /// memory can come back. The caller bounds them.
    pub fn window_past_bound(&self, capacity: usize) -> Window {
        let (class, len) = Self::fit(capacity);
        self.chunk(class, len)
    }

    /// A slice holding a copy of `bytes`, as `window_past_bound`.
    pub fn copied_past_bound(&self, bytes: &[u8]) -> Slice {
        let mut window = self.window_past_bound(bytes.len().max(1));
        window.extend_from_slice(bytes);
        window.take(bytes.len())
    }

    fn fit(capacity: usize) -> (Option<usize>, usize) {
        let class = CLASS_BYTES.iter().position(|&size| size >= capacity);
        (class, class.map_or(capacity.next_multiple_of(CHUNK_ALIGN), |c| CLASS_BYTES[c]))
    }

    fn chunk(&self, class: Option<usize>, len: usize) -> Window {
        self.0.in_use.set(self.0.in_use.get() + len);
        let pooled = class.and_then(|c| self.0.free.borrow_mut()[c].pop());
        if let Some(chunk) = &pooled {
            self.0.idle.set(self.0.idle.get() - chunk.memory.own_len());
        }
        let chunk = pooled.unwrap_or_else(|| {
            self.release_idle();
            Rc::new(Chunk { memory: Memory::new(len), class, home: Rc::downgrade(&self.0) })
        });
        debug_assert_eq!(Rc::strong_count(&chunk), 1, "a pooled chunk has no other owner");
        Window { chunk: Hold(Some(chunk)), start: 0, filled: 0, end: len }
    }

    /// Frees chunks kept for reuse, largest first, until what is used and what is kept fit the
    /// bound together: every size could otherwise keep a pool's worth.
    fn release_idle(&self) {
        let pool = &self.0;
        if pool.in_use.get().saturating_add(pool.idle.get()) <= pool.bytes_max {
            return;
        }
        for chunks in pool.free.borrow_mut().iter_mut().rev() {
            chunks.retain(|chunk| {
                let (len, idle) = (chunk.memory.own_len(), pool.idle.get());
                let keep = len == 0 || pool.in_use.get().saturating_add(idle) <= pool.bytes_max;
                if !keep {
                    pool.idle.set(idle - len);
                }
                keep
            });
        }
    }

    /// A slice holding a copy of `bytes`; `None` at the bound. For small replies and tests.
    pub fn copied(&self, bytes: &[u8]) -> Option<Slice> {
        let mut window = self.window(bytes.len().max(1))?;
        window.extend_from_slice(bytes);
        Some(window.take(bytes.len()))
    }

    /// Bytes of chunks held by windows and slices now.
    pub fn in_use(&self) -> usize {
        self.0.in_use.get()
    }

    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }
}

/// A counted reference to a chunk; the last one sends the chunk home.
struct Hold(Option<Rc<Chunk>>);

impl Hold {
    fn share(&self) -> Hold {
        Hold(self.0.clone())
    }

    fn base(&self) -> NonNull<u8> {
        self.0.as_ref().expect("held until drop").memory.ptr
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(chunk) = self.0.take() else { return };
        if Rc::strong_count(&chunk) > 1 {
            return;
        }
        let Some(pool) = chunk.home.upgrade() else { return };
        pool.in_use.set(pool.in_use.get() - chunk.memory.len);
        if let Some(class) = chunk.class {
            pool.idle.set(pool.idle.get() + chunk.memory.own_len());
            pool.free.borrow_mut()[class].push(chunk);
        }
    }
}

/// The growing end of a chunk: `start..filled` holds bytes, `filled..end` is room for more.
/// The only owner of `start..end`.
pub struct Window {
    chunk: Hold,
    start: usize,
    filled: usize,
    end: usize,
}

impl Window {
    /// Bytes that arrived and were not taken.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start..filled` lies inside the chunk (checked by `grow` and `take`), is
        // initialised (chunks start zeroed), and belongs to this window alone: `take` moves
        // `start` past every range it gives away.
        unsafe {
            std::slice::from_raw_parts(
                self.chunk.base().as_ptr().add(self.start),
                self.filled - self.start,
            )
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` makes the access exclusive.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.chunk.base().as_ptr().add(self.start),
                self.filled - self.start,
            )
        }
    }

    /// The room behind the bytes.
    pub fn spare_mut(&mut self) -> &mut [u8] {
        // SAFETY: `filled..end` lies inside the chunk, is initialised (zeroed or old bytes), and
        // is owned by this window alone, as `start..end` is.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.chunk.base().as_ptr().add(self.filled),
                self.end - self.filled,
            )
        }
    }

    pub fn room(&self) -> usize {
        self.end - self.filled
    }

    pub fn len(&self) -> usize {
        self.filled - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.filled == self.start
    }

    /// Counts `n` bytes of the room as filled.
    pub fn grow(&mut self, n: usize) {
        assert!(n <= self.room(), "window overrun: {n} into {}", self.room());
        self.filled += n;
    }

    /// # Panics
    /// When `bytes` is longer than [`Window::room`].
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.spare_mut()[..bytes.len()].copy_from_slice(bytes);
        self.grow(bytes.len());
    }

    /// Cuts the first `n` bytes off as a slice of their own.
    pub fn take(&mut self, n: usize) -> Slice {
        assert!(n <= self.len(), "take {n} of {}", self.len());
        let start = self.start;
        self.start += n;
        Slice { chunk: self.chunk.share(), start, end: start + n }
    }

    /// Drops the first `n` bytes.
    pub fn skip(&mut self, n: usize) {
        assert!(n <= self.len(), "skip {n} of {}", self.len());
        self.start += n;
    }

    /// Reuses the whole chunk when nothing else of it is held: an empty window then starts at the
    /// front again without a new chunk. Says whether it could.
    pub fn rewind(&mut self) -> bool {
        let chunk = self.chunk.0.as_ref().expect("held until drop");
        if !self.is_empty() || Rc::strong_count(chunk) > 1 {
            return false;
        }
        self.start = 0;
        self.filled = 0;
        self.end = chunk.memory.len;
        true
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window({} bytes, {} room)", self.len(), self.room())
    }
}

/// The only owner of a range of a chunk.
pub struct Slice {
    chunk: Hold,
    start: usize,
    end: usize,
}

impl Slice {
    /// Cuts the first `n` bytes off.
    pub fn split_to(&mut self, n: usize) -> Slice {
        assert!(n <= self.len(), "split {n} of {}", self.len());
        let start = self.start;
        self.start += n;
        Slice { chunk: self.chunk.share(), start, end: start + n }
    }

    /// Keeps the first `n` bytes.
    pub fn truncate(&mut self, n: usize) {
        assert!(n <= self.len(), "truncate to {n} of {}", self.len());
        self.end = self.start + n;
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start..end` lies inside the chunk, is initialised, and this slice is its only
        // owner: `take` and `split_to` give each range away once.
        unsafe {
            std::slice::from_raw_parts(
                self.chunk.base().as_ptr().add(self.start),
                self.end - self.start,
            )
        }
    }
}

impl DerefMut for Slice {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.chunk.base().as_ptr().add(self.start),
                self.end - self.start,
            )
        }
    }
}

impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slice({} bytes)", self.len())
    }
}

/// Slices that leave together, in order, as one vectored write or send.
#[derive(Debug, Default)]
pub struct Group {
    slices: Vec<Slice>,
    /// Bytes of the front that are done (a short write is resumed here).
    skip: usize,
    /// Bytes not done yet.
    len: usize,
}

impl Group {
    pub fn new() -> Group {
        Group::default()
    }

    pub fn of(slice: Slice) -> Group {
        let mut group = Group::new();
        group.push(slice);
        group
    }

    pub fn push(&mut self, slice: Slice) {
        self.len += slice.len();
        self.slices.push(slice);
    }

    /// Bytes not done yet.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Slices held, done ones included.
    pub fn slices(&self) -> usize {
        self.slices.len()
    }

    /// What is left, slice by slice.
    pub fn remaining(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.skip;
        self.slices.iter().filter_map(move |slice| {
            let from = skip.min(slice.len());
            skip -= from;
            (from < slice.len()).then(|| &slice[from..])
        })
    }

    /// Counts `n` bytes of the front as done.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.len, "advance {n} of {}", self.len);
        self.skip += n;
        self.len -= n;
    }

    /// Lets every slice go and keeps the capacity for the next group.
    pub fn clear(&mut self) {
        self.slices.clear();
        self.skip = 0;
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_one_chunk_are_disjoint_and_the_last_sends_it_home() {
        let pool = Pool::new(1 << 20);
        let mut window = pool.window(100).unwrap();
        window.extend_from_slice(b"abcdef");
        let mut first = window.take(2);
        let second = window.take(2);
        first[0] = b'X';
        assert_eq!((&*first, &*second, window.bytes()), (&b"Xb"[..], &b"cd"[..], &b"ef"[..]));
        assert_eq!(pool.in_use(), CLASS_BYTES[0]);
        drop(window);
        drop(first);
        assert_eq!(pool.in_use(), CLASS_BYTES[0]);
        drop(second);
        assert_eq!(pool.in_use(), 0);
        let again = pool.window(100).unwrap();
        assert_eq!(again.room(), CLASS_BYTES[0]);
    }

    #[test]
    fn chunks_kept_for_reuse_count_against_the_bound() {
        let pool = Pool::new(16 << 20);
        for class in CLASS_BYTES {
            let windows: Vec<_> = std::iter::from_fn(|| pool.window(class)).collect();
            assert!(pool.in_use() <= pool.bytes_max());
            assert!(pool.in_use() + pool.0.idle.get() <= pool.bytes_max(), "{class}");
            drop(windows);
            let kept = pool.0.free.borrow();
            let bytes: usize = kept.iter().flatten().map(|chunk| chunk.memory.len).sum();
            assert_eq!(bytes, pool.0.idle.get());
            assert!(bytes <= pool.bytes_max(), "{bytes} kept after chunks of {class}");
        }
    }

    #[test]
    fn parts_of_an_arena_are_disjoint_and_outlive_their_pool() {
        let large = CLASS_BYTES[3];
        let pool = Pool::with_arena(64 << 20, 4 * large);
        let arena = pool.arena().unwrap();
        let mut windows = Vec::new();
        for (index, size) in [large, large, large, CLASS_BYTES[2]].into_iter().enumerate() {
            let mut window = pool.window(size).unwrap();
            window.spare_mut().fill(index as u8);
            window.grow(size);
            windows.push(window);
        }
        let inside: Vec<bool> = windows.iter().map(|w| arena.contains(w.bytes())).collect();
        assert_eq!(inside, [true, true, false, true], "half of it is in large chunks");
        drop((pool, arena));
        for (index, window) in windows.iter().enumerate() {
            assert!(window.bytes().iter().all(|byte| *byte == index as u8), "window {index}");
        }
    }

    #[test]
    fn a_full_pool_gives_nothing_and_recovers() {
        let pool = Pool::new(CLASS_BYTES[0]);
        let held = pool.window(1).unwrap();
        assert!(pool.window(1).is_none());
        drop(held);
        assert!(pool.window(1).is_some());
        assert!(pool.window(CLASS_BYTES[0] + 1).is_none());
    }

    #[test]
    fn a_group_resumes_where_a_short_write_stopped() {
        let pool = Pool::new(1 << 20);
        let mut group = Group::of(pool.copied(b"abc").unwrap());
        group.push(pool.copied(b"defg").unwrap());
        group.advance(2);
        assert_eq!(group.remaining().collect::<Vec<_>>(), [&b"c"[..], b"defg"]);
        group.advance(3);
        assert_eq!(group.remaining().collect::<Vec<_>>(), [b"fg"]);
        group.advance(2);
        assert!(group.is_empty() && group.remaining().next().is_none());
    }

    #[test]
    fn rewind_waits_for_the_last_slice() {
        let pool = Pool::new(1 << 20);
        let mut window = pool.window(10).unwrap();
        window.extend_from_slice(b"abc");
        let slice = window.take(3);
        assert!(!window.rewind());
        drop(slice);
        assert!(window.rewind());
        assert_eq!(window.room(), CLASS_BYTES[0]);
    }
}

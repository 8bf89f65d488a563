//! An allocator that counts what the calling thread holds and how often it asks. One test file, one
//! process: only a file that declares it is counted.

#![expect(unsafe_code, reason = "an allocator that counts cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds, the most it held, and how often it asked.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

pub struct Counting;

fn count(grown: isize) {
    let live = LIVE.get() + grown;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
    CALLS.set(CALLS.get() + usize::from(grown > 0));
}

// SAFETY: every call goes to `System` unchanged, which upholds the contract; counting uses
// thread-local `Cell`s of constant initial value without a destructor, so it neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises about `layout` are `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `at` came from `System.alloc` above with this `layout`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What one piece of work asked of the allocator.
pub struct Asked {
    /// The most it held beyond what was held before.
    pub peak_bytes: isize,
    pub calls: usize,
}

pub fn measured<T>(work: impl FnOnce() -> T) -> (T, Asked) {
    let (live, calls) = (LIVE.get(), CALLS.get());
    PEAK.set(live);
    let result = work();
    (result, Asked { peak_bytes: PEAK.get() - live, calls: CALLS.get() - calls })
}

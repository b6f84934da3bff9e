//! Memory that only grows. Each call has a memory of its own, which is gone when it is answered, so
//! giving back piece by piece would be work for nothing.
#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32::{memory_grow, memory_size};
use core::cell::Cell;
use core::ptr;

const PAGE: usize = 64 << 10;
/// Pages that are asked for at once, at least: growing costs a call of the host.
const PAGES: usize = 16;

#[global_allocator]
static MEMORY: Memory = Memory { next: Cell::new(0), end: Cell::new(0) };

struct Memory {
    /// Where the next piece begins; 0 before the first one.
    next: Cell<usize>,
    end: Cell<usize>,
}

// SAFETY: the module is built without threads.
unsafe impl Sync for Memory {}

impl Memory {
    /// Whether there is memory up to `end`; grows it if there is not.
    fn reach(&self, end: usize) -> bool {
        if end <= self.end.get() {
            return true;
        }
        let pages = (end - self.end.get()).div_ceil(PAGE);
        // More than is needed, if it is to be had.
        for pages in [pages.max(PAGES), pages] {
            if memory_grow(0, pages) != usize::MAX {
                self.end.set(memory_size(0) * PAGE);
                return true;
            }
        }
        false
    }
}

// SAFETY: pieces never overlap: each begins at or above `next`, which only moves up, but for the last
// piece, which may move its own end.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.next.get() == 0 {
            // What lies below belongs to the module's data and stack.
            let end = memory_size(0) * PAGE;
            (self.next.set(end), self.end.set(end));
        }
        let start = self.next.get().next_multiple_of(layout.align());
        let Some(end) = start.checked_add(layout.size()).filter(|end| self.reach(*end)) else {
            return ptr::null_mut();
        };
        self.next.set(end);
        ptr::with_exposed_provenance_mut(start)
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // The last one is taken back: what is used for a moment is used again.
        if piece.addr() + layout.size() == self.next.get() {
            self.next.set(piece.addr());
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        let piece = unsafe { self.alloc(layout) };
        if !piece.is_null() {
            // SAFETY: `alloc` gave this many bytes.
            unsafe { ptr::write_bytes(piece, 0, layout.size()) };
        }
        piece
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let start = piece.addr();
        if start + layout.size() == self.next.get() {
            let Some(end) = start.checked_add(size).filter(|end| self.reach(*end)) else { return ptr::null_mut() };
            self.next.set(end);
            return piece;
        }
        if size <= layout.size() {
            return piece;
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return ptr::null_mut() };
        // SAFETY: the caller's promise is the same.
        let other = unsafe { self.alloc(wanted) };
        if !other.is_null() {
            // SAFETY: two pieces never overlap, and the old one is the shorter one.
            unsafe { ptr::copy_nonoverlapping(piece, other, layout.size()) };
        }
        other
    }
}

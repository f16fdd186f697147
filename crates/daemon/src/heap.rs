//! One heap for all threads.
//!
//! The C library gives each thread its own, and opens a file of `/proc` when one of them shrinks
//! (glibc: `check_may_shrink_heap`), which no confined thread may: an I/O thread does, when it frees
//! the buffers of a connection or of long requests. The threads allocate seldom, so that one heap has
//! no contention, and less is lost to fragments.

#![allow(unsafe_code)]

/// Call before the second thread begins.
pub fn share() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number of the allocator; there is one thread.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

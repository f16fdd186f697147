//! Appending to an answer that is made for one request.

use alloc::vec::Vec;

/// Appends bytes. Apart from `Vec`'s own, which is some 70 bytes of code at each place where it
/// is inlined: what is made here is not the way of a file asked for lately.
#[inline(never)]
pub(crate) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}

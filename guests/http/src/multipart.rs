//! Several ranges of a file in one answer (RFC 9110, 14.6; RFC 2046, 5.1).
//!
//! The ranges are sent from where the file lies; what stands between them is made at once.
//! They are bounded and do not overlap ([`range`](crate::range)), so that an answer is longer
//! than its file by the fields of [`MOST_RANGES`](crate::range::MOST_RANGES) parts at most.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use tare_libos::serve::text::put;

use crate::answer::push_length;
use crate::decimal;
use crate::range::Part;
use crate::site::{self, Asset};
use crate::status::Status;

/// The content of an answer with several ranges.
#[derive(Debug)]
pub struct Multipart {
    asset: Arc<Asset>,
    boundary: u64,
    /// What stands before each part, and behind the last.
    between: Vec<u8>,
    parts: Vec<PartRange>,
}

/// Where a part is.
#[derive(Debug)]
struct PartRange {
    /// End of what stands before it.
    between_end: usize,
    bytes: Range<usize>,
}

/// Answers so far, so that their boundaries differ.
static ANSWERS: AtomicU64 = AtomicU64::new(0);

impl Multipart {
    /// The content with these parts of `asset`.
    pub(crate) fn new(asset: Arc<Asset>, parts: &[Part]) -> Self {
        let (kind, _) = split_type(asset.described());
        let answer = ANSWERS.fetch_add(1, Ordering::Relaxed) + 1;
        // Spread over all bits, since text rarely has such a number.
        let boundary = answer.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut between = Vec::new();
        let mut places = Vec::with_capacity(parts.len());
        for &part in parts {
            push_boundary(&mut between, boundary);
            put(&mut between, b"\r\n");
            put(&mut between, kind);
            site::push_content_range(&mut between, &asset, part);
            put(&mut between, b"\r\n");
            places.push(PartRange {
                between_end: between.len(),
                bytes: bytes_of(part),
            });
        }
        push_boundary(&mut between, boundary);
        put(&mut between, b"--\r\n");
        Self {
            asset,
            boundary,
            between,
            parts: places,
        }
    }

    /// Appends status line and fields of the answer.
    pub(crate) fn push_head(&self, head: &mut Vec<u8>) {
        let (_, others) = split_type(self.asset.described());
        put(head, Status::PartialContent.line());
        put(head, b"Content-Type: multipart/byteranges; boundary=tare");
        decimal::push_hex(head, self.boundary);
        put(head, b"\r\n");
        put(head, others);
        push_length(head, self.len());
    }

    /// Bytes of the content.
    pub(crate) fn len(&self) -> usize {
        let parts = self.parts.iter().map(|part| part.bytes.len());
        self.between.len() + parts.sum::<usize>()
    }

    /// The content in pairs: what stands before a part and the part, which is empty at the
    /// end.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = [&[u8]; 2]> {
        let mut start = 0;
        let mut parts = self.parts.iter();
        let mut is_ended = false;
        core::iter::from_fn(move || {
            let Some(part) = parts.next() else {
                let end = [&self.between[start..], &[]];
                return (!core::mem::replace(&mut is_ended, true)).then_some(end);
            };
            let before = &self.between[start..part.between_end];
            start = part.between_end;
            Some([before, &self.asset.bytes[part.bytes.clone()]])
        })
    }
}

/// The bytes of a file that a part has.
pub(crate) fn bytes_of(part: Part) -> Range<usize> {
    part.first as usize..part.last as usize + 1
}

/// A description's first line, which is its type, and the others.
fn split_type(described: &[u8]) -> (&[u8], &[u8]) {
    let end = described.iter().position(|byte| *byte == b'\n');
    described.split_at(end.map_or(0, |end| end + 1))
}

fn push_boundary(out: &mut Vec<u8>, boundary: u64) {
    put(out, b"\r\n--tare");
    decimal::push_hex(out, boundary);
}

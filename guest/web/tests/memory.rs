//! A connection where memory ends: each allocation is made to fail once.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::time::Duration;

use tare_libos::serve::{Transport, TransportError};
use tare_web::connection::converse;
use tare_web::{Request, Response};

thread_local! {
    /// Allocations of this thread that still succeed; None: all.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

struct LimitedHeap;

#[global_allocator]
static HEAP: LimitedHeap = LimitedHeap;

fn is_allowed() -> bool {
    LEFT.with(|left| match left.get() {
        None => true,
        Some(0) => false,
        Some(n) => {
            left.set(Some(n - 1));
            true
        }
    })
}

// SAFETY: what is given is the system's, unchanged; a null pointer is a refusal.
unsafe impl GlobalAlloc for LimitedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_allowed() {
            // SAFETY: the caller keeps the system's contract.
            unsafe { System.alloc(layout) }
        } else {
            ptr::null_mut()
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the system's contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if is_allowed() {
            // SAFETY: the caller keeps the system's contract.
            unsafe { System.realloc(block, layout, bytes) }
        } else {
            ptr::null_mut()
        }
    }
}

/// A client whose own memory does not end.
struct Client<'b> {
    bytes: &'b [u8],
    answers: Vec<u8>,
}

impl Client<'_> {
    /// Talks while only `allowed` allocations succeed.
    fn talk(mut self, allowed: u32) -> String {
        LEFT.set(Some(allowed));
        converse(&mut self, &answer);
        LEFT.set(None);
        String::from_utf8(self.answers).unwrap()
    }
}

impl Transport for &mut Client<'_> {
    fn receive(
        &mut self,
        into: &mut [u8],
        _within: Option<Duration>,
    ) -> Result<usize, TransportError> {
        let n = self.bytes.len().min(into.len()).min(700);
        let (now, later) = self.bytes.split_at(n);
        into[..n].copy_from_slice(now);
        self.bytes = later;
        Ok(n)
    }

    fn send<const N: usize>(
        &mut self,
        parts: &[&[u8]; N],
        _within: Duration,
    ) -> Result<usize, TransportError> {
        let left = LEFT.replace(None);
        let all = parts.concat();
        self.answers.extend_from_slice(&all);
        LEFT.set(left);
        Ok(all.len())
    }

    fn finish(&mut self) {}

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

/// Allocates nothing: what a program does is its own affair.
fn answer(request: &Request) -> Response {
    Response::new(match request.body().len() {
        0 => 204,
        5000 => 202,
        _ => 400,
    })
}

#[test]
fn no_allocation_of_a_connection_must_succeed() {
    let fields = "X-Field: some text\r\n".repeat(40);
    let body = "z".repeat(2500);
    let text = format!(
        "GET /1 HTTP/1.1\r\nHost: a\r\n{fields}\r\n\
         POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         9c4\r\n{body}\r\n9c4\r\n{body}\r\n0\r\n\r\n"
    );
    let talk = |allowed| {
        let client = Client {
            bytes: text.as_bytes(),
            answers: Vec::new(),
        };
        client.talk(allowed)
    };
    let statuses = |text: &str| -> Vec<u16> {
        let lines = text.split("HTTP/1.1 ").skip(1);
        lines.map(|line| line[..3].parse().unwrap()).collect()
    };
    let whole = (0..1000)
        .find(|allowed| statuses(&talk(*allowed)) == [204, 202])
        .expect("a bounded number of allocations");
    assert!(whole > 80, "40 fields need more than {whole} allocations");
    let mut refused = 0;
    for allowed in 0..whole {
        let statuses = statuses(&talk(allowed));
        refused += u32::from(statuses.last() == Some(&503));
        let expected: [&[u16]; 4] = [&[], &[503], &[204], &[204, 503]];
        assert!(expected.contains(&&statuses[..]), "{allowed}: {statuses:?}");
    }
    assert!(refused > 80, "{refused} of {whole}");
}

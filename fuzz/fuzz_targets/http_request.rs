//! The HTTP appliance's requests, pipelined: head, target, range.
#![no_main]

use tare_guest_http::range::{Selection, select};
use tare_guest_http::request::{Parsed, Request, parse};
use tare_guest_http::target::resolve;

const FILE_BYTES: u64 = 1000;

libfuzzer_sys::fuzz_target!(|connection: &[u8]| {
    let mut rest = connection;
    while let Ok(Parsed::Complete(request, head_bytes)) = parse(rest) {
        assert!((1..=rest.len()).contains(&head_bytes));
        judge(&request);
        rest = &rest[head_bytes..];
    }
});

fn judge(request: &Request<'_>) {
    if let Ok(resource) = resolve(request.target, &mut Vec::new()) {
        let parts: Vec<_> = resource.path.split('/').collect();
        let odd = |part: &&str| ["", ".", ".."].contains(part);
        assert!(resource.path.is_empty() || !parts.iter().any(odd), "{resource:?}");
    }
    if let Some(Selection::Part { first, last }) = request.range.map(|it| select(it, FILE_BYTES)) {
        assert!(first <= last && last < FILE_BYTES);
    }
}

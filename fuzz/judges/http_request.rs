//! What parsing a connection's bytes must keep to, whatever they are. Shared by
//! the fuzz target and the appliance's replay of the corpus.

use tare_guest_http::range::{MOST_RANGES, Selection, select};
use tare_guest_http::request::{Parsed, Request, parse};
use tare_guest_http::target::resolve;

const FILE_BYTES: u64 = 1000;

/// Pipelined requests: each head has a length, no target leaves the root, no
/// range leaves the file.
pub(crate) fn judge(connection: &[u8]) {
    let mut rest = connection;
    while let Ok(Parsed::Complete(request, head_bytes)) = parse(rest) {
        assert!((1..=rest.len()).contains(&head_bytes));
        judge_request(&request);
        rest = &rest[head_bytes..];
    }
}

fn judge_request(request: &Request<'_>) {
    if let Ok(resource) = resolve(request.target, &mut Vec::new()) {
        let odd = |part: &str| ["", ".", ".."].contains(&part);
        let plain = !resource.path.split('/').any(odd);
        assert!(resource.path.is_empty() || plain, "{resource:?}");
    }
    let parts = match request.range.map(|it| select(it, FILE_BYTES)) {
        Some(Selection::Part(part)) => vec![part],
        Some(Selection::Parts(parts)) => parts,
        _ => Vec::new(),
    };
    let mut bytes = 0;
    for part in &parts {
        assert!(part.first <= part.last && part.last < FILE_BYTES);
        bytes += part.last - part.first + 1;
    }
    // No byte is sent twice.
    assert!(parts.len() <= MOST_RANGES && bytes <= FILE_BYTES);
}

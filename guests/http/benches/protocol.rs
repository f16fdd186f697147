//! What the protocol costs a request, in time; `examples/exchanges.rs` counts
//! instructions.

#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tare_guest_http::host::MemoryFiles;
use tare_guest_http::request::{self, Parsed};
use tare_guest_http::server::Server;
use tare_guest_http::{http_date, target};

const CURL: &[u8] =
    b"GET /1k.bin HTTP/1.1\r\nHost: a:8080\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n";

fn protocol(criterion: &mut Criterion) {
    criterion.bench_function("request/parse", |bencher| {
        bencher.iter(|| request::parse(black_box(CURL)));
    });
    criterion.bench_function("target/resolve", |bencher| {
        let mut scratch = Vec::new();
        bencher.iter(|| target::resolve(black_box("/a/../%31k.bin"), &mut scratch).is_ok());
    });
    criterion.bench_function("http_date/format", |bencher| {
        bencher.iter(|| http_date::format(black_box(784_111_777)));
    });
    let server = Server::new(MemoryFiles::new().with("1k.bin", &[0; 1024], 784_111_777));
    let Ok(Parsed::Complete(request, _)) = request::parse(CURL) else {
        panic!("the request is complete");
    };
    criterion.bench_function("server/answer", |bencher| {
        let mut head = Vec::new();
        bencher.iter(|| server.answer(black_box(&request), &mut head));
    });
}

criterion_group!(benches, protocol);
criterion_main!(benches);

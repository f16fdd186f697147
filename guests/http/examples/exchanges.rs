//! Serves N keep-alive requests for a 1 KiB file from memory to memory, to count
//! what the protocol costs:
//!
//! ```text
//! cargo build --profile guest -p tare-guest-http --example exchanges
//! for n in 1000 2000; do
//!     valgrind --tool=callgrind target/guest/examples/exchanges $n [curl|browser|missing|range]
//! done
//! ```
//!
//! The difference of the two counts over 1,000 is the cost of a request.

use tare_guest_http::connection;
use tare_guest_http::host::MemoryFiles;
use tare_guest_http::server::Server;
use tare_libos::serve::Memory;

const FILE: [u8; 1024] = [b'x'; 1024];
const LOAD: &[u8] = b"GET /1k.bin HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const CURL: &[u8] = b"GET /1k.bin HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
    User-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n";
const BROWSER: &[u8] = b"GET /1k.bin HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
    Connection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\nSec-Fetch-User: ?1\r\nPriority: u=0, i\r\n\r\n";
const MISSING: &[u8] = b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const RANGE: &[u8] = b"GET /1k.bin HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nRange: bytes=1-9\r\n\r\n";

fn main() {
    let mut args = std::env::args().skip(1);
    let left = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let request = match args.next().as_deref() {
        None => LOAD,
        Some("curl") => CURL,
        Some("browser") => BROWSER,
        Some("missing") => MISSING,
        Some("range") => RANGE,
        Some(other) => panic!("unknown request {other}"),
    };
    let server = Server::new(MemoryFiles::new().with("1k.bin", &FILE, 784_111_777));
    connection::serve(Memory::new(&[], request, left), &server);
    println!("{} bytes sent", server.counters.sent_bytes.get());
}

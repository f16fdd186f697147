//! Carries out N commands from memory to memory, to count what they cost:
//!
//! ```text
//! cargo build --profile guest -p tare-guest-kv --example exchanges
//! for n in 1000 2000; do
//!     valgrind --tool=callgrind target/guest/examples/exchanges $n [get|set|incr|version]
//! done
//! ```
//!
//! The difference of the two counts over 1,000 is the cost of a command.

use tare_guest_kv::connection;
use tare_guest_kv::host::HostClock;
use tare_guest_kv::server::{Server, Settings};
use tare_libos::serve::Memory;

fn main() {
    let mut args = std::env::args().skip(1);
    let left = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let set = format!("set key:000001 0 0 100\r\n{}\r\n", "1".repeat(100));
    let number = "set n 0 0 10\r\n1234567890\r\n".to_string();
    let (first, command) = match args.next().as_deref() {
        None | Some("get") => (set, "get key:000001\r\n".into()),
        Some("set") => (set.clone(), set),
        Some("incr") => (number, "incr n 1\r\n".into()),
        Some("version") => (set, "version\r\n".into()),
        Some(other) => panic!("unknown command {other}"),
    };
    let server = Server::new(Settings::default(), HostClock);
    let memory = Memory::new(first.as_bytes(), command.as_bytes(), left);
    connection::serve(memory, &server);
    println!("{} bytes of items", server.used_bytes());
}

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

use std::hint::black_box;
use std::time::Duration;

use tare_guest_kv::connection;
use tare_guest_kv::host::HostClock;
use tare_guest_kv::server::{Server, Settings};
use tare_libos::serve::{Transport, TransportError};

/// Each receive is one command; what is sent is thrown away.
struct Memory {
    first: Vec<u8>,
    command: Vec<u8>,
    left: u32,
}

impl Transport for Memory {
    fn receive(
        &mut self,
        into: &mut [u8],
        _within: Option<Duration>,
    ) -> Result<usize, TransportError> {
        if self.left == 0 {
            return Ok(0);
        }
        self.left -= 1;
        let first = core::mem::take(&mut self.first);
        let command = if first.is_empty() {
            &self.command
        } else {
            &first
        };
        into[..command.len()].copy_from_slice(command);
        Ok(command.len())
    }

    fn send<const N: usize>(
        &mut self,
        parts: &[&[u8]; N],
        _within: Duration,
    ) -> Result<usize, TransportError> {
        Ok(black_box(parts).iter().map(|part| part.len()).sum())
    }

    fn finish(&mut self) {}

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let left = words.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let set = format!("set key:000001 0 0 100\r\n{}\r\n", "1".repeat(100));
    let number = "set n 0 0 10\r\n1234567890\r\n".to_string();
    let (first, command) = match words.next().as_deref() {
        None | Some("get") => (set, "get key:000001\r\n".into()),
        Some("set") => (set.clone(), set),
        Some("incr") => (number, "incr n 1\r\n".into()),
        Some("version") => (set, "version\r\n".into()),
        Some(other) => panic!("unknown command {other}"),
    };
    let server = Server::new(Settings::default(), HostClock);
    let memory = Memory {
        first: first.into_bytes(),
        command: command.into_bytes(),
        left,
    };
    connection::serve(memory, &server);
    println!("{} bytes of items", server.used_bytes());
}

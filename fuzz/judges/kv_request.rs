//! What parsing and carrying out a connection's bytes must keep to, whatever
//! they are. Shared by the fuzz target and the appliance's replay of the corpus.

use tare_guest_kv::host::HostClock;
use tare_guest_kv::limits::{MAX_KEY, MAX_VALUE};
use tare_guest_kv::request::{Command, Parsed, parse};
use tare_guest_kv::server::{Server, Settings};

/// Little memory, so that few bytes suffice to evict.
const MEMORY_BYTES: usize = 2000;

/// Pipelined commands: each has a length, keys and values have theirs, every
/// answer ends a line, and the store keeps to its memory.
pub(crate) fn judge(connection: &[u8]) {
    let settings = Settings {
        memory_bytes: MEMORY_BYTES,
        ..Settings::default()
    };
    let server = Server::new(settings, HostClock);
    let mut rest = connection;
    while !rest.is_empty() {
        match parse(rest) {
            Parsed::Command(command, len) => {
                assert!((1..=rest.len()).contains(&len));
                judge_command(&command);
                let mut answer = Vec::new();
                server.execute(&command, &mut answer);
                assert!(answer.is_empty() || answer.ends_with(b"\r\n"));
                rest = &rest[len..];
            }
            Parsed::Data { total, key, .. } => {
                assert!(total > rest.len() && key.bytes(&mut [0; MAX_KEY]).len() <= MAX_KEY);
                break;
            }
            Parsed::Line => {
                assert!(!rest.contains(&b'\n'));
                break;
            }
            Parsed::Fields => {
                assert!(rest.starts_with(b"GET ") || rest.starts_with(b" "));
                break;
            }
            Parsed::Hopeless => break,
        }
    }
    assert!(server.used_bytes() <= MEMORY_BYTES);
}

fn judge_command(command: &Command<'_>) {
    match *command {
        Command::Store(entry, _) => {
            assert!(entry.key.len() <= MAX_KEY && entry.value.len() <= MAX_VALUE);
        }
        Command::Get(get) => {
            let valid = |key: &[u8]| (1..=MAX_KEY).contains(&key.len()) && !key.contains(&b' ');
            assert!(get.keys.into_iter().all(valid));
        }
        Command::Delete(key, _) | Command::Touch(key, ..) | Command::Arithmetic { key, .. } => {
            assert!(!key.is_empty() && key.len() <= MAX_KEY);
        }
        _ => {}
    }
}

//! What a test needs of the computer, and what happens where that is missing.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

use tare_host::program::find_program;

/// Prints why a test is skipped that every computer can run which has KVM and what set-up
/// installs and builds; always `false`, for conditions.
///
/// # Panics
/// With `TARE_REQUIRE_KVM=1`, when skipping is not allowed.
#[track_caller]
pub fn skip(reason: impl Display) -> bool {
    let required = std::env::var_os("TARE_REQUIRE_KVM").is_some_and(|value| value == "1");
    assert!(!required, "a skip is not allowed: {reason}");
    println!("SKIP: {reason}");
    false
}

/// Prints why a test is skipped that not every computer can run.
pub fn lacks(reason: impl Display) {
    println!("SKIP: {reason}");
}

/// Whether a program is on the search path.
pub fn installed(program: &str) -> bool {
    find_program(program).is_ok()
}

/// The ports that [`free_port`] gives. Linux takes the local ports of outgoing connections
/// from 32,768 upward (`net.ipv4.ip_local_port_range`), so none of them is among these.
const PORTS: Range<u16> = 10_240..32_768;

/// A TCP port of the loopback interface that is free now, and that no other call of this
/// function returns while this process lives, in whatever process: each port has an abstract
/// Unix socket that its holder keeps bound.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let count = PORTS.end - PORTS.start;
    let begin = (RandomState::new().hash_one(()) % u64::from(count)) as u16;
    let candidates = (0..count).map(|step| PORTS.start + (begin + step) % count);
    let (port, socket) = candidates
        .filter_map(|port| Some((port, reserve(port)?)))
        .find(|(port, _)| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a free port");
    HELD.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(socket);
    port
}

/// Reserves the port among the callers of [`free_port`], until the socket is dropped.
fn reserve(port: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("tare-test-port-{port}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

/// The value, or a skip with the error as its reason.
///
/// # Panics
/// With `TARE_REQUIRE_KVM=1`, when skipping is not allowed.
#[track_caller]
pub fn or_skip<T, E: Display>(value: Result<T, E>) -> Option<T> {
    value.map_err(|reason| skip(reason)).ok()
}

/// The value, or [`lacks`] with the error as its reason.
pub fn or_lacks<T, E: Display>(value: Result<T, E>) -> Option<T> {
    value.map_err(lacks).ok()
}

/// The value, or a skip of a test for which set-up downloads Linux: a kernel, its source, a root.
///
/// # Panics
/// With `TARE_REQUIRE_LINUX` in the environment, when skipping is not allowed.
#[track_caller]
pub fn linux_or_skip<T, E: Display>(value: Result<T, E>) -> Option<T> {
    let required = std::env::var_os("TARE_REQUIRE_LINUX").is_some();
    if let Err(reason) = &value {
        assert!(!required, "a skip is not allowed: {reason}");
    }
    or_lacks(value)
}

/// Whether this user may open `/dev/kvm`; a skip if not.
///
/// # Panics
/// With `TARE_REQUIRE_KVM=1`, when skipping is not allowed.
#[track_caller]
pub fn kvm() -> bool {
    let open = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    open.map_or_else(
        |error| skip(format!("cannot open /dev/kvm: {error}")),
        |_| true,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let mut ports: Vec<u16> = (0..300).map(|_| free_port()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        assert!(ports.iter().all(|port| reserve(*port).is_none()));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 300);
    }
}

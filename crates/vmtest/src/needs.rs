//! What a test needs of the computer, and what happens where that is missing.

use std::fmt::Display;
use std::fs::OpenOptions;

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

/// A TCP port of the loopback interface that is free now.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    tare_qemu::free_port().expect("a free port")
}

/// The value, or a skip with the error as its reason.
///
/// # Panics
/// With `TARE_REQUIRE_KVM=1`, when skipping is not allowed.
#[track_caller]
pub fn or_skip<T, E: Display>(value: Result<T, E>) -> Option<T> {
    value.map_err(|reason| skip(reason)).ok()
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

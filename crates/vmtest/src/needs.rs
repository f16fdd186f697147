//! What a test needs of the machine, and what happens where it is missing: the test
//! prints `SKIP: reason` and ends, or fails with `TARE_REQUIRE_KVM=1`.

use std::fmt::Display;
use std::fs::OpenOptions;

/// Prints why a test is skipped; always `false`, for conditions.
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

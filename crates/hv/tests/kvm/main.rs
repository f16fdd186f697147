//! The third ring: a real KVM and a few assembled bytes. Each test prints SKIP
//! without KVM, or panics there if `TARE_REQUIRE_KVM=1`.

#![allow(clippy::unwrap_used)]

mod crashes;
mod events;
mod exits;
mod machine;
mod processors;
mod stops;

//! The processor ring that the image runs in.
//!
//! Hardware executes ring 0 and ring 3 at the same speed. A KVM without hardware
//! virtualisation executes ring 3 on the processor and emulates each instruction
//! of ring 0 (about 0.65 us). The image therefore runs in ring 3 there, and its
//! entry code, page tables and descriptor tables stay in ring 0.
//!
//! | file | what |
//! |---|---|
//! | `choice` | which ring this image runs in |
//! | `level` | the ring that runs |
//! | `gate` | entry code: interrupts, the halt gate, the service gate |
//! | `service`, `serve` | what ring 3 asks of ring 0, and what ring 0 does: MSRs, page tables |
//! | `trespass`, `wild` | attempts on ring 0, for tests |
//!
//! Interrupts use one software flag in both rings (`crate::cpu`), so `cli` and
//! `sti` appear only here and around `hlt`. See ADR 35.

mod choice;
pub(crate) mod gate;
pub(crate) mod kvm_register;
mod level;
mod serve;
pub(crate) mod service;
mod trespass;
mod wild;

pub use tare_abi::rings::{Note, Rings};
pub use tare_abi::{expiries, options};

pub(crate) use choice::choose;
pub use level::{Ring, current};
pub(crate) use level::{enter, is_user, isolates, open_interrupts, wait_for_interrupt};
pub use service::is_ring_0_slow;
pub use trespass::{Trespass, ask_nonsense, trespass};
pub use wild::{Wild, WildEnd};

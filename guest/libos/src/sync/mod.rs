//! Synchronisation between threads, between cores, and with interrupt handlers.
//!
//! | what | waits by | from an interrupt handler |
//! |---|---|---|
//! | [`SpinLock`] | `pause` | no |
//! | [`IrqLock`] | `pause`, interrupts off | yes |
//! | [`Mutex`], [`Condvar`] | parking the thread | no |
//! | [`mpsc`] | parking the thread | `send` of an unbounded channel, `try_send` |
//! | [`Event`] | parking the thread | `set` |
//! | [`OnceLock`], [`LazyLock`] | yielding | no |

mod condvar;
mod event;
pub mod mpsc;
mod mutex;
mod once;
mod turns;

pub use alloc::sync::{Arc, Weak};

pub use condvar::Condvar;
pub use event::Event;
pub use mutex::{Mutex, MutexGuard};
pub use once::{LazyLock, OnceLock};
pub use tare_hal::lock::{IrqGuard, IrqLock, SpinGuard, SpinLock};

//! Library OS: threads, idle, net, files, clock; the API that applications
//! see. It reads like std:
//!
//! ```no_run
//! use std::time::Duration;
//! use tare_libos::{println, sync::mpsc, thread};
//!
//! fn main() {
//!     let (sender, receiver) = mpsc::channel();
//!     thread::spawn(move || {
//!         thread::sleep(Duration::from_millis(10));
//!         sender.send("ten milliseconds later").ok();
//!     });
//!     if let Ok(message) = receiver.recv() {
//!         println!("{message}");
//!     }
//! }
//! tare_libos::entry!(main);
//! ```
//!
//! An application is a `#![no_std] #![no_main]` binary with one [`entry!`].
//! The crate also compiles for the host, where [`thread`] is a shim over
//! `std::thread`, so that everything above it can be tested there.
//!
//! [`serve`] is what servers share: accepting, a thread for each connection, the transport, the
//! buffer. [`block`] has blocking calls: a request in flight is a thread that sleeps until the
//! interrupt handler takes its completion off the ring. [`net`] has one lock and one thread.
//!
//! With the feature `embedded-io`, crates without std that read and write through `embedded-io` or
//! `embedded-io-async` run on [`net::TcpStream`] and [`fs::File`]; [`task`] runs their futures.
//!
//! # Three idle loops
//!
//! `idle=` on the command line (`tare run --idle`) chooses between arms of one image:
//!
//! | `idle=` | network thread | a core without work |
//! |---|---|---|
//! | `block` (default) | woken by interrupts and deadlines | spins briefly, then halts |
//! | `poller` | a poller looks in a loop and declares idle turns | halts when every poller has been idle for 200 ms, as in Toro |
//! | `spin` | a poller looks forever | never halts |

#![cfg_attr(target_os = "none", no_std)]
#![deny(unsafe_code)]

extern crate alloc;

#[doc(hidden)]
pub use tare_hal as hal;
pub use tare_io as io;

pub mod block;
pub mod console;
mod devices;
#[cfg(feature = "embedded-io")]
mod embedded;
pub mod entry;
pub mod env;
pub mod fs;
pub mod heap;
pub mod idle;
#[cfg(target_os = "none")]
mod logger;
pub mod net;
pub mod ports;
pub mod random;
#[cfg(target_os = "none")]
#[doc(hidden)]
pub mod rt;
pub mod sched;
pub mod serve;
pub mod sync;
pub mod task;
pub mod thread;
pub mod time;
mod virtio;

//! The network stack of appliances as a state machine without clock, threads or device: frames
//! come and go through a [`link::Link`], time is passed in, and who waits is woken through
//! [`waiters::Wake`]. `tare_libos::net` puts one under its sockets.
//!
//! From the device up:
//!
//! | module | what it is |
//! |---|---|
//! | [`link`] | what the stack needs of a device; the loopback |
//! | [`frame`] | what a frame is about, from fixed offsets |
//! | [`binding`] | the local address of a socket |
//! | `flow`, `timers` | connections by address; their deadlines |
//! | `port` | smoltcp's interface, driven for one socket at a time |
//! | [`stack`] | all of it |
//!
//! TCP is `tare_tcp`, UDP and IPv6 are in [`stack`]; smoltcp has ARP, ICMP and DHCP
//! of IPv4. Not here: reassembly of IPv6's fragments, and of IPv4's but for programs; reception of multicast.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arp;
pub mod binding;
pub mod checksum;
mod flow;
pub mod frame;
mod ipv6;
pub mod link;
pub mod memory;
mod neighbours;
mod port;
mod random;
pub mod readiness;
pub mod stack;
mod timers;
mod transmit;
pub mod waiters;

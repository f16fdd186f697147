//! A guest that tries what a guest may not do, and prints how far it came. The
//! tests of the program and `make soak` run it.
//!
//! `connect=ADDRESS:PORT` on the command line: opens a TCP connection and sends a
//! datagram to it. Prints `connected` or `no connection`, then `hostile done`.

#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

mod network;

use tare_libos::{env, println};

fn hostile() -> u8 {
    if let Some(address) = env::var("connect") {
        network::reach(address);
    }
    println!("hostile done");
    0
}

tare_libos::entry!(hostile);

/// On the host, over the shim of `tare_libos::thread`.
#[cfg(not(target_os = "none"))]
fn main() -> std::process::ExitCode {
    hostile().into()
}

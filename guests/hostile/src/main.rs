//! A guest that tries what a guest may not do, and prints how far it came. The
//! tests of the program and `make soak` run it.
//!
//! `connect=ADDRESS:PORT` on the command line: opens a TCP connection and sends a
//! datagram to it. Prints `connected` or `no connection`, then `hostile done`.
//!
//! `flood=N`: 64 reads of N MiB each of the first disk at a time, as long as the machine runs.
//!
//! `operations=N`, with `seed=N`: this many operations of nonsense on every virtio device
//! (`devices`); `hold` keeps the machine afterwards. Devices may overwrite the image, so the guest
//! may also crash.

#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

#[cfg(target_os = "none")]
mod devices;
mod network;

use tare_libos::{env, println};

fn hostile() -> u8 {
    if let Some(address) = env::var("connect") {
        network::reach(address);
    }
    #[cfg(target_os = "none")]
    if let Some(mib) = number("flood")
        && !devices::flood::play(mib)
    {
        return 1;
    }
    #[cfg(target_os = "none")]
    if let Some(operations) = number("operations")
        && !devices::play(number("seed").unwrap_or(1), operations)
    {
        return 1;
    }
    println!("hostile done");
    while env::has_word("hold") {
        tare_libos::thread::sleep(tare_libos::time::Duration::from_secs(3600));
    }
    0
}

#[cfg(target_os = "none")]
fn number(key: &'static str) -> Option<u64> {
    env::var(key)?.parse().ok()
}

tare_libos::entry!(hostile);

/// On the host, over the shim of `tare_libos::thread`.
#[cfg(not(target_os = "none"))]
fn main() -> std::process::ExitCode {
    hostile().into()
}

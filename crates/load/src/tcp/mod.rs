//! Transfers over an impaired wire in real time, by this project's TCP and by Linux's.

mod linux;
mod ours;
mod transfer;

use std::path::Path;

use tare_host::tap_namespace as tap;

pub use linux::Received;
pub use transfer::{Arm, TransferStats, transfer};

/// Why this cannot be measured here.
pub fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it makes network namespaces, which needs root".to_owned());
    }
    if !Path::new(tap::DEVICE).exists() {
        return Some(format!("{} is missing (modprobe tun)", tap::DEVICE));
    }
    let probed = std::thread::spawn(|| tap::enter("192.0.2.1/24").map(drop)).join();
    match probed {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("a tap in a network namespace: {error}")),
        Err(_) => Some("a tap in a network namespace cannot be made".to_owned()),
    }
}

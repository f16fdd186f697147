//! What every Linux guest in QEMU needs, whoever starts it.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

/// QEMU's program.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// A plain processor, without what the translator would complain about; tracers
/// of Linux crash on `max` with several CPUs.
pub const TRANSLATED_CPU: &str = "Haswell,-pcid,-x2apic,-tsc-deadline,-invpcid,-hle,-rtm";
/// The kernel's word for the address that QEMU's own network gives.
pub const ADDRESS: &str = "ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:off";

/// A path in QEMU's options, which double a comma that is not a separator.
pub fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// A port of the loopback interface that is free now; who takes it in between
/// makes the machine fail, which is seen.
pub fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

//! A network namespace of one thread, with a tap interface whose other end is a file.
//!
//! The one place of this crate with unsafe code: `rustix` leaves it to the caller to
//! say that a request number and its argument belong together.
#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;

use rustix::fs::OFlags;
use rustix::ioctl::{Setter, ioctl, opcode};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// What makes tap interfaces.
pub const DEVICE: &str = "/dev/net/tun";
const NAME: &str = "wire0";
/// `linux/if_tun.h`. Without a virtio header the kernel neither segments in the device nor
/// leaves checksums out: what passes is what a wire carries.
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const TUNSETIFF: u32 = opcode::write::<i32>(b'T', 202);

/// `struct ifreq` with flags.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    padding: [u8; 22],
}

/// Moves the calling thread into a new namespace, with `address` (`192.0.2.1/24`) on a tap of
/// its own; the other end, which does not block and carries Ethernet frames. All of it ends
/// with the thread and the file. Needs root, [`DEVICE`] and the program `ip`.
pub fn enter(address: &str) -> io::Result<File> {
    // SAFETY: descriptors stay shared, since CLONE_FILES is not among the flags.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    let file = open()?;
    // IPv6 would only add frames that are not measured.
    let off = fs::write(format!("/proc/sys/net/ipv6/conf/{NAME}/disable_ipv6"), "1");
    off.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    ip(&["address", "add", address, "dev", NAME])?;
    ip(&["link", "set", NAME, "up"])?;
    Ok(file)
}

fn open() -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nonblocking)
        .open(DEVICE)?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TAP | IFF_NO_PI,
        padding: [0; 22],
    };
    request.name[..NAME.len()].copy_from_slice(NAME.as_bytes());
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which `InterfaceRequest` is in size and
    // layout.
    let attach = unsafe { Setter::<TUNSETIFF, InterfaceRequest>::new(request) };
    // SAFETY: the kernel copies the request before the call returns.
    unsafe { ioctl(&file, attach) }?;
    Ok(file)
}

/// Children of a thread begin in its namespace.
fn ip(words: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(words).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("ip {}: {said}", words.join(" "))))
}

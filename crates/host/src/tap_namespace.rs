//! A network namespace of one thread, with a tap interface whose other end is a file; one with
//! a tap for another program; and the loopback interface of any new namespace.
//!
//! Unsafe code, since `rustix` leaves it to the caller to say that a request number and its
//! argument belong together.
#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustix::fs::OFlags;
use rustix::ioctl::{Setter, ioctl, opcode};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// What makes tap interfaces.
pub const DEVICE: &str = "/dev/net/tun";
/// The tap's name in its namespace.
pub const NAME: &str = "wire0";
/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";
/// `linux/if_tun.h`. Without a virtio header the kernel neither segments in the device nor
/// leaves checksums out: what passes is what a wire carries.
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const TUNSETIFF: u32 = opcode::write::<i32>(b'T', 202);
/// `linux/sockios.h` and `linux/if.h`.
const SIOCSIFFLAGS: u32 = 0x8914;
const IFF_UP: u16 = 1;

/// `struct ifreq` with flags.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    padding: [u8; 22],
}

impl InterfaceRequest {
    fn new(name: &str, flags: u16) -> Self {
        let mut request = Self {
            name: [0; 16],
            flags,
            padding: [0; 22],
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request
    }
}

/// Brings up the loopback interface of the calling thread's namespace, which is down in a new
/// one (`netdevice(7)`). Needs CAP_NET_ADMIN there.
pub fn raise_loopback() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let request = InterfaceRequest::new("lo", IFF_UP);
    // SAFETY: SIOCSIFFLAGS reads a `struct ifreq`, which `InterfaceRequest` is in size and
    // layout.
    let raise = unsafe { Setter::<SIOCSIFFLAGS, InterfaceRequest>::new(request) };
    // SAFETY: the kernel copies the request before the call returns.
    unsafe { ioctl(&socket, raise) }?;
    Ok(())
}

/// Moves the calling thread into a new namespace, with `address` (`192.0.2.1/24`) on a new
/// tap; the other end, which does not block and carries Ethernet frames. All of it ends
/// with the thread and the file. Needs root, [`DEVICE`] and the program `ip`.
pub fn enter(address: &str) -> io::Result<File> {
    // SAFETY: descriptors stay shared, since CLONE_FILES is not among the flags.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    let file = open()?;
    raise(address)?;
    Ok(file)
}

/// A network namespace with a tap interface that another program, such as a virtual machine
/// monitor, opens by its [`NAME`]. It ends with the last copy of this value and the last
/// process and socket in it.
#[derive(Clone, Debug)]
pub struct TapNamespace(Arc<File>);

impl TapNamespace {
    /// Makes one with `address` (`192.0.2.1/24`) on the host's side of the tap.
    ///
    /// # Errors
    /// Without root, [`DEVICE`] or the program `ip`.
    pub fn new(address: &str) -> io::Result<Self> {
        let make = || {
            // SAFETY: descriptors stay shared, since CLONE_FILES is not among the flags.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            ip(&["tuntap", "add", NAME, "mode", "tap", "vnet_hdr"])?;
            raise(address)?;
            Ok(Self(Arc::new(File::open(OWN)?)))
        };
        // The thread alone moves, and ends.
        thread::scope(|scope| scope.spawn(make).join())
            .unwrap_or_else(|_| Err(io::Error::other("the thread of a namespace panicked")))
    }

    /// What `act` does on the calling thread in the namespace, where sockets that it opens and
    /// programs that it starts stay. A child that ends with its parent's thread must be
    /// started here rather than on a thread that ends.
    ///
    /// # Errors
    /// If the thread cannot enter or, which no caller should survive, not go back.
    pub fn within<R>(&self, act: impl FnOnce() -> R) -> io::Result<R> {
        let network = Some(LinkNameSpaceType::Network);
        let own = File::open(OWN)?;
        move_into_link_name_space(self.0.as_fd(), network)?;
        let done = act();
        move_into_link_name_space(own.as_fd(), network)?;
        Ok(done)
    }
}

/// Gives the tap of the calling thread's namespace its address, and raises it.
fn raise(address: &str) -> io::Result<()> {
    // IPv6 would only add frames that are not measured.
    let off = fs::write(format!("/proc/sys/net/ipv6/conf/{NAME}/disable_ipv6"), "1");
    off.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    ip(&["address", "add", address, "dev", NAME])?;
    ip(&["link", "set", NAME, "up"])
}

fn open() -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nonblocking)
        .open(DEVICE)?;
    let request = InterfaceRequest::new(NAME, IFF_TAP | IFF_NO_PI);
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_new_namespace_has_a_loopback_interface_once_it_is_raised() {
        let connects = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            TcpStream::connect(listener.local_addr().unwrap()).is_ok()
        };
        let body = move || {
            // SAFETY: descriptors stay shared, since CLONE_FILES is not among the flags.
            if unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.is_err() {
                tare_vmtest::lacks("this user may make no network namespace");
                return;
            }
            assert!(!connects(), "it is down at first");
            raise_loopback().unwrap();
            assert!(connects());
        };
        thread::spawn(body).join().unwrap();
    }

    #[test]
    fn a_thread_comes_back_from_the_namespace_of_a_tap() {
        let namespace = TapNamespace::new("192.0.2.1/24")
            .map_err(|error| format!("no network namespace with a tap: {error}"));
        let Some(namespace) = tare_vmtest::or_lacks(namespace) else {
            return;
        };
        let bound = || TcpListener::bind(("192.0.2.1", 0));
        assert!(namespace.within(bound).unwrap().is_ok());
        assert!(bound().is_err(), "this thread's own namespace lacks it");
        let listed = || ip(&["link", "show", NAME]);
        assert!(namespace.within(listed).unwrap().is_ok());
        assert!(listed().is_err());
    }
}

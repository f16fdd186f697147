//! Attaching to a tap interface that exists.
//!
//! The only unsafe code of this crate: with `rustix` the caller guarantees that a request number
//! and its argument belong together.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;

use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use tare_control::exit::ExitCode;

use crate::failure::Explain;

const DEVICE: &str = "/dev/net/tun";
/// `linux/if_tun.h`.
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const TUNSETIFF: u32 = opcode::write::<i32>(b'T', 202);
const TUNSETVNETHDRSZ: u32 = opcode::write::<i32>(b'T', 216);
/// `struct virtio_net_hdr_v1`, which virtio 1.x devices always have.
const VNET_HEADER_BYTES: i32 = 12;

/// A tap interface that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TapError {
    /// No interface of that name.
    #[error("the tap interface {0} does not exist")]
    Missing(String),
    /// An interface of another kind.
    #[error("{0} is not a tap interface")]
    NotTap(String),
    /// Another program is attached to it.
    #[error("the tap interface {0} is in use by another program")]
    Busy(String),
    /// It belongs to another user.
    #[error("this user may not use the tap interface {0}")]
    NotAllowed(String),
    /// `/dev/net/tun` cannot be opened.
    #[error("cannot open {DEVICE}")]
    Device(#[source] io::Error),
    /// The kernel refused for another reason.
    #[error("cannot attach to the tap interface {name}")]
    Attach {
        /// The interface.
        name: String,
        /// Why.
        source: io::Error,
    },
}

impl Explain for TapError {
    fn code(&self) -> ExitCode {
        ExitCode::Tap
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Missing(name) => Some(format!(
                "make it with: ip tuntap add dev {name} mode tap vnet_hdr user $USER && \
                 ip link set {name} up"
            )),
            Self::NotAllowed(name) => Some(format!(
                "run as its user, or make it anew for this one: sudo ip tuntap del dev {name} \
                 mode tap && sudo ip tuntap add dev {name} mode tap vnet_hdr user $USER && \
                 sudo ip link set {name} up"
            )),
            Self::Device(_) => Some("load the module tun (modprobe tun)".to_owned()),
            _ => None,
        }
    }
}

/// `struct ifreq` with flags.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    padding: [u8; 22],
}

/// Attaches to the interface `name`: frames with a 12-byte virtio header.
pub(crate) fn open(name: &str) -> Result<File, TapError> {
    check_exists(name)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(DEVICE)
        .map_err(TapError::Device)?;
    attach(&file, name).map_err(|errno| match errno {
        Errno::BUSY => TapError::Busy(name.to_owned()),
        Errno::INVAL => TapError::NotTap(name.to_owned()),
        Errno::PERM | Errno::ACCESS => TapError::NotAllowed(name.to_owned()),
        _ => TapError::Attach {
            name: name.to_owned(),
            source: errno.into(),
        },
    })?;
    Ok(file)
}

/// Checks that the interface exists, since the kernel would create a missing one for root. Through
/// a socket, since /sys may show another network namespace.
fn check_exists(name: &str) -> Result<(), TapError> {
    let attach = |errno: Errno| TapError::Attach {
        name: name.to_owned(),
        source: errno.into(),
    };
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(attach)?;
    match name_to_index(&socket, name) {
        Ok(_) => Ok(()),
        Err(Errno::NODEV) => Err(TapError::Missing(name.to_owned())),
        Err(errno) => Err(attach(errno)),
    }
}

fn attach(file: &File, name: &str) -> Result<(), Errno> {
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TAP | IFF_NO_PI | IFF_VNET_HDR,
        padding: [0; 22],
    };
    // The last byte stays the final NUL.
    let (place, _) = request.name.split_at_mut(15);
    for (to, from) in place.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which `InterfaceRequest` is in
    // size and layout.
    let attach = unsafe { Setter::<TUNSETIFF, InterfaceRequest>::new(request) };
    // SAFETY: the kernel copies the request before the call returns.
    unsafe { ioctl(file, attach) }?;
    // SAFETY: TUNSETVNETHDRSZ reads an `int` behind its argument.
    let set_header = unsafe { Setter::<TUNSETVNETHDRSZ, i32>::new(VNET_HEADER_BYTES) };
    // SAFETY: the kernel copies the `int` before the call returns.
    unsafe { ioctl(file, set_header) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_long_as_the_kernels() {
        assert_eq!(size_of::<InterfaceRequest>(), 40);
    }

    #[test]
    fn a_missing_tap_is_not_made() {
        let error = open("tare-none0").expect_err("no such interface");
        assert!(matches!(error, TapError::Missing(_)));
        assert!(
            error
                .hint()
                .is_some_and(|way| way.contains("ip tuntap add"))
        );
        assert!(check_exists("tare-none0").is_err());
    }

    #[test]
    fn loopback_is_refused_as_a_tap() {
        // A user who may not attach does not learn what the interface is.
        let error = open("lo").expect_err("no tap");
        let said = matches!(
            error,
            TapError::NotTap(_) | TapError::NotAllowed(_) | TapError::Device(_)
        );
        assert!(said, "{error}");
    }
}

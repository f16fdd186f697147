//! A tap interface with the virtio header (`IFF_VNET_HDR`, 12 bytes): host and guest leave
//! checksums and TCP segmentation to the device.
//!
//! Reference: Linux `Documentation/networking/tuntap.rst`, `drivers/net/tun.c`.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, ioctl, opcode};
use tare_devices::net::{
    HEADER_LEN, Link, LinkError, LinkFeatures, LinkOffload, NetHeader, RxFrame, RxOffload,
};

/// Longest frame: 64 KiB of segmented TCP with its Ethernet header.
const MAX_FRAME: usize = 65_550;

const TUNSETOFFLOAD: Opcode = opcode::write::<libc::c_uint>(b'T', 208);
const TUNSETVNETHDRSZ: Opcode = opcode::write::<libc::c_int>(b'T', 216);
const TUNSETVNETLE: Opcode = opcode::write::<libc::c_int>(b'T', 220);
const TUN_F_CSUM: usize = 1;
const TUN_F_TSO4: usize = 2;
const TUN_F_TSO6: usize = 4;

/// The link. A tap takes and gives one frame for each system call.
pub struct TapLink {
    tap: OwnedFd,
    rx: Box<[u8]>,
    /// Bytes in `rx`, with the header; 0 for none.
    received: usize,
    tx: Box<[u8]>,
    reserved: usize,
    /// A committed frame in `tx` that the tap did not take yet.
    unsent: usize,
}

impl TapLink {
    /// A link over a tap opened with `IFF_NO_PI | IFF_VNET_HDR`.
    pub fn new(tap: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&tap, fcntl_getfl(&tap)? | OFlags::NONBLOCK)?;
        set_int::<TUNSETVNETHDRSZ>(&tap, HEADER_LEN as libc::c_int)?;
        set_int::<TUNSETVNETLE>(&tap, 1)?;
        set_offload(&tap, RxOffload::default())?;
        let buffer = || vec![0; HEADER_LEN + MAX_FRAME].into_boxed_slice();
        Ok(Self {
            tap,
            rx: buffer(),
            received: 0,
            tx: buffer(),
            reserved: 0,
            unsent: 0,
        })
    }
}

/// Both ioctls that take a pointer to an int.
fn set_int<const OPCODE: Opcode>(tap: &OwnedFd, value: libc::c_int) -> Result<(), Errno> {
    // SAFETY: the opcodes that this is called with read an int through a pointer.
    let set = unsafe { Setter::<OPCODE, libc::c_int>::new(value) };
    // SAFETY: the kernel copies the int before the call returns.
    unsafe { ioctl(tap, set) }
}

fn set_offload(tap: &OwnedFd, accepted: RxOffload) -> Result<(), Errno> {
    let flag = |on: bool, flag: usize| if on { flag } else { 0 };
    let flags = if accepted.csum {
        TUN_F_CSUM | flag(accepted.tso4, TUN_F_TSO4) | flag(accepted.tso6, TUN_F_TSO6)
    } else {
        0
    };
    // SAFETY: TUNSETOFFLOAD takes its flags as a value.
    let set = unsafe { IntegerSetter::<TUNSETOFFLOAD>::new_usize(flags) };
    // SAFETY: without a pointer, the kernel accesses no memory of this process.
    unsafe { ioctl(tap, set) }
}

impl AsFd for TapLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}

impl Link for TapLink {
    fn features(&self) -> LinkFeatures {
        LinkFeatures {
            max_frame: MAX_FRAME,
            offload: LinkOffload::VnetHeader,
        }
    }

    fn set_offload(&mut self, accepted: RxOffload) -> Result<(), LinkError> {
        Ok(set_offload(&self.tap, accepted).map_err(io::Error::from)?)
    }

    fn peek(&mut self) -> Result<Option<RxFrame<'_>>, LinkError> {
        if self.received == 0 {
            self.received = match rustix::io::read(&self.tap, &mut self.rx[..]) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(errno) => return Err(io::Error::from(errno).into()),
            };
        }
        let received = &mut self.rx[..self.received];
        Ok(received
            .split_first_chunk_mut::<HEADER_LEN>()
            .map(|(header, bytes)| RxFrame {
                header: NetHeader::from_bytes(header),
                bytes,
            }))
    }

    fn consume(&mut self) {
        self.received = 0;
    }

    fn reserve(&mut self, len: usize) -> Result<Option<&mut [u8]>, LinkError> {
        self.flush()?;
        if self.has_unsent() {
            return Ok(None);
        }
        self.reserved = len;
        Ok(Some(&mut self.tx[HEADER_LEN..HEADER_LEN + len]))
    }

    fn commit(&mut self, header: &NetHeader) -> Result<(), LinkError> {
        self.tx[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        self.unsent = HEADER_LEN + self.reserved;
        self.reserved = 0;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        if self.unsent == 0 {
            return Ok(());
        }
        match rustix::io::write(&self.tap, &self.tx[..self.unsent]) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) if loses_the_frame(errno) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        self.unsent = 0;
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.unsent > 0
    }
}

/// Whether the tap refuses a frame, has no memory for it, or the interface is down for now: a
/// network may lose frames, so the link stays up. Other errors are those of a tap that is gone.
fn loses_the_frame(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::NOBUFS | Errno::NOMEM
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_without_memory_is_lost_and_a_tap_without_interface_ends_the_link() {
        assert!(loses_the_frame(Errno::NOMEM) && loses_the_frame(Errno::IO));
        assert!(!loses_the_frame(Errno::BADFD) && !loses_the_frame(Errno::BADF));
    }
}

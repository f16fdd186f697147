//! Guest writes that only signal an event descriptor.

use kvm_ioctls::{IoEventAddress, NoDatamatch};
use vmm_sys_util::eventfd::EventFd;

use super::{Vm, VmError, refused};

/// Where a guest's write signals an event descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoAddress {
    /// An I/O port.
    Port(u16),
    /// A guest-physical address outside RAM.
    Memory(u64),
}

/// Which writes to an [`IoAddress`] signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMatch {
    /// Any length, any value. KVM handles this one fastest.
    Any,
    /// A 16-bit write of this value (virtio's queue index).
    Word(u16),
    /// A 32-bit write of this value.
    Dword(u32),
}

impl Vm {
    /// Makes a guest's write to `address` that fits `matching` signal `event` instead of returning
    /// from `KVM_RUN`.
    pub fn ioeventfd(
        &self,
        address: IoAddress,
        matching: WriteMatch,
        event: &EventFd,
    ) -> Result<(), VmError> {
        let at = event_address(address);
        match matching {
            WriteMatch::Any => self.fd.register_ioevent(event, &at, NoDatamatch),
            WriteMatch::Word(value) => self.fd.register_ioevent(event, &at, value),
            WriteMatch::Dword(value) => self.fd.register_ioevent(event, &at, value),
        }
        .map_err(refused(|| format!("an ioeventfd at {address:x?}")))
    }
}

fn event_address(address: IoAddress) -> IoEventAddress {
    match address {
        IoAddress::Port(port) => IoEventAddress::Pio(u64::from(port)),
        IoAddress::Memory(address) => IoEventAddress::Mmio(address),
    }
}

//! One virtual machine: memory slots, in-kernel interrupt controllers,
//! interrupt routes, event descriptors, per-machine settings.
//!
//! All methods take `&self`: a device's MSI-X table is written from any vCPU
//! thread. Only the routing table needs a lock.

#![allow(unsafe_code)]

mod error;
mod ioevent;
mod settings;

use std::sync::{Mutex, PoisonError};

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Cap, VmFd};
use tare_abi::layout;
use vm_memory::{Address, GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::eventfd::EventFd;

use crate::MsiMessage;
use crate::cpuid;
use crate::kvm::Kvm;
use crate::memory::GuestMemoryMmap;
use crate::probe::Probe;
use crate::routing::{IOAPIC_PINS, Routes};
use crate::stats::{StatsError, StatsFd};
use crate::vcpu::{Vcpu, VcpuError};

pub use error::VmError;
pub use ioevent::{IoAddress, WriteMatch};

/// One virtual machine.
#[derive(Debug)]
pub struct Vm {
    fd: VmFd,
    memory: GuestMemoryMmap,
    routes: Mutex<Routes>,
    gsi_limit: u32,
}

impl Vm {
    /// A machine on `memory`, with local APICs, IOAPIC and PICs in the kernel
    /// and without a PIT.
    pub fn new(kvm: &Kvm, memory: &GuestMemoryMmap) -> Result<Self, VmError> {
        let vm = Self::without_irqchip(kvm, memory)?;
        vm.fd.create_irq_chip().map_err(build("make an irqchip"))?;
        vm.apply(&Routes::default(), || "the first routing table".to_owned())?;
        Ok(vm)
    }

    /// A machine whose HLT returns to user space, for the probe.
    pub(crate) fn without_irqchip(kvm: &Kvm, memory: &GuestMemoryMmap) -> Result<Self, VmError> {
        let fd = uninterrupted(|| kvm.fd().create_vm()).map_err(build("make a machine"))?;
        let gsi_limit = u32::try_from(fd.check_extension_int(Cap::IrqRouting)).unwrap_or(0);
        let vm = Self {
            fd,
            memory: memory.clone(),
            routes: Mutex::default(),
            gsi_limit,
        };
        vm.reserve_for_vtx()?;
        vm.add_memory()?;
        Ok(vm)
    }

    /// VT-x without unrestricted guests keeps a task state segment and an identity page table in
    /// guest-physical addresses that nothing else uses.
    fn reserve_for_vtx(&self) -> Result<(), VmError> {
        if self.fd.check_extension(Cap::SetTssAddr) {
            self.fd
                .set_tss_address(layout::KVM_TSS as usize)
                .map_err(build("place its task state segment"))?;
        }
        if self.fd.check_extension(Cap::SetIdentityMapAddr) {
            self.fd
                .set_identity_map_address(layout::KVM_TSS - 4096)
                .map_err(build("place its identity map"))?;
        }
        Ok(())
    }

    fn add_memory(&self) -> Result<(), VmError> {
        for (slot, region) in (0..).zip(self.memory.iter()) {
            let start = region.start_addr();
            let userspace_addr = self
                .memory
                .get_host_address(start)
                .map_err(|_| VmError::Unmapped { start: start.0 })?;
            let slot = kvm_userspace_memory_region {
                slot,
                flags: 0,
                guest_phys_addr: start.raw_value(),
                memory_size: region.len(),
                userspace_addr: userspace_addr as u64,
            };
            // SAFETY: the region is mapped as long as `self.memory` lives, which
            // is as long as the machine's descriptor; vCPUs hold a copy, too.
            unsafe { self.fd.set_user_memory_region(slot) }.map_err(build("take guest memory"))?;
        }
        Ok(())
    }

    /// Creates vCPU `index` of `count`, with a CPUID of what KVM supports and the probe found to
    /// work. Its APIC ID is its index.
    pub fn vcpu(&self, probe: &Probe, index: u8, count: u8, ring: u8) -> Result<Vcpu, VcpuError> {
        Vcpu::new(self, probe, cpuid::Topology { index, count }, ring)
    }

    /// Makes each signal on `event` raise interrupt `gsi`, without a system call.
    pub fn irqfd(&self, gsi: u32, event: &EventFd) -> Result<(), VmError> {
        self.fd
            .register_irqfd(event, gsi)
            .map_err(refused(|| format!("an irqfd for GSI {gsi}")))
    }

    /// Makes `gsi` deliver `message`. Costs nothing if it does already; otherwise KVM replaces the
    /// whole table.
    pub fn msi_route(&self, gsi: u32, message: MsiMessage) -> Result<(), VmError> {
        self.set_route(gsi, Some(message))
    }

    /// Makes `gsi` deliver nothing (masked). Signals meanwhile are lost: the device keeps a masked
    /// vector's pending bit.
    pub fn remove_msi_route(&self, gsi: u32) -> Result<(), VmError> {
        self.set_route(gsi, None)
    }

    fn set_route(&self, gsi: u32, message: Option<MsiMessage>) -> Result<(), VmError> {
        if !(IOAPIC_PINS..self.gsi_limit).contains(&gsi) {
            let limit = self.gsi_limit;
            return Err(VmError::Gsi { gsi, limit });
        }
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(previous) = routes.replace(gsi, message) else {
            return Ok(());
        };
        self.apply(&routes, || format!("a message route for GSI {gsi}"))
            .inspect_err(|_| {
                routes.replace(gsi, previous);
            })
    }

    fn apply(&self, routes: &Routes, what: impl Fn() -> String) -> Result<(), VmError> {
        let table = routes.table().ok_or_else(|| VmError::Event {
            what: what(),
            source: kvm_ioctls::Error::new(libc::ENOSPC),
        })?;
        self.fd.set_gsi_routing(&table).map_err(refused(what))
    }

    /// First GSI that KVM does not have; messages take 24 up to this.
    pub fn gsi_limit(&self) -> u32 {
        self.gsi_limit
    }

    /// KVM's statistics of the whole machine.
    pub fn stats(&self) -> Result<StatsFd, StatsError> {
        StatsFd::of(&self.fd)
    }

    /// The memory that the guest sees.
    pub fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    pub(crate) fn fd(&self) -> &VmFd {
        &self.fd
    }
}

/// Repeats a call for as long as a signal interrupts it. KVM_CREATE_VM gives EINTR for any pending
/// signal while it takes the locks of the address space (`mm_take_all_locks`); QEMU repeats it too.
fn uninterrupted<T>(
    mut call: impl FnMut() -> Result<T, kvm_ioctls::Error>,
) -> Result<T, kvm_ioctls::Error> {
    loop {
        match call() {
            Err(error) if error.errno() == libc::EINTR => {}
            other => return other,
        }
    }
}

fn build(step: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> VmError {
    move |source| VmError::Build { step, source }
}

pub(super) fn refused(what: impl FnOnce() -> String) -> impl FnOnce(kvm_ioctls::Error) -> VmError {
    move |source| VmError::Event {
        what: what(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_made_in_spite_of_signals() {
        let mut answers = [libc::EINTR, libc::EINTR, 0, libc::EINTR, libc::ENOMEM].into_iter();
        let mut call = || match answers.next() {
            Some(0) => Ok(7),
            Some(errno) => Err(kvm_ioctls::Error::new(errno)),
            None => Ok(8),
        };
        assert_eq!(uninterrupted(&mut call), Ok(7));
        let refused = uninterrupted(&mut call);
        assert_eq!(refused.map_err(|it| it.errno()), Err(libc::ENOMEM));
    }
}

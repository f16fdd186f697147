//! Finds the machine's virtio devices: on PCI bus 0, and where the command line
//! says that there are virtio-mmio devices (QEMU's microvm and Firecracker
//! write it there).

#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use tare_abi::cmdline::{self, VIRTIO_MMIO};
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::pci::PciTransport;
use virtio_drivers::transport::pci::bus::{DeviceFunction, PciRoot};
use virtio_drivers::transport::pci::{
    VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_PCI_CAP_NOTIFY_CFG, VIRTIO_VENDOR_ID,
};

use super::Dma;
use super::interrupts::{Interrupts, line, msix};
use super::mmio_word::MmioWord;
use super::transport::{Notifier, PciNotifier, Transport};
use crate::pci::{self, Function, Msix};
use crate::{boot, memory};

const VENDOR_CAPABILITY: u8 = 9;

unsafe extern "Rust" {
    /// What takes a console over, if the image uses one; defined by `tare_libos::entry!`.
    static TARE_CONSOLE: Option<fn(Transport)>;
}

/// What takes a console over. The image names it, so that only one that runs other programs
/// links that driver.
pub fn console_driver() -> Option<fn(Transport)> {
    // SAFETY: 1. `tare_libos::entry!` defines the constant once in every image, with this type. 2.
    //    Nothing writes it.
    unsafe { TARE_CONSOLE }
}

/// The machine's virtio devices, in bus order. The first call finds and
/// returns them all; later calls return nothing.
pub fn devices() -> Vec<Transport> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let mut devices = Vec::new();
    if pci::exists() {
        let found = pci::functions()
            .filter(|(_, id)| *id as u16 == VIRTIO_VENDOR_ID)
            .filter_map(|(at, _)| open_pci(at));
        devices.extend(found);
    }
    let has_pci = !devices.is_empty();
    devices.extend(mmio_words(has_pci).iter().filter_map(open_mmio));
    devices
}

/// From the command line, and from ACPI where there is nothing on PCI.
fn mmio_words(has_pci: bool) -> Vec<MmioWord> {
    let mut words: Vec<_> = cmdline::values(boot::cmdline(), VIRTIO_MMIO)
        .filter_map(MmioWord::parse)
        .collect();
    if !has_pci {
        for word in boot::acpi_virtio_mmio() {
            if !words.iter().any(|known| known.base == word.base) {
                words.push(word);
            }
        }
    }
    words
}

fn open_pci(at: DeviceFunction) -> Option<Transport> {
    let function = Function::open(at);
    let mut root = PciRoot::new(function.clone());
    let inner = match PciTransport::new::<Dma, _>(&mut root, at) {
        Ok(inner) => inner,
        Err(error) => {
            log::warn!("virtio device {at}: {error}");
            return None;
        }
    };
    let Some(table) = Msix::enable(&mut root, at, &function) else {
        log::warn!("virtio device {at} has no MSI-X");
        return None;
    };
    let notifier = notifier(&mut root, at, &function)?;
    Some(Transport::new(
        inner.into(),
        Notifier::Pci(notifier),
        Interrupts::Msix(msix::PerQueue::new(table)),
    ))
}

/// Finds the structures that the transport keeps to itself.
fn notifier(
    root: &mut PciRoot<Function>,
    at: DeviceFunction,
    function: &Function,
) -> Option<PciNotifier> {
    let (mut common, mut notify) = (None, None);
    let capabilities: Vec<_> = root.capabilities(at).take(pci::MAX_CAPABILITIES).collect();
    for capability in capabilities {
        if capability.id != VENDOR_CAPABILITY {
            continue;
        }
        let word = |offset: u8| function.register(capability.offset.wrapping_add(offset));
        match (capability.private_header >> 8) as u8 {
            VIRTIO_PCI_CAP_COMMON_CFG if common.is_none() => {
                common = pci::bar_memory(root, at, word(4) as u8, word(8), u64::from(word(12)));
            }
            VIRTIO_PCI_CAP_NOTIFY_CFG if notify.is_none() => {
                let length = word(12);
                let start = pci::bar_memory(root, at, word(4) as u8, word(8), u64::from(length));
                notify = start.map(|start| (start, length, word(16)));
            }
            _ => {}
        }
    }
    let (notify, length, multiplier) = notify?;
    Some(PciNotifier::new(common?, notify, length, multiplier))
}

fn open_mmio(word: &MmioWord) -> Option<Transport> {
    let end = word.base.checked_add(word.size)?;
    if !memory::map_device(&(word.base..end)) {
        return None;
    }
    let header = NonNull::new(word.base as *mut virtio_drivers::transport::mmio::VirtIOHeader)?;
    // SAFETY: 1. The command line or ACPI says that a device's registers are there: the monitor is
    //    trusted with that. 2. They are mapped (checked above), and mappings are never removed. 3.
    //    `MmioWord::new` has checked that the address is a multiple of 4 and the size at least that
    //    of the registers; the size includes the configuration space.
    let inner = unsafe { MmioTransport::new(header, word.size as usize) }.ok()?;
    Some(Transport::new(
        inner.into(),
        Notifier::Inner,
        Interrupts::Line(line::Shared::new(word.base, word.line)),
    ))
}

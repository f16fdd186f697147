//! PCI configuration space, by memory (ECAM) where ACPI names it, which takes one exit for an
//! access, else by ports 0xcf8 and 0xcfc, which takes two; and MSI-X (PCI 3.0, 3.2.2.3.2 and
//! 6.8.2; PCI Express Base 5.0, 7.2.2).

#![allow(unsafe_code)]

use alloc::rc::Rc;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use tare_abi::layout::{PCI_MMIO_SIZE, PCI_MMIO_START};
use tare_abi::ports::{PCI_ADDRESS, PCI_DATA};
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction, PciRoot};
use x86_64::instructions::port::Port;

use crate::acpi::Tables;
use crate::cpuid;
use crate::lock::IrqLock;
use crate::memory;
use crate::trap::vector::Vector;

const ENABLE: u32 = 1 << 31;
const STATUS_COMMAND: u8 = 0x04;
const HEADER: u8 = 0x0c;
const MULTI_FUNCTION: u32 = 1 << 23;
const BAR0: u8 = 0x10;
/// Memory and I/O decoding.
const DECODE: u32 = 0b11;
/// Memory decoding, bus mastering, no legacy interrupt.
const WANTED: u32 = (1 << 1) | (1 << 2) | (1 << 10);
/// Capabilities looked at, should a list loop.
pub(crate) const MAX_CAPABILITIES: usize = 48;
const MSIX_CAPABILITY: u8 = 0x11;
const MSIX_ENABLE: u32 = 1 << 31;
const MSIX_FUNCTION_MASK: u32 = 1 << 30;
const MSI_ADDRESS: u32 = 0xfee0_0000;

/// What was last written to the address port: it is written only when it
/// changes, since each port access is an exit.
static SELECTED: IrqLock<u32> = IrqLock::new(0);

/// Where BARs without an address go.
static NEXT_BAR: AtomicU64 = AtomicU64::new(PCI_MMIO_START + PCI_MMIO_SIZE / 2);

/// Configuration space of bus 0 by memory; 0 if it is reached by ports.
static ECAM: AtomicU64 = AtomicU64::new(0);
/// Bytes of a bus, and where device, function and register start in an address.
const BUS_BYTES: u64 = 1 << 20;
const DEVICE_SHIFT: u32 = 15;
const FUNCTION_SHIFT: u32 = 12;

/// Uses configuration space by memory, if a function answers there.
pub(crate) fn init(tables: &Tables) {
    let base = tables.ecam;
    let range = base..base.saturating_add(BUS_BYTES);
    if base == 0 || !base.is_multiple_of(BUS_BYTES) || !memory::map_device(&range) {
        return;
    }
    ECAM.store(base, Ordering::Relaxed);
    let bridge = DeviceFunction {
        bus: 0,
        device: 0,
        function: 0,
    };
    if read(bridge, 0) == u32::MAX {
        ECAM.store(0, Ordering::Relaxed);
    }
}

/// The register of a function on bus 0, if configuration space is memory.
fn register_at(device: DeviceFunction, register: u8) -> Option<*mut u32> {
    let base = ECAM.load(Ordering::Relaxed);
    let offset = u64::from(device.device & 31) << DEVICE_SHIFT
        | u64::from(device.function & 7) << FUNCTION_SHIFT
        | u64::from(register & 0xfc);
    (base != 0 && device.bus == 0).then_some((base + offset) as *mut u32)
}

/// Whether there is a PCI host bridge: in memory, or behind the ports, whose address
/// register keeps what is written.
pub(crate) fn exists() -> bool {
    if ECAM.load(Ordering::Relaxed) != 0 {
        return true;
    }
    let mut port = Port::<u32>::new(PCI_ADDRESS);
    let mut selected = SELECTED.lock();
    *selected = ENABLE;
    // SAFETY: 1. The port is that of the host bridge, or no device's. 2. The write selects a
    //    register and has no other effect. 3. SELECTED is locked: no other core selects one in
    //    between.
    unsafe { port.write(ENABLE) };
    // SAFETY: 1. The port is that of the host bridge, or no device's. 2. A read of the selection
    //    has no effect.
    unsafe { port.read() == ENABLE }
}

/// Functions on bus 0 with their vendor (low half) and device. An access is an exit, so the
/// search ends at the first number without a device where the monitor says that it may.
pub(crate) fn functions() -> impl Iterator<Item = (DeviceFunction, u32)> {
    let is_dense = cpuid::has_dense_bus();
    let devices = (0..32).map_while(move |device| {
        let function = move |function| DeviceFunction {
            bus: 0,
            device,
            function,
        };
        let present = |at| {
            let id = read(at, 0);
            (id != u32::MAX).then_some((at, id))
        };
        let first = present(function(0));
        let has_others =
            first.is_some() && !is_dense && read(function(0), HEADER) & MULTI_FUNCTION != 0;
        let numbers = if has_others { 1..8 } else { 0..0 };
        let others = numbers.filter_map(move |number| present(function(number)));
        (first.is_some() || !is_dense).then(|| first.into_iter().chain(others))
    });
    devices.flatten()
}

/// Address of the first memory BAR below 4 GiB that a function has.
pub(crate) fn any_bar() -> Option<u64> {
    let bars = functions().flat_map(|(at, _)| (0..6).map(move |i| read(at, BAR0 + 4 * i)));
    bars.filter(|bar| bar & 1 == 0 && bar & !15 != 0)
        .map(|bar| u64::from(bar & !15))
        .find(|at| (PCI_MMIO_START..PCI_MMIO_START + PCI_MMIO_SIZE).contains(at))
}

/// Reads a configuration register.
pub(crate) fn read(device: DeviceFunction, register: u8) -> u32 {
    if let Some(register) = register_at(device, register) {
        // SAFETY: 1. The address lies in the MiB that `init` mapped. 2. Reading configuration
        //    space has no effect.
        return unsafe { register.read_volatile() };
    }
    let mut selected = SELECTED.lock();
    select(&mut selected, device, register);
    // SAFETY: 1. `select` has selected the register, and SELECTED is still locked: no other core
    //    selects one in between. 2. A read of configuration space has no effect.
    unsafe { Port::<u32>::new(PCI_DATA).read() }
}

pub(crate) fn write(device: DeviceFunction, register: u8, data: u32) {
    if let Some(register) = register_at(device, register) {
        // SAFETY: 1. As for `read`. 2. The callers set up devices that belong to this image.
        unsafe { register.write_volatile(data) };
        return;
    }
    let mut selected = SELECTED.lock();
    select(&mut selected, device, register);
    // SAFETY: 1. `select` has selected the register, and SELECTED is still locked: no other core
    //    selects one in between. 2. The callers set up devices that belong to this image.
    unsafe { Port::<u32>::new(PCI_DATA).write(data) };
}

fn select(selected: &mut u32, device: DeviceFunction, register: u8) {
    let address = ENABLE
        | u32::from(device.bus) << 16
        | u32::from(device.device) << 11
        | u32::from(device.function) << 8
        | u32::from(register & 0xfc);
    if *selected != address {
        *selected = address;
        // SAFETY: 1. The port is that of the host bridge, or no device's. 2. The write selects a
        //    register and has no other effect. 3. The caller has SELECTED locked.
        unsafe { Port::<u32>::new(PCI_ADDRESS).write(address) };
    }
}

/// Writes any value to the address port, for images that test monitors ([`crate::raw`]).
pub(crate) fn write_address(value: u32) {
    let mut selected = SELECTED.lock();
    *selected = value;
    // SAFETY: 1. The port is that of the host bridge, or no device's. 2. The write selects a
    //    register, if it is one, and has no other effect. 3. SELECTED holds what was written, so
    //    that the next access by ports selects its own register.
    unsafe { Port::<u32>::new(PCI_ADDRESS).write(value) };
}

/// One function's configuration space. Each register is read once, since an access is an
/// exit: BARs are sized when it is opened, and the transport walks the list of
/// capabilities, which do not change but for what is written here, several times.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    at: DeviceFunction,
    known: Rc<Known>,
    command: u32,
    addresses: [u32; 6],
    masks: [u32; 6],
    /// Bit by BAR: all ones were written, so a read gives the mask.
    sizing: u8,
}

impl Function {
    /// Sizes the BARs, gives those an address that have none, and switches
    /// memory and bus mastering on.
    pub(crate) fn open(at: DeviceFunction) -> Self {
        let known = Rc::new(Known::new(Width::of_reads()));
        let command = known.read(at, STATUS_COMMAND);
        write(at, STATUS_COMMAND, command & 0xffff & !DECODE);
        let mut function = Self {
            at,
            known,
            command: command & 0xffff_0000 | WANTED | command & 0xffff,
            addresses: [0; 6],
            masks: [0; 6],
            sizing: 0,
        };
        for index in 0..6 {
            function.size(index);
        }
        function.place();
        write(at, STATUS_COMMAND, function.command & 0xffff);
        function
    }

    fn size(&mut self, index: usize) {
        let register = BAR0 + 4 * index as u8;
        let address = self.known.read(self.at, register);
        if address == 0 && cpuid::has_dense_bus() {
            // There the monitor has placed every BAR that exists.
            return;
        }
        write(self.at, register, u32::MAX);
        let mask = read(self.at, register);
        if mask != 0 {
            write(self.at, register, address);
        }
        (self.addresses[index], self.masks[index]) = (address, mask);
    }

    fn place(&mut self) {
        let mut index = 0;
        while index < 6 {
            let (address, mask) = (self.addresses[index], self.masks[index]);
            let is_wide = mask & 0b111 == 0b100 && index < 5;
            let high = if is_wide {
                self.addresses[index + 1]
            } else {
                0
            };
            if mask & 1 == 0 && mask & !15 != 0 && address & !15 == 0 && high == 0 {
                let size = u64::from(!(mask & !15)) + 1;
                if let Some(place) = place_bar(size) {
                    self.addresses[index] = place as u32 | mask & 15;
                    write(self.at, BAR0 + 4 * index as u8, place as u32);
                }
            }
            index += if is_wide { 2 } else { 1 };
        }
    }
}

impl Function {
    /// A register behind the header.
    pub(crate) fn register(&self, register: u8) -> u32 {
        self.known.read(self.at, register)
    }
}

impl ConfigurationAccess for Function {
    fn read_word(&self, _device: DeviceFunction, register: u8) -> u32 {
        match bar_index(register) {
            Some(index) if self.sizing & (1 << index) != 0 => self.masks[index],
            Some(index) => self.addresses[index],
            None if register == STATUS_COMMAND => self.command,
            None => self.known.read(self.at, register),
        }
    }

    fn write_word(&mut self, _device: DeviceFunction, register: u8, data: u32) {
        match bar_index(register) {
            Some(index) if data == u32::MAX => self.sizing |= 1 << index,
            Some(index) => self.sizing &= !(1 << index),
            // Only to switch decoding off while BARs are sized, and on again.
            None if register == STATUS_COMMAND => {}
            None => {
                self.known.forget(register);
                write(self.at, register, data);
            }
        }
    }

    unsafe fn unsafe_clone(&self) -> Self {
        self.clone()
    }
}

/// How wide configuration space is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Register,
    /// Two registers by one access, which PCI Express leaves to the machine.
    Pair,
}

impl Width {
    fn of_reads() -> Self {
        if ECAM.load(Ordering::Relaxed) != 0 && cpuid::has_dense_bus() {
            Self::Pair
        } else {
            Self::Register
        }
    }
}

/// Registers of a function that were read already, of the first 256 bytes.
#[derive(Debug)]
struct Known {
    width: Width,
    values: [Cell<u32>; 64],
    /// Bit by register.
    read: Cell<u64>,
}

impl Known {
    fn new(width: Width) -> Self {
        Self {
            width,
            values: [const { Cell::new(0) }; 64],
            read: Cell::new(0),
        }
    }

    fn read(&self, at: DeviceFunction, register: u8) -> u32 {
        let index = usize::from(register) / 4;
        if self.read.get() & 1 << index == 0 {
            match (self.width, register_at(at, register & !7)) {
                (Width::Pair, Some(pair)) => {
                    // SAFETY: 1. The address lies in the MiB that `init` mapped, at a multiple of
                    //    8. 2. Reading configuration space has no effect.
                    let both = unsafe { pair.cast::<u64>().read_volatile() };
                    self.note(index & !1, both as u32);
                    self.note(index | 1, (both >> 32) as u32);
                }
                _ => self.note(index, read(at, register)),
            }
        }
        self.values[index].get()
    }

    fn note(&self, index: usize, value: u32) {
        self.values[index].set(value);
        self.read.set(self.read.get() | 1 << index);
    }

    fn forget(&self, register: u8) {
        let index = usize::from(register) / 4;
        self.read.set(self.read.get() & !(1 << index));
    }
}

fn bar_index(register: u8) -> Option<usize> {
    let index = register.checked_sub(BAR0)? / 4;
    (index < 6).then_some(usize::from(index))
}

fn place_bar(size: u64) -> Option<u64> {
    if !size.is_power_of_two() || size > PCI_MMIO_SIZE / 4 {
        return None;
    }
    let aligned = |next: u64| (next + size - 1) & !(size - 1);
    let next = NEXT_BAR
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            let end = aligned(next) + size;
            (end <= PCI_MMIO_START + PCI_MMIO_SIZE).then_some(end)
        })
        .ok()?;
    Some(aligned(next))
}

/// `length` bytes at `offset` of BAR `index`, mapped; `None` if the BAR is not
/// memory or not that large.
pub(crate) fn bar_memory(
    root: &mut PciRoot<Function>,
    at: DeviceFunction,
    index: u8,
    offset: u32,
    length: u64,
) -> Option<u64> {
    if index > 5 {
        return None;
    }
    let (address, size) = root.bar_info(at, index).ok()??.memory_address_size()?;
    let end = u64::from(offset).checked_add(length)?;
    let start = address.checked_add(u64::from(offset))?;
    let fits = address != 0 && length != 0 && end <= size;
    (fits && memory::map_device(&(start..start.checked_add(length)?))).then_some(start)
}

/// A device's MSI-X table.
#[derive(Debug)]
pub(crate) struct Msix {
    table: u64,
    entries: u16,
}

impl Msix {
    /// Finds the table and switches MSI-X on, all entries masked as after
    /// reset; `None` if the device has none.
    pub(crate) fn enable(
        root: &mut PciRoot<Function>,
        at: DeviceFunction,
        function: &Function,
    ) -> Option<Self> {
        let offset = root
            .capabilities(at)
            .take(MAX_CAPABILITIES)
            .find(|capability| capability.id == MSIX_CAPABILITY)?
            .offset;
        let control = function.register(offset);
        let location = function.register(offset.wrapping_add(4));
        let entries = ((control >> 16) & 0x7ff) as u16 + 1;
        let table = bar_memory(
            root,
            at,
            (location & 7) as u8,
            location & !7,
            u64::from(entries) * 16,
        )?;
        write(at, offset, (control | MSIX_ENABLE) & !MSIX_FUNCTION_MASK);
        Some(Self { table, entries })
    }

    /// Delivers entry `index` as `vector` to the CPU with `apic_id`; says
    /// whether there is such an entry.
    pub(crate) fn route(&self, index: u16, vector: Vector, apic_id: u32) -> bool {
        if index >= self.entries {
            return false;
        }
        let entry = (self.table + u64::from(index) * 16) as *mut u64;
        // Address, then data and no mask; a table takes 8 bytes at once (6.8.2).
        let address = u64::from(MSI_ADDRESS | (apic_id & 0xff) << 12);
        for (word, value) in [address, u64::from(vector.0)].into_iter().enumerate() {
            // SAFETY: 1. `enable` mapped the table within its BAR (`bar_memory`), and the entry is
            //    one of its (checked above). 2. It is aligned to 16: BARs are to their size, and
            //    `enable` clears the low bits of the offset's register. 3. The entry delivers to a
            //    vector that has a handler (`irq::allocate`).
            unsafe { entry.wrapping_add(word).write_volatile(value) };
        }
        true
    }
}

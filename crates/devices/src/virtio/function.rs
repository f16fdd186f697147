//! A virtio device as the bus sees it: configuration space with the window
//! into the BAR, and the structures in the BAR (virtio 1.2, 4.1.4).

use super::common::{Register, store, value_of};
use super::layout::{BAR_LEN, NOTIFY_MULTIPLIER, Region};
use super::transport::State;
use super::{VirtioDevice, VirtioPci};
use crate::pci::{ConfigWrite, MsixControl, PciFunction};

impl<D: VirtioDevice> PciFunction for VirtioPci<D> {
    fn bar_size(&self) -> Option<u32> {
        Some(BAR_LEN)
    }

    fn assign_bar(&mut self, address: u32) {
        self.config.assign_bar(address);
    }

    fn memory_enabled(&self) -> bool {
        self.config.memory_enabled()
    }

    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        if let Some((at, width)) = self.window(offset, data.len()) {
            let mut value = [0; 4];
            self.bar_read(at, &mut value[..width]);
            let _ = self.config.write(self.capabilities.window + 16, &value);
        }
        self.config.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) {
        if self.config.write(offset, data) == ConfigWrite::BarMoveRefused {
            self.counters.bar_moves_refused.increment();
        }
        let control = self.config.word(self.capabilities.msix_control);
        self.msix.set_control(MsixControl::from_word(control));
        if let Some((at, width)) = self.window(offset, data.len()) {
            let value = self.config.dword(self.capabilities.window + 16);
            self.bar_write(at, &value.to_le_bytes()[..width]);
        }
    }

    fn bar_read(&mut self, offset: u64, data: &mut [u8]) {
        let (region, at) = Region::at(offset);
        if !self.read_region(region, at, data) {
            self.counters.invalid_accesses.increment();
        }
    }

    fn bar_write(&mut self, offset: u64, data: &[u8]) {
        let (region, at) = Region::at(offset);
        if !self.write_region(region, at, data) {
            self.counters.invalid_accesses.increment();
        }
    }
}

impl<D: VirtioDevice> VirtioPci<D> {
    fn notify_written(&mut self, offset: usize) -> bool {
        let queue = offset / NOTIFY_MULTIPLIER as usize;
        let live = matches!(self.state, State::Active(_)) && queue < self.settings.len();
        if live {
            self.kick.kick(queue as u16);
        }
        live
    }

    /// Reads the byte that clears itself (4.1.4.5).
    fn read_isr(&mut self, data: &mut [u8]) {
        store(data, std::mem::take(&mut self.isr).into());
    }

    fn read_region(&mut self, region: Region, offset: usize, data: &mut [u8]) -> bool {
        data.fill(0);
        match region {
            Region::Common => match Register::at(offset, data.len()) {
                Some(register) => store(data, self.common_read(register)),
                None => return false,
            },
            Region::Isr if offset == 0 => self.read_isr(data),
            Region::Device => self.device.read_config(offset, data),
            Region::Table => self.msix.table_read(offset, data),
            Region::Pba => self.msix.pba_read(offset, data),
            Region::Isr | Region::Notify | Region::Nothing => return false,
        }
        true
    }

    fn write_region(&mut self, region: Region, offset: usize, data: &[u8]) -> bool {
        match region {
            Region::Common => match Register::at(offset, data.len()) {
                Some(register) => self.common_write(register, value_of(data)),
                None => false,
            },
            Region::Notify => self.notify_written(offset),
            Region::Table => {
                self.msix.table_write(offset, data);
                true
            }
            Region::Device => self.device.write_config(offset, data),
            Region::Isr | Region::Pba | Region::Nothing => false,
        }
    }

    /// The access that the configuration window describes, if `offset` to
    /// `offset + len` touches its data and it is a valid one (4.1.4.9).
    fn window(&self, offset: u16, len: usize) -> Option<(u64, usize)> {
        let cap = self.capabilities.window;
        let data = usize::from(cap + 16)..usize::from(cap + 20);
        let start = usize::from(offset);
        let touches = start < data.end && start + len > data.start;
        let bar = self.config.word(cap + 4) & 0xff;
        let at = u64::from(self.config.dword(cap + 8));
        let width = self.config.dword(cap + 12);
        let valid = bar == 0 && matches!(width, 1 | 2 | 4) && at % u64::from(width) == 0;
        let inside = at + u64::from(width) <= u64::from(BAR_LEN);
        (touches && valid && inside).then_some((at, width as usize))
    }
}

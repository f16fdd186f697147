//! The host bridge at 00:00.0: nothing but an identity, as guests expect one.

use super::{ConfigSpace, Identity, PciFunction};

/// Red Hat's generic PCIe host bridge, the identity of QEMU's.
const IDENTITY: Identity = Identity {
    vendor: 0x1b36,
    device: 0x0008,
    revision: 0,
    class: 0x06_0000,
    subsystem_vendor: 0x1af4,
    subsystem: 0x1100,
};

pub(super) struct HostBridge {
    config: ConfigSpace,
}

impl HostBridge {
    pub(super) fn new() -> Self {
        Self {
            config: ConfigSpace::new(IDENTITY),
        }
    }
}

impl PciFunction for HostBridge {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        self.config.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) {
        let _ = self.config.write(offset, data);
    }
}

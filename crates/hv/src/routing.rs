//! The machine's GSI routing table. KVM takes it only as a whole, so the whole
//! is kept here: the legacy pins of both PICs and the IOAPIC, and one MSI for
//! each GSI above them that has a message.
//!
//! Reference: `KVM_SET_GSI_ROUTING`.

use std::collections::BTreeMap;

use kvm_bindings::{
    KVM_IRQ_ROUTING_IRQCHIP, KVM_IRQ_ROUTING_MSI, KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER,
    KVM_IRQCHIP_PIC_SLAVE, KvmIrqRouting, kvm_irq_routing_entry,
};
use tare_abi::msi::MsiMessage;

/// Pins of the IOAPIC, which take GSI 0 to 23. MSIs take the GSIs above.
pub(crate) const IOAPIC_PINS: u32 = 24;
const PIC_PINS: u32 = 16;

/// Every route of one machine.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    messages: BTreeMap<u32, MsiMessage>,
}

impl Routes {
    /// Sets or removes the message of `gsi`. Returns the previous one if that changed something,
    /// else `None`.
    pub(crate) fn replace(
        &mut self,
        gsi: u32,
        message: Option<MsiMessage>,
    ) -> Option<Option<MsiMessage>> {
        let previous = match message {
            Some(message) => self.messages.insert(gsi, message),
            None => self.messages.remove(&gsi),
        };
        (previous != message).then_some(previous)
    }

    /// The table as KVM takes it; `None` if it is too long for the ABI.
    pub(crate) fn table(&self) -> Option<KvmIrqRouting> {
        let entries: Vec<_> = legacy_entries()
            .chain(self.messages.iter().map(|(gsi, msg)| msi_entry(*gsi, *msg)))
            .collect();
        KvmIrqRouting::from_entries(&entries).ok()
    }
}

fn legacy_entries() -> impl Iterator<Item = kvm_irq_routing_entry> {
    let pic = |gsi| {
        let chip = if gsi < PIC_PINS / 2 {
            KVM_IRQCHIP_PIC_MASTER
        } else {
            KVM_IRQCHIP_PIC_SLAVE
        };
        pin_entry(gsi, chip, gsi % 8)
    };
    // The PIT's line reaches the IOAPIC at pin 2 on PCs; a Tare machine has
    // no PIT, and every pin is its own GSI (no override in the MADT).
    let ioapic = |gsi| pin_entry(gsi, KVM_IRQCHIP_IOAPIC, gsi);
    (0..PIC_PINS).map(pic).chain((0..IOAPIC_PINS).map(ioapic))
}

fn pin_entry(gsi: u32, chip: u32, pin: u32) -> kvm_irq_routing_entry {
    let mut entry = kvm_irq_routing_entry {
        gsi,
        type_: KVM_IRQ_ROUTING_IRQCHIP,
        ..Default::default()
    };
    entry.u.irqchip.irqchip = chip;
    entry.u.irqchip.pin = pin;
    entry
}

fn msi_entry(gsi: u32, message: MsiMessage) -> kvm_irq_routing_entry {
    let mut entry = kvm_irq_routing_entry {
        gsi,
        type_: KVM_IRQ_ROUTING_MSI,
        ..Default::default()
    };
    entry.u.msi.address_lo = message.address as u32;
    entry.u.msi.address_hi = (message.address >> 32) as u32;
    entry.u.msi.data = message.data;
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: MsiMessage = MsiMessage {
        address: 0xfee0_1000,
        data: 0x41,
    };

    #[test]
    fn legacy_pins_are_always_there() {
        let table = Routes::default().table().unwrap();
        let entries = table.as_slice();
        assert_eq!(entries.len(), 16 + 24);
        assert_eq!(entries.iter().filter(|entry| entry.gsi == 4).count(), 2);
    }

    #[test]
    fn a_message_is_added_once_and_removed() {
        let mut routes = Routes::default();
        assert_eq!(routes.replace(24, Some(MESSAGE)), Some(None));
        assert_eq!(routes.replace(24, Some(MESSAGE)), None);
        assert_eq!(routes.table().unwrap().as_slice().len(), 41);
        assert_eq!(routes.replace(24, None), Some(Some(MESSAGE)));
        assert_eq!(routes.replace(24, None), None);
        assert_eq!(routes.table().unwrap().as_slice().len(), 40);
    }
}

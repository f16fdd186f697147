//! Message-signalled interrupts.

/// What a message-signalled interrupt writes, and where (PCI 3.0, 6.8.1 and 6.8.2.7 to
/// 6.8.2.9): the address chooses the local APIC, the data the vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MsiMessage {
    /// Address of the write, both halves.
    pub address: u64,
    /// Data of the write.
    pub data: u32,
}

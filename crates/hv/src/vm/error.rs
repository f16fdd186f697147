//! Why KVM refused a machine.

use thiserror::Error;

use crate::routing::IOAPIC_PINS;

/// Why KVM refused to build or change a machine.
#[derive(Debug, Error)]
pub enum VmError {
    /// A call that makes the machine failed.
    #[error("KVM refused to {step}")]
    Build {
        /// What was being done.
        step: &'static str,
        /// KVM's reason.
        #[source]
        source: kvm_ioctls::Error,
    },
    /// A memory region has no host address.
    #[error("guest memory at {start:#x} is not mapped in this process")]
    Unmapped {
        /// First guest address of the region.
        start: u64,
    },
    /// A GSI below 24 is an IOAPIC pin, and one above KVM's limit no GSI.
    #[error("GSI {gsi} cannot carry a message: it must lie between {IOAPIC_PINS} and {limit}")]
    Gsi {
        /// The GSI.
        gsi: u32,
        /// First GSI that KVM does not have.
        limit: u32,
    },
    /// KVM refused a routing table, an irqfd or an ioeventfd.
    #[error("KVM refused {what}")]
    Event {
        /// What was requested.
        what: String,
        /// KVM's reason.
        #[source]
        source: kvm_ioctls::Error,
    },
    /// KVM does not have the setting, or refused its value.
    #[error("KVM refused the setting {setting}")]
    Setting {
        /// The capability's name.
        setting: &'static str,
        /// KVM's reason.
        #[source]
        source: kvm_ioctls::Error,
    },
}

//! What several test programs need.

use tare_hv::{Kvm, KvmKind, Probe};

/// The ring in which an image for either runs below this KVM if no one names one: it finds out by
/// timing where the monitor has no leaf to say so.
pub(crate) fn ring_on_kvm() -> u8 {
    let kvm = Kvm::open().expect("/dev/kvm, which has been used");
    match Probe::run(&kvm).expect("a probe of KVM").kind {
        KvmKind::Hardware => 0,
        KvmKind::Emulated => 3,
    }
}

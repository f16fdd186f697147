//! Policies that change, with a KVM that is only a number.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tare_control::halt::CpuShare;

use super::*;

/// A KVM with one setting.
#[derive(Debug, Default)]
pub(crate) struct FakeKvm {
    limit_ns: AtomicU32,
    pub(crate) refuses: AtomicBool,
}

impl PollLimit for FakeKvm {
    fn set_halt_poll_ns(&self, longest_ns: u32) -> Result<(), VmError> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(VmError::Setting {
                setting: "KVM_CAP_HALT_POLL",
                source: vmm_sys_util::errno::Error::new(libc::EINVAL),
            });
        }
        self.limit_ns.store(longest_ns, Ordering::Relaxed);
        Ok(())
    }
}

const BUDGET: HaltPolicy = HaltPolicy::Budget(CpuShare::DEFAULT);

/// Without statistics of vCPUs, so without the means for a budget.
pub(crate) fn governor(kvm: &Arc<FakeKvm>, policy: HaltPolicy) -> Governor {
    let vm: Arc<dyn PollLimit> = Arc::<FakeKvm>::clone(kvm);
    Governor::new(vm, policy, Vec::new(), CanPoll::Yes).unwrap()
}

#[test]
fn a_budget_without_its_means_ends_a_fixed_window() {
    let kvm = Arc::default();
    let mut governor = governor(&kvm, HaltPolicy::Poll(1_000_000_000));
    assert_eq!(kvm.limit_ns.load(Ordering::Relaxed), 1_000_000_000);
    governor.set(BUDGET).unwrap();
    let kernel_ns = governor.kernel_ns();
    assert_eq!(governor.limit_ns, Some(kernel_ns));
    assert_eq!(u64::from(kvm.limit_ns.load(Ordering::Relaxed)), kernel_ns);
    assert_eq!(governor.policy(), BUDGET);
    assert!(governor.stats().unavailable.is_some());
}

#[test]
fn what_the_kernel_decides_already_is_not_set() {
    let kvm = Arc::default();
    let mut governor = governor(&kvm, BUDGET);
    kvm.refuses.store(true, Ordering::Relaxed);
    governor.set(HaltPolicy::Kernel).unwrap();
    assert_eq!(governor.policy(), HaltPolicy::Kernel);
    assert_eq!(governor.limit_ns, None);
}

#[test]
fn a_policy_that_kvm_refuses_leaves_the_one_in_force() {
    let kvm = Arc::default();
    let mut governor = governor(&kvm, HaltPolicy::Never);
    // No timers: their signal is the whole process's.
    (governor.unavailable, governor.timers) = (None, None);
    governor.set(BUDGET).unwrap();
    let standing = governor.stats().standing;
    assert!(standing.is_some());
    kvm.refuses.store(true, Ordering::Relaxed);
    assert!(governor.set(HaltPolicy::Poll(50_000)).is_err());
    assert_eq!(governor.policy(), BUDGET);
    assert_eq!(governor.stats().standing, standing, "the budget goes on");
}

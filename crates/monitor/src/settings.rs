//! The settings of the running machine: reads them from the devices, checks a change as a whole,
//! then applies it. Called on the main thread.
//!
//! A new setting needs a field of [`Adjustable`] for its target, a line in [`Adjustable::now`], and
//! one in [`Adjustable::apply`], which cannot fail. Steps that can fail (how vCPUs halt, the size of a
//! disk) come before, one that cannot be taken back last.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use tare_control::halt::HaltPolicy;
use tare_control::sentence::chain;
use tare_control::settings::{Settings, SettingsChange, SettingsError};
use tare_daemon::disk::{self, DiskRules};
use tare_daemon::rules::SharedRules;
use tare_devices::virtio::{Progress, VirtioDevice, VirtioPci};
use tare_policy::limit::NetLimits;
use vmm_sys_util::eventfd::EventFd;

use crate::halt::Governor;
use crate::io::QueueWork;
use crate::poll::Interest;

/// The targets of settings.
#[derive(Default)]
pub(crate) struct Adjustable {
    /// Disks in bus order: `disk0` is the first.
    pub(crate) disks: Vec<AdjustableDisk>,
    /// Its network.
    pub(crate) net: Option<AdjustableNet>,
    /// How a halted vCPU waits.
    pub(crate) halt: Option<Rc<RefCell<Governor>>>,
}

/// A disk whose coalescing, limits and size can be set.
pub(crate) struct AdjustableDisk {
    pub(crate) disk: disk::AdjustableDisk,
    /// A queue's event: makes the I/O thread apply the rules.
    pub(crate) queue: Arc<EventFd>,
}

/// A network whose limits can be set.
pub(crate) struct AdjustableNet {
    pub(crate) limits: Arc<SharedRules<NetLimits>>,
    /// A queue's event: makes the I/O thread apply the limits.
    pub(crate) queue: Arc<EventFd>,
}

/// A device that applies new rules before it serves its queues.
pub(crate) struct Adjusted<D: VirtioDevice, R> {
    pub(crate) device: Arc<Mutex<VirtioPci<D>>>,
    pub(crate) rules: Arc<SharedRules<R>>,
    pub(crate) apply: fn(&mut D, R),
}

impl<D: VirtioDevice, R: Copy + Send> QueueWork for Adjusted<D, R> {
    fn notified(&self, queue: u16) -> Progress {
        // Under one lock: the driver sees the new capacity and the new generation together.
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = self.rules.take_change() {
            (self.apply)(device.device_mut(), rules);
        }
        device.notified(queue)
    }

    fn backend_ready(&self) -> Progress {
        self.device.backend_ready()
    }

    fn interest(&self) -> Interest {
        self.device.interest()
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.device.deadline_ns()
    }

    fn deadline_passed(&self) {
        self.device.deadline_passed();
    }
}

impl Adjustable {
    /// The settings in force.
    pub(crate) fn now(&self) -> Settings {
        let disks = self.disks.iter().enumerate();
        Settings {
            halt: Some(match &self.halt {
                Some(halt) => halt.borrow().policy(),
                None => HaltPolicy::Kernel,
            }),
            net: self.net.as_ref().map(|net| net.limits.get().into()),
            disks: disks
                .map(|(number, it)| (disk::name(number), it.disk.settings()))
                .collect(),
        }
    }

    /// Applies a change, all of it or nothing; returns the settings then in force.
    pub(crate) fn change(&mut self, change: &SettingsChange) -> Result<Settings, SettingsError> {
        let before = self.now();
        let wanted = before.changed(change)?;
        if let Some(policy) = change.halt {
            self.set_halt(policy)?;
        }
        let grown = disk::grow(self.disks.iter_mut().map(|it| &mut it.disk), change);
        if grown.is_err()
            && let (Some(_), Some(policy)) = (change.halt, before.halt)
        {
            self.set_halt(policy)?;
        }
        grown?;
        self.apply(&wanted, change);
        Ok(self.now())
    }

    fn set_halt(&self, policy: HaltPolicy) -> Result<(), SettingsError> {
        let Some(halt) = &self.halt else {
            return Ok(());
        };
        let set = halt.borrow_mut().set(policy);
        set.map_err(|error| SettingsError::Halt {
            problem: chain(&error),
        })
    }

    /// Applies only what the change names.
    fn apply(&self, wanted: &Settings, change: &SettingsChange) {
        if let (Some(wanted), Some(net)) = (&wanted.net, &self.net)
            && change.net.is_some()
        {
            net.limits.set(wanted.into());
            let _ = net.queue.write(1);
        }
        for (number, disk) in self.disks.iter().enumerate() {
            let name = disk::name(number);
            let named = change.disks.contains_key(&name);
            // `changed` has checked it.
            if let Some(wanted) = wanted.disks.get(&name).filter(|_| named)
                && let Ok(rules) = DiskRules::wanted(wanted)
            {
                disk.set(rules);
            }
        }
    }
}

impl AdjustableDisk {
    fn set(&self, rules: DiskRules) {
        self.disk.rules.set(rules);
        let _ = self.queue.write(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::halt::tests::governor;

    #[test]
    fn a_refused_way_to_wait_is_an_error_of_the_change() {
        let kvm = Arc::default();
        let halt = governor(&kvm, HaltPolicy::Poll(50_000));
        let mut adjustable = Adjustable {
            halt: Some(Rc::new(RefCell::new(halt))),
            ..Adjustable::default()
        };
        kvm.refuses.store(true, Ordering::Relaxed);
        let mut change = SettingsChange::default();
        change.set("halt=never").unwrap();
        let error = adjustable.change(&change).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("halt: KVM refused the setting KVM_CAP_HALT_POLL"),
            "{error}"
        );
        assert_eq!(adjustable.now().halt, Some(HaltPolicy::Poll(50_000)));
        kvm.refuses.store(false, Ordering::Relaxed);
        let now = adjustable.change(&change).unwrap();
        assert_eq!(now.halt, Some(HaltPolicy::Never));
    }
}

//! What of the running machine can be set: reads it from the devices, checks a
//! change as a whole, and then makes it. Called on the main thread.
//!
//! Another setting: a field of [`Adjustable`] for what it acts on, a line in
//! [`Adjustable::now`], and one in [`Adjustable::apply`], which cannot fail.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use tare_control::halt::HaltPolicy;
use tare_control::settings::{Coalesce, DiskSettings, Settings, SettingsChange, SettingsError};
use tare_devices::blk::Blk;
use tare_devices::virtio::VirtioPci;
use tare_policy::coalesce;
use vmm_sys_util::eventfd::EventFd;

use crate::halt::Governor;

/// What settings act on.
#[derive(Default)]
pub(crate) struct Adjustable {
    /// Disks in bus order: `disk0` is the first.
    pub(crate) disks: Vec<AdjustableDisk>,
    /// How a halted vCPU waits.
    pub(crate) halt: Option<Rc<RefCell<Governor>>>,
}

/// A disk whose coalescing can be set.
pub(crate) struct AdjustableDisk {
    pub(crate) path: String,
    pub(crate) device: Arc<Mutex<VirtioPci<Blk>>>,
    /// A queue's event: makes the I/O thread deliver what was held.
    pub(crate) queue: Arc<EventFd>,
}

impl Adjustable {
    /// The settings in force.
    pub(crate) fn now(&self) -> Settings {
        let disks = (0..).zip(&self.disks);
        Settings {
            halt: Some(match &self.halt {
                Some(halt) => halt.borrow().policy(),
                None => HaltPolicy::Kernel,
            }),
            disks: disks.map(|(n, disk)| (disk_name(n), disk.now())).collect(),
        }
    }

    /// Makes a change, all of it or nothing; the settings then in force.
    pub(crate) fn change(&self, change: &SettingsChange) -> Result<Settings, SettingsError> {
        let wanted = self.now().changed(change)?;
        self.apply(&wanted, change);
        Ok(self.now())
    }

    /// Only what the change names is touched: the rest goes on undisturbed.
    fn apply(&self, wanted: &Settings, change: &SettingsChange) {
        if let (Some(policy), Some(halt)) = (change.halt, &self.halt) {
            // KVM has taken windows before: should it refuse one, `now` says so.
            let _ = halt.borrow_mut().set(policy);
        }
        for (number, disk) in (0..).zip(&self.disks) {
            let name = disk_name(number);
            let named = change.disks.contains_key(&name);
            // `changed` has checked it.
            if let Some(wanted) = wanted.disks.get(&name).filter(|_| named)
                && let Ok(rule) = wanted.coalesce.settings()
            {
                disk.set(rule);
            }
        }
    }
}

impl AdjustableDisk {
    fn now(&self) -> DiskSettings {
        let device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        DiskSettings {
            path: self.path.clone(),
            coalesce: Coalesce::from(&device.device().coalescing()),
        }
    }

    fn set(&self, rule: coalesce::Settings) {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        device.device_mut().set_coalescing(rule);
        drop(device);
        let _ = self.queue.write(1);
    }
}

fn disk_name(number: usize) -> String {
    format!("disk{number}")
}

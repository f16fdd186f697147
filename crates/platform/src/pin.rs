//! CPUs of this host, and machines on them by `tare pin`'s means and in its journal.

use tare_pin::{
    Choice, CpuList, CpuListError, Host, HostError, PinError, Pinned, Plan, PlanError, Store,
    StoreError, Target, TargetError, affinity,
};

/// A machine that is not placed.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// No journal.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The host's CPUs are not known.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No such CPUs.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
    /// The machine has ended.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// It cannot be placed so.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The kernel did not take it.
    #[error(transparent)]
    Pin(#[from] PinError),
}

/// Places machines.
#[derive(Debug)]
pub struct Pins {
    store: Store,
    host: Host,
}

impl Pins {
    /// In the user's journal of placements. Puts back what was left there.
    pub fn open() -> Result<Self, PlacementError> {
        Self::with(Store::open_default()?)
    }

    fn with(store: Store) -> Result<Self, PlacementError> {
        store.recover();
        Ok(Self {
            store,
            host: Host::read()?,
        })
    }

    /// Puts a virtual CPU on each of `cpus` and all other threads of the process on
    /// any of them, read back; dropping it puts them where they were.
    pub fn machine(
        &self,
        name: &str,
        pid: u32,
        vcpus: &[u32],
        cpus: &[u32],
    ) -> Result<Pinned, PlacementError> {
        let target = Target::machine(name, pid, vcpus)?;
        let cpus: CpuList = list(cpus).parse()?;
        let plan = Plan::make(&target, &self.host, &Choice::Cpus(cpus))?;
        Ok(tare_pin::pin(&self.store, name, &plan, &|| false)?)
    }
}

/// CPUs that this process may use.
pub fn allowed() -> Vec<u32> {
    affinity::get(std::process::id())
        .map_or_else(|_| vec![0], |cpus| cpus.iter().map(u32::from).collect())
}

/// CPUs that are online; those allowed where the kernel does not say.
pub fn online() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online");
    let list = text.ok().and_then(|text| CpuList::from_kernel(&text));
    list.map_or_else(allowed, |list| list.iter().map(u32::from).collect())
}

/// CPUs as the kernel's lists write them.
pub fn list(cpus: &[u32]) -> String {
    let numbers: Vec<String> = cpus.iter().map(u32::to_string).collect();
    numbers.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_placed_read_back_and_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("9")
            .spawn()
            .unwrap();
        let pins = Pins::with(Store::in_directory(dir.path())).unwrap();
        let all = allowed();
        let last = *all.last().unwrap();
        let id = child.id();
        let now = || -> Vec<u32> { affinity::get(id).unwrap().iter().map(u32::from).collect() };
        let pinned = pins.machine("lab", id, &[id], &[last]).unwrap();
        assert_eq!(now(), [last]);
        drop(pinned);
        assert_eq!(now(), all);
        let refused = pins.machine("lab", id, &[id], &[1023]).unwrap_err();
        assert!(matches!(refused, PlacementError::Plan(_)), "{refused:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pins.machine("lab", id, &[id], &[last]).is_err());
        assert_eq!(list(&[0, 2]), "0,2");
        let online = online();
        assert!(all.iter().all(|cpu| online.contains(cpu)), "{online:?}");
    }
}

//! Kernel threads that work for a virtual machine.

use std::path::Path;

use crate::proc;

/// The kernel's own threads are children of this one.
const KTHREADD: u32 = 2;

/// Kernel threads that are named for process `pid`: `kvm-pit/PID`, `vhost-PID`.
pub(crate) fn kernel_threads(pid: u32) -> Vec<u32> {
    let names = [format!("kvm-pit/{pid}"), format!("vhost-{pid}")];
    let all = proc::numbers(Path::new("/proc")).unwrap_or_default();
    let works = |tid: &u32| {
        let stat = proc::stat(&proc::process(*tid));
        stat.is_some_and(|stat| stat.parent == KTHREADD && names.contains(&stat.comm))
    };
    all.into_iter().filter(works).collect()
}

//! Kernel threads that work for a virtual machine.

use std::collections::HashMap;
use std::path::Path;

use crate::proc;

/// The kernel's own threads are children of this one.
const KTHREADD: u32 = 2;
/// What their names begin with, before the process's ID.
const NAMES: [&str; 2] = ["kvm-pit/", "vhost-"];

/// Kernel threads that are named for a process (`kvm-pit/PID`, `vhost-PID`), by that
/// process.
pub(crate) fn kernel_threads() -> HashMap<u32, Vec<u32>> {
    let mut found: HashMap<u32, Vec<u32>> = HashMap::new();
    for tid in proc::numbers(Path::new("/proc")).unwrap_or_default() {
        let Some(pid) = proc::comm(&proc::process(tid)).and_then(|name| works_for(&name)) else {
            continue;
        };
        let stat = proc::stat(&proc::process(tid));
        if stat.is_some_and(|stat| stat.parent == KTHREADD) {
            found.entry(pid).or_default().push(tid);
        }
    }
    found
}

/// The process that a kernel thread of this name works for.
fn works_for(name: &str) -> Option<u32> {
    let rest = NAMES.iter().find_map(|prefix| name.strip_prefix(prefix));
    rest?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_name_the_process_that_they_work_for() {
        assert_eq!(works_for("kvm-pit/4711"), Some(4711));
        assert_eq!(works_for("vhost-12"), Some(12));
        for other in ["kvm-nx-lpage-re", "vhost-", "vhost-x", "kworker/0:1"] {
            assert_eq!(works_for(other), None, "{other}");
        }
    }
}

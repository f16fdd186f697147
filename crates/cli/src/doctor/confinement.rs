//! What the monitor can confine itself with.

use std::fs;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
};

use super::finding::Finding;

pub(super) fn findings() -> Vec<Finding> {
    vec![landlock(), seccomp()]
}

/// Asks the kernel for a rule set that is never applied.
fn landlock() -> Finding {
    let asked = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(|ruleset| ruleset.create());
    match asked {
        Ok(_) => Finding::ok("landlock", "active"),
        Err(_) => Finding::missing("landlock", "the kernel has none, or does not use it").remedy(
            "boot Linux 5.13 or newer with lsm=landlock,...; without it only seccomp confines \
                 machines",
        ),
    }
}

fn seccomp() -> Finding {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    match actions {
        Ok(actions) if actions.contains("kill_process") => Finding::ok("seccomp", "filters"),
        Ok(actions) => Finding::limited("seccomp", format!("only {}", actions.trim()))
            .remedy("use Linux 4.14 or newer, whose filters can end the whole process"),
        Err(_) => Finding::missing("seccomp", "this kernel has no seccomp filters")
            .remedy("use a kernel with CONFIG_SECCOMP_FILTER"),
    }
}

//! What single system calls cost: a program of ours in the guest, on a clock that
//! counts one nanosecond for each instruction.

use std::collections::BTreeMap;

use tare_load::interrupt::Interrupt;
use tare_machines::linux::LinuxError;
use tare_machines::linux::kernels::Bootable;
use tare_machines::linux::{machine, own_program};

/// The guest's program, beside `tare`.
const PROGRAM: &str = "tare-calls";
/// Instructions of each call, by its name.
pub(super) type Calls = BTreeMap<String, Vec<u64>>;

/// Measures `count` calls of each kind on a kernel.
pub(super) fn measure(
    kernel: &Bootable,
    count: usize,
    interrupt: &Interrupt,
) -> Result<Calls, LinuxError> {
    let own = machine::this_program()?;
    let (tree, path) = own_program::tree(PROGRAM)?;
    let args = [path, count.to_string()];
    let said = machine::run_to_end(&own, &args, &tree, kernel, interrupt)?;
    let lines = said
        .lines()
        .filter_map(|line| serde_json::from_str(line.trim()).ok());
    let all: Calls = lines.flat_map(|calls: Calls| calls).collect();
    if all.is_empty() {
        Err(LinuxError::Ended {
            kernel: kernel.name.clone(),
            said,
        })
    } else {
        Ok(all)
    }
}

//! What single system calls cost: a program of ours in the guest, on a clock that
//! counts one nanosecond for each instruction.

use std::collections::BTreeMap;
use std::io;

use tare_rootfs::{Tree, host};

use crate::linux::LinuxError;
use crate::linux::kernels::Bootable;
use crate::linux::machine;
use tare_load::interrupt::Interrupt;

/// The guest's program, beside `tare`.
const PROGRAM: &str = "tare-calls";
/// Where it is in the guest.
const PLACE: &str = "bin/tare-calls";

/// Instructions of each call, by its name.
pub(super) type Calls = BTreeMap<String, Vec<u64>>;

/// Measures `count` calls of each kind on a kernel.
pub(super) fn measure(
    kernel: &Bootable,
    count: usize,
    interrupt: &Interrupt,
) -> Result<Calls, LinuxError> {
    let mut tree = Tree::new();
    let own = machine::this_program()?;
    let program = own.with_file_name(PROGRAM);
    let node = tare_rootfs::tree::Node::host(&program, 0o755);
    tree.insert(PLACE, node.map_err(LinuxError::file(&program))?)?;
    let libraries = host::libraries(&program).and_then(|needed| {
        let mut each = needed.iter();
        each.try_for_each(|library| host::add_file(&mut tree, library))
    });
    libraries.map_err(|error| LinuxError::file(&program)(io::Error::other(error)))?;
    let args = [format!("/{PLACE}"), count.to_string()];
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

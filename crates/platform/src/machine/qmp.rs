//! As much of QEMU's machine protocol as is needed: threads of virtual CPUs, stop
//! and go. Failing is fine: then nothing is known, or the guest runs on.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tare_host::process::threads_by_own_number;
use tare_qemu::qmp::Qmp;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Executes a command; its answer.
pub(super) fn command(socket: &Path, name: &str) -> Option<Value> {
    let mut qmp = Qmp::connect(socket, ANSWER_TIMEOUT).ok()?;
    qmp.begin().ok()?;
    qmp.execute(name, &json!({})).ok()?
}

/// Threads of QEMU's virtual CPUs in their order, as this process numbers them; none where QEMU does not say.
pub(super) fn vcpu_threads(socket: &Path, qemu: u32) -> Vec<u32> {
    let answer = command(socket, "query-cpus-fast");
    let cpus = answer.as_ref().and_then(Value::as_array);
    let numbers = threads_by_own_number(qemu);
    let id = |cpu: &Value| {
        let own: u32 = cpu.get("thread-id")?.as_u64()?.try_into().ok()?;
        numbers.get(&own).copied()
    };
    cpus.into_iter().flatten().filter_map(id).collect()
}

//! As much of QEMU's machine protocol as is needed: threads of virtual CPUs, stop
//! and go. Failing is fine: then nothing is known, or the guest runs on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tare_host::process::threads_by_own_number;

const LIMIT: Duration = Duration::from_secs(2);
/// Events that may come before an answer.
const MAX_LINES: usize = 64;

/// Executes a command; its answer.
pub(super) fn command(socket: &Path, name: &str) -> Option<Value> {
    let stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let mut ask = |name: &str| {
        let text = format!("{}\n", json!({"execute": name}));
        (&stream).write_all(text.as_bytes()).ok()?;
        for _ in 0..MAX_LINES {
            let line: Value = serde_json::from_str(&lines.next()?.ok()?).ok()?;
            if let Some(answer) = line.get("return") {
                return Some(answer.clone());
            }
            line.get("error").is_none().then_some(())?;
        }
        None
    };
    ask("qmp_capabilities")?;
    ask(name)
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

//! Machines in processes apart from the observer's: many at once, for which a look reads no more than for
//! few, and one that causes events as fast as it can.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{Own, counted};
use tare_account::{Access, ExitKind};
use tare_probe::kvm::Observer;
use tare_probe::vm::{self, Vm};

/// Set for a process that is to be one machine: what its vCPU does.
const MACHINE: &str = "TARE_TEST_MACHINE";
const IDLE: &str = "idle";
const STORM: &str = "storm";
/// How many are started; `TARE_TEST_MACHINES` says another number.
const FEW: usize = 24;

/// How long the storm is watched.
const WINDOW: Duration = Duration::from_secs(6);
/// x2APIC's register by which a CPU interrupts itself.
const SELF_IPI: u32 = 0x83f;

/// A process with one machine.
struct MachineProcess(Child);

impl MachineProcess {
    /// `None` without KVM.
    fn start(does: &str) -> Option<Self> {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_machine", "--nocapture"])
            .env(MACHINE, does)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut machine = Self(child.unwrap());
        let output = BufReader::new(machine.0.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        lines.any(|line| line.contains("runs")).then_some(machine)
    }
}

impl Drop for MachineProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Interrupts to itself one after the other, which it never takes: two instructions for each hundred.
fn self_ipis() -> Vec<u8> {
    const WRMSR: [u8; 2] = [0x0f, 0x30];
    let [low, high, ..] = SELF_IPI.to_le_bytes();
    let writes = WRMSR.repeat(100);
    // Back to the first of them.
    let back = -i32::try_from(writes.len() + 5).unwrap();
    [
        // The APIC's base: enabled, as an x2APIC.
        &[0xb9, 0x1b, 0, 0, 0, 0x0f, 0x32, 0x0d, 0, 0x0c, 0, 0][..],
        &WRMSR,
        // Vector 0x40.
        &[0xb9, low, high, 0, 0, 0x31, 0xd2, 0xb8, 0x40, 0, 0, 0],
        &writes,
        &[0xe9],
        &back.to_le_bytes(),
    ]
    .concat()
}

/// Not a separate test: the process of a [`MachineProcess`].
#[test]
fn a_machine() {
    let code = match std::env::var(MACHINE).as_deref() {
        Ok(IDLE) => vec![0xf4],
        Ok(STORM) => self_ipis(),
        _ => return,
    };
    let Some(own) = Own::new(&code) else { return };
    own.begin();
    println!("runs");
    std::io::stdout().flush().unwrap();
    // Until the test ends.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// Calls of `read` and its like that this thread has made.
fn reads() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let mut fields = text.lines().filter_map(|line| line.strip_prefix("syscr: "));
    fields.next().unwrap().parse().unwrap()
}

/// Reads by which the threads of these are looked at once, and accounted.
fn reads_of(vms: &[Vm]) -> Option<(u64, u64)> {
    let mut observer = Observer::start(vms);
    std::thread::sleep(
        observer
            .next_refresh()
            .max(std::time::Duration::from_millis(260)),
    );
    let before = reads();
    observer.refresh();
    let looked = reads();
    let accounts = observer.turn();
    let turned = reads();
    assert_eq!(accounts.len(), vms.len());
    for account in accounts {
        let account = counted(account)?;
        assert!(!account.ended, "{account:#?}");
        assert!(!account.threads.is_empty());
        assert!(account.threads.iter().all(|it| !it.allowed_cpus.is_empty()));
    }
    Some((looked - before, turned - looked))
}

#[test]
fn a_look_at_many_machines_reads_as_often_as_at_few() {
    let number = std::env::var("TARE_TEST_MACHINES")
        .ok()
        .map_or(FEW, |number| number.parse().unwrap());
    let machines: Vec<_> = (0..number)
        .map_while(|_| MachineProcess::start(IDLE))
        .collect();
    if machines.len() < number {
        support::skip::<()>("no KVM for many machines");
        return;
    }
    let ids = machines.iter().map(|machine| machine.0.id());
    let vms: Vec<Vm> = ids.map(|pid| vm::of_pid(pid).unwrap()).collect();
    let Some(few) = reads_of(&vms[..number / 6]) else {
        return;
    };
    let many = reads_of(&vms).unwrap();
    println!(
        "{} machines {few:?}, {number} machines {many:?}",
        number / 6
    );
    // An iterator's reading takes 32 KiB; a thread is 288 bytes.
    let buffers = number as u64 / 20;
    assert!(many.0 <= few.0 + buffers, "{few:?} {many:?}");
    assert!(many.1 <= few.1 + buffers, "{few:?} {many:?}");
}

/// How much of the time is counted shrinks with the rate of events. What that costs depends on how
/// much of a CPU the storm gets: it is printed, and `tare weigh observer` measures it.
#[test]
fn the_fastest_storm_of_a_vcpu_is_counted_in_part() {
    let Some(machine) = MachineProcess::start(STORM) else {
        support::skip::<()>("no KVM for a machine");
        return;
    };
    let vms = [vm::of_pid(machine.0.id()).unwrap()];
    let mut observer = Observer::start(&vms);
    let end = Instant::now() + WINDOW;
    while Instant::now() < end {
        std::thread::sleep(observer.next_refresh());
        observer.refresh();
    }
    let Some(account) = counted(observer.turn().remove(0)) else {
        return;
    };
    let seconds = account.window_ns as f64 / 1e9;
    let is_write = |kind: &ExitKind| {
        matches!(
            kind,
            ExitKind::Msr {
                index: SELF_IPI,
                access: Access::Write
            }
        )
    };
    let exits = account.exits();
    let writes: u64 = exits
        .iter()
        .filter(|exit| is_write(&exit.kind))
        .map(|exit| exit.count)
        .sum();
    let cost = account.share(account.observer.total_ns());
    println!(
        "{:.0} self-IPIs/s, {:.4} of the time counted, cost {cost:.4}: {:?}",
        writes as f64 / seconds,
        account.counted_share,
        account.observer
    );
    assert!(writes > 0, "{account:#?}");
    assert!(account.counted_share > 0.0);
}

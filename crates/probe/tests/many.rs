//! Many machines at once: what a look at them reads does not grow with them.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use support::{Own, counted};
use tare_probe::kvm::Observer;
use tare_probe::vm::{self, Vm};

/// Set for a process that is to be one idle machine.
const IDLE: &str = "TARE_TEST_IDLE_MACHINE";
/// How many are started; `TARE_TEST_MACHINES` says another number.
const FEW: usize = 24;

/// A process with a machine whose vCPU halts for good.
struct IdleMachine(Child);

impl IdleMachine {
    /// `None` without KVM.
    fn start() -> Option<Self> {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "an_idle_machine", "--nocapture"])
            .env(IDLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut machine = Self(child.unwrap());
        let output = BufReader::new(machine.0.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        lines.any(|line| line.contains("halts")).then_some(machine)
    }
}

impl Drop for IdleMachine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a separate test: the process of an [`IdleMachine`].
#[test]
fn an_idle_machine() {
    if std::env::var_os(IDLE).is_none() {
        return;
    }
    let Some(own) = Own::new(&[0xf4]) else { return };
    own.begin();
    println!("halts");
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
    let machines: Vec<_> = (0..number).map_while(|_| IdleMachine::start()).collect();
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

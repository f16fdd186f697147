//! The library OS on whole machines: every check of `guests/selftest`, the ways
//! in which an image ends, and the HTTP appliance over QEMU's own network.

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use tare_abi::exit::GuestExit;
use tare_vmtest::{Accelerator, MachineType, RunError, RunOutput, TestMachine, image, or_skip};

const LIMIT: Duration = Duration::from_secs(60);
/// Kinds of wild ends, of which consecutive seeds have all in turn.
const WILD_KINDS: u64 = 13;

fn run(
    machine_type: MachineType,
    accelerator: Accelerator,
    cpus: u8,
    cmdline: &str,
) -> Option<RunOutput> {
    run_with(machine_type, accelerator, cpus, cmdline, &[])
}

fn run_with(
    machine_type: MachineType,
    accelerator: Accelerator,
    cpus: u8,
    cmdline: &str,
    arguments: &[&str],
) -> Option<RunOutput> {
    let image = or_skip(image("selftest"))?;
    let machine = TestMachine::new(&image, machine_type, accelerator)
        .cpus(cpus)
        .cmdline(cmdline);
    let arguments = ["-nic", "none"].iter().chain(arguments);
    let machine = arguments.fold(machine, |machine, argument| machine.argument(argument));
    match machine.run(LIMIT) {
        Err(error @ RunError::Timeout { .. }) => panic!("{error}"),
        other => or_skip(other),
    }
}

fn passes(machine_type: MachineType, accelerator: Accelerator, cpus: u8) {
    let Some(outcome) = run(machine_type, accelerator, cpus, "") else {
        return;
    };
    assert!(
        outcome.console.contains("selftest done, 0 failed"),
        "{}",
        outcome.console
    );
    let ring = match accelerator {
        Accelerator::Kvm => support::ring_on_kvm(),
        Accelerator::Tcg => 0,
    };
    let expected = format!("selftest on {cpus} cores in ring {ring}");
    assert!(outcome.console.contains(&expected), "{}", outcome.console);
    assert_eq!(outcome.exit, Some(GuestExit::Status(0)));
}

#[test]
fn everything_works_on_q35_translated() {
    passes(MachineType::Q35, Accelerator::Tcg, 2);
}

#[test]
fn everything_works_on_microvm_translated() {
    passes(MachineType::Microvm, Accelerator::Tcg, 2);
}

#[test]
fn everything_works_on_sixteen_cores() {
    passes(MachineType::Q35, Accelerator::Tcg, 16);
}

#[test]
fn everything_works_on_q35_with_kvm() {
    passes(MachineType::Q35, Accelerator::Kvm, 2);
}

#[test]
fn everything_works_on_microvm_with_kvm() {
    passes(MachineType::Microvm, Accelerator::Kvm, 1);
}

fn passes_in_ring(ring: u8, machine_type: MachineType, accelerator: Accelerator, cpus: u8) {
    let Some(outcome) = run(machine_type, accelerator, cpus, &format!("ring={ring}")) else {
        return;
    };
    let console = outcome.console;
    assert!(console.contains("selftest done, 0 failed"), "{console}");
    assert!(console.contains(&format!("in ring {ring}")), "{console}");
    assert_eq!(outcome.exit, Some(GuestExit::Status(0)));
}

#[test]
fn everything_works_in_ring_3_translated() {
    passes_in_ring(3, MachineType::Q35, Accelerator::Tcg, 2);
    passes_in_ring(3, MachineType::Microvm, Accelerator::Tcg, 1);
}

#[test]
fn everything_works_in_ring_3_on_sixteen_cores() {
    passes_in_ring(3, MachineType::Q35, Accelerator::Tcg, 16);
}

#[test]
fn everything_works_in_either_ring_with_kvm() {
    passes_in_ring(0, MachineType::Microvm, Accelerator::Kvm, 1);
    passes_in_ring(3, MachineType::Q35, Accelerator::Kvm, 2);
}

/// What the console says of an attempt on ring 0's memory.
fn trespassed(what: &str, fault: &str, part: &str) {
    let cmdline = format!("ring=3 trespass={what}");
    let Some(outcome) = run(MachineType::Microvm, Accelerator::Tcg, 1, &cmdline) else {
        return;
    };
    faulted(&outcome, fault, part);
}

fn faulted(outcome: &RunOutput, fault: &str, part: &str) {
    let console = &outcome.console;
    assert!(
        console.contains(fault) && console.contains(part),
        "{console}"
    );
    assert_eq!(outcome.exit, Some(GuestExit::Fault));
}

#[test]
fn ring_3_cannot_write_page_tables() {
    trespassed("page-table", "page fault writing", "holds page tables");
    // With this much memory there are tables outside the image too.
    let cmdline = "ring=3 trespass=further-table";
    if let Some(outcome) = run_with(
        MachineType::Microvm,
        Accelerator::Tcg,
        1,
        cmdline,
        &["-m", "128"],
    ) {
        faulted(&outcome, "page fault writing", "holds page tables");
    }
}

#[test]
fn ring_3_cannot_reach_descriptor_tables() {
    trespassed("descriptors", "page fault writing", "descriptor tables");
    trespassed("read", "page fault reading", "descriptor tables");
}

#[test]
fn ring_3_cannot_jump_into_entry_code_or_mask_interrupts() {
    trespassed("jump", "page fault executing", "holds ring 0's entry code");
    trespassed("cli", "general protection", "cs 23");
}

#[test]
fn ring_3_cannot_write_its_code_or_execute_its_data() {
    trespassed("text", "page fault writing", "error 0x7");
    trespassed("data", "page fault executing", "error 0x15");
}

/// One of each kind; `make soak` draws more of them, on KVM.
#[test]
fn a_wild_end_of_ring_3_is_a_report_of_registers() {
    for seed in 0..WILD_KINDS {
        let cmdline = format!("ring=3 trespass=wild seed={seed}");
        let Some(outcome) = run(MachineType::Microvm, Accelerator::Tcg, 1, &cmdline) else {
            return;
        };
        let console = outcome.console;
        for word in ["wild: ", "fault: ", "rip ", "r13 "] {
            assert!(
                console.contains(word),
                "seed {seed}: no {word}in:\n{console}"
            );
        }
        assert_eq!(
            outcome.exit,
            Some(GuestExit::Fault),
            "seed {seed}: {console}"
        );
    }
}

#[test]
fn ring_3_without_stack_return_or_area_ends_with_its_registers() {
    trespassed(
        "no-stack",
        "page fault writing 0xff8",
        "rsp 0000000000001000",
    );
    trespassed("return", "general protection", "cs 23");
    trespassed("no-area", "GS does not point", "rip ");
    let cmdline = "ring=3 overflow";
    let Some(outcome) = run(MachineType::Microvm, Accelerator::Tcg, 1, cmdline) else {
        return;
    };
    assert!(
        outcome.console.contains("stack overflow"),
        "{}",
        outcome.console
    );
    assert_eq!(outcome.exit, Some(GuestExit::Fault));
}

#[test]
fn the_service_gate_survives_nonsense() {
    let Some(outcome) = run(
        MachineType::Microvm,
        Accelerator::Tcg,
        1,
        "ring=3 trespass=gates",
    ) else {
        return;
    };
    assert!(
        outcome.console.contains("gates: 20000 requests"),
        "{}",
        outcome.console
    );
    assert_eq!(outcome.exit, Some(GuestExit::Status(0)));
}

/// Raises interrupts one by one and waits for each; `make soak` raises ten million.
fn arrives(accelerator: Accelerator, cpus: u8, ring: u8, number: u32) {
    let cmdline = format!("ring={ring} interrupts={number}");
    let Some(outcome) = run(MachineType::Q35, accelerator, cpus, &cmdline) else {
        return;
    };
    let said = format!("{number} raised, {number} arrived, {number} handled");
    assert!(outcome.console.contains(&said), "{}", outcome.console);
    assert_eq!(outcome.exit, Some(GuestExit::Status(0)));
}

#[test]
fn no_interrupt_is_lost_in_either_ring() {
    for ring in [0, 3] {
        arrives(Accelerator::Tcg, 1, ring, 20_000);
        arrives(Accelerator::Tcg, 2, ring, 4_000);
    }
    arrives(Accelerator::Kvm, 1, 3, 20_000);
}

#[test]
fn a_panic_prints_its_thread_and_a_backtrace() {
    let Some(outcome) = run(MachineType::Microvm, Accelerator::Tcg, 1, "panic") else {
        return;
    };
    assert_eq!(outcome.exit, Some(GuestExit::Panic));
    let console = outcome.console;
    assert!(console.contains("panic: asked to panic"), "{console}");
    assert!(console.contains("'doomed'"), "{console}");
    assert!(console.matches("  at 0x").count() >= 2, "{console}");
}

#[test]
fn a_stack_overflow_is_named() {
    let Some(outcome) = run(MachineType::Microvm, Accelerator::Tcg, 1, "overflow") else {
        return;
    };
    assert_eq!(outcome.exit, Some(GuestExit::Fault));
    let console = outcome.console;
    assert!(console.contains("stack overflow"), "{console}");
    assert!(console.contains("'deep'"), "{console}");
}

#[test]
fn page_zero_is_not_mapped() {
    let Some(outcome) = run(MachineType::Microvm, Accelerator::Tcg, 1, "null") else {
        return;
    };
    assert_eq!(outcome.exit, Some(GuestExit::Fault));
    assert!(outcome.console.contains("page fault reading 0x8"));
}

#[test]
fn an_idle_image_hardly_wakes() {
    let Some(outcome) = run(MachineType::Microvm, Accelerator::Tcg, 2, "idle-for=3") else {
        return;
    };
    let cores: Vec<_> = outcome
        .console
        .lines()
        .filter(|line| line.starts_with("core "))
        .collect();
    assert_eq!(cores.len(), 2, "{}", outcome.console);
    for line in cores {
        let (halts, timers) = (number_after(line, "halts"), number_after(line, "timers"));
        // The translator's timer, measured on a busy host, may come too early: each
        // time it is set for what is left. A tick would come 300 times or more,
        // and other wake-ups set no timer.
        assert!(timers <= 20 && halts <= timers + 2, "{line}");
    }
}

/// The number after `word`.
fn number_after(line: &str, word: &str) -> u32 {
    let mut words = line.split(' ').skip_while(|other| *other != word);
    let number = words.nth(1).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no {word}: {line}"))
}

/// The HTTP appliance answers through `device`; then QMP ends QEMU.
fn serves(machine_type: MachineType, accelerator: Accelerator, device: &str) {
    let Some(image) = or_skip(image("http")) else {
        return;
    };
    let port = tare_vmtest::free_port();
    let qmp = std::env::temp_dir().join(format!("tare-{}-{port}.qmp", std::process::id()));
    let machine = TestMachine::new(&image, machine_type, accelerator)
        .argument("-netdev")
        .argument(&format!("user,id=net,hostfwd=tcp:127.0.0.1:{port}-:80"))
        .argument("-device")
        .argument(device)
        .argument("-qmp")
        .argument(&format!("unix:{},server=on,wait=off", qmp.display()));
    let run = thread::spawn(move || machine.run(LIMIT));
    let mut answer = String::new();
    while answer.is_empty() && !run.is_finished() {
        thread::sleep(Duration::from_millis(20));
        answer = get(port).unwrap_or_default();
    }
    quit(&qmp).ok();
    let ended = run.join().unwrap_or_else(|_| panic!("the run panicked"));
    if let Err(error @ RunError::Timeout { .. }) = &ended {
        panic!("no answer: {error}");
    }
    let Some(outcome) = or_skip(ended) else {
        return;
    };
    let console = outcome.console;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}{console}");
    assert!(console.contains("http: serving 0 files"), "{console}");
}

fn get(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"GET /none HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn quit(qmp: &Path) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(qmp)?;
    stream.write_all(b"{\"execute\":\"qmp_capabilities\"}{\"execute\":\"quit\"}")?;
    stream.read_to_end(&mut Vec::new()).map(drop)
}

#[test]
fn the_appliance_serves_on_microvm_translated() {
    serves(
        MachineType::Microvm,
        Accelerator::Tcg,
        "virtio-net-device,netdev=net",
    );
}

#[test]
fn the_appliance_serves_on_microvm_with_kvm() {
    serves(
        MachineType::Microvm,
        Accelerator::Kvm,
        "virtio-net-device,netdev=net",
    );
}

#[test]
fn the_appliance_serves_on_q35_with_kvm() {
    let device = "virtio-net-pci,netdev=net,disable-legacy=on,romfile=";
    serves(MachineType::Q35, Accelerator::Kvm, device);
}

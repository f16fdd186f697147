//! The library OS on whole machines: every check of `guests/selftest`, and the
//! ways in which an image ends.

use std::time::Duration;

use tare_abi::exit::GuestExit;
use tare_vmtest::{Accelerator, Machine, Model, Outcome, image, or_skip};

const LIMIT: Duration = Duration::from_secs(60);

fn run(model: Model, accelerator: Accelerator, cpus: u8, cmdline: &str) -> Option<Outcome> {
    let image = or_skip(image("selftest"))?;
    let machine = Machine::new(&image, model, accelerator)
        .cpus(cpus)
        .cmdline(cmdline)
        .argument("-nic")
        .argument("none");
    match machine.run(LIMIT) {
        Err(error @ tare_vmtest::RunError::Timeout { .. }) => panic!("{error}"),
        other => or_skip(other),
    }
}

fn passes(model: Model, accelerator: Accelerator, cpus: u8) {
    let Some(outcome) = run(model, accelerator, cpus, "") else {
        return;
    };
    assert!(
        outcome.console.contains("selftest done, 0 failed"),
        "{}",
        outcome.console
    );
    let expected = format!("selftest on {cpus} cores");
    assert!(outcome.console.contains(&expected), "{}", outcome.console);
    assert_eq!(outcome.exit, Some(GuestExit::Status(0)));
}

#[test]
fn everything_works_on_q35_translated() {
    passes(Model::Q35, Accelerator::Tcg, 2);
}

#[test]
fn everything_works_on_microvm_translated() {
    passes(Model::Microvm, Accelerator::Tcg, 2);
}

#[test]
fn everything_works_on_sixteen_cores() {
    passes(Model::Q35, Accelerator::Tcg, 16);
}

#[test]
fn everything_works_on_q35_with_kvm() {
    passes(Model::Q35, Accelerator::Kvm, 2);
}

#[test]
fn everything_works_on_microvm_with_kvm() {
    passes(Model::Microvm, Accelerator::Kvm, 1);
}

#[test]
fn a_panic_is_told_with_its_thread_and_a_backtrace() {
    let Some(outcome) = run(Model::Microvm, Accelerator::Tcg, 1, "panic") else {
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
    let Some(outcome) = run(Model::Microvm, Accelerator::Tcg, 1, "overflow") else {
        return;
    };
    assert_eq!(outcome.exit, Some(GuestExit::Fault));
    let console = outcome.console;
    assert!(console.contains("stack overflow"), "{console}");
    assert!(console.contains("'deep'"), "{console}");
}

#[test]
fn page_zero_is_not_mapped() {
    let Some(outcome) = run(Model::Microvm, Accelerator::Tcg, 1, "null") else {
        return;
    };
    assert_eq!(outcome.exit, Some(GuestExit::Fault));
    assert!(outcome.console.contains("page fault reading 0x8"));
}

#[test]
fn an_idle_image_hardly_wakes() {
    let Some(outcome) = run(Model::Microvm, Accelerator::Tcg, 2, "idle-for=3") else {
        return;
    };
    let cores: Vec<_> = outcome
        .console
        .lines()
        .filter(|line| line.starts_with("core "))
        .collect();
    assert_eq!(cores.len(), 2, "{}", outcome.console);
    for line in cores {
        let halts = line
            .split(' ')
            .skip_while(|word| *word != "halts")
            .nth(1)
            .and_then(|number| number.parse::<u32>().ok());
        assert!(halts.is_some_and(|halts| halts <= 2), "{line}");
    }
}

//! Each burner of the `storm` image in each machine type of QEMU: what is named, and
//! the rate where the guest sets it.

use super::qemu::Qemu;
use super::support::TestDir;
use super::{expect_cause, found, ready_with};

/// A burner in a machine, and what must be named.
struct Case {
    model: &'static str,
    cmdline: &'static str,
    cause: &'static str,
    /// Part of its headline.
    what: &'static str,
    /// Part of its remedy.
    remedy: &'static str,
}

const fn case(
    (model, cmdline): (&'static str, &'static str),
    cause: &'static str,
    what: &'static str,
    remedy: &'static str,
) -> Case {
    Case {
        model,
        cmdline,
        cause,
        what,
        remedy,
    }
}

const SPLIT: &str = "q35,kernel-irqchip=split";
const DEADLINE: &str = "mode=exit kind=tsc_deadline";
const COUNT: &str = "mode=exit kind=timer_count";
const HPET_READS: &str = "mode=exit kind=hpet";

/// Those that every run of the tests looks at.
const FEW: &[Case] = &[
    case(("q35", DEADLINE), "exits", "TSC_DEADLINE", "hrtimer_start"),
    case(("pc", COUNT), "exits", "initial count", "hrtimer_start"),
    case(("q35", HPET_READS), "exits", "HPET", "kvm-clock"),
    case(
        (SPLIT, "mode=pit hz=1000"),
        "pit",
        "PIT (or HPET",
        "pit=off",
    ),
    case(
        ("microvm", "mode=tick hz=1000"),
        "periodic_tick",
        "the guest's",
        "tickless",
    ),
    case(
        ("q35", "mode=exit kind=cpuid"),
        "exits",
        "CPUID",
        "perf top",
    ),
    case(
        ("q35", "mode=exit kind=pm"),
        "exits",
        "0x608 (ACPI PM timer)",
        "kvm-clock or the TSC",
    ),
    case(
        ("pc", "mode=exit kind=print"),
        "exits",
        "serial",
        "print less",
    ),
    case(
        ("pc", "mode=pit hz=1000 through=none"),
        "kernel_threads",
        "kvm-pit",
        "pit=off",
    ),
];
/// The others, with TARE_SOAK=1.
const MORE: &[Case] = &[
    case(
        ("q35", "mode=exit kind=eoi"),
        "exits",
        "end of interrupt",
        "in the guest",
    ),
    case(
        ("q35", "mode=exit kind=pit"),
        "exits",
        "0x4",
        "kvm-clock or the TSC",
    ),
    case(("q35", "mode=exit kind=rtc"), "exits", "RTC", "/dev/rtc0"),
    case(
        ("microvm", "mode=exit kind=print"),
        "exits",
        "serial",
        "print less",
    ),
    case(
        ("pc", "mode=exit kind=hpet,cpuid"),
        "exits",
        "",
        "in the guest",
    ),
    case(
        ("pc", "mode=exit kind=pio_in_user"),
        "exits",
        "port",
        "print less",
    ),
    case(("pc", "mode=hpet hz=500"), "hpet", "HPET", "hpet=off"),
    case(
        ("pc", "mode=pit hz=1000 through=pic"),
        "pit",
        "PIT",
        "pit=off",
    ),
    case(
        ("q35", "mode=rtc hz=1024 through=pic"),
        "rtc",
        "RTC",
        "/dev/rtc",
    ),
    case((SPLIT, "mode=rtc hz=1024"), "rtc", "RTC", "/dev/rtc"),
    case(
        (SPLIT, "mode=tick hz=1000"),
        "periodic_tick",
        "the guest's",
        "tickless",
    ),
    case(
        ("microvm", "mode=spin"),
        "guest_spins",
        // Whether none or none that was seen: others make storms beside it.
        "HLT",
        "idle=poll",
    ),
];

#[test]
fn why_names_each_burner_in_each_machine_type() {
    let Some((_alone, image)) = ready_with("qemu-system-x86_64") else {
        return;
    };
    let more = std::env::var_os("TARE_SOAK").map_or(&[][..], |_| MORE);
    for case in FEW.iter().chain(more) {
        let place = TestDir::new();
        let qemu = Qemu::start(&place, &image, case.model, case.cmdline, &[]);
        let machine = expect_cause(&place, &qemu.pid().to_string(), case.cause);
        let findings = machine["findings"].as_array().unwrap().iter();
        let mut told = findings.filter(|found| found["cause"] == case.cause);
        let is_told = told.any(|found| {
            let has = |field: &str, text| found[field].as_str().unwrap().contains(text);
            has("what", case.what) && has("remedy", case.remedy)
        });
        let found = found(&machine, case.cause);
        assert!(is_told, "{} {}: {found:#?}", case.model, case.cmdline);
    }
}

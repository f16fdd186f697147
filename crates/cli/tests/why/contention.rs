//! A machine beside a noisy neighbour, and one whose vCPUs share a CPU, in Tare's monitor
//! and in QEMU: the finding, its share, the rate of what the guest does, and the remedy
//! executed as printed.

use std::ops::RangeInclusive;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::qemu::Qemu;
use super::remedies::{allowed, execute, lines};
use super::support::{TestDir, end, installed};
use super::{
    Hog, RunningMachine, crowd, expect_covered, expect_share, found, pin, ready, threads,
    until_it_watches, vcpus_share,
};

/// Time on the run queue in which the scheduler and the account may differ by what lies
/// between the ends of two windows.
const EDGES: f64 = 0.25;
/// Windows, of which one is to be right but for chance: where the host is busy, a machine may have a
/// CPU while nothing is counted.
const WINDOWS: usize = 5;
/// How long the scheduler's own account runs beside that of `tare why`.
const WATCHED: std::time::Duration = std::time::Duration::from_secs(3);

/// A machine under one of the monitors.
struct Guest<'a> {
    place: &'a TestDir,
    /// What `tare why` calls it.
    target: String,
    vcpus: Vec<i32>,
}

/// Runs a case in each monitor that is here.
fn in_each_monitor(cmdline: &str, cpus: &str, case: fn(&Guest<'_>)) {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, cmdline, &["--cpus", cpus]);
    case(&Guest {
        place: &place,
        target: machine.name.clone(),
        vcpus: machine.vcpus(),
    });
    drop(machine);
    if !installed("qemu-system-x86_64") {
        tare_vmtest::lacks("qemu-system-x86_64 is not installed");
        return;
    }
    let qemu = Qemu::start(&place, &image, "q35", cmdline, &["-smp", cpus]);
    case(&Guest {
        place: &place,
        target: qemu.pid().to_string(),
        vcpus: threads(qemu.pid(), "CPU "),
    });
}

impl Guest<'_> {
    fn pin(&self, cpu: usize) {
        self.vcpus.iter().for_each(|tid| pin(*tid, cpu));
    }

    /// Time that its vCPUs have waited for a CPU, by the scheduler's statistics, ns.
    fn waited_ns(&self) -> u64 {
        let of = |tid: &i32| {
            let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).unwrap();
            text.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
        };
        self.vcpus.iter().map(of).sum()
    }

    /// The report of `tare why`, and how long the vCPUs waited by the scheduler's statistics, ns:
    /// at least (within its window) and at most (from before its start until after its end).
    fn watched(&self) -> (Value, RangeInclusive<u64>) {
        let args = ["why", &self.target, "--seconds", "60", "--json"];
        let mut why: Command = self.place.tare(&args);
        let begun = self.waited_ns();
        let why = why.spawn().unwrap();
        until_it_watches(&why);
        let before = self.waited_ns();
        std::thread::sleep(WATCHED);
        let within = self.waited_ns() - before;
        kill_process(Pid::from_raw(why.id().cast_signed()).unwrap(), Signal::INT).unwrap();
        let ended = end(why);
        let around = self.waited_ns() - begun;
        ended.expect(0, "\"schema\": 1");
        let document: Value = serde_json::from_str(&ended.out).unwrap();
        (document["machines"][0].clone(), within..=around)
    }

    /// The finding exists, with the scheduler's time.
    #[track_caller]
    fn expect_waiting(&self, cause: &str) -> Value {
        let (told, waited_ns) = self.watched();
        let (within, around) = (*waited_ns.start() as f64, *waited_ns.end() as f64);
        let found = found(&told, cause).unwrap_or_else(|| panic!("no {cause}: {told}"));
        expect_covered(&told);
        let share = vcpus_share(&told, |thread| &thread["off_cpu"]["run_delay_ns"]);
        expect_share(found, share);
        let told_ns = share * told["account"]["window_ns"].as_f64().unwrap();
        println!(
            "{}: {}, {:.0} ms of {:.0} to {:.0} ms",
            self.target,
            found["what"],
            told_ns / 1e6,
            within / 1e6,
            around / 1e6
        );
        // The same kernel counter, read in a window within: it cannot be larger.
        assert!(
            (within * (1.0 - EDGES)..=around + 1.0).contains(&told_ns),
            "{told_ns} of {waited_ns:?}: {told}"
        );
        told
    }

    /// The same in the first of [`WINDOWS`] windows that saw the process take the vCPUs' CPU. The
    /// observer counts a small share of a window where others want the CPU too.
    #[track_caller]
    fn expect_taken(&self, cause: &str, by: impl Fn(&Value) -> u32) -> Value {
        for _ in 0..WINDOWS {
            let told = self.expect_waiting(cause);
            if taken_by(&told, by(&told)) > 0 {
                return told;
            }
        }
        panic!("the process was seen in none of {WINDOWS} windows");
    }

    /// Executes the remedy; returns the report of `tare why` afterwards.
    #[track_caller]
    fn after_remedy(&self, told: &Value, cause: &str) -> Value {
        let commands = lines(found(told, cause).unwrap());
        assert!(!commands.is_empty(), "{told}");
        commands.iter().for_each(|line| execute(self.place, line));
        self.watched().0
    }
}

/// Nanoseconds that this process ran while a vCPU waited.
fn taken_by(told: &Value, pid: u32) -> u64 {
    let threads = told["account"]["threads"].as_array().unwrap().iter();
    let takers = threads.filter_map(|thread| thread["off_cpu"]["preempted_by"].as_array());
    let of_pid = takers.flatten().filter(|taker| taker["pid"] == pid);
    of_pid.map(|taker| taker["ran_ns"].as_u64().unwrap()).sum()
}

/// What a process took as a share of the time in which the vCPUs ran or waited for a CPU.
fn taken_share(told: &Value, pid: u32) -> f64 {
    let ran = vcpus_share(told, |thread| &thread["on_cpu"]["total_ns"]);
    let waited = vcpus_share(told, |thread| &thread["off_cpu"]["run_delay_ns"]);
    let window_ns = told["account"]["window_ns"].as_f64().unwrap();
    taken_by(told, pid) as f64 / window_ns / (ran + waited)
}

#[test]
fn a_noisy_neighbour_is_named_and_the_remedy_lets_vcpus_leave_it() {
    in_each_monitor("mode=spin", "1", |guest| {
        guest.pin(0);
        let hog = Hog::new(0);
        let told = guest.expect_taken("steal", |_| hog.pid());
        assert_eq!(allowed(&told), [1]);
        let cpus = told["account"]["host_cpus"].as_u64().unwrap() as usize;
        let after = guest.after_remedy(&told, "steal");
        assert_eq!(allowed(&after), [cpus]);
    });
}

#[test]
fn vcpus_that_are_pinned_together_are_parted_by_the_remedy() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        tare_vmtest::lacks("a second CPU is needed");
        return;
    }
    in_each_monitor("mode=spin", "2", |guest| {
        guest.pin(1);
        let own = |told: &Value| told["account"]["vm"]["pid"].as_u64().unwrap() as u32;
        let told = guest.expect_taken("pinned_together", own);
        let own = own(&told);
        let after = guest.after_remedy(&told, "pinned_together");
        let (before, left) = (taken_share(&told, own), taken_share(&after, own));
        println!("taken before {before:.3}, after {left:.3}");
        assert!(left < before / 2.0, "{left} of {before}: {after}");
        assert!(found(&after, "pinned_together").is_none(), "{after}");
        execute(guest.place, &format!("tare pin {} --undo", guest.target));
    });
}

/// A tick keeps its rate beside a machine that spins on its CPU, which is named; or `tare why` says
/// by how much it may be off.
#[test]
fn the_rate_of_a_tick_is_right_beside_a_machine_that_spins() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, "mode=tick hz=250", &[]);
    let neighbour = RunningMachine::start(&place, &image, "mode=spin", &[]);
    for machine in [&machine, &neighbour] {
        machine.vcpus().into_iter().for_each(|tid| pin(tid, 0));
    }
    let guest = Guest {
        place: &place,
        target: machine.name.clone(),
        vcpus: machine.vcpus(),
    };
    for _ in 0..WINDOWS {
        let (told, _) = guest.watched();
        expect_covered(&told);
        if taken_by(&told, neighbour.pid()) == 0 {
            continue;
        }
        let truth = crowd::injected(&told).unwrap();
        let counted = crowd::ticks(&told);
        println!("{counted} of {truth}");
        let off = (counted / truth - 1.0).abs();
        assert!(
            off <= crowd::most_off(&told, truth),
            "{counted} of {truth}: {told}"
        );
        if off <= crowd::chance_and_edges(&told, truth) {
            return;
        }
    }
    panic!("right in none of {WINDOWS} windows");
}

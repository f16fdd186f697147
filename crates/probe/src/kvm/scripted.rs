//! The programs of `bpf/kvm.bpf.c` on events that a script makes: the kernel runs them with
//! these arguments (`BPF_PROG_TEST_RUN`), and nothing is attached.

use std::thread;
use std::time::{Duration, Instant};

use aya::programs::RawTracePoint;
use aya::{RawTracePointRunOptions, TestRun as _};

use super::counts::Tallies;
use super::gate_words::{ALL, GateMap as _, Words};
use super::slices::{End, Ends, Slices};
use super::weighted::{WHOLE, Weighted};
use super::{classes, events, slices};
use crate::bpf::Object;
use crate::clock::monotonic_ns;

const RTC: u64 = 8;
/// Longer than a line and its message are apart.
const LATER: Duration = Duration::from_micros(200);
/// Shorter than that.
const AT_ONCE: Duration = Duration::from_micros(40);

/// The programs, with this process as the machine.
struct Script(Object);

impl Script {
    /// `None` where BPF cannot be used.
    fn new() -> Option<Self> {
        let mut object = match events::unattached() {
            Ok(object) => object,
            Err(missing) => {
                tare_vmtest::lacks(missing.to_string());
                return None;
            }
        };
        events::watch(&mut object, std::process::id()).unwrap();
        for (name, program) in object.ebpf().programs_mut() {
            if name.starts_with("on_kvm_")
                && let Ok(program) = <&mut RawTracePoint>::try_from(program)
            {
                program.load().unwrap();
            }
        }
        object.write(Words {
            open_ticks: ALL,
            ..Words::default()
        });
        Some(Self(object))
    }

    /// A program runs on this thread.
    fn fire(&self, program: &str, arguments: &[u64]) {
        let program: &RawTracePoint = self.0.program(program).unwrap().try_into().unwrap();
        let mut options = RawTracePointRunOptions::new();
        options.args[..arguments.len()].copy_from_slice(arguments);
        program.test_run(options).unwrap();
    }

    /// `kvm_set_irq`, and `kvm_pic_set_irq` as it follows for lines below 16.
    fn set(&self, line: u64, level: u64) {
        self.fire("on_kvm_set_irq", &[line, level]);
        if line < 16 {
            self.fire("on_kvm_pic_set_irq", &[line / 8, line % 8, 0, 0xff]);
        }
    }

    /// QEMU sets a line at each of two interrupt controllers, which are one in KVM.
    fn set_twice(&self, line: u64, level: u64) {
        self.set(line, level);
        thread::sleep(LATER);
        self.set(line, level);
    }

    fn message(&self) {
        self.fire("on_kvm_msi_set_irq", &[0xfee0_0000, 0x41]);
    }

    fn counted(&self, class: u32) -> u64 {
        self.tallies(&Ends::default()).counted(class)
    }

    fn tallies(&self, ends: &Ends) -> Tallies {
        let slices = Slices {
            gate: self.0.read(),
            ends,
            tick_ns: slices::tick_ns(),
            now_ns: monotonic_ns(),
        };
        Tallies::read(&self.0, &slices)
    }

    fn leaf(&self, times: u64) {
        for _ in 0..times {
            self.fire("on_kvm_cpuid", &[0x4000_0000]);
        }
    }
}

#[test]
fn a_line_that_is_raised_at_two_controllers_is_raised_once() {
    let Some(script) = Script::new() else { return };
    for _ in 0..5 {
        script.set_twice(RTC, 1);
        script.set_twice(RTC, 0);
    }
    assert_eq!(script.counted(classes::LINE), 5);
    assert_eq!(script.counted(classes::PIC), 5);
    // Each interval but the first.
    assert_eq!(script.counted(classes::LINE_INTERVAL), 4);
}

#[test]
fn a_tick_that_the_guest_has_not_answered_is_raised_again_as_the_same() {
    let Some(script) = Script::new() else { return };
    for _ in 0..4 {
        script.set_twice(RTC, 1);
        thread::sleep(LATER);
    }
    assert_eq!(script.counted(classes::LINE), 1);
    // The vCPU's thread reads the clock chip, which lowers the line.
    thread::scope(|scope| scope.spawn(|| script.set_twice(RTC, 0)).join().unwrap());
    script.set_twice(RTC, 1);
    assert_eq!(script.counted(classes::LINE), 2);
    assert_eq!(script.counted(classes::PIC), 2);
}

#[test]
fn ticks_that_follow_each_other_at_once_are_all_counted() {
    let Some(script) = Script::new() else { return };
    for _ in 0..7 {
        script.set(0, 1);
        script.set(0, 0);
    }
    // Another line meanwhile is another line.
    script.set(4, 1);
    assert_eq!(script.counted(classes::LINE), 8);
    assert_eq!(script.counted(classes::PIC), 8);
}

/// A line and its message, as soon after it as KVM has them; whether they were.
fn routed(script: &Script) -> bool {
    let began = Instant::now();
    // A split irqchip does not lower it.
    script.fire("on_kvm_set_irq", &[20, 1]);
    script.message();
    let took = began.elapsed();
    thread::sleep(LATER);
    took < AT_ONCE
}

#[test]
fn a_line_that_is_routed_to_a_message_has_no_level() {
    for _ in 0..100 {
        let Some(script) = Script::new() else { return };
        // A busy host takes the CPU in between: it is tried again.
        if !(0..3).all(|_| routed(&script)) {
            continue;
        }
        assert_eq!(script.counted(classes::LINE), 3);
        // A separate message.
        script.message();
        assert_eq!(script.counted(classes::LINE), 4);
        return;
    }
    tare_vmtest::lacks("a CPU for some microseconds");
}

#[test]
fn a_line_beyond_those_of_the_chips_is_an_event_each_time() {
    let Some(script) = Script::new() else { return };
    for line in [31, 32, 4_000] {
        script.fire("on_kvm_set_irq", &[line, 1]);
        script.fire("on_kvm_set_irq", &[line, 1]);
    }
    assert_eq!(script.counted(classes::LINE), 1 + 2 + 2);
}

#[test]
fn a_level_of_an_earlier_slice_says_nothing() {
    let Some(mut script) = Script::new() else {
        return;
    };
    script.set(RTC, 1);
    script.0.write(Words {
        open_ticks: ALL,
        burst: slices::burst(1),
        ..Words::default()
    });
    script.set(RTC, 1);
    script.set(RTC, 1);
    assert_eq!(script.counted(classes::LINE), 2);
}

#[test]
fn counts_have_the_weight_of_their_slice_once_it_is_over() {
    let Some(mut script) = Script::new() else {
        return;
    };
    let open = |number, weight| Words {
        open_ticks: ALL,
        burst: slices::burst(number),
        weight,
        ..Words::default()
    };
    // Time that is counted whole, then two bursts.
    script.leaf(5);
    script.0.write(open(1, 40 * WHOLE));
    script.leaf(7);
    let begun = script.tallies(&Ends::default());
    let mut ends = Ends::default();
    let end = End {
        slice: slices::burst(1),
        ns: monotonic_ns(),
        weight: 33 * WHOLE,
    };
    ends.push(&mut script.0, end);
    script.0.write(open(2, 9 * WHOLE));
    let ended = script.tallies(&ends);
    script.leaf(3);
    let next = script.tallies(&ends);
    let weighted = |groups: [u64; 2]| {
        let mut all = Weighted {
            whole: 5 * WHOLE,
            ..Weighted::default()
        };
        all.groups[1..3].copy_from_slice(&groups.map(|count| count * WHOLE));
        all
    };
    let leaf = |tallies: &Tallies| tallies.weighted(classes::CPUID);
    assert_eq!(leaf(&begun), weighted([7 * 40, 0]));
    assert_eq!(leaf(&ended), weighted([7 * 33, 0]));
    // The programs add it up as user space does.
    assert_eq!(leaf(&next), weighted([7 * 33, 3 * 9]));
    assert_eq!(next.counted(classes::CPUID), 15);
}

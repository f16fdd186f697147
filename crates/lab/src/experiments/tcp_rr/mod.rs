//! TCP_RR over the loopback (KVM Message Passing 2015): one byte each way between
//! two threads, inside the library OS and on the host, on one CPU and on two;
//! with what a transaction costs in halts, interrupts and timer writes.

mod host;
mod linux;
mod report;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tare_control::stats::Kvm;

pub(crate) use self::linux::{GuestFilesError, print as print_transactions};
use super::guest_bench::Exchange;
use super::ping_pong::{Arm, PingPong, PingPongSpec, Where};
use crate::goal::Goal;
use crate::request::Depth;

/// Distribution of transactions, in us.
const RR: &str = "rr_us";

/// At most one halt and one interrupt a message (two a transaction) between two
/// vCPUs, none on one. The timer is not written on a transaction's way. Its own
/// interrupt, for whatever deadline is nearest, comes once in 200 ms and is
/// followed by a write, which an emulated transaction of 8 to 16 ms meets more
/// often than one of 20 us.
const GOALS: &[Goal] = &[
    Goal::on_any_kvm("exits_per_rr.halt.2vcpu", 2.0),
    Goal::on_any_kvm("exits_per_rr.ipi.2vcpu", 2.0),
    Goal::on_any_kvm("exits_per_rr.timer.2vcpu", 0.0),
    Goal {
        figure: "exits_per_rr.timer_renewed.2vcpu",
        at_most: 0.1,
        on: &[Kvm::Emulated],
    },
    Goal {
        figure: "exits_per_rr.timer_renewed.2vcpu",
        at_most: 0.001,
        on: &[Kvm::Hardware],
    },
    Goal::on_any_kvm("exits_per_rr.halt.1vcpu", 0.0),
    Goal::on_any_kvm("exits_per_rr.ipi.1vcpu", 0.0),
    Goal::on_any_kvm("exits_per_rr.timer.1vcpu", 0.0),
];

/// What KVM itself counts, then what the monitor serves. KVM's `exits` are more
/// than those on a KVM that emulates: also turns of its own loop.
const OF_KVM: &[(&str, &str)] = &[
    ("halt_exits", "exits_per_rr.kvm_halt"),
    ("irq_injections", "exits_per_rr.kvm_injected"),
    ("irq_window_exits", "exits_per_rr.kvm_irq_window"),
    ("exits", "exits_per_rr.kvm_exits"),
    ("insn_emulation", "exits_per_rr.kvm_emulated"),
    ("pio_out", "exits_per_rr.pio_out"),
    ("mmio_write", "exits_per_rr.mmio_write"),
];

static ARMS: [Arm; 8] = [
    Arm {
        name: "1vcpu.libos",
        suffix: "1vcpu",
        about: "library OS, one vCPU",
        place: Where::Tare { cpus: 1, words: "" },
    },
    Arm {
        name: "2vcpu.libos",
        suffix: "2vcpu",
        about: "library OS, two vCPUs",
        place: Where::Tare { cpus: 2, words: "" },
    },
    Arm {
        name: "1vcpu.qemu",
        suffix: "1vcpu.qemu",
        about: "library OS in QEMU on the same KVM, one vCPU",
        place: Where::Qemu { cpus: 1, words: "" },
    },
    Arm {
        name: "2vcpu.qemu",
        suffix: "2vcpu.qemu",
        about: "library OS in QEMU on the same KVM, two vCPUs",
        place: Where::Qemu { cpus: 2, words: "" },
    },
    Arm {
        name: "1vcpu.linux",
        suffix: "1vcpu.linux",
        about: "Linux guest in QEMU, one vCPU (translated where KVM emulates)",
        place: Where::Linux { cpus: 1 },
    },
    Arm {
        name: "2vcpu.linux",
        suffix: "2vcpu.linux",
        about: "Linux guest in QEMU, two vCPUs (translated where KVM emulates)",
        place: Where::Linux { cpus: 2 },
    },
    Arm {
        name: "1vcpu.host",
        suffix: "1vcpu.host",
        about: "host, both threads pinned to one CPU",
        place: Where::Host { cpus: 1 },
    },
    Arm {
        name: "2vcpu.host",
        suffix: "2vcpu.host",
        about: "host, threads pinned to two CPUs",
        place: Where::Host { cpus: 2 },
    },
];

static KIND: PingPongSpec = PingPongSpec {
    image: "tcp-rr",
    exchange: Exchange {
        times: "rr",
        series: RR,
        number: "transactions",
        counters: &[
            ("halts", "exits_per_rr.halt"),
            ("ipis", "exits_per_rr.ipi"),
            ("timers", "exits_per_rr.timer"),
            ("timers_renewed", "exits_per_rr.timer_renewed"),
        ],
        of_kvm: OF_KVM,
        warm_up: 20.0,
    },
    word: "transactions",
    sizes: |depth| match depth {
        Depth::Quick => (1, 60),
        Depth::Standard => (6, 100),
        Depth::Full => (10, 1000),
    },
    turn: Duration::from_millis(900),
    each: Duration::from_millis(16),
    arms: &ARMS,
    program: Some(linux::fill),
    exits: Some("exits_per_rr"),
    host: host::transactions,
    quantiles: &[(RR, 0.5), ("rr_p99_us", 0.99)],
    goals: GOALS,
    report_text: report::report_text,
};

/// Planned for a depth; the image may be another than Tare's own.
pub(crate) fn planned(depth: Depth, image: Option<String>) -> PingPong {
    PingPong::new(&KIND, depth, image)
}

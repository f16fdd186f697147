//! Prices of exits as `tare weigh vmexit` measured them: its figures, by the kind
//! of exit and the monitor that they stand for.

use std::collections::BTreeMap;

use crate::exit::Exit;
use crate::load::Execution;
use crate::monitor::Monitor;

/// Prefix of its figures, and suffix of QEMU's.
const FIGURE: &str = "exit_ns.";
const QEMU: &str = ".qemu";
/// The kind that is the loop around the instruction.
const CONTROL: &str = "control";
/// A more expensive sample is not an exit.
const MAX_NS: f64 = 1e8;

/// The prices of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    execution: Execution,
    tare: Net,
    qemu: Net,
}

/// Prices by kind, without the loop's own.
type Net = BTreeMap<String, f64>;

impl Measured {
    /// From a run's figures (name and value) on that kind of KVM; `None` if they
    /// price nothing.
    pub fn of<'a>(
        execution: Execution,
        figures: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Option<Self> {
        let (mut tare, mut qemu) = (Net::new(), Net::new());
        for (name, ns) in figures {
            let Some(kind) = name.strip_prefix(FIGURE) else {
                continue;
            };
            match kind.strip_suffix(QEMU) {
                Some(kind) => qemu.insert(kind.to_owned(), ns),
                None => tare.insert(kind.to_owned(), ns),
            };
        }
        let (tare, qemu) = (net(tare), net(qemu));
        (!tare.is_empty()).then_some(Self {
            execution,
            tare,
            qemu,
        })
    }

    /// What executed the guest.
    pub(crate) fn execution(&self) -> Execution {
        self.execution
    }

    /// The price of an exit in a machine of this monitor, ns.
    pub(crate) fn exit_ns(&self, exit: &Exit, monitor: Monitor) -> Option<f64> {
        let own = match monitor {
            Monitor::Qemu | Monitor::Libvirt => &self.qemu,
            _ => &self.tare,
        };
        let kinds = kinds(exit);
        mean(own, kinds).or_else(|| mean(&self.tare, kinds))
    }
}

/// Without the loop, as far as something is left; without it, nothing is known.
fn net(gross: Net) -> Net {
    let Some(control) = gross.get(CONTROL).copied() else {
        return Net::new();
    };
    let net = gross.into_iter().map(|(kind, ns)| (kind, ns - control));
    net.filter(|(kind, ns)| kind != CONTROL && *ns > 0.0 && *ns < MAX_NS)
        .collect()
}

/// Of those kinds that have a price.
fn mean(net: &Net, kinds: &[&str]) -> Option<f64> {
    let priced: Vec<f64> = kinds
        .iter()
        .filter_map(|kind| net.get(*kind))
        .copied()
        .collect();
    (!priced.is_empty()).then(|| priced.iter().sum::<f64>() / priced.len() as f64)
}

/// The experiment's kinds that an exit is, reads and writes alike.
fn kinds(exit: &Exit) -> &'static [&'static str] {
    match exit {
        Exit::Port { .. } if exit.is_monitors() => &["pio_in_user", "pio_out_user"],
        Exit::Port { .. } => &["pio_in_kernel", "pio_out_kernel"],
        Exit::Memory { .. } if exit.is_monitors() => &["mmio_user"],
        Exit::Memory { .. } => &["mmio_kernel"],
        Exit::Cpuid => &["cpuid"],
        Exit::Hypercall => &["hypercall"],
        Exit::Msr { .. } if exit.is_tsc_deadline() => &["tsc_deadline"],
        Exit::Apic { .. } if exit.is_end_of_interrupt() => &["eoi"],
        Exit::Apic { .. } if exit.is_self_ipi() => &["self_ipi"],
        Exit::Apic { .. } => match exit.owner() {
            Some(crate::load::Source::Ipi) => &["ipi"],
            Some(crate::load::Source::Timer) => &["timer_count"],
            _ => &[],
        },
        Exit::Msr { .. } | Exit::Various => &[],
    }
}

#[cfg(test)]
mod tests {
    use tare_account::Device;

    use super::*;

    const FIGURES: [(&str, f64); 9] = [
        ("exit_ns.control", 100.0),
        ("exit_ns.cpuid", 900.0),
        ("exit_ns.pio_in_user", 5_100.0),
        ("exit_ns.pio_out_user", 7_100.0),
        ("exit_ns.eoi", 90.0),
        ("exit_ns.ipi", f64::NAN),
        ("exit_ns.control.qemu", 50.0),
        ("exit_ns.pio_in_user.qemu", 9_050.0),
        ("wake_ns.cpuid", 1.0),
    ];

    fn serial() -> Exit {
        Exit::Port {
            port: 0x3f8,
            device: Device::Serial,
        }
    }

    #[test]
    fn a_price_is_without_the_loop_and_of_the_monitor() {
        let measured = Measured::of(Execution::Hardware, FIGURES).unwrap();
        let of = |exit: &Exit, monitor| measured.exit_ns(exit, monitor);
        assert_eq!(of(&Exit::Cpuid, Monitor::Tare), Some(800.0));
        // Reads and writes of a port are one kind of exit.
        assert_eq!(of(&serial(), Monitor::Tare), Some(6_000.0));
        assert_eq!(of(&serial(), Monitor::Libvirt), Some(9_000.0));
        // What was not priced in QEMU costs what it costs elsewhere.
        assert_eq!(of(&Exit::Cpuid, Monitor::Qemu), Some(800.0));
    }

    #[test]
    fn an_invalid_cost_is_ignored() {
        let measured = Measured::of(Execution::Hardware, FIGURES).unwrap();
        let of = |exit: &Exit| measured.exit_ns(exit, Monitor::Tare);
        // Cheaper than the loop, no number, never measured, not counted apart.
        assert_eq!(of(&Exit::Apic { register: 0xb0 }), None);
        assert_eq!(of(&Exit::Apic { register: 0x300 }), None);
        assert_eq!(of(&Exit::Hypercall), None);
        assert_eq!(of(&Exit::Various), None);
        let without_loop = [("exit_ns.cpuid", 900.0)];
        assert_eq!(Measured::of(Execution::Hardware, without_loop), None);
    }
}

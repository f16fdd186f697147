//! Sources that a host does not offer, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// BPF programs as such: privilege, BTF, the compiler at build time.
    Bpf,
    /// One trace point.
    TracePoint,
    /// tracefs: formats and numbers of trace points.
    Tracefs,
    /// `/proc/PID` and below.
    Proc,
    /// KVM's binary statistics by a descriptor of the VM's process.
    KvmStatistics,
    /// KVM's trace points of exits, `kvm_exit` and `kvm_entry`.
    KvmExit,
    /// Sampling by the CPU clock.
    CpuClock,
    /// Run time of BPF programs as the kernel measures it.
    BpfRunTime,
    /// Interrupts that were seen, and whose owner is not known.
    Interrupts,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bpf => "BPF",
            Self::TracePoint => "trace point",
            Self::Tracefs => "tracefs",
            Self::Proc => "/proc",
            Self::KvmStatistics => "KVM statistics",
            Self::KvmExit => "kvm_exit",
            Self::CpuClock => "CPU clock samples",
            Self::BpfRunTime => "BPF run time",
            Self::Interrupts => "interrupts",
        })
    }
}

/// A source that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unavailable {
    /// Which kind of source.
    pub source: Source,
    /// Which one of its kind, such as a trace point's name; empty if there is
    /// only one.
    pub name: String,
    /// Why, as a phrase without a full stop.
    pub why: String,
}

impl Unavailable {
    /// `source` as a whole cannot be used.
    pub fn new(source: Source, why: impl fmt::Display) -> Self {
        Self::named(source, "", why)
    }

    /// The one called `name` cannot be used.
    pub fn named(source: Source, name: &str, why: impl fmt::Display) -> Self {
        Self {
            source,
            name: name.to_owned(),
            why: why.to_string(),
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // They were seen: nothing is missing but their owner.
        if self.source == Source::Interrupts {
            return f.write_str(&self.why);
        }
        write!(f, "{}", self.source)?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        write!(f, ": unavailable: {}", self.why)
    }
}

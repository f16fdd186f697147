//! KVM's own counters of other processes' vCPUs.
//!
//! A monitor that keeps its statistics descriptors open (Tare's does) lends them.
//! Others' are unavailable from outside: KVM answers `KVM_GET_STATS_FD` on a vCPU to
//! the process that made the machine only (`kvm_vcpu_ioctl` compares address
//! spaces), and even there waits while the vCPU is in `KVM_RUN`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tare_hv::{StatsFd, StatsValue};

use crate::vm::{Descriptors, Vm};
use crate::{Source, Unavailable};

const STATISTICS: &str = "anon_inode:kvm-vcpu-stats:";

/// Counters by name.
pub(super) type Counters = BTreeMap<String, u64>;

/// Counters of one machine's vCPUs.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    vcpus: BTreeMap<u32, OfVcpu>,
    unavailable: Option<Unavailable>,
}

#[derive(Debug)]
struct OfVcpu {
    descriptor: StatsFd,
    before: Counters,
}

impl Statistics {
    /// Borrows those that the monitor keeps open.
    pub(super) fn open(vm: &Vm, open: &Descriptors) -> Self {
        let mut statistics = Self::default();
        for (index, number) in open.numbered(STATISTICS) {
            statistics.add(index, copy(vm.pid, number));
        }
        statistics
    }

    fn add(&mut self, index: u32, opened: io::Result<OwnedFd>) {
        let read = opened.and_then(|descriptor| {
            StatsFd::from_file(File::from(descriptor)).map_err(io::Error::other)
        });
        match read {
            Ok(descriptor) => {
                let before = Counters::new();
                self.vcpus.insert(index, OfVcpu { descriptor, before });
            }
            Err(error) => {
                let name = format!("of vCPU {index}");
                self.unavailable = Some(Unavailable::named(
                    Source::KvmStatistics,
                    &name,
                    why(&error),
                ));
            }
        }
    }

    /// The window begins now.
    pub(super) fn begin(&mut self) {
        for vcpu in self.vcpus.values_mut() {
            vcpu.before = read(&vcpu.descriptor);
        }
    }

    /// What was counted in the window, by vCPU.
    pub(super) fn turn(&mut self, unavailable: &mut Vec<Unavailable>) -> BTreeMap<u32, Counters> {
        unavailable.extend(self.unavailable.clone());
        let vcpus = self.vcpus.iter_mut();
        vcpus.map(|(index, vcpu)| (*index, vcpu.turn())).collect()
    }
}

impl OfVcpu {
    /// What was counted since the last turn.
    fn turn(&mut self) -> Counters {
        let now = read(&self.descriptor);
        let before = std::mem::replace(&mut self.before, now.clone());
        let added = now.into_iter().map(|(name, value)| {
            let before = before.get(&name).copied().unwrap_or(0);
            (name, value.saturating_sub(before))
        });
        added.collect()
    }
}

/// A copy of a descriptor of process `pid`. Needs the right to trace it.
fn copy(pid: u32, number: i32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

fn read(descriptor: &StatsFd) -> Counters {
    let statistics = descriptor.read().unwrap_or_default();
    let scalars = statistics
        .iter()
        .filter_map(|statistic| match statistic.value {
            StatsValue::Scalar(value) => Some((statistic.name.to_owned(), value)),
            _ => None,
        });
    scalars.collect()
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "not permitted (needs root)".to_owned(),
        _ => error.to_string(),
    }
}

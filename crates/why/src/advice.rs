//! Which remedies a cause has, for the VMM that runs the machine and the options that
//! it was started with.

use tare_account::{CgroupVersion, Cpuset, Device, Role};

use crate::finding::Cause;
use crate::load::{Load, Throttled, Vcpu};
use crate::monitor::Monitor;
use crate::remedy::Remedy;

const CLOCK: &str = "in its <clock>: ";

/// Remedies for a cause that needs no further detail.
pub(crate) fn for_cause(cause: Cause, load: &Load) -> Vec<Remedy> {
    match cause {
        Cause::Hpet => hpet(load),
        Cause::Pit => pit(load),
        Cause::Rtc => rtc(load),
        Cause::PeriodicTick => tick(load),
        Cause::PollingLoses | Cause::Polling => polling(load),
        Cause::IpiStorm | Cause::SelfIpis => ipis(cause, load),
        Cause::DeviceInterrupts => devices(load),
        Cause::GuestSpins => spins(load),
        Cause::EmulatorThread => threads(load),
        Cause::Unknown => vec![Remedy::run(
            "look again as root, with BPF",
            "sudo tare why",
            &[&load.pid.to_string()],
        )],
        Cause::Throttled
        | Cause::Steal
        | Cause::PinnedTogether
        | Cause::Guest
        | Cause::KernelThreads
        | Cause::Helpers
        | Cause::Exits => Vec::new(),
    }
}

/// Programs that carry a machine's packets, by the beginning of their names.
const NETWORKS: [&str; 4] = ["tare-ports", "passt", "pasta", "slirp4netns"];

/// Remedies for a helper process by its name: networks, file systems, else disks.
pub(crate) fn helper(name: &str) -> Vec<Remedy> {
    let is = |program: &&str| name.starts_with(*program);
    let advice = if NETWORKS.iter().any(is) {
        "send and receive fewer, larger packets, or connect the VM by a tap with vhost-net \
         instead of a user-space helper"
    } else if is(&"virtiofsd") {
        "let the guest cache files (virtiofsd --cache=always where nothing else writes them), or \
         put them on a disk"
    } else {
        "submit fewer, larger requests (a larger block size, read-ahead)"
    };
    vec![Remedy::guest(advice)]
}

/// Remedies for a thread of the kernel that works for a machine.
pub(crate) fn kernel_thread(role: Role, load: &Load) -> Vec<Remedy> {
    match role {
        Role::Kvm => pit(load),
        _ => vec![Remedy::guest(
            "send and receive fewer, larger packets (ethtool -K DEV tso on gro on)",
        )],
    }
}

fn domain_xml(load: &Load, element: &str) -> Remedy {
    Remedy::DomainXml {
        domain: load.name.clone(),
        element: element.to_owned(),
    }
}

fn hpet(load: &Load) -> Vec<Remedy> {
    vec![match load.monitor {
        Monitor::Qemu if !load.qemu.is_microvm() => Remedy::qemu_with(&["-machine hpet=off"]),
        Monitor::Libvirt => domain_xml(load, &format!("{CLOCK}<timer name='hpet' present='no'/>")),
        _ => Remedy::guest("boot with hpet=disable"),
    }]
}

fn pit(load: &Load) -> Vec<Remedy> {
    let apic = "use the APIC timer (Linux: boot without nolapic_timer and noapic)";
    let mut remedies = vec![Remedy::guest(apic)];
    match load.monitor {
        Monitor::Qemu => remedies.push(Remedy::qemu_with(&["-machine pit=off"])),
        Monitor::Libvirt => remedies.push(domain_xml(
            load,
            &format!("{CLOCK}<timer name='pit' tickpolicy='discard'/>"),
        )),
        _ => {}
    }
    remedies
}

fn rtc(load: &Load) -> Vec<Remedy> {
    let mut remedies = vec![Remedy::guest(
        "find what holds /dev/rtc open (fuser -v /dev/rtc0; hwclock, an old chrony)",
    )];
    match load.monitor {
        Monitor::Qemu => remedies.push(Remedy::guest(
            "if it is Windows, start QEMU with -cpu ...,hv-time,hv-synic,hv-stimer",
        )),
        Monitor::Libvirt => remedies.push(domain_xml(
            load,
            "for Windows <hyperv><synic state='on'/><stimer state='on'/></hyperv>",
        )),
        _ => {}
    }
    remedies
}

fn tick(load: &Load) -> Vec<Remedy> {
    /// A rate that CONFIG_HZ=100 would lower.
    const ABOVE_100_HZ: f64 = 120.0;
    if load.monitor == Monitor::Tare {
        let advice = "let the application sleep until something is due instead of in steps";
        return vec![Remedy::guest(advice)];
    }
    let vcpus = load.vcpus.iter();
    let fastest = vcpus.map(|vcpu| {
        let hz = vcpu.interrupts.get(&crate::load::Source::Timer);
        hz.copied().unwrap_or(0.0)
    });
    let slower = if fastest.fold(0.0, f64::max) > ABOVE_100_HZ {
        " or CONFIG_HZ=100"
    } else {
        ""
    };
    vec![Remedy::InGuest {
        advice: format!(
            "a tickless kernel (CONFIG_NO_HZ_IDLE, no nohz=off){slower}; programs that wait \
             instead of sleeping in steps (powertop names them)"
        ),
    }]
}

fn polling(load: &Load) -> Vec<Remedy> {
    match load.monitor {
        Monitor::Tare => vec![
            Remedy::Run {
                effect: "poll for 1 % of a CPU at most".to_owned(),
                command: tare_set(load, "halt=budget=1"),
            },
            Remedy::Run {
                effect: "do not poll".to_owned(),
                command: tare_set(load, "halt=never"),
            },
        ],
        _ => vec![Remedy::write(
            "stop halt polling for all VMs of this host",
            "0",
            "/sys/module/kvm/parameters/halt_poll_ns",
        )],
    }
}

fn tare_set(load: &Load, setting: &str) -> Vec<String> {
    ["tare", "set", &load.name, setting]
        .map(str::to_owned)
        .into()
}

fn ipis(cause: Cause, load: &Load) -> Vec<Remedy> {
    if cause == Cause::SelfIpis {
        let advice = "find what interrupts its own CPU (Linux: irq_work; perf record -e irq_work)";
        return vec![Remedy::guest(advice)];
    }
    let together = "keep threads that talk to each other on one vCPU (taskset -cp 0 PID), or use \
                    fewer vCPUs";
    let mut remedies = vec![Remedy::guest(together)];
    if load.execution == crate::load::Execution::Hardware {
        remedies.push(Remedy::run(
            "see whether the processor delivers IPIs itself",
            "cat /sys/module/kvm_amd/parameters/avic /sys/module/kvm_intel/parameters/enable_apicv",
            &[],
        ));
    }
    remedies
}

fn devices(load: &Load) -> Vec<Remedy> {
    match load.monitor {
        Monitor::Tare => vec![
            Remedy::Run {
                effect: "coalesce a disk's interrupts".to_owned(),
                command: tare_set(load, "disk0.coalesce=auto"),
            },
            Remedy::guest("send and receive fewer, larger packets"),
        ],
        Monitor::Firecracker => vec![Remedy::guest(
            "send and receive fewer, larger packets; limit the device with a rate limiter",
        )],
        _ => vec![Remedy::guest(
            "coalesce interrupts (ethtool -C DEV adaptive-rx on), and use virtio with event_idx",
        )],
    }
}

fn spins(load: &Load) -> Vec<Remedy> {
    if load.qemu.halts_in_guest() {
        let option = "-overcommit cpu-pm=on".to_owned();
        return vec![Remedy::qemu_without(vec![option])];
    }
    if let Some(word) = load.qemu.idle_poll() {
        return vec![Remedy::InGuest {
            advice: format!("boot without {word} (it is in -append)"),
        }];
    }
    vec![match load.monitor {
        Monitor::Tare => Remedy::Restart {
            program: "the machine".to_owned(),
            without: Vec::new(),
            with: vec!["--idle block (if it has it, the application computes)".to_owned()],
        },
        _ => Remedy::guest(
            "see whether it works or waits (perf top); remove idle=poll and busy polling (DPDK, \
             net.core.busy_poll)",
        ),
    }]
}

/// Options that give the VMM's own threads work.
fn threads(load: &Load) -> Vec<Remedy> {
    let mut remedies = Vec::new();
    let usb = load.qemu.usb();
    if !usb.is_empty() {
        remedies.push(Remedy::qemu_without(usb));
    }
    if load.qemu.is_microvm() && load.qemu.machine_property("pit") != Some("off") {
        remedies.push(Remedy::qemu_with(&["-machine pit=off"]));
    }
    let networks = load.qemu.slow_networks();
    if !networks.is_empty() {
        remedies.push(Remedy::Restart {
            program: "QEMU".to_owned(),
            without: networks,
            with: vec!["-netdev tap,vhost=on or passt".to_owned()],
        });
    }
    if load.qemu.lacks_iothread() {
        remedies.push(Remedy::qemu_with(&[
            "-object iothread,id=io0, and iothread=io0 at the disk",
        ]));
    }
    let is_busy = |name: &str| {
        load.threads
            .iter()
            .any(|t| t.name.contains(name) && t.cpu > 0.002)
    };
    if is_busy("mon_iothread") {
        let sockets = load.qemu.control_sockets().into_iter();
        remedies.extend(sockets.map(|socket| {
            Remedy::run(
                "find the client that asks QEMU (QMP)",
                "ss -xp src",
                &[socket],
            )
        }));
    }
    if remedies.is_empty() {
        remedies.push(of_process(load));
    }
    remedies
}

fn of_process(load: &Load) -> Remedy {
    match load.monitor {
        Monitor::Tare => Remedy::run(
            "see what clients and devices did",
            "tare stats",
            &[&load.name],
        ),
        _ => Remedy::run(
            "see what its threads do",
            "strace -c -f -p",
            &[&load.pid.to_string()],
        ),
    }
}

/// Remedies for vCPUs that wait for CPUs which others use.
pub(crate) fn steal(load: &Load, waiting: &[&Vcpu]) -> Vec<Remedy> {
    let mut remedies = wider_cpusets(load, waiting);
    let whole = load.host_cpus.saturating_sub(1);
    for vcpu in waiting {
        if is_pinned(load, vcpu) && load.monitor != Monitor::Libvirt {
            remedies.push(Remedy::run(
                &format!("let vCPU {} use every CPU", vcpu.index),
                &format!("taskset -cp 0-{whole} {}", vcpu.tid),
                &[],
            ));
        }
    }
    if load.vcpus.len() as u32 > load.host_cpus {
        remedies.push(fewer_vcpus(load));
    } else if remedies.is_empty() {
        remedies.push(dedicated_cpus(load, waiting, &[]));
    }
    remedies
}

/// Whether a vCPU may use fewer CPUs than its cgroups leave it.
fn is_pinned(load: &Load, vcpu: &Vcpu) -> bool {
    let own = |set: &&Cpuset| set.threads.contains(&vcpu.tid);
    let is_left = |cpu: &u32| {
        load.cpusets
            .iter()
            .filter(own)
            .all(|it| it.cpus.contains(cpu))
    };
    let left = (0..load.host_cpus).filter(is_left).count();
    !vcpu.allowed.is_empty() && vcpu.allowed.len() < left
}

/// The commands that let these vCPUs' cgroups use every CPU, from the outer one on. A thread's own
/// CPUs are never more than those of its cgroups.
pub(crate) fn wider_cpusets(load: &Load, vcpus: &[&Vcpu]) -> Vec<Remedy> {
    if load.monitor == Monitor::Libvirt {
        return Vec::new();
    }
    let whole = format!("0-{}", load.host_cpus.saturating_sub(1));
    let is_theirs = |set: &&Cpuset| vcpus.iter().any(|vcpu| set.threads.contains(&vcpu.tid));
    let wider = |set: &Cpuset| {
        let effect = "let its cgroup use every CPU";
        match (Unit::of(&set.directory), set.version) {
            (Some(unit), CgroupVersion::V2) => unit.set(effect, &format!("AllowedCPUs={whole}")),
            _ => Remedy::write(effect, &whole, &format!("{}/cpuset.cpus", set.directory)),
        }
    };
    load.cpusets.iter().filter(is_theirs).map(wider).collect()
}

/// A unit of systemd's, and the user whose manager has it (`systemd-run --user`): the system's does
/// not know it.
struct Unit<'a> {
    name: &'a str,
    user: Option<&'a str>,
}

impl<'a> Unit<'a> {
    /// The unit whose cgroup this is: a file that systemd did not write is lost when it next sets the
    /// unit's limits.
    fn of(directory: &'a str) -> Option<Self> {
        let (above, name) = directory.rsplit_once('/')?;
        let ends = [".scope", ".service", ".slice"];
        let user = above.split('/').find_map(|group| {
            let user = group.strip_prefix("user@")?.strip_suffix(".service")?;
            user.bytes()
                .all(|byte| byte.is_ascii_digit())
                .then_some(user)
        });
        let is_unit = ends.iter().any(|end| name.ends_with(end));
        is_unit.then_some(Self { name, user })
    }

    /// The command that sets one of its properties until the host restarts.
    fn set(&self, effect: &str, property: &str) -> Remedy {
        let manager = self.user.map_or_else(String::new, |user| {
            format!(" --user --machine={user}@.host")
        });
        let command = format!("systemctl{manager} set-property --runtime");
        Remedy::run(effect, &command, &[self.name, property])
    }
}

fn fewer_vcpus(load: &Load) -> Remedy {
    let count = load.host_cpus;
    let (program, option) = match load.monitor {
        Monitor::Tare => ("the machine", format!("--cpus {count}")),
        Monitor::Qemu => ("QEMU", format!("-smp {count}")),
        _ => ("the machine", format!("{count} vCPUs")),
    };
    Remedy::Restart {
        program: program.to_owned(),
        without: Vec::new(),
        with: vec![option],
    }
}

/// A CPU for each vCPU, other than those that are `taken`.
pub(crate) fn dedicated_cpus(load: &Load, vcpus: &[&Vcpu], taken: &[u32]) -> Remedy {
    if load.monitor != Monitor::Libvirt {
        let target = match load.monitor {
            Monitor::Tare => load.name.clone(),
            _ => load.pid.to_string(),
        };
        return Remedy::run("pin each vCPU to its own CPU", "tare pin", &[&target]);
    }
    let moved = vcpus.get(1).or(vcpus.first()).map_or(0, |vcpu| vcpu.index);
    let free = (0..load.host_cpus).find(|cpu| !taken.contains(cpu));
    Remedy::run(
        &format!("pin vCPU {moved} to its own CPU"),
        "virsh vcpupin",
        &[
            &load.name,
            &moved.to_string(),
            &free.unwrap_or(0).to_string(),
        ],
    )
}

/// A raised quota, as a multiple of what the machine wants.
const ROOM: f64 = 1.1;

/// The command that raises a quota to what the machine wants.
pub(crate) fn quota(quota: &Throttled, wanted_cpus: f64, load: &Load) -> Remedy {
    // With room for the VMM's own threads, which want more when their vCPUs run: a quota that is
    // just used up throttles again.
    let hundredths = (wanted_cpus.max(quota.cpus) * ROOM * 100.0).round();
    let cpus = (hundredths / 10.0).ceil() / 10.0;
    let effect = format!("raise the quota to {cpus:.1} CPUs");
    if load.monitor == Monitor::Libvirt {
        let (name, setting) = (load.name.as_str(), "vcpu_quota=-1");
        return Remedy::run("lift the quota", "virsh schedinfo", &[name, setting]);
    }
    if let Some(unit) = Unit::of(&quota.directory) {
        return unit.set(&effect, &format!("CPUQuota={:.0}%", cpus * 100.0));
    }
    let quota_us = (cpus * quota.period_us as f64).round() as u64;
    match quota.version {
        CgroupVersion::V1 => Remedy::write(
            &effect,
            &quota_us.to_string(),
            &format!("{}/cpu.cfs_quota_us", quota.directory),
        ),
        CgroupVersion::V2 => Remedy::write(
            &effect,
            &format!("{quota_us} {}", quota.period_us),
            &format!("{}/cpu.max", quota.directory),
        ),
    }
}

/// Remedies for exits at a device, or of another kind.
pub(crate) fn exits(exit: &crate::Exit, load: &Load) -> Vec<Remedy> {
    let is_qemu = matches!(load.monitor, Monitor::Qemu | Monitor::Libvirt);
    let advice = match exit.device() {
        Some(Device::Hpet) => {
            let clock = "take the time from kvm-clock or the TSC, not the HPET (echo kvm-clock > \
                         /sys/devices/system/clocksource/clocksource0/current_clocksource)";
            let mut remedies = vec![Remedy::guest(clock)];
            remedies.extend(is_qemu.then(|| hpet(load)).into_iter().flatten());
            return remedies;
        }
        Some(Device::Pit | Device::PmTimer) => "take the time from kvm-clock or the TSC",
        Some(Device::Rtc) => "find what reads the RTC (fuser -v /dev/rtc0)",
        Some(Device::Serial) => {
            "print less on the serial console (Linux: quiet, loglevel=3), or use a virtio console"
        }
        Some(Device::Vga) if is_qemu => return vec![Remedy::qemu_with(&["-vga none"])],
        Some(Device::PciConfig) => "find what scans the PCI bus (lspci, a monitoring agent)",
        Some(Device::Pic | Device::IoApic) => "use devices with MSI-X instead of interrupt lines",
        Some(Device::Doorbell) => {
            "send larger batches: fewer, larger packets and requests ring the doorbell less often"
        }
        Some(Device::Virtio) => "use virtio over PCI, whose notifications are eventfds",
        _ if exit.is_timer() => {
            "find what sets timers so often (perf record -e timer:hrtimer_start -a -g)"
        }
        _ => "find what does it: perf top, and the rate beside its programs",
    };
    vec![Remedy::guest(advice)]
}

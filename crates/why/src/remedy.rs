//! What to do about a cause, in the words of the monitor that runs the machine.
//! What only the guest can change is the same for all.

use tare_account::Device;

use crate::finding::Cause;
use crate::monitor::Monitor;

/// The remedy for a cause; for [`Cause::Exits`], see [`exits`]. Empty where
/// there is nothing to remedy.
pub fn remedy(cause: Cause, monitor: Monitor) -> &'static str {
    match cause {
        Cause::Hpet => hpet(monitor),
        Cause::Pit => pit(monitor),
        Cause::Rtc => rtc(monitor),
        Cause::PeriodicTick => tick(monitor),
        Cause::PollingLoses | Cause::Polling => polling(monitor),
        Cause::IpiStorm => ipis(monitor),
        Cause::DeviceInterrupts => devices(monitor),
        Cause::EmulatorThread => emulator(monitor),
        Cause::Steal => steal(monitor),
        Cause::PinnedTogether => pinned(monitor),
        Cause::GuestSpins => spins(monitor),
        Cause::Guest | Cause::Exits => "",
    }
}

fn hpet(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Qemu => "start QEMU with -machine hpet=off",
        Monitor::Libvirt => {
            "in the domain's <clock>: <timer name='hpet' present='no'/> (virsh edit)"
        }
        _ => "boot the guest with hpet=disable",
    }
}

fn pit(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Qemu => {
            "let the guest use its APIC timer (Linux: without nolapic_timer), or \
             start QEMU with -machine pit=off; -global kvm-pit.lost_tick_policy=discard \
             keeps missed ticks from being made up for"
        }
        Monitor::Libvirt => {
            "let the guest use its APIC timer; in the domain's <clock>: \
             <timer name='pit' tickpolicy='discard'/> (virsh edit)"
        }
        _ => "let the guest use its APIC timer (Linux: without nolapic_timer)",
    }
}

fn rtc(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Qemu => {
            "find what holds /dev/rtc in the guest; give Windows its own timers \
             (-cpu ...,hv-time,hv-synic,hv-stimer) and -rtc driftfix=none"
        }
        Monitor::Libvirt => {
            "find what holds /dev/rtc in the guest; give Windows <hyperv><synic state='on'/>\
             <stimer state='on'/></hyperv>, and drop tickpolicy='catchup' of the timer rtc"
        }
        _ => "find what holds /dev/rtc in the guest (hwclock, an old chrony)",
    }
}

fn tick(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Tare => "let the application sleep until something is due instead of in steps",
        Monitor::Qemu | Monitor::Libvirt => {
            "a tickless guest kernel (CONFIG_NO_HZ_IDLE, without nohz=off), CONFIG_HZ=100, and \
             programs that wait instead of sleeping in steps (powertop in the guest names \
             them); Windows: hv-stimer"
        }
        _ => {
            "a tickless guest kernel (CONFIG_NO_HZ_IDLE, without nohz=off), CONFIG_HZ=100, and \
             programs that wait instead of sleeping in steps (powertop in the guest names them)"
        }
    }
}

fn polling(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Tare => {
            "tare set NAME halt=budget=1 polls for 1 % of a CPU at most, halt=never not at all"
        }
        _ => {
            "shorten the host's window (it is for all machines): \
             echo 0 > /sys/module/kvm/parameters/halt_poll_ns; a Linux guest with \
             cpuidle_haltpoll polls by itself and stops the host's"
        }
    }
}

fn ipis(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Tare => "put threads that talk to each other on one core, or run with --cpus 1",
        Monitor::Qemu | Monitor::Libvirt => {
            "keep threads that talk on one vCPU (taskset in the guest) or give it fewer; where \
             the processor has it, let it deliver them: kvm_amd avic=1, kvm_intel \
             enable_apicv=1; Windows: hv-ipi"
        }
        _ => {
            "keep threads that talk on one vCPU (taskset in the guest) or give it fewer; where \
             the processor has it, let it deliver them: kvm_amd avic=1, kvm_intel enable_apicv=1"
        }
    }
}

fn devices(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Tare => {
            "a disk's: tare set NAME disk0.coalesce=auto; the network's: fewer, larger packets"
        }
        Monitor::Firecracker => {
            "limit what comes in with a rate limiter on the device; fewer, larger packets"
        }
        _ => {
            "let the guest coalesce them (ethtool -C DEV adaptive-rx on, or rx-usecs), use virtio \
             with event_idx and offloads instead of an emulated card; for disks, tare blk"
        }
    }
}

fn emulator(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Tare => "see who asks its control socket, and what comes in for its devices",
        Monitor::Qemu => {
            "move its work elsewhere: vhost=on or vhost-user in place of -netdev user, -object \
             iothread for disks; without graphics, USB and sound: -nodefaults -display none"
        }
        Monitor::Libvirt => {
            "move its work elsewhere: <driver name='vhost'/> for networks, <iothreads> for \
             disks; remove graphics, USB tablet and sound; give it a CPU with <emulatorpin>"
        }
        _ => "see what comes in for its devices, and who asks its API",
    }
}

fn steal(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Tare => "give it CPUs of its own: tare pin NAME, or move others away",
        Monitor::Libvirt => {
            "give it CPUs of its own: virsh vcpupin DOMAIN, or raise its weight: virsh \
             schedinfo DOMAIN cpu_shares=N"
        }
        _ => "give it CPUs of its own (taskset -cp, cpuset), or raise its cgroup's cpu.weight",
    }
}

fn pinned(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Tare => "give each vCPU a CPU: tare pin NAME",
        Monitor::Libvirt => "give each vCPU a CPU: virsh vcpupin DOMAIN VCPU CPU",
        _ => "give each vCPU's thread a CPU: taskset -cp CPU TID",
    }
}

fn spins(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Tare => {
            "run it with --idle block; if that is not it, the application computes or waits in \
             a loop"
        }
        _ => {
            "in the guest, see whether it works or waits: perf top; remove idle=poll and \
             busy-polling (DPDK, net.core.busy_poll)"
        }
    }
}

/// The remedy for exits at a device.
pub fn exits(device: Option<Device>, monitor: Monitor) -> &'static str {
    let qemu = matches!(monitor, Monitor::Qemu | Monitor::Libvirt);
    match device {
        Some(Device::Serial) => {
            "print less on the serial console (Linux: quiet, loglevel=3), or use a virtio console"
        }
        Some(Device::PmTimer) => "let the guest take its time from kvm-clock or the TSC",
        Some(Device::Vga) if qemu => "use -vga none or virtio-gpu, and a text console",
        Some(Device::PciConfig) => {
            "find what scans the PCI bus in the guest (lspci, a monitoring agent)"
        }
        Some(Device::Pic | Device::IoApic) => "use devices with MSI-X instead of interrupt lines",
        Some(Device::Virtio) => "use virtio over PCI with an eventfd for notifications",
        _ => "find what in the guest does it: perf top there, and the rate beside its programs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONITORS: [Monitor; 6] = [
        Monitor::Tare,
        Monitor::Qemu,
        Monitor::Libvirt,
        Monitor::Firecracker,
        Monitor::CloudHypervisor,
        Monitor::Other,
    ];

    #[test]
    fn every_cause_that_is_no_work_has_a_remedy_for_every_monitor() {
        let causes = [
            Cause::GuestSpins,
            Cause::PollingLoses,
            Cause::Polling,
            Cause::Hpet,
            Cause::Pit,
            Cause::Rtc,
            Cause::PeriodicTick,
            Cause::IpiStorm,
            Cause::DeviceInterrupts,
            Cause::EmulatorThread,
            Cause::Steal,
            Cause::PinnedTogether,
        ];
        for cause in causes {
            for monitor in MONITORS {
                assert!(!remedy(cause, monitor).is_empty(), "{cause:?} {monitor:?}");
            }
        }
    }

    #[test]
    fn a_remedy_names_the_monitors_own_switch() {
        let of = |monitor| remedy(Cause::Hpet, monitor);
        assert_eq!(of(Monitor::Qemu), "start QEMU with -machine hpet=off");
        assert!(of(Monitor::Libvirt).contains("<timer name='hpet' present='no'/>"));
        assert!(remedy(Cause::PollingLoses, Monitor::Tare).contains("tare set"));
    }
}

//! The guest's command line: words separated by blanks, `key=value`, later
//! ones win. Unknown words are the application's own.

/// Static IPv4 set-up, `ip=ADDRESS/PREFIX[,GATEWAY]`; DHCP without it.
pub const IP: &str = "ip";
/// IPv6 set-up, `ip6=auto|off|ADDRESS/PREFIX[,GATEWAY]`; `auto` without it.
pub const IP6: &str = "ip6";
/// Key of the addresses that the appliance makes itself (RFC 7217), `ip6_secret=HEX`
/// with up to 32 digits; random at each boot without it.
pub const IP6_SECRET: &str = "ip6_secret";
/// Name servers, `dns=ADDRESS[,ADDRESS...]`, asked before those of the network.
pub const DNS: &str = "dns";
/// How the appliance waits, `idle=block|poller|spin` ([`Idle`]).
pub const IDLE: &str = "idle";
/// Longest spin before a halt in nanoseconds, `halt_spin_ns=N`.
pub const HALT_SPIN_NS: &str = "halt_spin_ns";
/// Percent of a core that such spins may cost, `halt_spin_budget=PCT`.
pub const HALT_SPIN_BUDGET: &str = "halt_spin_budget";
/// Linux's way to name virtio-mmio devices, `virtio_mmio.device=SIZE@BASE:IRQ`
/// (kernel `drivers/virtio/virtio_mmio.c`); Firecracker and QEMU's microvm use it.
pub const VIRTIO_MMIO: &str = "virtio_mmio.device";
/// The processor ring in which the image runs, `ring=0|3`, under monitors without
/// Tare's CPUID leaf; by itself the image measures whether ring 0 is emulated.
pub const RING: &str = "ring";
/// Log level of the library OS, `log=error|warn|info|debug`.
pub const LOG: &str = "log";

/// Where the files of an appliance are that serves from disks (`http-disk`),
/// `root=DISK`: an ext2, ext3 or ext4 file system on the disk of that name or
/// serial number; `disk0` without it.
pub const ROOT: &str = "root";
/// Whether disk requests use indirect descriptors, `blk_indirect=on|off`: 256 in
/// flight in a queue instead of 85, for an allocation a request.
pub const BLK_INDIRECT: &str = "blk_indirect";

/// How the library OS waits when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Blocking I/O: threads sleep until an interrupt, cores halt.
    #[default]
    Block,
    /// As in Toro: device threads poll and declare idle turns; the
    /// core halts when all have been idle for the policy's time.
    Poller,
    /// The control arm: pollers that never let the core halt.
    Spin,
}

impl Idle {
    /// The mode named on a command line; `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "block" => Some(Self::Block),
            "poller" => Some(Self::Poller),
            "spin" => Some(Self::Spin),
            _ => None,
        }
    }

    /// The name as written on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Poller => "poller",
            Self::Spin => "spin",
        }
    }
}

/// The ring that `ring=` names; `None` without it or for another value.
pub fn ring(cmdline: &str) -> Option<u8> {
    match value(cmdline, RING) {
        Some("0") => Some(0),
        Some("3") => Some(3),
        _ => None,
    }
}

/// The values of `key` on the command line, in order.
pub fn values<'a>(cmdline: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    cmdline
        .split_ascii_whitespace()
        .filter_map(move |word| word.split_once('=').filter(|(k, _)| *k == key))
        .map(|(_, value)| value)
}

/// The last value of `key` on the command line.
pub fn value<'a>(cmdline: &'a str, key: &'a str) -> Option<&'a str> {
    values(cmdline, key).last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_values_win() {
        assert_eq!(value("idle=spin x idle=block", IDLE), Some("block"));
        assert_eq!(value("idle x", IDLE), None);
        assert_eq!(value("", IDLE), None);
    }

    #[test]
    fn every_idle_mode_has_its_name() {
        for mode in [Idle::Block, Idle::Poller, Idle::Spin] {
            assert_eq!(Idle::from_name(mode.name()), Some(mode));
        }
        assert_eq!(Idle::from_name("Spin"), None);
    }

    #[test]
    fn a_ring_is_0_or_3() {
        assert_eq!(ring("ring=0 ring=3"), Some(3));
        assert_eq!(ring("ring=0"), Some(0));
        assert_eq!(ring("ring=1"), None);
        assert_eq!(ring(""), None);
    }

    #[test]
    fn devices_repeat() {
        let line = "virtio_mmio.device=512@0xfeb00e00:12 virtio_mmio.device=512@0xfeb00c00:11";
        assert_eq!(values(line, VIRTIO_MMIO).count(), 2);
    }
}

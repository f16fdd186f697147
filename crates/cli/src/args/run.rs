//! What a machine or a served disk is made of: `tare run`, `tare blk`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tare_control::halt::HaltPolicy;

use tare_launch::Restart;
use tare_launch::disk_choice::DiskChoice;
use tare_launch::limits::CpuLimit;
use tare_launch::machine_size;
use tare_launch::memory_choice::MemoryChoice;
use tare_launch::memory_size::MemorySize;
use tare_launch::net_choice::NetChoice;
use tare_launch::publish::Publish;
use tare_launch::rates::{IoRate, NetRate};
use tare_launch::user::UserChoice;

/// `tare run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Image: a path, or the name of an image that came with Tare (http); or a
    /// static program for Linux: an ELF file, as in ./server; or the directory of an
    /// appliance's crate [default: the current directory]
    #[arg(value_name = "IMAGE|PROGRAM", conflicts_with = "kernel")]
    pub(crate) image: Option<PathBuf>,
    /// Linux kernel instead of an image: a bzImage or vmlinux, or debian for
    /// Debian's cloud kernel (downloaded once)
    #[arg(long, value_name = "FILE|debian")]
    pub(crate) kernel: Option<PathBuf>,
    /// Arguments of PROGRAM; without one, the program to run in --root; of a Linux
    /// guest its command [default: the root image's]. The program's status becomes
    /// the exit code
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
    /// Environment variable of the program, NAME=VALUE; can be repeated
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "kernel")]
    pub(crate) env: Vec<String>,
    /// Name of the machine [default: the image's name and a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// CPUs of the machine, 1 to 16
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = machine_size::cpus_written,
        allow_negative_numbers = true
    )]
    pub(crate) cpus: u32,
    /// Memory: MiB, or with a unit (512M, 1G) [default: 64M; for Linux and programs
    /// 512M]. hugepages=auto backs it by transparent huge pages where the host has
    /// some, hugepages=off never [default: as the host is set]
    #[arg(
        short,
        long,
        value_name = "SIZE[,hugepages=auto|off]",
        allow_negative_numbers = true
    )]
    pub(crate) memory: Option<MemoryChoice>,
    /// Directory that the guest gets as its files (packed when starting); for
    /// Linux also a container image (OCI layout, or its archive, or docker save;
    /// of several there, TAR:NAME)
    #[arg(long, value_name = "DIR|TAR", conflicts_with = "initrd")]
    pub(crate) root: Option<PathBuf>,
    /// Put the files of --root on an ext4 disk of that size instead of in memory
    /// (Linux; created at start and removed with the machine)
    #[arg(long, value_name = "SIZE", requires = "root", requires = "kernel")]
    pub(crate) root_disk: Option<MemorySize>,
    /// File with what a site wants beside its files, for http and http-disk: headers by
    /// path, redirects, error page, listings, hosts, log (tare check FILE checks it)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel", "initrd"])]
    pub(crate) site: Option<PathBuf>,
    /// Let tare reload give the machine another root while it runs (http): a disk more
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) reload: bool,
    /// Initramfs file, passed to the guest unchanged
    #[arg(long, value_name = "FILE")]
    pub(crate) initrd: Option<PathBuf>,
    /// Text added to the guest's command line
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(crate) cmdline: String,
    /// Forward a port of the host to the guest
    #[arg(
        short,
        long = "publish",
        value_name = "[ADDR:]HOST:GUEST[/udp]",
        long_help = "Forward a port of the host to the guest: [ADDR:]HOST:GUEST[/tcp|/udp]; \
                     ADDR is 127.0.0.1 unless given, and in brackets if it is IPv6, as in \
                     [::1]:8080:80"
    )]
    pub(crate) publish: Vec<Publish>,
    /// Network: user (through passt, no privileges), none, or tap=NAME
    #[arg(
        long,
        value_name = "NET",
        default_value = "user",
        long_help = "Network: user (through passt, no privileges), none, or tap=NAME. With \
                     user the guest cannot reach the host's own addresses, its loopback or \
                     link-local addresses; user,allow=ADDRESS[/BITS] opens some, and can be \
                     repeated: user,allow=127.0.0.1,allow=192.0.2.0/24"
    )]
    pub(crate) net: NetChoice,
    /// Give the guest a disk: a raw file or block device. After FILE
    /// (a comma in its name is written ,,): ro, format=raw,
    /// cache=writeback|writethrough, serial=TEXT, queues=N, coalesce=auto|off|A/B,
    /// iops=N, bytes_per_s=N, latency_us=N
    #[arg(
        long = "disk",
        value_name = "FILE[,...]",
        long_help = "Give the guest a disk: a raw file or block device. After FILE, \
                     with commas (one in its name is written ,,): ro (read only), \
                     format=raw (whatever it begins with), cache=writeback (a flush makes \
                     writes durable) or writethrough, serial=TEXT, queues=N [as many \
                     as CPUs], coalesce=auto (as few interrupts as the queue's depth \
                     needs), off, or A/B (A interrupts for B completions), \
                     iops=N and bytes_per_s=N (limits, changed by tare set; 0: none), \
                     latency_us=N (each request takes at least so long, as on slower \
                     storage)"
    )]
    pub(crate) disks: Vec<DiskChoice>,
    /// How the library OS waits: block, poller or spin [default: block]
    #[arg(long, value_name = "HOW")]
    pub(crate) idle: Option<IdleArg>,
    /// Processor ring that the image runs in: auto (3 where KVM emulates ring 0,
    /// else 0), 0 or 3
    #[arg(
        long,
        value_name = "RING",
        default_value = "auto",
        hide_possible_values = true,
        conflicts_with = "kernel"
    )]
    pub(crate) ring: RingArg,
    /// How a halted CPU waits on the host: budget=PCT (polls as long as saves
    /// most within that share of a CPU), never (scheduled out at once), kernel
    /// (as the host is set), poll=NS, dedicated [default: budget=1]
    #[arg(
        long,
        value_name = "HOW",
        long_help = "How a halted CPU waits on the host. budget=PCT: polls as long as \
                     saves the most wake-up time within that share of a CPU, chosen \
                     anew as the load changes; never: is scheduled out at once; \
                     kernel: as the host is set; poll=NS: polls for up to NS \
                     nanoseconds; dedicated: has a CPU of the host alone and halts \
                     without leaving it [default: budget=1, and in QEMU kernel]"
    )]
    pub(crate) halt: Option<HaltPolicy>,
    /// User that the machine becomes: auto (as root one of its own), self, UID or UID:GID
    #[arg(
        long,
        value_name = "USER",
        default_value = "auto",
        hide_default_value = true,
        long_help = "User that the machine becomes before it reads its image: auto (started by \
                     root, an unprivileged user that no other machine has; else the user who \
                     starts it), self (the user who starts it), or UID[:GID] [default: auto]"
    )]
    pub(crate) user: UserChoice,
    /// CPU time that the machine may use at most, in CPUs (1.5): its vCPUs, monitor and passt
    #[arg(long, value_name = "CPUS")]
    pub(crate) limit_cpu: Option<CpuLimit>,
    /// Memory that it may use at most, beyond which the kernel kills it
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit_memory: Option<MemorySize>,
    /// Requests and bytes a second, of reads and of writes each, on the block devices of its
    /// disks: iops=N,bytes_per_s=N
    #[arg(long, value_name = "LIMITS")]
    pub(crate) limit_io: Option<IoRate>,
    /// Frames and bytes a second of its network, in each direction (changed by tare set):
    /// frames_per_s=N,bytes_per_s=N
    #[arg(long, value_name = "LIMITS")]
    pub(crate) limit_net: Option<NetRate>,
    /// Start the machine again when it fails: no, on-failure or on-failure:N (N times in a row)
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "no",
        hide_default_value = true,
        long_help = "Start the machine again when it fails: no, or on-failure[:N], at most N \
                     times in a row: after a panic, a fault, another exit code than 0 or a kill, \
                     not after tare stop, Ctrl-C or SIGTERM. It waits 100 ms, each time twice as \
                     long, up to 10 s; a machine that ran for 10 s begins anew [default: no]"
    )]
    pub(crate) restart: Restart,
    /// Run in the background and print the machine's name
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// What executes the guest: auto (tare, or qemu where there is no KVM),
    /// tare, qemu (translated, without KVM), qemu-kvm
    #[arg(
        long,
        value_name = "ENGINE",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub(crate) engine: EngineArg,
}

/// `tare blk`.
#[derive(Debug, Args)]
pub(crate) struct BlkArgs {
    /// UNIX socket to make; front-ends connect to it, one at a time. Several disks have
    /// one each, in the same order [default: the sockets that systemd passes]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) socket: Vec<PathBuf>,
    /// Permission bits of the socket, octal: who may connect may write the disk
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = socket_mode)]
    pub(crate) socket_mode: u32,
    /// Disk: a raw file or block device, with an I/O thread of its own. After FILE
    /// (a comma in its name is written ,,): ro, format=raw,
    /// cache=writeback|writethrough, serial=TEXT, queues=N, coalesce=auto|off|A/B,
    /// iops=N, bytes_per_s=N, latency_us=N
    #[arg(long, value_name = "FILE[,...]", required = true)]
    pub(crate) disk: Vec<DiskChoice>,
    /// Name for tare ps, stats, set and stop [default: blk and a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

fn socket_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("use octal permission bits such as 660".to_owned()),
    }
}

/// `--idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IdleArg {
    /// Threads sleep until an interrupt; cores halt
    Block,
    /// Device threads poll and declare idle turns; the core halts after 200 ms
    Poller,
    /// Pollers that never let the core halt
    Spin,
}

/// `--ring`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RingArg {
    /// 3 where KVM emulates ring 0, else 0
    Auto,
    /// Ring 0
    #[value(name = "0")]
    Zero,
    /// Ring 3
    #[value(name = "3")]
    Three,
}

impl RingArg {
    /// Its number, unless the machine decides.
    pub(crate) const fn number(self) -> Option<u8> {
        match self {
            Self::Auto => None,
            Self::Zero => Some(0),
            Self::Three => Some(3),
        }
    }
}

/// `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineArg {
    /// Tare's monitor, or QEMU where there is no KVM
    Auto,
    /// Tare's monitor
    Tare,
    /// QEMU's translator, without KVM
    Qemu,
    /// QEMU with KVM
    QemuKvm,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_mode_is_octal_and_has_permission_bits_only() {
        assert_eq!(socket_mode("660"), Ok(0o660));
        assert_eq!(socket_mode("0600"), Ok(0o600));
        for wrong in ["", "9", "rw", "-1", "1777"] {
            assert!(socket_mode(wrong).is_err(), "{wrong}");
        }
    }
}

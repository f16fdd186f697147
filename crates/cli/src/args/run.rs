//! Arguments of the verbs that start a machine or serve a disk: `tare run`, `tare blk`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tare_control::halt::HaltPolicy;
use tare_host::signal_number::SignalNumber;

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
use tare_launch::volume::Volume;

/// `tare run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What to run: an image, by path or by the name of one that came with Tare (http);
    /// a Linux program, as an ELF file (./server): static, or dynamic with its loader and
    /// libraries in --root; or the directory of an appliance's crate [default: the
    /// current directory]
    #[arg(value_name = "IMAGE|PROGRAM", conflicts_with = "kernel")]
    pub(crate) image: Option<PathBuf>,
    /// Boot a Linux kernel instead of an image: a bzImage or vmlinux file, or debian
    /// for Debian's cloud kernel (downloaded once)
    #[arg(long, value_name = "FILE|debian")]
    pub(crate) kernel: Option<PathBuf>,
    /// Arguments of PROGRAM. Without PROGRAM: the command to run from --root [default:
    /// the container image's]. tare exits with the command's status
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
    /// First word of the command of --root, instead of a container image's entry point;
    /// an empty one takes the entry point away
    #[arg(long, value_name = "WORD", requires = "root", conflicts_with = "image")]
    pub(crate) entrypoint: Option<String>,
    /// Working directory of the program or command [default: the container image's, or /]
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// Set an environment variable of the program, or of a Linux guest's command;
    /// repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Signal by which tare stop asks a program, or a Linux guest's command, to end
    /// [default: the container image's, or TERM]
    #[arg(long, value_name = "SIGNAL")]
    pub(crate) stop_signal: Option<SignalNumber>,
    /// Name of the machine [default: the image's name and a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Number of vCPUs, 1 to 16
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = machine_size::cpus_written,
        allow_negative_numbers = true
    )]
    pub(crate) cpus: u32,
    /// Guest memory in MiB, or with a unit (512M, 1G) [default: 64M; for Linux and
    /// programs 512M]. hugepages=auto uses transparent huge pages if the host has
    /// them, hugepages=off never [default: the host's setting; where that is madvise, also for
    /// memory that a program fills]
    #[arg(
        short,
        long,
        value_name = "SIZE[,hugepages=auto|off]",
        allow_negative_numbers = true
    )]
    pub(crate) memory: Option<MemoryChoice>,
    /// Directory with the guest's files, packed at start. For programs and Linux also a container
    /// image: an OCI layout, its archive, or the output of docker save (TAR:NAME
    /// selects one of several images)
    #[arg(long, value_name = "DIR|TAR", conflicts_with = "initrd")]
    pub(crate) root: Option<PathBuf>,
    /// Put the files of --root on an ext4 disk of this size instead of in memory
    /// (Linux guests; tare creates the disk and removes it when the machine ends)
    #[arg(long, value_name = "SIZE", requires = "root", requires = "kernel")]
    pub(crate) root_disk: Option<MemorySize>,
    /// Share a directory of the host with a Linux guest while it runs (--kernel and
    /// --root); repeatable. GUEST is where the guest has it, ro lets the guest read
    /// only. As root files keep their owners; for another user the guest's root is
    /// that user. Runs in QEMU, served by virtiofsd
    #[arg(short = 'v', long, value_name = "HOST:GUEST[:ro]")]
    pub(crate) volume: Vec<Volume>,
    /// Website configuration for http and http-disk: headers by path, redirects, error
    /// page, listings, hosts, log (tare check FILE checks it)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel", "initrd"])]
    pub(crate) site: Option<PathBuf>,
    /// Allow tare reload to replace the files while the machine runs (http); adds a disk
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) reload: bool,
    /// Initramfs file, passed to the guest unchanged
    #[arg(long, value_name = "FILE")]
    pub(crate) initrd: Option<PathBuf>,
    /// Text to append to the guest's command line
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(crate) cmdline: String,
    /// Forward a port of the host to the guest; repeatable
    #[arg(
        short,
        long = "publish",
        value_name = "[ADDR:]HOST:GUEST[/udp]",
        long_help = "Forward a port of the host to the guest: [ADDR:]HOST:GUEST[/tcp|/udp]; \
                     repeatable. ADDR is 127.0.0.1 by default; write IPv6 addresses in \
                     brackets: [::1]:8080:80. 0.0.0.0 is every IPv4 address and [::] every \
                     IPv6 address of the host"
    )]
    pub(crate) publish: Vec<Publish>,
    /// Network: user (no privileges; the monitor and passt), none, or tap=NAME
    #[arg(
        long,
        value_name = "NET",
        default_value = "user",
        long_help = "Network: user (no privileges), none, or tap=NAME. With user the \
                     monitor serves published ports itself (of a machine in QEMU a process \
                     beside it), and passt everything else; passt starts when the guest \
                     first needs it. \
                     The guest cannot reach the host's addresses, its loopback \
                     interface or link-local addresses; user,allow=ADDRESS[/BITS] permits \
                     some of them: user,allow=127.0.0.1,allow=192.0.2.0/24. \
                     user,forward=passt leaves published ports to passt too, as Linux \
                     guests in Tare's own monitor do; user,outbound=off does without passt: \
                     the guest opens no connections"
    )]
    pub(crate) net: NetChoice,
    /// Attach a disk: a raw file or block device. A program has the ext4 file system
    /// of it at /data. Options after FILE (write a comma in its name as ,,): at=DIR, ro,
    /// format=raw,
    /// cache=writeback|writethrough, serial=TEXT, queues=N, coalesce=auto|off|A/B,
    /// iops=N, bytes_per_s=N, latency_us=N
    #[arg(
        long = "disk",
        value_name = "FILE[,...]",
        long_help = "Attach a disk: a raw file or block device; repeatable. A program \
                     (tare run ./program) has the ext4 file system of its one disk at /data: \
                     what it writes there stays. Options after FILE, separated by commas \
                     (write a comma in its name as ,,): at=DIR (instead of /data), ro (read \
                     only), format=raw (even if the content looks like another format), \
                     cache=writeback (a flush makes writes durable) or writethrough, \
                     serial=TEXT, queues=N [default: one for each vCPU], coalesce=auto (as \
                     few interrupts as the queue depth needs), off, or A/B (A interrupts \
                     for B completions), iops=N and bytes_per_s=N (limits that tare set \
                     can change; 0: none), latency_us=N (least time of a request, to \
                     imitate slower storage)"
    )]
    pub(crate) disks: Vec<DiskChoice>,
    /// How the library OS waits for work [default: block]
    #[arg(long, value_name = "HOW")]
    pub(crate) idle: Option<IdleArg>,
    /// Processor ring in which the image runs: 0, 3, or auto (3 if KVM emulates ring 0,
    /// else 0). A program has ring 3 either way: with 0 the library OS is out of its reach
    #[arg(
        long,
        value_name = "RING",
        default_value = "auto",
        hide_possible_values = true,
        conflicts_with = "kernel"
    )]
    pub(crate) ring: RingArg,
    /// Halt polling of vCPUs: budget=PCT (poll within this share of a CPU), never,
    /// kernel (the host's setting), poll=NS, dedicated [default: budget=1]
    #[arg(
        long,
        value_name = "HOW",
        long_help = "Halt polling: how a halted vCPU waits on the host. budget=PCT: polls \
                     for the time that saves the most wake-up latency within this share \
                     of a CPU, adapted to the load; never: the host deschedules it at \
                     once; kernel: the host's setting; poll=NS: polls for up to NS \
                     nanoseconds; dedicated: each vCPU gets a host CPU alone, and its \
                     halts do not exit to KVM [default: budget=1; in QEMU kernel]"
    )]
    pub(crate) halt: Option<HaltPolicy>,
    /// User that runs the machine: auto, self, UID or UID:GID [default: auto]
    #[arg(
        long,
        value_name = "USER",
        default_value = "auto",
        hide_default_value = true,
        long_help = "User that the machine switches to before it reads its image: self (the \
                     user who starts it), UID[:GID], or auto (if root starts it, an \
                     unprivileged user ID that no other machine uses, else self) [default: \
                     auto]"
    )]
    pub(crate) user: UserChoice,
    /// Limit the CPU time of the machine (vCPUs, monitor and passt), in CPUs (1.5)
    #[arg(long, value_name = "CPUS")]
    pub(crate) limit_cpu: Option<CpuLimit>,
    /// Limit the memory of the machine; the kernel kills it if it needs more
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit_memory: Option<MemorySize>,
    /// Limit requests and bytes per second on the block devices of its disks, for reads
    /// and writes separately: iops=N,bytes_per_s=N
    #[arg(long, value_name = "LIMITS")]
    pub(crate) limit_io: Option<IoRate>,
    /// Limit frames and bytes per second of its network, in each direction (tare set can
    /// change this): frames_per_s=N,bytes_per_s=N
    #[arg(long, value_name = "LIMITS")]
    pub(crate) limit_net: Option<NetRate>,
    /// Restart the machine when it fails: no, on-failure or on-failure:N (N times in a row)
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "no",
        hide_default_value = true,
        long_help = "Restart the machine when it fails: no, or on-failure[:N] (at most N times \
                     in a row). Failures are a panic, a fault, an exit code other than 0, and \
                     a kill; not tare stop, Ctrl-C or SIGTERM. tare waits 100 ms before the \
                     first restart and doubles the wait each time, up to 10 s; after a run of \
                     10 s it counts from the start again [default: no]"
    )]
    pub(crate) restart: Restart,
    /// Run in the background and print the machine's name
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// What executes the guest: tare (Tare's monitor on KVM), qemu (QEMU without KVM,
    /// by translation), qemu-kvm, or auto (tare; qemu if the host has no KVM, or for a
    /// Linux guest on a KVM that emulates ring 0; qemu-kvm with --volume)
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
    /// UNIX socket to create, to which one front-end at a time connects. For several
    /// disks give one each, in the same order [default: the sockets that systemd passes]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) socket: Vec<PathBuf>,
    /// Permission bits of the socket, octal; whoever can connect can write to the disk
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = socket_mode)]
    pub(crate) socket_mode: u32,
    /// Disk to serve, by a separate I/O thread: a raw file or block device; repeatable.
    /// Options after FILE (write a comma in its name as ,,): ro, format=raw,
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
    /// The ring, or `None` if the machine decides.
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

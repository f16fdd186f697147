//! What the personality in the guest offers beyond the calls themselves: kinds of sockets and
//! their options, requests of `ioctl`, operations of `prctl`, files of the kernel's. As with
//! [`Call`](crate::Call), `guest/linux` serves each list by a `match` without a default, and
//! `tare profile` compares a program's use with it.

use linux_raw_sys::general as c;
use linux_raw_sys::ioctl;
use linux_raw_sys::net as n;
use linux_raw_sys::prctl;

const TCP: u32 = n::IPPROTO_TCP as u32;
const IPV6: u32 = n::IPPROTO_IPV6 as u32;

macro_rules! offered {
    ($(#[$doc:meta])* $list:ident, $value:ty; $($name:ident = $number:expr;)+) => {
        $(#[$doc])*
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $list {
            $($name,)+
        }

        impl $list {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// What stands for it.
            pub const fn value(self) -> $value {
                match self {
                    $(Self::$name => $number,)+
                }
            }

            /// What a value stands for.
            pub fn of(value: $value) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.value() == value)
            }
        }
    };
}

offered! {
    /// Sockets, by family and type.
    SocketType, (u32, u32);
    UnixStream = (n::AF_UNIX, n::SOCK_STREAM);
    UnixDatagram = (n::AF_UNIX, n::SOCK_DGRAM);
    UnixPackets = (n::AF_UNIX, n::SOCK_SEQPACKET);
    Tcp = (n::AF_INET, n::SOCK_STREAM);
    Udp = (n::AF_INET, n::SOCK_DGRAM);
    Tcp6 = (n::AF_INET6, n::SOCK_STREAM);
    Udp6 = (n::AF_INET6, n::SOCK_DGRAM);
    NetlinkRaw = (n::AF_NETLINK, n::SOCK_RAW);
    NetlinkDatagram = (n::AF_NETLINK, n::SOCK_DGRAM);
}

offered! {
    /// Socket options with an effect, by level and number. All others are taken as hints.
    SocketOption, (u32, u32);
    SO_RCVTIMEO = (n::SOL_SOCKET, n::SO_RCVTIMEO);
    SO_SNDTIMEO = (n::SOL_SOCKET, n::SO_SNDTIMEO);
    SO_LINGER = (n::SOL_SOCKET, n::SO_LINGER);
    SO_ERROR = (n::SOL_SOCKET, n::SO_ERROR);
    SO_TYPE = (n::SOL_SOCKET, n::SO_TYPE);
    SO_DOMAIN = (n::SOL_SOCKET, n::SO_DOMAIN);
    SO_ACCEPTCONN = (n::SOL_SOCKET, n::SO_ACCEPTCONN);
    SO_SNDBUF = (n::SOL_SOCKET, n::SO_SNDBUF);
    SO_RCVBUF = (n::SOL_SOCKET, n::SO_RCVBUF);
    SO_PEERCRED = (n::SOL_SOCKET, n::SO_PEERCRED);
    // So here in any case.
    SO_REUSEADDR = (n::SOL_SOCKET, n::SO_REUSEADDR);
    SO_KEEPALIVE = (n::SOL_SOCKET, n::SO_KEEPALIVE);
    TCP_NODELAY = (TCP, n::TCP_NODELAY);
    TCP_CORK = (TCP, n::TCP_CORK);
    TCP_KEEPIDLE = (TCP, n::TCP_KEEPIDLE);
    TCP_KEEPINTVL = (TCP, n::TCP_KEEPINTVL);
    TCP_KEEPCNT = (TCP, n::TCP_KEEPCNT);
    TCP_USER_TIMEOUT = (TCP, n::TCP_USER_TIMEOUT);
    IPV6_V6ONLY = (IPV6, n::IPV6_V6ONLY);
}

offered! {
    /// Flags of `open` besides how a file is opened. Others are ignored.
    OpenFlag, u32;
    O_CREAT = c::O_CREAT;
    O_EXCL = c::O_EXCL;
    O_TRUNC = c::O_TRUNC;
    O_APPEND = c::O_APPEND;
    O_NONBLOCK = c::O_NONBLOCK;
    O_DIRECTORY = c::O_DIRECTORY;
    O_NOFOLLOW = c::O_NOFOLLOW;
    O_CLOEXEC = c::O_CLOEXEC;
    // Nothing here depends on them: files are in memory, and no file is a terminal.
    O_NOCTTY = c::O_NOCTTY;
    O_DSYNC = c::O_DSYNC;
    O_SYNC = c::O_SYNC & !c::O_DSYNC;
    O_DIRECT = c::O_DIRECT;
    O_LARGEFILE = 0o100_000;
    O_NOATIME = c::O_NOATIME;
}

offered! {
    /// Flags of `mmap` besides its type. Others are ignored.
    MapFlag, u32;
    MAP_FIXED = c::MAP_FIXED;
    MAP_FIXED_NOREPLACE = c::MAP_FIXED_NOREPLACE;
    MAP_ANONYMOUS = c::MAP_ANONYMOUS;
    MAP_NORESERVE = c::MAP_NORESERVE;
    // Hints, and what Linux ignores too.
    MAP_DENYWRITE = c::MAP_DENYWRITE;
    MAP_EXECUTABLE = c::MAP_EXECUTABLE;
    MAP_LOCKED = c::MAP_LOCKED;
    MAP_POPULATE = c::MAP_POPULATE;
    MAP_NONBLOCK = c::MAP_NONBLOCK;
    MAP_STACK = c::MAP_STACK;
}

offered! {
    /// Flags of `clone` for a thread. Others are ignored.
    ThreadFlag, u32;
    CLONE_VM = c::CLONE_VM;
    CLONE_SIGHAND = c::CLONE_SIGHAND;
    CLONE_THREAD = c::CLONE_THREAD;
    CLONE_SETTLS = c::CLONE_SETTLS;
    CLONE_PARENT_SETTID = c::CLONE_PARENT_SETTID;
    CLONE_CHILD_SETTID = c::CLONE_CHILD_SETTID;
    CLONE_CHILD_CLEARTID = c::CLONE_CHILD_CLEARTID;
    // So for every thread here, or without a meaning.
    CLONE_FS = c::CLONE_FS;
    CLONE_FILES = c::CLONE_FILES;
    CLONE_SYSVSEM = c::CLONE_SYSVSEM;
    CLONE_DETACHED = c::CLONE_DETACHED;
    CLONE_UNTRACED = c::CLONE_UNTRACED;
    CLONE_IO = c::CLONE_IO;
}

/// Lists of flags.
macro_rules! mask {
    ($($list:ident)+) => {$(
        impl $list {
            /// The bits of all of them.
            pub const MASK: u32 = {
                let (mut mask, mut at) = (0, 0);
                while at < Self::ALL.len() {
                    mask |= Self::ALL[at].value();
                    at += 1;
                }
                mask
            };
        }
    )+};
}

mask!(OpenFlag MapFlag ThreadFlag);

offered! {
    /// Commands of `fcntl`.
    Fcntl, u32;
    F_DUPFD = c::F_DUPFD;
    F_DUPFD_CLOEXEC = 1030;
    F_GETFD = c::F_GETFD;
    F_SETFD = c::F_SETFD;
    F_GETFL = c::F_GETFL;
    F_SETFL = c::F_SETFL;
    F_GETLK = c::F_GETLK;
    F_SETLK = c::F_SETLK;
    F_SETLKW = c::F_SETLKW;
    F_SETPIPE_SZ = 1031;
    F_GETPIPE_SZ = 1032;
    F_ADD_SEALS = 1033;
    F_GET_SEALS = 1034;
}

offered! {
    /// Requests of `ioctl`.
    Ioctl, u32;
    FIONBIO = ioctl::FIONBIO;
    FIONREAD = ioctl::FIONREAD;
    FIOCLEX = ioctl::FIOCLEX;
    FIONCLEX = ioctl::FIONCLEX;
    FIOASYNC = ioctl::FIOASYNC;
    // Whether a file is a terminal: none is.
    TCGETS = ioctl::TCGETS;
    TIOCGWINSZ = ioctl::TIOCGWINSZ;
    // Network interfaces, on any socket.
    SIOCGIFNAME = ioctl::SIOCGIFNAME;
    SIOCGIFCONF = ioctl::SIOCGIFCONF;
    SIOCGIFFLAGS = ioctl::SIOCGIFFLAGS;
    SIOCGIFADDR = ioctl::SIOCGIFADDR;
    SIOCGIFBRDADDR = ioctl::SIOCGIFBRDADDR;
    SIOCGIFNETMASK = ioctl::SIOCGIFNETMASK;
    SIOCGIFMETRIC = ioctl::SIOCGIFMETRIC;
    SIOCGIFMTU = ioctl::SIOCGIFMTU;
    SIOCGIFHWADDR = ioctl::SIOCGIFHWADDR;
    SIOCGIFINDEX = ioctl::SIOCGIFINDEX;
    SIOCGIFTXQLEN = ioctl::SIOCGIFTXQLEN;
}

offered! {
    /// Operations of `prctl`.
    Prctl, u32;
    PR_SET_NAME = prctl::PR_SET_NAME;
    PR_GET_NAME = prctl::PR_GET_NAME;
    PR_GET_DUMPABLE = prctl::PR_GET_DUMPABLE;
    PR_SET_DUMPABLE = prctl::PR_SET_DUMPABLE;
    PR_SET_PDEATHSIG = prctl::PR_SET_PDEATHSIG;
    PR_GET_PDEATHSIG = prctl::PR_GET_PDEATHSIG;
    PR_SET_KEEPCAPS = prctl::PR_SET_KEEPCAPS;
    PR_GET_KEEPCAPS = prctl::PR_GET_KEEPCAPS;
    PR_SET_NO_NEW_PRIVS = prctl::PR_SET_NO_NEW_PRIVS;
    PR_GET_NO_NEW_PRIVS = prctl::PR_GET_NO_NEW_PRIVS;
    PR_SET_CHILD_SUBREAPER = prctl::PR_SET_CHILD_SUBREAPER;
    PR_CAPBSET_READ = prctl::PR_CAPBSET_READ;
    PR_CAPBSET_DROP = prctl::PR_CAPBSET_DROP;
    PR_CAP_AMBIENT = prctl::PR_CAP_AMBIENT;
    PR_GET_SECUREBITS = prctl::PR_GET_SECUREBITS;
    PR_GET_SECCOMP = prctl::PR_GET_SECCOMP;
    PR_SET_THP_DISABLE = prctl::PR_SET_THP_DISABLE;
    PR_SET_TIMERSLACK = prctl::PR_SET_TIMERSLACK;
    PR_SET_VMA = prctl::PR_SET_VMA;
}

offered! {
    /// Files that a kernel gives, by path.
    KernelFile, &'static str;
    MemInfo = "/proc/meminfo";
    Version = "/proc/version";
    CpuInfo = "/proc/cpuinfo";
    CommandLine = "/proc/self/cmdline";
    Stat = "/proc/self/stat";
    Pages = "/proc/self/statm";
    Status = "/proc/self/status";
    Limits = "/proc/self/limits";
    Load = "/proc/loadavg";
    Uptime = "/proc/uptime";
    Overcommit = "/proc/sys/vm/overcommit_memory";
    Backlog = "/proc/sys/net/core/somaxconn";
    Release = "/proc/sys/kernel/osrelease";
    OnlineCpus = "/sys/devices/system/cpu/online";
    PossibleCpus = "/sys/devices/system/cpu/possible";
    PresentCpus = "/sys/devices/system/cpu/present";
    Times = "/proc/stat";
    Mappings = "/proc/self/maps";
    Mounts = "/proc/self/mounts";
    MountNumbers = "/proc/self/mountinfo";
    Name = "/proc/self/comm";
    Host = "/proc/sys/kernel/hostname";
    System = "/proc/sys/kernel/ostype";
    MostMappings = "/proc/sys/vm/max_map_count";
    LastCapability = "/proc/sys/kernel/cap_last_cap";
    WatchEvents = "/proc/sys/fs/inotify/max_queued_events";
    WatchInstances = "/proc/sys/fs/inotify/max_user_instances";
    Watches = "/proc/sys/fs/inotify/max_user_watches";
    Groups = "/proc/self/cgroup";
    AddressesV6 = "/proc/net/if_inet6";
}

offered! {
    /// Devices, by path.
    DeviceFile, &'static str;
    Null = "/dev/null";
    Zero = "/dev/zero";
    Full = "/dev/full";
    Random = "/dev/random";
    Urandom = "/dev/urandom";
    Console = "/dev/console";
    Tty = "/dev/tty";
    Stdin = "/dev/stdin";
    Stdout = "/dev/stdout";
    Stderr = "/dev/stderr";
}

/// Directories that are there without a root, empty but for files of the kernel.
pub const DIRECTORIES: [&str; 7] = [
    "/tmp",
    "/dev",
    "/dev/shm",
    "/proc/self",
    "/etc",
    "/run",
    "/var/tmp",
];
/// The program's own file.
pub const OWN_FILE: &str = "/proc/self/exe";
/// What stands before a descriptor's number in a path that opens it again.
pub const DESCRIPTORS: [&str; 2] = ["/proc/self/fd/", "/dev/fd/"];

/// Whether a path of `/proc`, `/sys` or `/dev`, with `self` for the process, leads to a file
/// or a directory.
pub fn has_kernel_path(path: &str) -> bool {
    let files = KernelFile::ALL.iter().map(|file| file.value());
    let devices = DeviceFile::ALL.iter().map(|file| file.value());
    let leads_to = |known: &str| {
        let rest = known.strip_prefix(path.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    files.chain(devices).chain([OWN_FILE]).any(leads_to)
        || DESCRIPTORS.iter().any(|before| path.starts_with(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_is_found_by_its_value() {
        for option in SocketOption::ALL {
            assert_eq!(SocketOption::of(option.value()), Some(*option));
        }
        assert_eq!(SocketOption::of((6, 1)), Some(SocketOption::TCP_NODELAY));
        assert_eq!(SocketOption::of((1, 6)), None, "SO_BROADCAST");
        assert_eq!(SocketType::of((17, 3)), None, "AF_PACKET");
        assert_eq!(Ioctl::of(0x5421), Some(Ioctl::FIONBIO));
        assert_eq!(Prctl::of(22), None, "PR_SET_SECCOMP");
        assert_eq!(Fcntl::of(1024), None, "F_SETLEASE");
        for bit in (0..32).map(|bit| 1 << bit) {
            let is_listed = OpenFlag::of(bit).is_some();
            assert_eq!(is_listed, OpenFlag::MASK & bit != 0, "{bit:#o}");
            let is_listed = MapFlag::of(bit).is_some();
            assert_eq!(is_listed, MapFlag::MASK & bit != 0, "{bit:#x}");
        }
    }

    #[test]
    fn kernel_paths_are_files_their_directories_and_descriptors() {
        for path in [
            "/proc/meminfo",
            "/proc/self/exe",
            "/proc",
            "/proc/self/",
            "/proc/sys/net",
            "/dev/null",
            "/dev/fd/3",
            "/proc/self/fd/0",
        ] {
            assert!(has_kernel_path(path), "{path}");
        }
        for path in [
            "/proc/self/smaps",
            "/proc/meminf",
            "/proc/meminfo/x",
            "/dev/shm/x",
            "/sys/fs/cgroup",
        ] {
            assert!(!has_kernel_path(path), "{path}");
        }
    }
}

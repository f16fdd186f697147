//! Arguments that select kernel features.
//!
//! Every list is sorted and free of twins by everything but its `count`.
//! Constants have the kernel's names where they have one (`AF_INET`), else
//! numbers in decimal.

use serde::{Deserialize, Serialize};

use crate::names;

/// Features of the kernel that calls used beyond their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// Sockets made.
    pub sockets: Vec<SocketUse>,
    /// Socket options set or read.
    pub socket_options: Vec<OptionUse>,
    /// Files opened, by file system and kind of path.
    pub files: Vec<FileUse>,
    /// `ioctl` requests.
    pub ioctls: Vec<IoctlUse>,
    /// Flags of `clone`, `clone3` and `unshare`.
    pub clones: Vec<CloneUse>,
    /// Operations of `prctl` and `arch_prctl`.
    pub prctls: Vec<PrctlUse>,
    /// Mounts made.
    pub mounts: Vec<MountUse>,
    /// Flags of `open` and `mmap`, commands of `fcntl`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<FlagsUse>,
}

/// Sockets of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketUse {
    /// `AF_INET`, `AF_UNIX`, ...
    pub family: String,
    /// `SOCK_STREAM`, ... without `SOCK_NONBLOCK` and `SOCK_CLOEXEC`.
    pub kind: String,
    /// Protocol number.
    pub protocol: u32,
    /// How many.
    pub count: u64,
}

/// A socket option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptionUse {
    /// `SOL_SOCKET`, `IPPROTO_TCP`, ...
    pub level: String,
    /// `SO_REUSEADDR`, `TCP_NODELAY`, ...; a name that is set has its own entry
    /// (`TCP_CONGESTION=bbr`).
    pub name: String,
    /// How often.
    pub count: u64,
}

/// Files that were opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileUse {
    /// Type of the file system (`ext4`, `proc`, `tmpfs`, ...).
    pub file_system: String,
    /// The path: whole for `/proc`, `/sys` and `/dev` (process IDs as `self`),
    /// else its directory.
    pub path: String,
    /// How often.
    pub count: u64,
}

/// An `ioctl` request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoctlUse {
    /// `FIONBIO`, `TCGETS`, ..., or the number in hexadecimal.
    pub request: String,
    /// How often.
    pub count: u64,
}

/// Flags of new tasks or namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloneUse {
    /// Names of the flags, sorted (`CLONE_THREAD`, `CLONE_NEWNET`, ...).
    pub flags: Vec<String>,
    /// How often.
    pub count: u64,
}

/// An operation of `prctl` or `arch_prctl`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrctlUse {
    /// `PR_SET_NAME`, `ARCH_SET_FS`, ...
    pub operation: String,
    /// How often.
    pub count: u64,
}

/// Flags or the command of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlagsUse {
    /// `open` (`openat` too), `mmap`, `fcntl`.
    pub call: String,
    /// Names of the flags, sorted (`O_CREAT`, `MAP_SHARED`, `PROT_WRITE`, ...), or of the
    /// command (`F_SETFL`). `O_RDONLY`, `O_WRONLY` and `O_RDWR` are left out.
    pub flags: Vec<String>,
    /// How often.
    pub count: u64,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountUse {
    /// Type of the file system; empty for bind mounts and changes of flags.
    pub file_system: String,
    /// How often.
    pub count: u64,
}

impl SocketUse {
    /// By the arguments of `socket`, without its kind's flags.
    pub fn of(family: u64, kind: u64, protocol: u64, count: u64) -> Self {
        Self {
            family: names::family(family),
            kind: names::kind(kind),
            protocol: protocol as u32,
            count,
        }
    }
}

impl OptionUse {
    /// By the arguments of `setsockopt`.
    pub fn of(level: u64, option: u64, count: u64) -> Self {
        let (level, name) = names::option(level, option);
        Self { level, name, count }
    }
}

impl OptionUse {
    /// By a name that `setsockopt` of TCP gives (`TCP_CONGESTION=bbr`): 12 bytes, in three
    /// little-endian words. Nothing for what no module of the kernel is called.
    pub fn of_module(option: &str, words: [u64; 3], count: u64) -> Option<Self> {
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| (*word as u32).to_le_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
        let name = String::from_utf8(bytes).ok()?;
        (!name.is_empty() && name.bytes().all(|byte| fits(&byte))).then(|| Self {
            level: "IPPROTO_TCP".to_owned(),
            name: format!("{option}={name}"),
            count,
        })
    }
}

impl IoctlUse {
    /// By the request's number.
    pub fn of(request: u64, count: u64) -> Self {
        Self {
            request: names::ioctl(request),
            count,
        }
    }
}

impl CloneUse {
    /// By the flags of `clone`, without its signal.
    pub fn of(flags: u64, count: u64) -> Self {
        Self {
            flags: names::clone_flags(flags),
            count,
        }
    }
}

impl PrctlUse {
    /// By the operation of `prctl`.
    pub fn of(operation: u64, count: u64) -> Self {
        Self {
            operation: names::prctl(operation),
            count,
        }
    }

    /// By the operation of `arch_prctl`.
    pub fn of_arch(operation: u64, count: u64) -> Self {
        Self {
            operation: names::arch_prctl(operation),
            count,
        }
    }
}

impl FlagsUse {
    /// By the flags of `open` and `openat`.
    pub fn of_open(flags: u64, count: u64) -> Self {
        Self::of("open", names::open_flags(flags), count)
    }

    /// By flags and protection of `mmap`.
    pub fn of_mmap(flags: u64, protection: u64, count: u64) -> Self {
        Self::of("mmap", names::map_flags(flags, protection), count)
    }

    /// By the command of `fcntl`.
    pub fn of_fcntl(command: u64, count: u64) -> Self {
        Self::of("fcntl", vec![names::fcntl(command)], count)
    }

    fn of(call: &str, flags: Vec<String>, count: u64) -> Self {
        Self {
            call: call.to_owned(),
            flags,
            count,
        }
    }
}

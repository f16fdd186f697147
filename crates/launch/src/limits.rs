//! Limits of a machine as a whole (`--limit-cpu`, `--limit-memory`, `--limit-io`): a control
//! group with its monitor or QEMU, and its passt. The network's limit is the monitor's own.
//!
//! The groups are in `tare` at the top of the hierarchy, of version 2 or of the controllers'
//! own hierarchies of version 1. A group cannot be removed by a process in it, so an empty
//! one stays until the next `tare run`, `ps`, `stop` or `rm`; after SIGKILL as well. `tare` itself
//! stays: it may be an administrator's, with its own owner and limits.
//!
//! Limits: root only, unless an administrator gives `tare` to a user. The group is not below
//! the caller's own, whose limits do not hold for the machine.
//! Version 1 limits reads and writes that bypass the page cache only.
//!
//! Reference: Linux `Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`,
//! `cgroup-v1/blkio-controller.rst`,
//! `scheduler/sched-bwc.rst`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;
use tare_control::exit::ExitCode;
use tare_control::rundir::valid_name;
use tare_policy::limit::DiskLimits;

use crate::disk::OpenDisk;
use crate::failure::Explain;
use crate::io_devices::{self, DeviceError};
use crate::memory_size::MemorySize;
use crate::rates::{IoRate, NetRate};

const ROOT: &str = "/sys/fs/cgroup";
/// The group of all groups.
const PARENT: &str = "tare";
/// Period of the scheduler's accounting, us.
const PERIOD_US: u64 = 100_000;
/// Smallest quota that the kernel takes, us.
const QUOTA_MIN_US: u64 = 1000;
/// Most CPUs of a limit: more than hosts have.
const CPUS_MAX: u64 = 4096;
/// How often to make a group again that another `tare` removed before it was entered.
const TRIES: usize = 5;

/// `--limit-cpu`: CPU time in each period, us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLimit {
    quota_us: u64,
}

/// Not a number of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use a number of CPUs from 0.01 to {CPUS_MAX}, such as 1.5, with at most two decimals")]
pub struct BadCpuLimit;

impl FromStr for CpuLimit {
    type Err = BadCpuLimit;

    fn from_str(text: &str) -> Result<Self, BadCpuLimit> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str, most: usize| {
            let fits =
                (1..=most).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
            if fits { text.parse::<u64>().ok() } else { None }
        };
        let whole = digits(whole, 4).ok_or(BadCpuLimit)?;
        let hundredths = match (digits(part, 2).ok_or(BadCpuLimit)?, part.len()) {
            (tenths, 1) => tenths * 10,
            (hundredths, _) => hundredths,
        };
        let quota_us = whole * PERIOD_US + hundredths * PERIOD_US / 100;
        if (QUOTA_MIN_US..=CPUS_MAX * PERIOD_US).contains(&quota_us) {
            Ok(Self { quota_us })
        } else {
            Err(BadCpuLimit)
        }
    }
}

/// The limits of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// CPU time.
    pub cpu: Option<CpuLimit>,
    /// Memory of the guest, its monitor and passt, page cache included.
    pub memory: Option<MemorySize>,
    /// Reads and writes on its disks' devices.
    pub io: Option<IoRate>,
    /// Network traffic, limited by Tare's monitor.
    pub net: Option<NetRate>,
}

/// Limits that cannot be set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitError {
    /// The controller is in neither version's hierarchy.
    #[error("this host has no cgroup for {0} in {ROOT}")]
    NoController(&'static str),
    /// The machine has no disk.
    #[error("--limit-io needs a disk (--disk)")]
    NoDisk,
    /// A disk that would stay without a limit.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A group or a file in it cannot be made or written.
    #[error("cannot limit the machine: {}", path.display())]
    Group {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Explain for LimitError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NoDisk | Self::Device(DeviceError::Unnamed(_)) => ExitCode::Usage,
            Self::NoController(_) | Self::Device(_) | Self::Group { .. } => ExitCode::Limit,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Device(DeviceError::Unnamed(_)) => {
                Some("limit the disk itself: --disk FILE,iops=N,bytes_per_s=N".to_owned())
            }
            Self::Group { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("only root may make cgroups at the top of the hierarchy".to_owned())
            }
            _ => None,
        }
    }
}

/// Puts this process, and its later children, into a group with these limits.
pub(crate) fn enter(limits: Limits, disks: &[OpenDisk], name: &str) -> Result<(), LimitError> {
    let group = format!("{name}.{}", std::process::id());
    let devices = match limits.io {
        Some(_) => io_devices::of(disks)?,
        None => Vec::new(),
    };
    enter_in(Path::new(ROOT), limits, &devices, &group)
}

/// Removes the groups of machines without a process; returns how many. A group that cannot be
/// removed is in use.
pub fn sweep() -> usize {
    sweep_in(Path::new(ROOT))
}

fn enter_in(
    root: &Path,
    limits: Limits,
    devices: &[String],
    group: &str,
) -> Result<(), LimitError> {
    if let Some(CpuLimit { quota_us }) = limits.cpu {
        let settings = |version| match version {
            Version::One => vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", quota_us.to_string()),
            ],
            Version::Two => vec![("cpu.max", format!("{quota_us} {PERIOD_US}"))],
        };
        enter_one(root, "cpu", group, settings)?;
    }
    if let Some(memory) = limits.memory {
        let bytes = (u64::from(memory.mib) << 20).to_string();
        let settings = |version| match version {
            Version::One => vec![("memory.limit_in_bytes", bytes.clone())],
            Version::Two => vec![("memory.max", bytes.clone())],
        };
        enter_one(root, "memory", group, settings)?;
    }
    if let Some(IoRate(rate)) = limits.io {
        if devices.is_empty() {
            return Err(LimitError::NoDisk);
        }
        let settings = |version| io_settings(version, rate, devices);
        let controller = if root.join("blkio").exists() {
            "blkio"
        } else {
            "io"
        };
        enter_one(root, controller, group, settings)?;
    }
    Ok(())
}

/// One line for each device, each with its own write.
fn io_settings(
    version: Version,
    rate: DiskLimits,
    devices: &[String],
) -> Vec<(&'static str, String)> {
    let number = |limit: u64| match limit {
        0 => "max".to_owned(),
        limit => limit.to_string(),
    };
    let mut settings = Vec::new();
    for device in devices {
        let (iops, bytes) = (number(rate.iops), number(rate.bytes_per_s));
        match version {
            Version::Two => settings.push((
                "io.max",
                format!("{device} rbps={bytes} wbps={bytes} riops={iops} wiops={iops}"),
            )),
            Version::One => {
                let limits = [
                    ("blkio.throttle.read_bps_device", rate.bytes_per_s),
                    ("blkio.throttle.write_bps_device", rate.bytes_per_s),
                    ("blkio.throttle.read_iops_device", rate.iops),
                    ("blkio.throttle.write_iops_device", rate.iops),
                ];
                let set = limits.into_iter().filter(|(_, limit)| *limit > 0);
                settings.extend(set.map(|(file, limit)| (file, format!("{device} {limit}"))));
            }
        }
    }
    settings
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

fn enter_one(
    root: &Path,
    controller: &'static str,
    group: &str,
    settings: impl Fn(Version) -> Vec<(&'static str, String)>,
) -> Result<(), LimitError> {
    let mut result = Ok(());
    for _ in 0..TRIES {
        result = parent(root, controller)
            .and_then(|(parent, version)| make_and_enter(&parent.join(group), &settings(version)));
        match &result {
            Err(LimitError::Group { source, .. }) if is_gone(source) => {}
            _ => break,
        }
    }
    result
}

/// Whether another `tare` removed the group before this process was in it: no such file, or no such
/// device for a file that was already open.
fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NODEV].map(|errno| Some(errno.raw_os_error()));
    gone.contains(&error.raw_os_error())
}

/// The directory of all groups with that controller, made if it is missing.
fn parent(root: &Path, controller: &'static str) -> Result<(PathBuf, Version), LimitError> {
    if root.join(controller).join("cgroup.procs").exists() {
        let parent = root.join(controller).join(PARENT);
        make(&parent)?;
        return Ok((parent, Version::One));
    }
    let offered = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    if !offered.split_whitespace().any(|it| it == controller) {
        return Err(LimitError::NoController(controller));
    }
    let parent = root.join(PARENT);
    make(&parent)?;
    for above in [root, &parent] {
        write(
            &above.join("cgroup.subtree_control"),
            &format!("+{controller}"),
        )?;
    }
    Ok((parent, Version::Two))
}

fn make_and_enter(group: &Path, settings: &[(&str, String)]) -> Result<(), LimitError> {
    make(group)?;
    for (file, value) in settings {
        write(&group.join(file), value)?;
    }
    write(&group.join("cgroup.procs"), &std::process::id().to_string())
}

fn make(directory: &Path) -> Result<(), LimitError> {
    match fs::create_dir(directory) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => Err(LimitError::Group {
            path: directory.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Writes a file that the kernel has made; a missing one is an error.
fn write(path: &Path, value: &str) -> Result<(), LimitError> {
    let opened = fs::OpenOptions::new().write(true).open(path);
    opened
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
        .map_err(|source| LimitError::Group {
            path: path.to_owned(),
            source,
        })
}

fn sweep_in(root: &Path) -> usize {
    let mut removed = 0;
    for parent in ["cpu", "memory", "blkio", ""].map(|hierarchy| root.join(hierarchy).join(PARENT))
    {
        for group in fs::read_dir(&parent).into_iter().flatten().flatten() {
            let is_directory = group.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && names_a_machine(&group.file_name()) {
                // Fails for a group with processes, and for anything that is not empty.
                removed += usize::from(fs::remove_dir(group.path()).is_ok());
            }
        }
    }
    removed
}

/// Whether the name is one of [`enter`]'s: a machine's and a process ID.
fn names_a_machine(group: &OsStr) -> bool {
    let parts = group.to_str().and_then(|name| name.rsplit_once('.'));
    parts.is_some_and(|(name, pid)| valid_name(name) && pid.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            cpu: Some("1.5".parse().unwrap()),
            memory: Some("128M".parse().unwrap()),
            io: Some("bytes_per_s=1000".parse().unwrap()),
            net: None,
        }
    }

    /// A directory as the kernel makes it, with empty files.
    fn group(path: &Path, files: &[&str]) {
        fs::create_dir_all(path).unwrap();
        for file in files {
            fs::write(path.join(file), "").unwrap();
        }
    }

    #[test]
    fn cpus_have_at_most_two_decimals() {
        let quota = |text: &str| text.parse().map(|limit: CpuLimit| limit.quota_us);
        assert_eq!(quota("1"), Ok(100_000));
        assert_eq!(quota("0.5"), Ok(50_000));
        assert_eq!(quota("1.25"), Ok(125_000));
        assert_eq!(quota("0.01"), Ok(1000));
        for bad in ["", "0", "0.001", ".5", "1.", "-1", "5000", "1e3", "half"] {
            assert_eq!(quota(bad), Err(BadCpuLimit), "{bad}");
        }
    }

    #[test]
    fn version_two_gets_controllers_limits_and_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        group(root, &["cgroup.subtree_control"]);
        fs::write(root.join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
        group(&root.join("tare"), &["cgroup.subtree_control"]);
        let files = ["cpu.max", "memory.max", "io.max", "cgroup.procs"];
        group(&root.join("tare/web.1"), &files);
        enter_in(root, limits(), &["8:0".to_owned()], "web.1").unwrap();
        let text = |file: &str| fs::read_to_string(root.join(file)).unwrap();
        assert_eq!(text("tare/web.1/cpu.max"), "150000 100000");
        assert_eq!(text("tare/web.1/memory.max"), "134217728");
        let own = std::process::id().to_string();
        assert_eq!(text("tare/web.1/cgroup.procs"), own);
        let io = "8:0 rbps=1000 wbps=1000 riops=max wiops=max";
        assert_eq!(text("tare/web.1/io.max"), io);
        assert!(text("cgroup.subtree_control").starts_with("+io"));
    }

    /// The block device that [`io_max_holds_back_what_reads_a_disk`] reads.
    const DISK: &str = "TARE_TEST_IO_MAX_DISK";

    /// For a guest whose control groups are of version 2, whose root has this program with its
    /// libraries as `/t`, and a shell:
    ///
    /// ```text
    /// tare run --engine qemu --kernel debian --root ROOT --net none --disk IMAGE \
    ///   --cmdline cgroup_no_v1=all -- /bin/sh -c \
    ///   'TARE_TEST_IO_MAX_DISK=/dev/vda exec /t --exact limits::tests::io_max_holds_back_what_reads_a_disk'
    /// ```
    ///
    /// The time that it takes has a lower bound, which no load on the host makes shorter.
    #[test]
    fn io_max_holds_back_what_reads_a_disk() {
        use std::io::Read as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        use std::time::{Duration, Instant};

        const READ: usize = 8 << 20;
        let Some(path) = std::env::var_os(DISK) else {
            return tare_vmtest::lacks(format!("{DISK} names no block device of a guest"));
        };
        let root = Path::new(ROOT);
        if !root.join("cgroup.controllers").exists() {
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("cgroup2", root, "cgroup2", flags, c"").unwrap();
        }
        let open = || {
            let mut options = fs::OpenOptions::new();
            let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
            options.read(true).custom_flags(direct).open(&path).unwrap()
        };
        let disk = OpenDisk {
            path: path.to_string_lossy().into_owned(),
            file: open(),
            access: tare_devices::blk::Access::ReadOnly,
            cache: Default::default(),
            serial: String::new(),
            queues: 1,
            coalesce: Default::default(),
            latency_us: 0,
            limits: DiskLimits::default(),
        };
        let read = || {
            let mut buffer = vec![0; (64 << 10) + 4096];
            let aligned = buffer.as_ptr().align_offset(4096);
            let (mut file, begin) = (open(), Instant::now());
            for _ in 0..READ / (64 << 10) {
                let part = &mut buffer[aligned..aligned + (64 << 10)];
                file.read_exact(part).unwrap();
            }
            begin.elapsed()
        };
        let free = read();
        let limited = Limits {
            io: Some("bytes_per_s=1048576".parse().unwrap()),
            ..Limits::default()
        };
        enter(limited, std::slice::from_ref(&disk), "web").unwrap();
        let group = root
            .join(PARENT)
            .join(format!("web.{}", std::process::id()));
        let text = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        let held = read();
        println!("{READ} bytes: {free:?} without, {held:?} with a limit of 1 MiB/s");
        println!("io.max: {}io.stat: {}", text("io.max"), text("io.stat"));
        assert!(
            text("io.max").contains("rbps=1048576"),
            "{}",
            text("io.max")
        );
        let accounted = format!("rbytes={READ} ");
        assert!(text("io.stat").contains(&accounted), "{}", text("io.stat"));
        assert!(held >= Duration::from_secs(4), "{held:?}");
    }

    #[test]
    fn version_one_gets_limits_of_reads_and_writes() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        group(&root.join("blkio"), &["cgroup.procs"]);
        let files = [
            "blkio.throttle.read_iops_device",
            "blkio.throttle.write_iops_device",
            "cgroup.procs",
        ];
        group(&root.join("blkio/tare/web.1"), &files);
        let limits = Limits {
            io: Some("iops=70".parse().unwrap()),
            ..Limits::default()
        };
        enter_in(root, limits, &["254:0".to_owned()], "web.1").unwrap();
        for file in &files[..2] {
            let text = fs::read_to_string(root.join("blkio/tare/web.1").join(file));
            assert_eq!(text.unwrap(), "254:0 70");
        }
        let nowhere = enter_in(root, limits, &[], "web.1").unwrap_err();
        assert!(matches!(nowhere, LimitError::NoDisk), "{nowhere}");
    }

    #[test]
    fn a_host_without_the_controller_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let error = enter_in(root.path(), limits(), &[], "web.1").unwrap_err();
        assert!(matches!(error, LimitError::NoController("cpu")), "{error}");
        assert_eq!(error.code(), ExitCode::Limit);
    }

    #[test]
    fn a_user_who_may_not_set_a_limit_gets_its_own_code() {
        let refused = LimitError::Group {
            path: PathBuf::from("/sys/fs/cgroup/tare"),
            source: io::ErrorKind::PermissionDenied.into(),
        };
        assert_eq!(refused.code(), ExitCode::Limit);
        assert!(refused.hint().is_some_and(|hint| hint.contains("root")));
        assert_eq!(LimitError::NoDisk.code(), ExitCode::Usage);
    }

    #[test]
    fn a_group_that_was_swept_is_made_again() {
        let errno = |errno: Errno| io::Error::from(errno);
        assert!(is_gone(&errno(Errno::NOENT)) && is_gone(&errno(Errno::NODEV)));
        assert!(!is_gone(&errno(Errno::ACCESS)));
    }

    #[test]
    fn sweeping_leaves_groups_in_use() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("cpu/tare");
        fs::create_dir_all(parent.join("ended.1")).unwrap();
        group(&parent.join("lives.2"), &["busy"]);
        assert_eq!(sweep_in(root.path()), 1);
        assert!(!parent.join("ended.1").exists());
        assert!(parent.join("lives.2/busy").exists());
    }

    #[test]
    fn sweeping_leaves_groups_of_an_administrator() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("tare");
        fs::create_dir_all(parent.join("batch")).unwrap();
        assert_eq!(sweep_in(root.path()), 0);
        fs::remove_dir(parent.join("batch")).unwrap();
        assert_eq!(sweep_in(root.path()), 0);
        assert!(parent.exists(), "its limits and owner are kept");
    }
}

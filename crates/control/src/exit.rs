//! Exit codes of `tare` and `tare-monitor`. Scripts rely on them: a code is
//! never reused for another meaning. `tare exit-codes` prints the table, and
//! `docs/exit-codes.md` repeats it; a test compares the two.

macro_rules! exit_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal,)+) => {
        /// Why a run ended, as the process's exit code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum ExitCode { $($(#[doc = $doc])+ $name = $code,)+ }

        impl ExitCode {
            /// Every code with its meaning.
            pub const ALL: &'static [(Self, &'static str)] =
                &[$((Self::$name, concat!($($doc),+)),)+];
        }
    };
}

exit_codes! {
    /// The guest powered off, or was stopped on request.
    Success = 0,
    /// The application in the guest ended with a status other than zero.
    GuestStatus = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The image is missing or cannot be read.
    ImageUnreadable = 10,
    /// The image is neither a 64-bit x86 ELF file nor a Linux kernel.
    ImageNotElf = 11,
    /// The image is truncated: it is shorter than its headers say.
    ImageTruncated = 12,
    /// The image has no PVH note (its entry point), so it cannot boot.
    ImageNoPvh = 13,
    /// The image, or the initramfs, does not fit into guest memory.
    ImageTooLarge = 14,
    /// Segments of the image overlap or lie outside guest memory.
    ImageLayout = 15,
    /// The number of vCPUs is zero, or more than this host's KVM allows.
    Cpus = 20,
    /// Guest memory is too small, or the host cannot provide it.
    Memory = 21,
    /// The command line for the guest is too long or not printable.
    Cmdline = 22,
    /// A CPU to pin to does not exist, is offline or is not allowed.
    CpuSet = 23,
    /// A limit (--limit-cpu, --limit-memory, --limit-io) cannot be set here.
    Limit = 24,
    /// A forwarded port is in use or not allowed.
    PortInUse = 30,
    /// The tap interface is missing, busy or not allowed.
    Tap = 31,
    /// passt is missing or failed to start.
    Passt = 32,
    /// The front-end's socket is in use or cannot be created.
    Socket = 33,
    /// The disk is missing, or this user may not open it.
    DiskUnreadable = 34,
    /// The disk is empty, has a partial sector, is not raw, or has no ext4.
    DiskUnusable = 35,
    /// The disk is in use by another program.
    DiskInUse = 36,
    /// The directory of --volume is missing, or cannot be mounted in the guest.
    VolumeUnusable = 37,
    /// virtiofsd is missing or failed to start.
    Virtiofsd = 38,
    /// The root directory is missing, unreadable or not a directory.
    RootMissing = 40,
    /// The root is too large for guest memory or for tare tailor.
    RootTooLarge = 41,
    /// The container image of --root is damaged or unsafe.
    RootImage = 42,
    /// A profile is missing, has an unknown version, or is not valid.
    ProfileUnusable = 43,
    /// Kernel sources, a patch or a lock file is missing or unusable.
    KernelSources = 44,
    /// The kernel's configuration does not accept a requested option.
    KernelConfig = 45,
    /// The kernel did not compile.
    KernelBuild = 46,
    /// The website configuration (site.toml) is missing or invalid.
    SiteUnusable = 47,
    /// The crate's name is invalid, or its directory has no appliance.
    CrateUnusable = 48,
    /// The image did not compile, or a tool to compile it is missing.
    ImageBuild = 49,
    /// A machine with this name is already running.
    NameInUse = 50,
    /// No machine with this name is running.
    NoSuchMachine = 51,
    /// The machine did not answer on its control socket.
    ControlFailed = 52,
    /// No machine, container or process has this name, or it is not pinned.
    NoSuchTarget = 53,
    /// Other users can write to the run root (TARE_RUN_ROOT).
    RunRootUnsafe = 54,
    /// The machine's run directory was not created by Tare.
    RunDirForeign = 55,
    /// This user may not open /dev/kvm.
    KvmPermission = 60,
    /// KVM lacks a feature that Tare needs, or a KVM call failed.
    KvmUnsupported = 61,
    /// Neither KVM nor QEMU is available.
    NoEngine = 62,
    /// This user may not observe the machine.
    ObservePermission = 63,
    /// No process has this ID, or no container has this name.
    NoSuchProcess = 64,
    /// BPF is not available in this kernel or to this user.
    NoObserver = 65,
    /// The kernel refused a CPU placement, or another process holds one.
    PinRefused = 67,
    /// The journal of CPU placements cannot be written; no change made.
    PinJournal = 68,
    /// The guest panicked.
    GuestPanic = 70,
    /// The guest raised a processor exception that it does not handle.
    GuestFault = 71,
    /// The guest requested a reset.
    GuestReset = 72,
    /// The guest's vCPU shut down (triple fault).
    TripleFault = 73,
    /// KVM returned an internal error and cannot continue the guest.
    KvmInternal = 74,
    /// Internal error in Tare; the message names the failed step.
    Internal = 75,
    /// A file could not be written: disk full or permission denied.
    Output = 76,
    /// A sample or a check failed, or no goal or comparison could be decided.
    WeighFailed = 77,
    /// The kernel was built, but its application does not work on it.
    NotProven = 78,
    /// A rebuilt kernel differs from the one in the lock file.
    LockDiffers = 79,
    /// A goal was missed, or a figure became worse than allowed.
    GoalMissed = 80,
    /// The command exists but cannot be executed.
    CannotRun = 126,
    /// The command does not exist.
    CommandNotFound = 127,
    /// Ended by Ctrl-C (SIGINT).
    Interrupted = 130,
    /// Ended by SIGTERM.
    Terminated = 143,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunExit {
    /// With a code of the table.
    Code(ExitCode),
    /// With the status of a Linux guest's command, which becomes the exit code
    /// as it is.
    Status(u8),
}

impl RunExit {
    /// The process's exit code.
    pub fn number(self) -> u8 {
        match self {
            Self::Code(code) => code as u8,
            Self::Status(status) => status,
        }
    }
}

impl From<ExitCode> for RunExit {
    fn from(code: ExitCode) -> Self {
        Self::Code(code)
    }
}

impl From<RunExit> for std::process::ExitCode {
    fn from(ended: RunExit) -> Self {
        ended.number().into()
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_code_is_its_own() {
        let codes: HashSet<u8> = ExitCode::ALL.iter().map(|(code, _)| *code as u8).collect();
        assert_eq!(codes.len(), ExitCode::ALL.len());
    }
}

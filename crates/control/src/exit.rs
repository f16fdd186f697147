//! Exit codes of `tare` and `tare-monitor`. Scripts rely on them: a code is
//! never reused for another meaning. The table is printed by `tare help exit-codes`
//! and stands in `docs/exit-codes.md`; a test holds the two together.

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
    /// The image is not a 64-bit x86 ELF file, or the kernel no Linux kernel.
    ImageNotElf = 11,
    /// The image ends before its headers say it does.
    ImageTruncated = 12,
    /// The image has no PVH note.
    ImageNoPvh = 13,
    /// The image, or the initramfs, does not fit into guest memory.
    ImageTooLarge = 14,
    /// Segments of the image overlap, or lie outside guest memory.
    ImageLayout = 15,
    /// The number of CPUs is zero or more than this host's KVM allows.
    Cpus = 20,
    /// Guest memory is too small, or the host cannot give it.
    Memory = 21,
    /// The command line for the guest is too long or not printable.
    Cmdline = 22,
    /// CPUs to pin to do not exist, are offline or not allowed.
    CpuSet = 23,
    /// A forwarded port is in use or not allowed.
    PortInUse = 30,
    /// The tap interface is missing, busy or not allowed.
    Tap = 31,
    /// passt is missing or failed to start.
    Passt = 32,
    /// A front-end's socket is in use or cannot be made.
    Socket = 33,
    /// The disk is missing, or this user may not open it.
    DiskUnreadable = 34,
    /// The disk is empty, of odd size, or not a raw image.
    DiskUnusable = 35,
    /// The disk is in use by another program.
    DiskInUse = 36,
    /// The root directory is missing, unreadable or no directory.
    RootMissing = 40,
    /// The root directory is too large for guest memory.
    RootTooLarge = 41,
    /// The root's container image is damaged or climbs out of its root.
    RootImage = 42,
    /// A profile cannot be read: missing, of another version, or edited by hand.
    ProfileUnusable = 43,
    /// Kernel sources, a patch or a lock: missing, damaged, or of others.
    KernelSources = 44,
    /// The kernel's configuration does not grant an option.
    KernelConfig = 45,
    /// The kernel did not compile.
    KernelBuild = 46,
    /// A machine of that name is running.
    NameInUse = 50,
    /// No machine of that name is running.
    NoSuchMachine = 51,
    /// The machine did not answer on its control socket.
    ControlFailed = 52,
    /// Other users could change the root of run directories.
    RunRootUnsafe = 54,
    /// The run directory of that name was not made by Tare.
    RunDirForeign = 55,
    /// No machine, container or process is called so, or it has no pins.
    NoSuchTarget = 53,
    /// /dev/kvm may not be opened by this user.
    KvmPermission = 60,
    /// KVM lacks something that Tare needs, or refused a call.
    KvmUnsupported = 61,
    /// There is neither KVM nor QEMU.
    NoEngine = 62,
    /// This user may not observe the machine.
    ObservePermission = 63,
    /// The kernel refused a placement; what was changed is put back.
    PinRefused = 67,
    /// The journal of placements cannot be kept; nothing was changed.
    PinJournal = 68,
    /// No process of that number, no container of that name.
    NoSuchProcess = 64,
    /// This kernel, or this user, has no BPF to observe with.
    NoObserver = 65,
    /// The guest panicked.
    GuestPanic = 70,
    /// The guest met a processor exception that it does not handle.
    GuestFault = 71,
    /// The guest asked for a reset.
    GuestReset = 72,
    /// The guest's processor shut down (triple fault).
    TripleFault = 73,
    /// KVM returned an internal error: it could not go on with the guest.
    KvmInternal = 74,
    /// Tare itself failed; the message says where.
    Internal = 75,
    /// A file could not be written: disk full or not permitted.
    Output = 76,
    /// An experiment ran, and a sample or a check failed.
    WeighFailed = 77,
    /// A kernel was made, and its application does not work on it.
    NotProven = 78,
    /// A kernel that was made again is not the same.
    LockDiffers = 79,
    /// The command cannot be run.
    CannotRun = 126,
    /// There is no such command.
    CommandNotFound = 127,
    /// Ended by Ctrl-C (SIGINT).
    Interrupted = 130,
    /// Ended by SIGTERM.
    Terminated = 143,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a code of the table.
    Code(ExitCode),
    /// With the status of a Linux guest's command, which becomes the exit code
    /// as it is.
    Status(u8),
}

impl From<ExitCode> for Ended {
    fn from(code: ExitCode) -> Self {
        Self::Code(code)
    }
}

impl From<Ended> for std::process::ExitCode {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Code(code) => code.into(),
            Ended::Status(status) => status.into(),
        }
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

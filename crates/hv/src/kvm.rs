//! The `/dev/kvm` handle, and why it is unavailable.

use std::path::Path;

use kvm_ioctls::Cap;
use thiserror::Error;

const DEVICE: &std::ffi::CStr = c"/dev/kvm";
const API_VERSION: i32 = 12;

/// Why KVM cannot be used here; each message carries its remedy.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no `/dev/kvm`.
    #[error(
        "/dev/kvm does not exist: load the module (`modprobe kvm_intel` or `modprobe kvm_amd`) \
         and enable virtualisation in the firmware, or nested virtualisation for this machine"
    )]
    Missing,
    /// `/dev/kvm` exists, and this user may not open it.
    #[error(
        "no permission to open /dev/kvm: add yourself to group kvm \
         (`sudo usermod -aG kvm $USER`) and log in again"
    )]
    NoPermission,
    /// `/dev/kvm` could not be opened for another reason, such as a node
    /// without a driver behind it.
    #[error("cannot open /dev/kvm: is the kvm module loaded (`lsmod | grep kvm`)?")]
    Open(#[source] std::io::Error),
    /// The API version is not the one that all kernels since 2.6.22 have.
    #[error("KVM has API version {found}, {API_VERSION} is needed: use a mainline kernel's KVM")]
    WrongVersion {
        /// What the kernel says.
        found: i32,
    },
    /// KVM lacks something that a Tare machine requires.
    #[error("KVM lacks {capability}, which Tare needs: use Linux {since} or newer on the host")]
    MissingCapability {
        /// The capability's name in `linux/kvm.h`.
        capability: &'static str,
        /// First Linux version that has it.
        since: &'static str,
    },
}

/// What a Tare machine requires: capability, name, first Linux version.
const REQUIRED: [(Cap, &str, &str); 10] = [
    (Cap::UserMemory, "KVM_CAP_USER_MEMORY", "2.6.25"),
    (Cap::ExtCpuid, "KVM_CAP_EXT_CPUID", "2.6.26"),
    (Cap::Irqchip, "KVM_CAP_IRQCHIP", "2.6.25"),
    (Cap::MpState, "KVM_CAP_MP_STATE", "2.6.26"),
    (Cap::IrqRouting, "KVM_CAP_IRQ_ROUTING", "2.6.30"),
    (Cap::Irqfd, "KVM_CAP_IRQFD", "2.6.32"),
    (Cap::Ioeventfd, "KVM_CAP_IOEVENTFD", "2.6.32"),
    (Cap::TscDeadlineTimer, "KVM_CAP_TSC_DEADLINE_TIMER", "3.2"),
    (Cap::IoeventfdNoLength, "KVM_CAP_IOEVENTFD_NO_LENGTH", "4.4"),
    (Cap::ImmediateExit, "KVM_CAP_IMMEDIATE_EXIT", "4.12"),
];

/// An open `/dev/kvm` that has what Tare needs.
#[derive(Debug)]
pub struct Kvm {
    fd: kvm_ioctls::Kvm,
}

impl Kvm {
    /// Opens `/dev/kvm` and checks version and required capabilities.
    pub fn open() -> Result<Self, OpenError> {
        Self::open_at(DEVICE)
    }

    fn open_at(device: &std::ffi::CStr) -> Result<Self, OpenError> {
        let fd =
            kvm_ioctls::Kvm::new_with_path(device).map_err(|errno| open_error(device, errno))?;
        check_version(fd.get_api_version())?;
        check_capabilities(|capability| fd.check_extension(capability))?;
        Ok(Self { fd })
    }

    /// Most vCPUs that KVM gives one machine.
    pub fn max_vcpus(&self) -> usize {
        self.fd.get_max_vcpus()
    }

    pub(crate) fn fd(&self) -> &kvm_ioctls::Kvm {
        &self.fd
    }
}

fn open_error(device: &std::ffi::CStr, errno: kvm_ioctls::Error) -> OpenError {
    let missing = || {
        device
            .to_str()
            .is_ok_and(|path| Path::new(path).symlink_metadata().is_err())
    };
    match errno.errno() {
        libc::EACCES | libc::EPERM => OpenError::NoPermission,
        libc::ENOENT if missing() => OpenError::Missing,
        code => OpenError::Open(std::io::Error::from_raw_os_error(code)),
    }
}

fn check_version(found: i32) -> Result<(), OpenError> {
    if found == API_VERSION {
        Ok(())
    } else {
        Err(OpenError::WrongVersion { found })
    }
}

fn check_capabilities(has: impl Fn(Cap) -> bool) -> Result<(), OpenError> {
    REQUIRED
        .into_iter()
        .try_for_each(|(cap, capability, since)| {
            if has(cap) {
                Ok(())
            } else {
                Err(OpenError::MissingCapability { capability, since })
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_says_which_module_to_load() {
        let error = Kvm::open_at(c"/nonexistent/kvm").expect_err("no such device");
        assert!(matches!(error, OpenError::Missing));
        assert!(error.to_string().contains("modprobe"));
    }

    #[test]
    fn no_permission_names_the_group() {
        let error = open_error(DEVICE, kvm_ioctls::Error::new(libc::EACCES));
        assert!(matches!(error, OpenError::NoPermission));
        assert!(error.to_string().contains("group kvm"));
    }

    #[test]
    fn a_file_that_is_not_kvm_is_refused() {
        let error = Kvm::open_at(c"/dev/null").expect_err("not KVM");
        assert!(matches!(error, OpenError::WrongVersion { found: -1 }));
    }

    #[test]
    fn a_missing_capability_is_named() {
        let error = check_capabilities(|cap| !matches!(cap, Cap::Irqfd)).expect_err("no irqfd");
        assert!(error.to_string().contains("KVM_CAP_IRQFD"), "{error}");
        assert!(check_capabilities(|_| true).is_ok());
    }
}

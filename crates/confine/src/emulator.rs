//! QEMU, which opens what it needs by name when it starts and does not confine itself to files.
//!
//! The rules hold from its first instruction on, also where the kernel grants no namespaces: then they
//! are what keeps the files of its user from it.
//! Limits: nothing without Landlock (kernels before 5.13).

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::thread::set_no_new_privs;

use super::{ConfineError, Files, Network};

/// Has the calling thread, and the emulator that it becomes, read and execute what is installed and
/// `brought`, use `devices`, and open again what it has open; whether the kernel has Landlock.
pub fn enter_emulator(
    brought: Option<&Path>,
    devices: &[&Path],
    opened: &[BorrowedFd<'_>],
    network: Network,
) -> Result<bool, ConfineError> {
    let files = Files::emulate(brought, devices, opened, network)?;
    set_no_new_privs(true).map_err(|errno| ConfineError::NoNewPrivs(errno.into()))?;
    files.restrict()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd as _, AsRawFd as _};

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::apart::apart;

    #[test]
    fn an_emulator_opens_what_is_installed_and_what_it_has_open() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for name in ["secret", "kernel", "log"] {
            fs::write(path(name), name).unwrap();
        }
        if !Files::none().unwrap().are_enforced() {
            return tare_vmtest::lacks("this kernel has no Landlock");
        }
        let kernel = File::open(path("kernel")).unwrap();
        let log = File::options().write(true).open(path("log")).unwrap();
        let memory = File::from(memfd_create("image", MemfdFlags::CLOEXEC).unwrap());
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let opened = [kernel.as_fd(), log.as_fd(), memory.as_fd()];
        let null = [Path::new("/dev/null")];
        let (own, address) = (
            |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd()),
            listener.local_addr().unwrap(),
        );
        apart(|| {
            assert!(enter_emulator(None, &null, &opened, Network::None)?);
            assert!(File::open(own(&kernel)).is_ok() && File::open(own(&memory)).is_ok());
            assert!(File::options().write(true).open(own(&log)).is_ok());
            assert!(File::open("/dev/null").is_ok() && fs::read_dir("/usr").is_ok());
            let writes = File::options().write(true).open(own(&kernel));
            assert!(writes.is_err(), "it is open for reading");
            for name in ["secret", "new"] {
                assert!(File::open(path(name)).is_err() && File::create(path(name)).is_err());
            }
            assert!(File::open("/etc/passwd").is_err() && File::open("/dev/zero").is_err());
            assert!(TcpStream::connect(address).is_err());
            assert!(TcpListener::bind(("127.0.0.1", 0)).is_err());
            Ok(())
        })
        .unwrap();
        apart(|| {
            enter_emulator(None, &[], &[], Network::Listens)?;
            assert!(TcpListener::bind(("127.0.0.1", 0)).is_ok());
            assert!(TcpStream::connect(address).is_err());
            Ok(())
        })
        .unwrap();
    }
}

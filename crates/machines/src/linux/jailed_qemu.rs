//! QEMU in the jail of `tare run`'s machines, for which `tare` starts itself.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;

use tare_host::program::find_program;
use tare_launch::jailed_guest::{JailedGuest, RunningGuest};
use tare_qemu::PROGRAM;

use super::LinuxError;

/// A guest that is to be started, with what QEMU reads until it runs.
pub(crate) struct Prepared {
    pub(crate) guest: JailedGuest,
    _kernel: File,
    _initramfs: File,
}

impl Prepared {
    /// A guest with its console on QEMU's standard output.
    pub(crate) fn boot(
        guest: io::Result<JailedGuest>,
        kernel: &Path,
        initramfs: File,
    ) -> Result<Self, LinuxError> {
        let mut guest = guest.map_err(LinuxError::Jail)?;
        let image = File::open(kernel).map_err(LinuxError::file(kernel))?;
        let mut readable = |file: &File| guest.readable(file).map_err(LinuxError::Jail);
        let (kernel, initrd) = (readable(&image)?, readable(&initramfs)?);
        guest.line().serial("stdio").kernel(&kernel).initrd(&initrd);
        Ok(Self {
            guest,
            _kernel: image,
            _initramfs: initramfs,
        })
    }

    /// Starts it, confined by `tare`; `set` gives it its standard streams.
    pub(crate) fn start(
        self,
        tare: &Path,
        set: impl FnOnce(&mut Command),
    ) -> Result<RunningGuest, LinuxError> {
        let program = find_program(PROGRAM).map_err(LinuxError::NoQemu)?;
        let started = self.guest.start(tare, &program, set);
        started.map_err(LinuxError::Jail)
    }
}

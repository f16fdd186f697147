//! `run.json` in the run directory: what `tare ps` and `tare stop` need to know
//! of a machine, whichever engine executes it.

use std::fs;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tare_control::rundir::RunDir;

/// A machine, as it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What executes the guest.
    pub(crate) engine: EngineName,
    /// The process whose end is the machine's.
    pub(crate) pid: u32,
    /// Path of the image.
    pub(crate) image: String,
    /// vCPUs.
    pub(crate) cpus: u8,
    /// Guest memory.
    pub(crate) memory_mib: u32,
    /// Port forwards, `ADDR:HOST:GUEST/PROTOCOL`.
    pub(crate) ports: Vec<String>,
    /// When it was started, seconds since 1970.
    pub(crate) started_s: u64,
}

/// What executes the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineName {
    /// `tare-monitor`.
    Tare,
    /// QEMU's translator.
    Qemu,
    /// QEMU with KVM.
    QemuKvm,
    /// No guest: `tare blk` serves a disk to somebody else's.
    Blk,
}

impl EngineName {
    /// Whether it answers on Tare's control socket.
    pub(crate) fn answers(self) -> bool {
        matches!(self, Self::Tare | Self::Blk)
    }

    /// The name as `--engine` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tare => "tare",
            Self::Qemu => "qemu",
            Self::QemuKvm => "qemu-kvm",
            Self::Blk => "blk",
        }
    }
}

impl Record {
    /// Writes the record of the machine in `dir`, whole or not at all.
    pub(crate) fn write(&self, dir: &RunDir) -> io::Result<()> {
        let path = dir.run_json();
        let fresh = path.with_extension("new");
        fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&fresh, &path)
    }

    /// Reads the record of the machine in `dir`.
    pub(crate) fn read(dir: &RunDir) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(dir.run_json())?)?)
    }
}

/// Now, in seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

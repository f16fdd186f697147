//! The root of a Linux guest: a directory and our first process.

use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;
use tare_host::signal_number::SignalNumber;
use tare_rootfs::Tree;
use tare_rootfs::guest::{self, GuestError};
use tare_rootfs::modules::{Module, ModuleError, Modules};
use tare_rootfs::oci::Words;
use tare_rootfs::root::{self, RootFiles};

use super::kernel::OpenKernel;
use super::root_disk::{self, RootDisk};
use crate::failure::{Explain, Failure};
use crate::request::Request;
use crate::{environment, volume};

/// Files of a Linux guest.
#[derive(Debug)]
pub(crate) struct LinuxRoot {
    /// Those of the initramfs, the first process included.
    pub(crate) tree: Tree,
    /// All others, if they go on a disk.
    pub(crate) disk: Option<RootDisk>,
    /// The signal that asks the command to end, if an image names one.
    pub(crate) stop_signal: Option<SignalNumber>,
    /// What was skipped, one sentence each.
    pub(crate) warnings: Vec<String>,
}

/// Where a guest keeps its files.
#[derive(Clone, Copy, Debug)]
pub(super) enum Store {
    /// In the initramfs.
    Memory {
        /// Most bytes.
        room_bytes: u64,
    },
    /// On a disk.
    Disk {
        /// Its size.
        bytes: u64,
    },
}

/// A root without a command.
#[derive(Debug, thiserror::Error)]
#[error("{} names no command; write one after --, as in: -- /bin/sh", .0.display())]
struct NoCommand(PathBuf);

impl Explain for NoCommand {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

impl Explain for GuestError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Read { .. } | Self::Name(_) => ExitCode::RootMissing,
            Self::NoInit | Self::Task(_) => ExitCode::Internal,
        }
    }
}

impl Explain for ModuleError {
    fn code(&self) -> ExitCode {
        ExitCode::ImageUnreadable
    }
}

/// Lists the files of a guest that runs the requested command.
pub(super) fn gather(
    from: &Path,
    request: &Request,
    kernel: &OpenKernel,
    store: Store,
) -> Result<LinuxRoot, Failure> {
    let limit_bytes = match store {
        Store::Memory { room_bytes } => room_bytes,
        // Making the disk determines how much fits; this bounds what is read.
        Store::Disk { bytes } => 2 * bytes,
    };
    let RootFiles {
        tree,
        mut task,
        stop_signal,
        warnings,
    } = parts(from, request.words(), limit_bytes)?;
    environment::set_all(&mut task.environment, &request.env)?;
    if let Some(directory) = &request.workdir {
        task.working_directory.clone_from(directory);
    }
    volume::add(&mut task, &tree, &request.volumes)?;
    let (mut tree, disk) = match store {
        Store::Memory { .. } => (tree, None),
        Store::Disk { bytes } => {
            task.capabilities = guest::capabilities(&tree);
            (Tree::new(), Some(RootDisk { tree, bytes }))
        }
    };
    let mut wanted = guest::MACHINE_MODULES.to_vec();
    if disk.is_some() {
        task.root = root_disk::root();
        wanted.push(root_disk::FILE_SYSTEM);
    }
    if !request.volumes.is_empty() {
        wanted.push(volume::FILE_SYSTEM);
    }
    let modules = modules(kernel, &wanted)?;
    guest::add_init(&mut tree, task, &modules, &guest::find_init()?)?;
    Ok(LinuxRoot {
        tree,
        disk,
        stop_signal,
        warnings,
    })
}

/// Reads a directory or a container image, and determines the command.
pub fn parts(from: &Path, words: Words<'_>, limit_bytes: u64) -> Result<RootFiles, Failure> {
    let parts = files(from, words, limit_bytes)?;
    if parts.task.command.is_empty() {
        return Err(NoCommand(from.to_owned()).into());
    }
    Ok(parts)
}

/// As [`parts`], without requiring a command.
pub(crate) fn files(from: &Path, words: Words<'_>, limit_bytes: u64) -> Result<RootFiles, Failure> {
    Ok(root::read(from, words, limit_bytes)?)
}

/// The modules that the machine's devices need, if the kernel has modules.
fn modules(kernel: &OpenKernel, wanted: &[&str]) -> Result<Vec<Module>, ModuleError> {
    match &kernel.modules {
        None => Ok(Vec::new()),
        Some(dir) => Modules::open(dir)?.closure(wanted),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tare_rootfs::oci::testing::{Entry, docker_archive, gzip, layer, oci_archive, zstd};

    use super::*;

    const CONFIG: &str = r#"{"architecture":"amd64","os":"linux","config":{"Cmd":["/bin/a"]}}"#;

    /// Each form of image reaches the reader's filter in a different way; a forbidden call ends
    /// this process.
    #[test]
    fn images_of_every_form_are_read_by_a_confined_thread() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        // Many small pieces, so that memory goes back to the kernel meanwhile.
        let names: Vec<String> = (0..3000).map(|n| format!("bin/{n}")).collect();
        let mut entries = vec![Entry::File("bin/a", 0o755, &[7; 3 << 20])];
        entries.extend(names.iter().map(|name| Entry::File(name, 0o644, &[1; 999])));
        let plain = layer(&entries);
        let archives = [
            ("plain", oci_archive(CONFIG, std::slice::from_ref(&plain))),
            ("zipped", oci_archive(CONFIG, &[gzip(&plain)])),
            ("zstd", oci_archive(CONFIG, &[zstd(&plain)])),
            (
                "whole",
                gzip(&oci_archive(CONFIG, std::slice::from_ref(&plain))),
            ),
            ("docker", docker_archive(CONFIG, &[plain])),
        ];
        for (name, bytes) in archives {
            fs::write(path(name), bytes).unwrap();
            let RootFiles { tree, task, .. } =
                parts(&path(name), Words::default(), 64 << 20).unwrap();
            assert!(tree.get("bin/2999").is_some(), "{name}");
            assert_eq!(task.command, ["/bin/a"], "{name}");
        }
        fs::create_dir(path("layout")).unwrap();
        let bytes = fs::read(path("plain")).unwrap();
        tar::Archive::new(&bytes[..])
            .unpack(path("layout"))
            .unwrap();
        let tree = parts(&path("layout"), Words::default(), 64 << 20)
            .unwrap()
            .tree;
        assert!(tree.get("bin/a").is_some());
        fs::write(path("damaged"), &bytes[..bytes.len() / 2]).unwrap();
        assert!(parts(&path("damaged"), Words::default(), 64 << 20).is_err());
        // The process that reads them is not confined.
        fs::write(path("after"), "x").unwrap();
    }
}

//! A machine as a user requests it.

use std::path::PathBuf;

use tare_abi::cmdline::Idle;
use tare_control::halt::HaltPolicy;
use tare_host::signal_number::SignalNumber;
use tare_rootfs::oci::Words;

use crate::attempt::{Attempt, Output};
use crate::disk_choice::DiskChoice;
use crate::engine::EngineChoice;
use crate::limits::Limits;
use crate::memory_choice::MemoryChoice;
use crate::memory_size::MemorySize;
use crate::net_choice::NetChoice;
use crate::publish::Publish;
use crate::user::UserChoice;
use crate::volume::Volume;

/// A machine to be planned. [`plan`](crate::plan()) reports options that exclude each other.
#[derive(Clone, Debug)]
pub struct Request {
    /// The image or program: a path, or the name of an image that came with Tare.
    pub image: Option<PathBuf>,
    /// A Linux kernel instead of an image, or `debian` for Debian's.
    pub kernel: Option<PathBuf>,
    /// Arguments of a program, or the command of a Linux guest.
    pub command: Vec<String>,
    /// What comes first in that command, instead of an image's entry point; an empty one is none.
    pub entrypoint: Option<String>,
    /// The working directory of a program or command.
    pub workdir: Option<String>,
    /// Environment of a program or command, `NAME=VALUE`.
    pub env: Vec<String>,
    /// What asks a program to end; by default what its image says, or SIGTERM.
    pub stop_signal: Option<SignalNumber>,
    /// The machine's name; by default that of its image and a number.
    pub name: Option<String>,
    /// vCPUs.
    pub cpus: u32,
    /// Guest memory; the default depends on the image.
    pub memory: Option<MemoryChoice>,
    /// The guest's files: a directory or a container image.
    pub root: Option<PathBuf>,
    /// Puts the files of `root` on a disk of this size.
    pub root_disk: Option<MemorySize>,
    /// An initramfs, passed on unchanged.
    pub initrd: Option<PathBuf>,
    /// The site's file, if there is one.
    pub site: Option<PathBuf>,
    /// Whether it can get another root at run time.
    pub reload: bool,
    /// Text added to the guest's command line.
    pub cmdline: String,
    /// Ports forwarded to the guest.
    pub publish: Vec<Publish>,
    /// Its network.
    pub net: NetChoice,
    /// Directories of the host that a Linux guest shares.
    pub volumes: Vec<Volume>,
    /// Its disks.
    pub disks: Vec<DiskChoice>,
    /// How the library OS waits.
    pub idle: Option<Idle>,
    /// Processor ring of the image, 0 or 3; by default the machine decides.
    pub ring: Option<u8>,
    /// How a halted vCPU waits on the host.
    pub halt: Option<HaltPolicy>,
    /// The user that the machine becomes.
    pub user: UserChoice,
    /// What it may use at most.
    pub limits: Limits,
    /// Where the machine runs; a keeper's attempt runs where the keeper says.
    pub place: JobMode,
    /// The keeper's attempt, if it is one; its name is that of the run directory.
    pub attempt: Option<Attempt>,
    /// What executes the guest.
    pub engine: EngineChoice,
}

impl Request {
    /// What the user says of the command of [`Self::root`].
    pub(crate) fn words(&self) -> Words<'_> {
        Words {
            entrypoint: self.entrypoint.as_deref(),
            arguments: &self.command,
        }
    }

    /// Whether the user says something of a command, or how it runs.
    pub(crate) fn names_command(&self) -> bool {
        let is_described = self.entrypoint.is_some() || self.workdir.is_some();
        is_described || !(self.command.is_empty() && self.env.is_empty())
    }
}

/// Where a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobMode {
    /// The terminal.
    Foreground,
    /// A separate session.
    Background,
    /// Where its keeper is, which waits for it.
    Attempt(Output),
}

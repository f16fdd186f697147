//! Linux guests that carry an example application, in QEMU's translator, where
//! every instruction can be counted.
//!
//! ```text
//! catalog    lab/appliances/*: packages, files, command, check, load
//! files      an application's files: from Debian's packages, compiled, a database
//! kernels    the kernels it runs on: Debian's, tailored ones from the cache
//! tailored   a tailored one, with what an instrumented kernel counts for the cut pgo
//! firecracker  the one of Firecracker's configuration
//! machine    one guest: QEMU, a forwarded port, memory
//! jailed_qemu  QEMU in its jail
//! dialog     requests and answers on a connection
//! client     who asks an application: rounds of requests with known answers
//! protocol   what opens a connection, how a request is sent
//! postgres   the messages of PostgreSQL's protocol
//! requests   requests whose instructions are counted
//! own_program  the files of a guest with a program that is beside tare
//! fuzz       requests that are drawn, the same for every kernel
//! by_hand    all of that from a terminal: tare-appliance
//! ```
//!
//! Neighbours: `rootfs` (packages, initramfs), `tailor` (kernels) below.
//! Limits: one vCPU; figures are the translator's, not a processor's.

pub(crate) mod by_hand;
pub mod catalog;
pub(crate) mod client;
pub mod dialog;
pub mod files;
pub mod firecracker;
pub mod fuzz;
pub(crate) mod jailed_qemu;
pub mod kernels;
pub mod machine;
pub mod own_app;
pub mod own_program;
mod postgres;
mod protocol;
pub mod requests;
pub mod tailored;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tare_control::exit::ExitCode;
use tare_host::program::ProgramError;

use tare_load::interrupt::Interrupted;

/// What went wrong with a Linux guest.
#[derive(Debug, thiserror::Error)]
pub enum LinuxError {
    /// No such application.
    #[error("there is no appliance '{name}'; there are: {}", .known.join(", "))]
    UnknownApp {
        /// Requested.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// No such load.
    #[error("{app} has no phase '{phase}'; there are peak and browsing")]
    UnknownPhase {
        /// The application.
        app: String,
        /// Requested.
        phase: String,
    },
    /// An application's data file is malformed.
    #[error("lab/appliances/{name}/appliance.toml is malformed")]
    Catalog {
        /// The application.
        name: String,
        /// What is wrong.
        source: Box<toml::de::Error>,
    },
    /// A data file of the user's application.
    #[error("{}: {why}", file.display())]
    OwnApp {
        /// The data file.
        file: PathBuf,
        /// What is wrong, and the way out.
        why: String,
    },
    /// The packages lack something that the application needs.
    #[error("the packages of {app} hold no {path}: add the package that does")]
    Missing {
        /// The application.
        app: String,
        /// The file.
        path: String,
    },
    /// No compiler.
    #[error("cannot run {program}, which compiles {app}: install it ({origin})")]
    NoCompiler {
        /// The application.
        app: String,
        /// The compiler.
        program: &'static str,
        /// Where it comes from.
        origin: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A program that makes an application's files.
    #[error("{program} failed while the files of {app} were made: {said}")]
    Made {
        /// The application.
        app: String,
        /// The program.
        program: String,
        /// Its last line.
        said: String,
    },
    /// A database's files.
    #[error(transparent)]
    Walk(#[from] tare_rootfs::walk::WalkError),
    /// A package.
    #[error(transparent)]
    Package(#[from] tare_rootfs::package::PackageError),
    /// Debian's kernel.
    #[error(transparent)]
    Kernel(#[from] tare_rootfs::kernel::debian::ObtainError),
    /// Its modules.
    #[error(transparent)]
    Modules(#[from] tare_rootfs::modules::ModuleError),
    /// The cache.
    #[error(transparent)]
    Cache(#[from] tare_rootfs::cache::CacheError),
    /// The guest's files.
    #[error(transparent)]
    Name(#[from] tare_rootfs::tree::NameError),
    /// The guest's files as a directory.
    #[error(transparent)]
    Write(#[from] tare_rootfs::directory::WriteError),
    /// Execution counts.
    #[error(transparent)]
    Counts(#[from] tare_tailor::counts::CountsError),
    /// The initramfs.
    #[error(transparent)]
    Pack(#[from] tare_rootfs::cpio::PackError),
    /// The start of a kernel alone.
    #[error(transparent)]
    Prove(#[from] tare_tailor::prove::ProveError),
    /// The sources' table of system calls.
    #[error(transparent)]
    Calls(#[from] tare_tailor::calls::TableError),
    /// The first process.
    #[error(transparent)]
    Guest(#[from] tare_rootfs::guest::GuestError),
    /// A tailored kernel.
    #[error("the kernel {kernel} was not made")]
    Make {
        /// Which.
        kernel: String,
        /// Why.
        source: Box<tare_tailor::kernel::MakeError>,
    },
    /// No tailored kernel was made yet.
    #[error("no kernel was made for {app} yet: tare weigh tailor --app {app} makes it")]
    NotKept {
        /// The application.
        app: String,
    },
    /// The image of the library OS is not known.
    #[error("no machine reported the path of the image")]
    NoImage,
    /// A profile.
    #[error("the profile of {app} cannot be read")]
    Profile {
        /// The application.
        app: String,
        /// Why.
        source: tare_profile::ProfileError,
    },
    /// QEMU cannot be started.
    #[error("cannot run qemu-system-x86_64: install it (Debian: qemu-system-x86)")]
    NoQemu(#[source] ProgramError),
    /// QEMU, or its jail.
    #[error("cannot start qemu-system-x86_64 in its jail")]
    Jail(#[source] io::Error),
    /// Instructions cannot be counted.
    #[error(transparent)]
    Counter(#[from] tare_tailor::counter::CounterError),
    /// A program that is built beside `tare`.
    #[error("{0} is not beside tare; build it with: make build")]
    NoProgram(&'static str),
    /// A program of this computer with its libraries.
    #[error(transparent)]
    Host(#[from] tare_rootfs::host::HostError),
    /// A file or program of this computer.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The machine ended.
    #[error("the guest on {kernel} ended: {said}")]
    Ended {
        /// The kernel.
        kernel: String,
        /// The last lines of its console.
        said: String,
    },
    /// The application's check does not pass.
    #[error("the check did not pass on {kernel} within {limit:?}: {said}")]
    Check {
        /// The kernel.
        kernel: String,
        /// How long it was tried.
        limit: Duration,
        /// The last answer and the console's last lines.
        said: String,
    },
    /// An answer did not come.
    #[error("no answer to {request:?} on {kernel}")]
    NoAnswer {
        /// The kernel.
        kernel: String,
        /// The request.
        request: String,
    },
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl LinuxError {
    /// The exit code that fits.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::UnknownApp { .. } | Self::UnknownPhase { .. } | Self::OwnApp { .. } => {
                ExitCode::Usage
            }
            Self::NoQemu(_) => ExitCode::NoEngine,
            Self::Interrupted(interrupted) => interrupted.exit_code(),
            _ => ExitCode::WeighFailed,
        }
    }

    /// The error for a file or program.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

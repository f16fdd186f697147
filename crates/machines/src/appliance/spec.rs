//! What serves, and where: descriptions of machines, without what starts them.

use std::path::{Path, PathBuf};

use crate::linux::catalog::App;

/// What to start.
#[derive(Clone, Debug)]
pub struct Spec {
    /// For people: part of the machine's name.
    pub label: String,
    /// Image name or path.
    pub image: String,
    /// Directory that it serves, if it serves files.
    pub root: Option<PathBuf>,
    /// Port on which it serves.
    pub port: u16,
    /// Words for the guest.
    pub cmdline: String,
    /// What executes it, as `tare run --engine` takes it.
    pub engine: &'static str,
    /// Processor ring of the image, as `tare run --ring` takes it.
    pub ring: &'static str,
    /// How the library OS waits, as `tare run --idle` takes it.
    pub idle: &'static str,
    /// vCPUs.
    pub cpus: u8,
    /// Guest memory.
    pub memory_mib: u32,
}

/// How an application is packaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packaging {
    /// A process of the host.
    Process,
    /// A container of the host.
    Container(Runtime),
    /// The library OS, on an engine as `tare run --engine` takes it.
    Tare(&'static str),
    /// A Linux guest with Debian's kernel, on an engine.
    Linux(&'static str),
    /// A Linux guest with the application's own kernel ([`App::kernel`]), on an engine.
    Tailored(&'static str),
}

/// What starts containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// Containers on the host's kernel.
    Runc,
    /// gVisor: containers on a kernel in user space.
    Runsc,
}

/// What serves.
#[derive(Clone, Copy, Debug)]
pub enum ServerKind<'a> {
    /// An image in a machine of Tare, or of QEMU as its engine says.
    Image(&'a Spec),
    /// An image with its files in another program's virtual machine monitor.
    Elsewhere(Monitor, &'a Spec),
    /// A web server of the host (lighttpd) that serves a directory.
    WebServer(&'a Path),
    /// memcached in its own container, with MiB for items.
    Memcached(u32),
    /// An application in a packaging, on its own port. It does not report when it serves.
    App(&'a App, Packaging),
}

/// Another program's monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitor {
    /// Amazon's, for microVMs.
    Firecracker,
    /// The Linux Foundation's.
    CloudHypervisor,
}

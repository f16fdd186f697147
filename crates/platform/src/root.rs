//! One root file system for all platforms, kept in the cache: a tree for chroot and
//! containers, the same as a disk for machines, an initramfs that leads there.
//!
//! ```text
//! CACHE/platforms/lock
//!                 tree/            Debian, minimal, and what workloads install
//!                 tree/tare/       step, agent, workloads, what they prepared, roots of
//!                                  appliances
//!                 root.img         of the tree, read only, shared by machines
//!                 initramfs        first process and modules
//!                 stamp            what all of it was made of
//! ```
//! A workload is installed again when its file changes; the disk when the tree did.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use tare_host::owned_directory::{self, RemoveError};
use tare_rootfs::guest::{self, GuestError};
use tare_rootfs::kernel::debian::{self, ObtainError};
use tare_rootfs::modules::ModuleError;
use tare_rootfs::{Cache, Kernel, Task, Tree, cpio};

use crate::bare::{self, Access};
use crate::cgroup::Groups;
use crate::container::{self, Limits};
use crate::program::{self, ProgramError, Timeout};
use crate::step::{AGENT, PROGRAM};
use crate::workload::{Form, Workload};

/// Debian's release, as the kernel's.
const SUITE: &str = "bookworm";
/// What every platform needs besides workloads.
const PACKAGES: &str = "crun,procps,ca-certificates,mawk,util-linux,libudev1";
/// Room on the disk beyond the tree, and at least.
const SPARE_BYTES: u64 = 256 << 20;
const EXT4: &str = "ext4";

/// A root that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// Only root can make one.
    #[error("the platforms experiment creates a root file system and mounts it: run it as root")]
    NotRoot,
    /// Another weighing uses it.
    #[error("another run of the platforms experiment uses {}; wait until it ends", .0.display())]
    Busy(PathBuf),
    /// A program that makes it did not.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What an earlier try left cannot be removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// No place for it.
    #[error(transparent)]
    Cache(#[from] tare_rootfs::cache::CacheError),
    /// No kernel.
    #[error(transparent)]
    Kernel(#[from] ObtainError),
    /// No modules.
    #[error(transparent)]
    Modules(#[from] ModuleError),
    /// No first process.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The initramfs cannot be packed.
    #[error(transparent)]
    Pack(#[from] cpio::PackError),
}

/// Where the root is, which is ours alone as long as this lives.
#[derive(Debug)]
pub struct Site {
    dir: PathBuf,
    cache: Cache,
    _lock: fs::File,
}

/// The root.
#[derive(Debug)]
pub struct Root {
    site: Site,
    tree: PathBuf,
    disk: PathBuf,
    initramfs: PathBuf,
    kernel: Kernel,
}

impl Site {
    /// In the user's cache.
    pub fn claim() -> Result<Self, RootError> {
        if !rustix::process::geteuid().is_root() {
            return Err(RootError::NotRoot);
        }
        let cache = Cache::open_default()?;
        let dir = cache.dir().join("platforms");
        fs::create_dir_all(&dir).map_err(write(&dir))?;
        let path = dir.join("lock");
        let lock = fs::File::create(&path).map_err(write(&path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| RootError::Busy(dir.clone()))?;
        Ok(Self {
            dir,
            cache,
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Root {
    /// The root on its site, made there if it is missing, within `groups`.
    pub fn open(site: Site, groups: &Groups, timeout: Timeout<'_>) -> Result<Self, RootError> {
        let dir = &site.dir;
        let tree = dir.join("tree");
        if !tree.is_dir() {
            bootstrap(dir, &tree, groups, timeout)?;
        }
        let root = Self {
            disk: dir.join("root.img"),
            initramfs: dir.join("initramfs"),
            kernel: debian::find_or_obtain(&site.cache)?,
            tree,
            site,
        };
        root.write_programs()?;
        Ok(root)
    }

    /// Where it and its neighbours are.
    pub fn dir(&self) -> &Path {
        &self.site.dir
    }

    /// The tree.
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// The disk; [`Self::finish`] makes it.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// The initramfs; [`Self::finish`] makes it.
    pub fn initramfs(&self) -> &Path {
        &self.initramfs
    }

    /// The kernel of machines.
    pub fn kernel(&self) -> &Path {
        &self.kernel.image
    }

    fn write_programs(&self) -> Result<(), RootError> {
        let ours = self.tree.join("tare");
        for name in [
            "workloads",
            "data",
            "installed",
            "bundle",
            "appliances",
            "host",
        ] {
            let path = ours.join(name);
            fs::create_dir_all(&path).map_err(write(&path))?;
        }
        let scratch = self.tree.join("scratch");
        fs::create_dir_all(&scratch).map_err(write(&scratch))?;
        let limits = Limits {
            cpus: Some("@CPUS@".to_owned()),
            quota_us: None,
        };
        let inner = container::config(
            Path::new("/run/bundle/rootfs"),
            Path::new("/scratch"),
            "/step",
            &limits,
        );
        // A minimal tree has none, and then resolving `localhost` asks the network.
        let hosts = self.tree.join("etc/hosts");
        if !hosts.exists() {
            put(&hosts, "127.0.0.1 localhost\n127.0.1.1 tare\n")?;
        }
        put(&ours.join("step"), PROGRAM)?;
        put(&ours.join("agent"), AGENT)?;
        put(&ours.join("bundle/config.json"), &inner.to_string())
    }

    /// Installs and prepares a workload, unless that has been done.
    pub fn install(
        &self,
        workload: &Workload,
        form: Form,
        scratch: &Path,
        groups: &Groups,
        timeout: Timeout<'_>,
    ) -> Result<(), RootError> {
        let ours = self.tree.join("tare");
        let name = format!("{}-{}", workload.name, form.name());
        let stamp = ours.join("installed").join(&name);
        let wanted = hash([format!("{workload:?}"), INSTALL.to_owned()]);
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        let dir = ours.join("workloads").join(&workload.name);
        fs::create_dir_all(&dir).map_err(write(&dir))?;
        let scripts = [
            ("prepare", &workload.prepare),
            ("run", &workload.run),
            ("check", &workload.check),
        ];
        for (script, text) in scripts {
            put(&dir.join(script), text)?;
        }
        for (file, text) in &workload.files {
            put(&dir.join(file), text)?;
        }
        self.give_network()?;
        let data = format!("/tare/data/{name}");
        let maven = maven_settings(scratch)?;
        let mut command = bare::command(&self.tree, scratch, Access::Write, groups);
        command
            .args([
                "/bin/bash",
                "-eu",
                "-c",
                INSTALL,
                "tare",
                &workload.name,
                &data,
            ])
            .args(&workload.install)
            .envs(workload.parameters(form).into_iter().flatten())
            .env("DATA", &data)
            .env("LC_ALL", "C")
            .env("APPLIANCE", workload.appliance.as_deref().unwrap_or(""))
            .env("APPLIANCE_ROOT", appliance_root(&name))
            .envs(maven.map(|path| ("MAVEN_SETTINGS", path)));
        let what = format!("installing {}", workload.name);
        program::run(command, &what, groups, timeout)?;
        put(&stamp, &wanted)
    }

    /// The files of a workload's appliance, if it is installed and has one.
    pub fn appliance(&self, workload: &Workload, form: Form) -> Option<PathBuf> {
        workload.appliance.as_ref()?;
        let root = appliance_root(&format!("{}-{}", workload.name, form.name()));
        Some(self.tree.join(root.trim_start_matches('/'))).filter(|root| root.is_dir())
    }

    /// What installing needs of this host's way to the network: its resolver, and the
    /// authorities that its administrator trusts (a mirror's, a proxy's).
    fn give_network(&self) -> Result<(), RootError> {
        let authorities = fs::read_dir("/usr/local/share/ca-certificates")
            .into_iter()
            .flatten()
            .flatten();
        let files = authorities.map(|entry| entry.path());
        for file in files.chain([PathBuf::from("/etc/resolv.conf")]) {
            let Ok(bytes) = fs::read(&file) else { continue };
            let path = self.tree.join(file.strip_prefix("/").unwrap_or(&file));
            let dir = path.parent().unwrap_or(&self.tree);
            fs::create_dir_all(dir).map_err(write(dir))?;
            fs::write(&path, bytes).map_err(write(&path))?;
        }
        Ok(())
    }

    /// Makes the disk and the initramfs of what is installed now.
    pub fn finish(&self, groups: &Groups, timeout: Timeout<'_>) -> Result<(), RootError> {
        let init = guest::find_init()?;
        let mut parts = vec![
            PROGRAM.to_owned(),
            AGENT.to_owned(),
            self.kernel.release.clone(),
        ];
        let installed = self.tree.join("tare/installed");
        let mut stamps: Vec<PathBuf> = fs::read_dir(&installed)
            .map_err(write(&installed))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        stamps.sort();
        for stamp in stamps {
            parts.push(format!("{}{:?}", stamp.display(), fs::read(&stamp).ok()));
        }
        parts.push(format!("{:?}", fs::read(&init).map(Sha256::digest).ok()));
        let wanted = hash(parts);
        let stamp = self.site.dir.join("stamp");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        self.make_disk(groups, timeout)?;
        self.make_initramfs(&init)?;
        put(&stamp, &wanted)
    }

    fn make_disk(&self, groups: &Groups, timeout: Timeout<'_>) -> Result<(), RootError> {
        let run = |command, what| program::run(command, what, groups, timeout);
        let mut size = groups.command("du");
        size.args(["-s", "-x", "-B1"]).arg(&self.tree);
        let used: u64 = run(size, "du")?
            .split_whitespace()
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let bytes = used + used / 4 + SPARE_BYTES;
        let partial = self.site.dir.join("root.img.partial");
        let made = fs::File::create(&partial)
            .and_then(|file| file.set_len(bytes.next_multiple_of(1 << 20)));
        made.map_err(write(&partial))?;
        let mut command = groups.command("mke2fs");
        // Without a journal: nothing writes it, and a journal would have to be replayed.
        command
            .args([
                "-q",
                "-F",
                "-t",
                EXT4,
                "-O",
                "^has_journal",
                "-m",
                "0",
                "-d",
            ])
            .args([&self.tree, &partial]);
        let made = run(command, "mke2fs");
        if made.is_err() {
            let _ = fs::remove_file(&partial);
        }
        made?;
        fs::rename(&partial, &self.disk).map_err(write(&self.disk))
    }

    fn make_initramfs(&self, init: &Path) -> Result<(), RootError> {
        let task = Task {
            command: vec!["/bin/bash".to_owned(), "/tare/agent".to_owned()],
            root: tare_rootfs::Root::Disk {
                device: "/dev/vda".to_owned(),
                filesystem: EXT4.to_owned(),
            },
            ..Task::default()
        };
        let modules = self.kernel.machine_modules(&[EXT4])?;
        let mut tree = Tree::new();
        guest::add_init(&mut tree, task, &modules, init)?;
        let mut packed = cpio::pack(&tree)?;
        let partial = self.site.dir.join("initramfs.partial");
        let mut file = fs::File::create(&partial).map_err(write(&partial))?;
        io::Seek::rewind(&mut packed)
            .and_then(|()| io::copy(&mut packed, &mut file))
            .map_err(write(&partial))?;
        fs::rename(&partial, &self.initramfs).map_err(write(&self.initramfs))
    }
}

/// Installs packages, then runs the workload's own preparation beside its files.
/// `WORKLOAD DATA PACKAGE...`
const INSTALL: &str = r#"
exec 1>&2
name=$1 data=$2; shift 2
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
if [ $# -gt 0 ] && ! dpkg-query -W -f='${Status}\n' "$@" 2> /dev/null | awk '!/ok installed/ { bad = 1 } END { exit bad || NR < '$#' }'; then
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
    apt-get -qq update
    apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends "$@"
    apt-get clean
fi
! command -v update-ca-certificates > /dev/null || update-ca-certificates
rm -rf "$data" && mkdir -p "$data"
cd "/tare/workloads/$name"
bash -eu ./prepare
rm -rf "$APPLIANCE_ROOT"
if [ -n "$APPLIANCE" ]; then
    # The program, its loader and libraries, and what was prepared, by links.
    mkdir -p "$APPLIANCE_ROOT"
    program=$(command -v "$APPLIANCE")
    { echo "$program"; ldd "$program" | grep -o '/[^ ]*' || true; } | xargs cp --link --dereference --parents -t "$APPLIANCE_ROOT"
    cp --link --recursive --parents -t "$APPLIANCE_ROOT" "$data"
fi
"#;

/// Where the files of a workload's appliance are in the tree, by its name with its form.
fn appliance_root(name: &str) -> String {
    format!("/tare/appliances/{name}")
}

/// Lays the user's settings of Maven (mirrors, proxies) where installing finds them, if
/// there are any.
fn maven_settings(scratch: &Path) -> Result<Option<&'static str>, RootError> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let settings = home.map(|home| home.join(".m2/settings.xml"));
    let Some(settings) = settings.filter(|path| path.is_file()) else {
        return Ok(None);
    };
    let path = scratch.join("settings.xml");
    fs::copy(settings, &path).map_err(write(&path))?;
    Ok(Some("/scratch/settings.xml"))
}

/// A minimal Debian with what every platform needs.
fn bootstrap(
    dir: &Path,
    tree: &Path,
    groups: &Groups,
    timeout: Timeout<'_>,
) -> Result<(), RootError> {
    let partial = dir.join("tree.partial");
    owned_directory::remove(&partial)?;
    owned_directory::create(&partial).map_err(write(&partial))?;
    let made = partial.join("tree");
    let mut command = groups.command("mmdebstrap");
    command
        .args(["--quiet", "--variant=minbase"])
        .arg(format!("--include={PACKAGES}"))
        .args(["--aptopt=Apt::Install-Recommends \"false\"", SUITE])
        .arg(&made);
    let made = program::run(command, "mmdebstrap", groups, timeout)
        .map_err(RootError::from)
        .and_then(|_| fs::rename(&made, tree).map_err(write(tree)));
    let removed = owned_directory::remove(&partial);
    made?;
    Ok(removed?)
}

fn hash(parts: impl IntoIterator<Item = String>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn put(path: &Path, text: &str) -> Result<(), RootError> {
    fs::write(path, text).map_err(write(path))
}

fn write(path: &Path) -> impl FnOnce(io::Error) -> RootError {
    let path = path.to_owned();
    move |source| RootError::Write { path, source }
}

//! Programs of Debian's packages that are not installed: apt downloads them once, into the cache.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tare_rootfs::cache::CacheError;
use tare_rootfs::{Cache, package};

/// The dynamic linker, in the package libc6.
const LINKER: &str = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
/// Where programs look for it.
const LINKER_NAME: &str = "lib64/ld-linux-x86-64.so.2";
/// Directories of libraries, in the packages.
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// Packages, unpacked into one directory.
pub(crate) struct Packages(PathBuf);

impl Packages {
    /// Those for `name`: SKIP where apt cannot download them.
    pub(crate) fn get(name: &str, packages: &[&str]) -> Option<Self> {
        let cache = Cache::open_default().unwrap();
        let entry = format!("packages/test-{name}");
        let unpacked = cache.get_or_fill(&entry, |dir| {
            for name in packages {
                package::download(name, dir)?;
            }
            Ok::<_, Error>(())
        });
        match unpacked {
            Ok(dir) => Some(Self(dir.canonicalize().unwrap())),
            Err(error) => {
                tare_vmtest::lacks(format!("Debian's packages for {name}: {error}"));
                None
            }
        }
    }

    /// Their dynamic linker, which finds their libraries alone.
    fn linker(&self) -> Command {
        let mut linker = Command::new(self.0.join(LINKER));
        let directories = LIBRARIES.map(|directory| self.0.join(directory).display().to_string());
        linker.args(["--inhibit-cache", "--library-path", &directories.join(":")]);
        linker
    }

    /// A program of these packages as a process of this host.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.linker();
        command.arg(self.0.join(program));
        command
    }

    /// Copies a program with its libraries into a machine's root.
    pub(crate) fn copy(&self, program: &str, root: &Path) {
        let mut list = self.linker();
        let list = list.arg("--list").arg(self.0.join(program)).output();
        let text = String::from_utf8(list.unwrap().stdout).unwrap();
        let libraries = text.lines().filter_map(|line| {
            let place = line.trim().split_once(" => ")?.1.split(" (").next()?;
            Path::new(place).strip_prefix(&self.0).ok()
        });
        let all = libraries.chain([Path::new(program), Path::new(LINKER)]);
        for file in all {
            let to = root.join(file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(self.0.join(file), to).unwrap();
        }
        let name = root.join(LINKER_NAME);
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        if !name.exists() {
            symlink(Path::new("/").join(LINKER), name).unwrap();
        }
    }
}

/// Why packages are not there.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Package(#[from] package::PackageError),
    #[error(transparent)]
    Cache(#[from] CacheError),
}

//! Debian's cloud kernel: from the cache, from this computer if it is installed
//! here, else downloaded by apt and unpacked into the cache. Nothing is installed.

use std::fs;
use std::io;
use std::path::Path;

use super::Kernel;
use crate::cache::{Cache, CacheError};
use crate::package::{self, PackageError};

/// The package that depends on the newest one.
const META_PACKAGE: &str = "linux-image-cloud-amd64";
/// What the names of the real packages begin and end with.
const PACKAGE_BEGIN: &str = "linux-image-";
const RELEASE_END: &str = "-cloud-amd64";
/// The cache's directory of Debian's kernels.
const ENTRIES: &str = "kernels/debian";

/// Why Debian's kernel is not available.
#[derive(Debug, thiserror::Error)]
pub enum ObtainError {
    /// The cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The package.
    #[error("Debian's kernel is not available; name another one with --kernel FILE")]
    Package(#[from] PackageError),
    /// The cache cannot be written.
    #[error("cannot write the cache")]
    Write(#[source] io::Error),
}

/// The newest kernel that is here already, without a network.
pub fn find(cache: &Cache) -> Option<Kernel> {
    let cached = releases_in(&cache.dir().join(ENTRIES))
        .into_iter()
        .filter_map(|release| in_tree(&cache.get(&entry(&release))?, &release));
    let installed = releases_in(Path::new("/lib/modules"))
        .into_iter()
        .filter_map(|release| in_tree(Path::new("/"), &release));
    let mut all: Vec<Kernel> = cached.chain(installed).collect();
    all.sort_by_key(|kernel| numbers(&kernel.release));
    all.pop()
}

/// The kernel that is here already, else the newest one, downloaded.
pub fn find_or_obtain(cache: &Cache) -> Result<Kernel, ObtainError> {
    match find(cache) {
        Some(kernel) => Ok(kernel),
        None => obtain(cache),
    }
}

/// Downloads the newest kernel, unless the cache has it.
pub fn obtain(cache: &Cache) -> Result<Kernel, ObtainError> {
    let package = package::newest(META_PACKAGE, is_kernel_package)?;
    let release = package.trim_start_matches(PACKAGE_BEGIN);
    let tree = cache.get_or_fill(&entry(release), |dir| download(&package, dir))?;
    in_tree(&tree, release).ok_or_else(|| {
        let missing = "kernel";
        PackageError::Incomplete { package, missing }.into()
    })
}

fn entry(release: &str) -> String {
    format!("{ENTRIES}/{release}")
}

/// Names of directories that are releases of cloud kernels.
fn releases_in(dir: &Path) -> Vec<String> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(RELEASE_END) && !name.starts_with('.'))
        .collect()
}

fn in_tree(tree: &Path, release: &str) -> Option<Kernel> {
    let kernel = Kernel {
        version: fs::read_to_string(tree.join("package-version")).unwrap_or_default(),
        image: tree.join(format!("boot/vmlinuz-{release}")),
        modules: tree.join(format!("lib/modules/{release}")),
        config: tree.join(format!("boot/config-{release}")),
        release: release.to_owned(),
    };
    // A kernel's file may be for root only.
    let readable = fs::File::open(&kernel.image).is_ok();
    (readable && kernel.modules.is_dir()).then_some(kernel)
}

/// The numbers of a release or version, for comparing: `6.1.0-9` is older than `6.1.0-10`.
pub fn numbers(release: &str) -> Vec<u32> {
    release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// The name becomes a path and an argument: only what Debian allows in names.
fn is_kernel_package(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    name.starts_with(PACKAGE_BEGIN) && name.ends_with(RELEASE_END) && name.chars().all(allowed)
}

fn download(package: &str, dir: &Path) -> Result<(), ObtainError> {
    let version = package::download(package, dir)?;
    fs::write(dir.join("package-version"), version).map_err(ObtainError::Write)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &Cache, release: &str) {
        let tree = cache.dir().join(entry(release));
        fs::create_dir_all(tree.join("boot")).unwrap();
        fs::create_dir_all(tree.join(format!("lib/modules/{release}"))).unwrap();
        fs::write(tree.join(format!("boot/vmlinuz-{release}")), "").unwrap();
    }

    #[test]
    fn the_newest_cached_kernel_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        for number in [9, 100, 47] {
            put(&cache, &format!("6.1.0-{number}-cloud-amd64"));
        }
        let found = find(&cache).unwrap();
        assert!(numbers(&found.release) >= numbers("6.1.0-100-cloud-amd64"));
    }

    #[test]
    fn half_a_kernel_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("lib/modules/6.1.0-1-cloud-amd64");
        fs::create_dir_all(tree).unwrap();
        assert_eq!(in_tree(dir.path(), "6.1.0-1-cloud-amd64"), None);
    }

    #[test]
    fn only_kernel_packages_are_taken() {
        assert!(is_kernel_package("linux-image-6.1.0-49-cloud-amd64"));
        for name in [
            "linux-image-../x-cloud-amd64",
            "linux-base",
            "linux-image-6-amd64",
            "",
        ] {
            assert!(!is_kernel_package(name), "{name}");
        }
    }
}

//! Firecracker's own configuration of a guest's kernel, on the sources of the tailored ones.
//!
//! The file is not part of Tare. `tare weigh tailor --config FILE` takes it from Firecracker's
//! sources (Apache-2.0), where it is `resources/guest_configs/microvm-kernel-ci-x86_64-6.1.config`.
//! In some versions PCI is in a second file beside it, `pcie.config`. Several are merged as
//! Firecracker's own build does (`scripts/kconfig/merge_config.sh` of the kernel): a later file
//! wins. The options are kept in the cache for later runs.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tare_rootfs::Cache;
use tare_tailor::kconfig::{Config, GivenConfig, GivenError};
use tare_tailor::kernel::Patching;
use tare_tailor::lock;
use tare_tailor::mapping::Symbol;
use tare_tailor::toolchain::Toolchain;

use super::LinuxError;
use super::kernels::{self, Bootable};
use tare_load::interrupt::Interrupt;

/// Its options, in the cache.
const KEPT: &str = "configurations/firecracker.config";
/// Objects of its build, among the kernels made for the lab.
const OBJECTS: &str = "objects-firecracker";
/// Most bytes that are read; a longer file is refused by its length.
const MOST_BYTES: u64 = 2 << 20;
/// What the guests of the experiment need: an initramfs, a console, a network card of the
/// machine, and what Tare's first process uses.
const NEEDED: [&str; 9] = [
    "BLK_DEV_INITRD",
    "DEVTMPFS",
    "FUTEX",
    "INET",
    "PCI",
    "SERIAL_8250_CONSOLE",
    "UNIX",
    "VIRTIO_NET",
    "VIRTIO_PCI",
];

/// Files that cannot be the configuration of a guest here.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is not a kernel's configuration", path.display())]
    Given {
        /// The file.
        path: PathBuf,
        /// Why.
        source: GivenError,
    },
    /// Their kernel would not serve.
    #[error(
        "{} leaves off what a guest of this experiment needs: {} (a further --config turns it on; \
         Firecracker's pcie.config has PCI)",
        listed(paths), missing.join(", ")
    )]
    Lacks {
        /// The files.
        paths: Vec<PathBuf>,
        /// Options.
        missing: Vec<&'static str>,
    },
}

fn listed(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
    paths.join(" with ")
}

/// Reads configuration files and merges them, if guests of this experiment run on the kernel
/// of the result.
pub fn read(paths: &[PathBuf]) -> Result<GivenConfig, ConfigError> {
    let mut merged = None;
    for path in paths {
        let next = read_one(path)?;
        merged =
            Some(merged.map_or_else(|| next.clone(), |before: GivenConfig| before.with(&next)));
    }
    let config = merged.as_ref().map(|given| Config::read(&given.text()));
    let config = config.unwrap_or_default();
    let has = |name: &str| Symbol::new(name).is_some_and(|symbol| config.has(&symbol));
    let missing: Vec<_> = NEEDED.into_iter().filter(|name| !has(name)).collect();
    match merged {
        Some(given) if missing.is_empty() => Ok(given),
        _ => Err(ConfigError::Lacks {
            paths: paths.to_owned(),
            missing,
        }),
    }
}

fn read_one(path: &Path) -> Result<GivenConfig, ConfigError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes))
        .map_err(|source| ConfigError::File {
            path: path.to_owned(),
            source,
        })?;
    GivenConfig::read(&bytes).map_err(|source| ConfigError::Given {
        path: path.to_owned(),
        source,
    })
}

/// Keeps a configuration for later runs.
pub fn keep(given: &GivenConfig, cache: &Cache) -> Result<(), LinuxError> {
    let path = cache.dir().join(KEPT);
    let directory = path.parent().unwrap_or(cache.dir());
    fs::create_dir_all(directory)
        .and_then(|()| tempfile::NamedTempFile::new_in(directory))
        .and_then(|mut file| {
            io::Write::write_all(&mut file, given.text().as_bytes())?;
            Ok(file.persist(&path)?)
        })
        .map(drop)
        .map_err(LinuxError::file(&path))
}

/// The configuration of an earlier run.
pub fn stored_config(cache: &Cache) -> Option<GivenConfig> {
    read(&[cache.dir().join(KEPT)]).ok()
}

/// Its kernel; made if the cache has none of these sources and options.
pub fn kernel(
    name: &str,
    given: &GivenConfig,
    cache: &Cache,
    interrupt: &Interrupt,
) -> Result<Bootable, LinuxError> {
    let sources = kernels::sources(cache)?;
    let all = format!(
        "{} {:?} {}",
        sources.sha256,
        Toolchain::Gnu.versions(),
        given.text()
    );
    let key = format!("firecracker-{}", &lock::sha256(all.as_bytes())[..12]);
    let entries = kernels::entries(cache);
    let place = entries.join(key);
    if kernels::at(&place, name).is_none() {
        let builder = kernels::builder(cache, Patching::Cached)?;
        let objects = entries.join(OBJECTS);
        let goes_on = || interrupt.check().is_ok();
        let made = builder.make_given(given, &objects, &goes_on, |_| {});
        kernels::store(name, made, &objects, &place, interrupt)?;
    }
    kernels::at(&place, name).ok_or_else(|| LinuxError::NotKept {
        app: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use tare_control::sentence::chain;

    use super::*;

    fn of(names: &[&str]) -> String {
        names.iter().map(|it| format!("CONFIG_{it}=y\n")).collect()
    }

    /// What Firecracker's `pcie.config` turns on.
    const PCIE: [&str; 8] = [
        "BLK_MQ_PCI",
        "PCI",
        "PCI_MMCONFIG",
        "PCI_MSI",
        "PCIEPORTBUS",
        "VIRTIO_PCI",
        "PCI_HOST_COMMON",
        "PCI_HOST_GENERIC",
    ];

    #[test]
    fn a_configuration_is_kept_for_later_runs() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache"));
        assert_eq!(stored_config(&cache), None);
        let file = dir.path().join("config");
        for more in ["CONFIG_HZ=250\n", "# CONFIG_SMP is not set\n"] {
            fs::write(&file, of(&NEEDED) + more).unwrap();
            let given = read(std::slice::from_ref(&file)).unwrap();
            keep(&given, &cache).unwrap();
            assert_eq!(stored_config(&cache), Some(given));
        }
    }

    #[test]
    fn a_file_without_what_the_guests_need_is_refused_before_a_build() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        fs::write(&file, of(&NEEDED[..8])).unwrap();
        let one = std::slice::from_ref(&file);
        let refused = read(one).unwrap_err().to_string();
        assert!(refused.contains("needs: VIRTIO_PCI ("), "{refused}");
        fs::write(&file, "#!/bin/sh\necho\n").unwrap();
        let refused = chain(&read(one).unwrap_err());
        assert!(
            refused.contains("not a kernel's configuration: line 2"),
            "{refused}"
        );
        assert!(read(&[dir.path().join("none")]).is_err());
    }

    /// The options of both files that decide: the first leaves off PCI.
    #[test]
    fn firecrackers_own_file_is_taken_with_the_one_that_has_pci() {
        let dir = tempfile::tempdir().unwrap();
        let [base, pcie] = ["base.config", "pcie.config"].map(|name| dir.path().join(name));
        let ours = NEEDED.into_iter().filter(|name| !name.contains("PCI"));
        let ours: Vec<_> = ours.collect();
        let off = "# CONFIG_PCI is not set\nCONFIG_VIRTIO_MENU=y\n";
        fs::write(&base, of(&ours) + off).unwrap();
        fs::write(&pcie, of(&PCIE)).unwrap();
        let alone = read(std::slice::from_ref(&base)).unwrap_err().to_string();
        assert!(
            alone.contains("needs: PCI, VIRTIO_PCI (a further --config"),
            "{alone}"
        );
        let given = read(&[base.clone(), pcie.clone()]).unwrap();
        let text = given.text();
        assert!(
            text.contains("CONFIG_PCI=y\n") && !text.contains("# CONFIG_PCI is"),
            "{text}"
        );
        // The later file wins.
        let other_way = read(&[pcie.clone(), base]).unwrap_err().to_string();
        assert!(other_way.contains("needs: PCI ("), "{other_way}");
        let incomplete = read(&[pcie]).unwrap_err().to_string();
        assert!(incomplete.contains("SERIAL_8250_CONSOLE"), "{incomplete}");
    }
}

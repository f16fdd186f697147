//! Tare's image in another program's virtual machine monitor: Firecracker or Cloud Hypervisor,
//! where they are installed.
//!
//! Both take frames from a tap alone, so each machine has its own network namespace with one,
//! and its clients open their connections there. Needs root.

use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;
use tare_host::child::ends_with_us;
use tare_host::program::find_program;
use tare_host::tap_namespace::{self, TapNamespace};
use tare_rootfs::cpio;
use tare_rootfs::walk::{Links, walk};

use super::ApplianceError;
use super::machine::{Kind, Machine};
use super::spec::{Monitor, Spec};

/// The guest's address, its network's length, and the host's address.
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const NETWORK: &str = "10.0.2.2/24";
const WORDS: &str = "ip=10.0.2.15/24,10.0.2.2 ip6=off";
const MAC: &str = "02:00:00:00:00:01";
/// Bytes of files at most.
const FILES: u64 = 64 << 20;

impl Monitor {
    /// Its program.
    const fn program(self) -> &'static str {
        match self {
            Self::Firecracker => "firecracker",
            Self::CloudHypervisor => "cloud-hypervisor",
        }
    }

    /// Its arguments for the machine of `spec`, with its files in `directory`.
    fn arguments(self, spec: &Spec, directory: &Path) -> io::Result<Vec<String>> {
        let cmdline = [WORDS, &spec.cmdline].join(" ");
        let files = files(directory).to_string_lossy().into_owned();
        let arguments: Vec<String> = match self {
            Self::Firecracker => {
                let config = json!({
                    "boot-source": {
                        "kernel_image_path": spec.image, "initrd_path": files,
                        "boot_args": cmdline.trim(),
                    },
                    "drives": [],
                    "machine-config": {"vcpu_count": spec.cpus, "mem_size_mib": spec.memory_mib},
                    "network-interfaces": [{
                        "iface_id": "net", "host_dev_name": tap_namespace::NAME, "guest_mac": MAC,
                    }],
                });
                let place = directory.join("firecracker.json");
                fs::write(&place, config.to_string())?;
                let place = place.to_string_lossy().into_owned();
                ["--no-api", "--id", &spec.label, "--config-file", &place]
                    .map(str::to_owned)
                    .into()
            }
            Self::CloudHypervisor => {
                let (tap, cpus) = (tap_namespace::NAME, spec.cpus);
                let numbers = [
                    ("--cpus", format!("boot={cpus}")),
                    ("--memory", format!("size={}M", spec.memory_mib)),
                    ("--net", format!("tap={tap},mac={MAC}")),
                ];
                let numbers = numbers
                    .into_iter()
                    .flat_map(|(name, it)| [name.to_owned(), it]);
                let machine = ["--kernel", &spec.image, "--initramfs", &files];
                let console = ["--serial", "tty", "--console", "off"];
                let fixed = machine.into_iter().chain(["--cmdline", cmdline.trim()]);
                let fixed = fixed.chain(console).map(str::to_owned);
                fixed.chain(numbers).collect()
            }
        };
        Ok(arguments)
    }
}

/// Starts the image of a machine with its files in such a monitor.
pub(super) fn start(monitor: Monitor, spec: &Spec) -> Result<Machine, ApplianceError> {
    let path = find_program(monitor.program()).map_err(|error| ApplianceError::Execute {
        path: monitor.program().into(),
        source: io::Error::new(io::ErrorKind::NotFound, error),
    })?;
    let directory = tempfile::tempdir().map_err(ApplianceError::Prepare)?;
    pack(spec.root.as_deref(), directory.path()).map_err(ApplianceError::Prepare)?;
    let network = TapNamespace::new(NETWORK).map_err(ApplianceError::Prepare)?;
    let arguments = monitor
        .arguments(spec, directory.path())
        .map_err(ApplianceError::Prepare)?;
    let mut command = Command::new(path);
    command.args(arguments);
    ends_with_us(&mut command, Signal::KILL);
    let address = SocketAddr::from((GUEST, 80));
    let kind = Kind::Elsewhere {
        network,
        _files: directory,
    };
    let mut machine = Machine::start(command, address, kind)?;
    machine.image = Some(spec.image.clone().into());
    Ok(machine)
}

/// Where a machine's files are packed.
fn files(directory: &Path) -> PathBuf {
    directory.join("files.cpio")
}

/// Packs the files that the machine serves.
fn pack(root: Option<&Path>, directory: &Path) -> io::Result<()> {
    let Some(root) = root else {
        return File::create(files(directory)).map(drop);
    };
    let listing = walk(root, Links::Followed, FILES).map_err(io::Error::other)?;
    let mut packed = cpio::pack(&listing.tree).map_err(io::Error::other)?;
    packed.rewind()?;
    io::copy(&mut packed, &mut File::create(files(directory))?).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_machine_elsewhere_gets_the_image_its_files_and_the_tap_of_its_namespace() {
        let directory = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("kib.txt"), "a kibibyte").unwrap();
        let spec = Spec {
            label: "firecracker".into(),
            image: "/images/http".into(),
            root: Some(root.path().into()),
            port: 80,
            cmdline: "ring=3".into(),
            engine: "auto",
            ring: "auto",
            idle: "block",
            cpus: 2,
            memory_mib: 64,
        };
        pack(spec.root.as_deref(), directory.path()).unwrap();
        let packed = files(directory.path());
        let bytes = fs::read(&packed).unwrap();
        assert!(String::from_utf8_lossy(&bytes).contains("a kibibyte"));

        let args = Monitor::Firecracker.arguments(&spec, directory.path());
        let config = args.unwrap().pop().unwrap();
        let config: Value = serde_json::from_slice(&fs::read(config).unwrap()).unwrap();
        let boot = &config["boot-source"];
        assert_eq!(boot["kernel_image_path"], "/images/http");
        assert_eq!(boot["initrd_path"], *packed.to_string_lossy());
        assert_eq!(boot["boot_args"], format!("{WORDS} ring=3"));
        assert_eq!(config["machine-config"]["vcpu_count"], 2);
        let net = &config["network-interfaces"][0];
        assert_eq!(net["host_dev_name"], tap_namespace::NAME);

        let args = Monitor::CloudHypervisor.arguments(&spec, directory.path());
        let args = args.unwrap().join(" ");
        let image = format!("--kernel /images/http --initramfs {}", packed.display());
        assert!(args.starts_with(&image), "{args}");
        assert!(args.contains("--cpus boot=2 --memory size=64M --net tap=wire0,mac="));
    }
}

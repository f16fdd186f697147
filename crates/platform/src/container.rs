//! Containers: the configuration that runc here and crun in a machine get, and a
//! step under runc.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::bare;
use crate::cgroup::PERIOD_US;
use crate::heard::{Report, Watch};
use crate::journal::{Change, Journal, delete_container};
use crate::root::Root;
use crate::step::{Step, StepError};

/// The runtime on the host.
pub const RUNTIME: &str = "runc";
/// What workloads that change their user need, of what Docker leaves by default.
const CAPABILITIES: &[&str] = &[
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_SYS_CHROOT",
];

/// A container's limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// CPUs, as the kernel lists them.
    pub cpus: Option<String>,
    /// CPU time in each period, us.
    pub quota_us: Option<u64>,
}

/// The configuration (OCI runtime specification 1.0) of a container that runs the
/// step requested in its `/scratch`.
pub fn config(rootfs: &Path, scratch: &Path, group: &str, limits: &Limits) -> Value {
    let mut cpu = json!({});
    if let Some(cpus) = &limits.cpus {
        cpu["cpus"] = json!(cpus);
    }
    if let Some(quota) = limits.quota_us {
        cpu["quota"] = json!(quota);
        cpu["period"] = json!(PERIOD_US);
    }
    let tmpfs = |place: &str, size: &str| {
        json!({"destination": place, "type": "tmpfs", "source": "tmpfs",
               "options": ["nosuid", "nodev", "mode=1777", size]})
    };
    let namespaces = ["pid", "network", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/bash", "/tare/step", "@/scratch/request"],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "capabilities": {
                "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
            },
            "noNewPrivileges": true,
        },
        "root": {"path": rootfs, "readonly": true},
        "hostname": "tare",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "strictatime", "mode=755", "size=64k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
            tmpfs("/dev/shm", "size=256m"),
            {"destination": "/sys", "type": "sysfs", "source": "sysfs",
             "options": ["nosuid", "noexec", "nodev", "ro"]},
            tmpfs("/tmp", "size=256m"),
            tmpfs("/run", "size=64m"),
            {"destination": "/scratch", "type": "none", "source": scratch,
             "options": ["rbind", "rw"]},
        ],
        "linux": {
            "cgroupsPath": group,
            "resources": {"cpu": cpu},
            "namespaces": namespaces,
        },
    })
}

/// Containers of this host.
#[derive(Debug)]
pub struct Containers {
    dir: PathBuf,
    id: String,
}

impl Containers {
    /// With bundles and states below `dir`; whatever is started is in the journal.
    pub fn new(journal: &mut Journal, dir: &Path) -> Result<Self, StepError> {
        let id = format!("tare-lab-{}", std::process::id());
        let this = Self {
            dir: dir.join("container"),
            id,
        };
        journal.note(Change::Container {
            runtime: RUNTIME.to_owned(),
            state: this.state(),
            id: this.id.clone(),
        })?;
        Ok(this)
    }

    fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The container's group, as its runtime was told.
    pub fn group(&self) -> String {
        format!("/{}", self.id)
    }

    /// Runs a step in a new container.
    pub fn run(
        &self,
        root: &Root,
        scratch: &Path,
        limits: &Limits,
        step: &Step,
        watch: &mut dyn Watch,
    ) -> Result<Report, StepError> {
        let failed = |source| StepError::Start {
            what: "the container's bundle".to_owned(),
            source,
        };
        bare::ask(scratch, step)?;
        fs::create_dir_all(self.state()).map_err(failed)?;
        let config = config(root.tree(), scratch, &self.group(), limits);
        fs::write(self.dir.join("config.json"), config.to_string()).map_err(failed)?;
        let mut command = Command::new(RUNTIME);
        command.arg("--root").arg(self.state());
        command
            .args(["run", "--bundle"])
            .arg(&self.dir)
            .arg(&self.id);
        let result = bare::heard(&mut command, "the container", step, watch);
        delete_container(RUNTIME, &self.state(), &self.id);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_only_where_they_are_asked_for() {
        let of = |limits: &Limits| {
            let config = config(Path::new("/r"), Path::new("/s"), "/g", limits);
            config["linux"]["resources"]["cpu"].clone()
        };
        assert_eq!(of(&Limits::default()), json!({}));
        let limits = Limits {
            cpus: Some("0,2".into()),
            quota_us: Some(50_000),
        };
        let expected = json!({"cpus": "0,2", "quota": 50_000, "period": 100_000});
        assert_eq!(of(&limits), expected);
    }
}

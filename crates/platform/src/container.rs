//! Containers: the configuration that runc here and crun in a machine get, and a
//! step under an engine of this host: runc alone, or podman with runc below it.
//!
//! podman's images, containers and states are below a directory of ours, so the
//! user's are not touched. Its limits of open files and processes are this process's
//! own: it would raise them, which not every host allows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use tare_host::owned_directory;

use crate::bare;
use crate::cgroup::{self, Groups, PERIOD_US};
use crate::container_engine::{ContainerEngine, run_directory};
use crate::journal::{Change, Journal};
use crate::output::{Report, Watch};
use crate::pin;
use crate::place::{Limit, Place};
use crate::program::{self, Timeout};
use crate::step::{PATH, Step, StepError};

/// A container that has its step and waits to be started.
#[derive(Debug)]
pub struct Waiting {
    group: String,
    start: Command,
}

impl Waiting {
    /// The container's group, as passed to its runtime.
    pub fn group(&self) -> &str {
        &self.group
    }
}

/// What podman itself takes at most of open files, and of processes if this many
/// can exist; nothing that it starts can have more where limits may not be raised.
const MOST: u64 = 1 << 20;
/// The command of a container.
const STEP: &[&str] = &["/bin/bash", "/tare/step", "@/scratch/request"];
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

impl Limits {
    /// Those of a place on the host, of which this process may use `allowed`. A
    /// container's group is not below this process's: where that is kept to CPUs
    /// (`confined`), the container gets this list.
    pub fn of(place: &Place, allowed: &[u32], confined: bool) -> Self {
        let size = match place.limit {
            Limit::Cpuset => place.size as usize,
            _ => allowed.len(),
        };
        let bound = confined || place.limit == Limit::Cpuset;
        let set = pin::list(allowed.get(..size).unwrap_or(allowed));
        Self {
            cpus: bound.then_some(set),
            quota_us: (place.limit == Limit::Quota).then_some(u64::from(place.size) * PERIOD_US),
        }
    }
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
            "args": STEP,
            "env": [format!("PATH={PATH}")],
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
    engine: ContainerEngine,
    dir: PathBuf,
    id: String,
}

impl Containers {
    /// With bundles and states below `dir`; whatever is started is in the journal.
    pub fn new(
        journal: &mut Journal,
        engine: ContainerEngine,
        dir: &Path,
    ) -> Result<Self, StepError> {
        let this = Self {
            engine,
            dir: dir.join("container"),
            id: format!("tare-lab-{}", std::process::id()),
        };
        if engine == ContainerEngine::Podman {
            let path = run_directory(&this.id);
            journal.note(Change::Directory { path: path.clone() })?;
            owned_directory::create(&path).map_err(|source| StepError::Start {
                what: format!("podman in {}", path.display()),
                source,
            })?;
        }
        for path in cgroup::everywhere(&this.id) {
            journal.note(Change::Cgroup { path })?;
        }
        journal.note(Change::Container {
            engine,
            state: this.state(),
            id: this.id.clone(),
        })?;
        Ok(this)
    }

    /// Starts one that does nothing: whether containers work here at all.
    pub fn try_out(
        &self,
        tree: &Path,
        scratch: &Path,
        timeout: Timeout<'_>,
    ) -> Result<(), StepError> {
        let waiting = self.prepare(tree, scratch, &Limits::default(), &["/bin/true"], timeout)?;
        let what = format!("a container of {}", self.engine.name());
        let tried = program::run(waiting.start, &what, &Groups::default(), timeout);
        self.engine.delete(&self.state(), &self.id);
        Ok(tried.map(drop)?)
    }

    /// Makes a container for a step.
    pub fn ready(
        &self,
        tree: &Path,
        scratch: &Path,
        limits: &Limits,
        step: &Step,
        timeout: Timeout<'_>,
    ) -> Result<Waiting, StepError> {
        bare::ask(scratch, step)?;
        self.prepare(tree, scratch, limits, STEP, timeout)
    }

    /// Runs the step of a container.
    pub fn run(
        &self,
        mut waiting: Waiting,
        step: &Step,
        watch: &mut dyn Watch,
    ) -> Result<Report, StepError> {
        let result = bare::heard(&mut waiting.start, "the container", step, watch);
        self.engine.delete(&self.state(), &self.id);
        result
    }

    fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    fn prepare(
        &self,
        tree: &Path,
        scratch: &Path,
        limits: &Limits,
        args: &[&str],
        timeout: Timeout<'_>,
    ) -> Result<Waiting, StepError> {
        let state = self.state();
        let failed = |source| StepError::Start {
            what: "the container's bundle".to_owned(),
            source,
        };
        fs::create_dir_all(&state).map_err(failed)?;
        let group = format!("/{}", self.id);
        let mut start = self.engine.command(&state, &self.id);
        match self.engine {
            ContainerEngine::Runc => {
                let mut config = config(tree, scratch, &group, limits);
                config["process"]["args"] = json!(args);
                fs::write(self.dir.join("config.json"), config.to_string()).map_err(failed)?;
                start.args(["run", "--bundle"]).arg(&self.dir).arg(&self.id);
                Ok(Waiting { group, start })
            }
            ContainerEngine::Podman => {
                let mut create = self.engine.command(&state, &self.id);
                create.args(["create", "--name", &self.id, "--cgroup-parent", &group]);
                create.args(podman_options(scratch, limits));
                create.arg("--rootfs").arg(tree).args(args);
                let made = program::run(create, "podman create", &Groups::default(), timeout)?;
                start.args(["start", "--attach", "--interactive", &self.id]);
                let group = format!("{group}/libpod-{}", made.trim());
                Ok(Waiting { group, start })
            }
        }
    }
}

/// What makes podman's container like [`config`]'s, whatever the limits.
const PODMAN: [&str; 11] = [
    "--interactive",
    "--read-only",
    "--hostname=tare",
    "--network=none",
    "--log-driver=none",
    "--security-opt=no-new-privileges",
    "--cap-drop=all",
    "--pids-limit=-1",
    "--shm-size=256m",
    "--tmpfs=/tmp:size=256m,mode=1777",
    "--tmpfs=/run:size=64m,mode=1777",
];

fn podman_options(scratch: &Path, limits: &Limits) -> Vec<String> {
    let mut options: Vec<String> = PODMAN.iter().map(|&option| option.to_owned()).collect();
    options.extend(CAPABILITIES.iter().map(|name| format!("--cap-add={name}")));
    options.push(format!("--env=PATH={PATH}"));
    options.push(format!("--volume={}:/scratch", scratch.display()));
    let pids = fs::read_to_string("/proc/sys/kernel/pid_max")
        .unwrap_or_default()
        .trim()
        .parse()
        .unwrap_or(MOST);
    for (name, resource, most) in [
        ("nofile", Resource::Nofile, MOST),
        ("nproc", Resource::Nproc, MOST.min(pids)),
    ] {
        let limit = getrlimit(resource);
        let within = |limit: Option<u64>| limit.unwrap_or(most).min(most);
        let (soft, hard) = (within(limit.current), within(limit.maximum));
        options.push(format!("--ulimit={name}={soft}:{hard}"));
    }
    options.extend(
        limits
            .cpus
            .iter()
            .map(|cpus| format!("--cpuset-cpus={cpus}")),
    );
    if let Some(quota) = limits.quota_us {
        options.push(format!("--cpu-period={PERIOD_US}"));
        options.push(format!("--cpu-quota={quota}"));
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_no_cpu_that_the_weighing_has_not() {
        use crate::place::{Mode, Platform};
        let allowed = [1, 3];
        let limits = |mode, size, confined| {
            let place = Place::new(Platform::Container, mode, size, 2);
            let limits = Limits::of(&place, &allowed, confined);
            (limits.cpus, limits.quota_us)
        };
        let (one, both) = (Some("1".to_owned()), Some("1,3".to_owned()));
        assert_eq!(limits(Mode::Vanilla, 2, false), (None, None));
        assert_eq!(limits(Mode::Vanilla, 1, false), (None, Some(PERIOD_US)));
        assert_eq!(limits(Mode::Vanilla, 2, true), (both.clone(), None));
        assert_eq!(limits(Mode::Vanilla, 1, true), (both, Some(PERIOD_US)));
        for confined in [false, true] {
            assert_eq!(limits(Mode::Pinned, 1, confined), (one.clone(), None));
        }
    }

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

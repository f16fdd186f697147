//! The platforms of this host, ready for runs: root, groups, containers, machines.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tare_control::sentence::chain;
use tare_host::owned_directory;
use tare_hv::{Kvm, KvmKind, Probe};
use tare_platform::appliance;
use tare_platform::cgroup::{self, CgroupError, Groups};
use tare_platform::container::{Containers, Limits};
use tare_platform::container_engine::ContainerEngine;
use tare_platform::journal::{Change, JournalError};
use tare_platform::machine::{BootedMachine, Payload};
use tare_platform::pin::{Pins, PlacementError};
use tare_platform::root::{RootError, Site};
use tare_platform::workload::Form;
use tare_platform::{
    Journal, Limit, Place, Platform, Report, Root, Step, StepError, Timeout, Watch, Workload,
    autogroup, bare, pin,
};
use tare_probe::sched::Observer;

use super::observe::{Looking, Members, Observed};
use super::plan::{Arm, Cell};
use tare_lab::kit::Interrupt;

/// What executes appliances, by the KVM.
pub(crate) const ON_HARDWARE: &str = "Tare's library OS on KVM";
pub(crate) const ON_EMULATION: &str = "Tare's library OS on KVM that emulates ring 0";

/// A stage that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StageError {
    /// No root file system.
    #[error(transparent)]
    Root(#[from] RootError),
    /// No journal, so nothing may be changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// No group to hold runs.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// No journal of placements, so nothing may be placed.
    #[error(transparent)]
    Pins(#[from] PlacementError),
    /// No place for what runs write.
    #[error("cannot make {}", path.display())]
    Scratch {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What looks at a machine's boot: nothing to see, but it may be given up.
struct Booting<'a>(&'a Interrupt);

impl Watch for Booting<'_> {
    fn begin(&mut self) {}
    fn end(&mut self) {}
    fn stop(&self) -> bool {
        self.0.check().is_err()
    }
}

/// All platforms. Dropping it undoes what it did: machines first, then the journal.
pub(crate) struct Stage {
    machines: BTreeMap<u32, BootedMachine>,
    groups: BTreeMap<Place, Groups>,
    containers: Option<Containers>,
    observer: Option<Observer>,
    /// The KVM that runs appliances.
    kvm: Option<KvmKind>,
    root: Root,
    dir: PathBuf,
    tare: PathBuf,
    cpus: Vec<u32>,
    /// Whether this host has CPUs beside those, which a container must be kept from.
    confined: bool,
    /// What holds installing, and all that makes the root.
    making: Groups,
    pins: Pins,
    journal: Journal,
    /// What this host does not offer: a sentence each.
    pub(crate) missing: Vec<String>,
}

/// A run to be made.
pub(crate) struct RunRequest<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) step: &'a Step,
    pub(crate) workload: &'a Workload,
    pub(crate) form: Form,
    /// Whether it only warms up: then what costs the run time is counted too.
    pub(crate) warms_up: bool,
}

/// A finished run.
pub(crate) struct Ran {
    pub(crate) report: Report,
    pub(crate) observed: Observed,
    pub(crate) engine: Option<String>,
}

impl Stage {
    /// Undoes what earlier weighings left, then makes what all runs need.
    pub(crate) fn new(
        tare: &Path,
        wanted: &[Platform],
        engine: ContainerEngine,
        timeout: Timeout<'_>,
    ) -> Result<Self, StageError> {
        let site = Site::claim()?;
        let mut journal = Journal::of_a_weighing()?;
        let dir = site.dir().join(format!("run-{}", std::process::id()));
        journal.note(Change::Directory { path: dir.clone() })?;
        let scratch = dir.join("scratch");
        let made = owned_directory::create(&dir).and_then(|()| fs::create_dir(&scratch));
        made.map_err(|source| StageError::Scratch {
            path: scratch,
            source,
        })?;
        let name = format!("tare-lab-{}-install", std::process::id());
        let making = Groups::make(&mut journal, &name, None, None)?;
        let cpus = pin::allowed();
        let mut stage = Self {
            confined: cpus != pin::online() && cgroup::available("cpuset"),
            machines: BTreeMap::new(),
            groups: BTreeMap::new(),
            containers: None,
            observer: None,
            kvm: None,
            root: Root::open(site, &making, timeout)?,
            dir,
            tare: tare.to_owned(),
            cpus,
            making,
            pins: Pins::open()?,
            journal,
            missing: Vec::new(),
        };
        if let Err(error) = autogroup::switch_off(&mut stage.journal) {
            stage.missing.push(chain(&error));
        }
        match Observer::start() {
            Ok(observer) => {
                let gone = observer.unavailable();
                stage
                    .missing
                    .extend(gone.iter().map(|u| format!("observer: {u}")));
                stage.observer = Some(observer);
            }
            Err(why) => stage.missing.push(format!("times on and off CPUs: {why}")),
        }
        stage.find_groups(wanted);
        if wanted.contains(&Platform::Container) {
            stage.find_runtime(engine, timeout)?;
        }
        if wanted.contains(&Platform::Appliance) {
            stage.find_kvm();
        }
        Ok(stage)
    }

    /// Appliances are there where Tare's monitor runs them.
    fn find_kvm(&mut self) {
        let kind = Kvm::open()
            .map_err(|error| chain(&error))
            .and_then(|kvm| Probe::run(&kvm).map_err(|error| chain(&error)));
        match kind {
            Ok(probe) => self.kvm = Some(probe.kind),
            Err(why) => self.missing.push(format!("appliance: {why}")),
        }
    }

    fn find_groups(&mut self, wanted: &[Platform]) {
        for (platform, name) in [
            (Platform::Bare, "bare metal"),
            (Platform::Appliance, "appliance"),
        ] {
            if wanted.contains(&platform) && !cgroup::holds() {
                let what = format!("{name}: no cgroups to find a run's processes by");
                self.missing.push(what);
            }
        }
        for (controller, what) in [
            ("cpuset", "sizes by sets of CPUs"),
            ("cpu", "sizes by quota"),
        ] {
            if !cgroup::available(controller) {
                self.missing
                    .push(format!("{what}: no controller {controller}"));
            }
        }
    }

    /// Containers are there where one that does nothing runs.
    fn find_runtime(
        &mut self,
        engine: ContainerEngine,
        timeout: Timeout<'_>,
    ) -> Result<(), StageError> {
        let containers = match Containers::new(&mut self.journal, engine, &self.dir) {
            Err(StepError::Journal(error)) => return Err(error.into()),
            other => other,
        };
        let scratch = self.scratch();
        let tried = containers.and_then(|containers| {
            containers.try_out(self.root.tree(), &scratch, timeout)?;
            Ok(containers)
        });
        match tried {
            Ok(containers) => self.containers = Some(containers),
            Err(error) => self.missing.push(format!("container: {}", chain(&error))),
        }
        Ok(())
    }

    fn scratch(&self) -> PathBuf {
        self.dir.join("scratch")
    }

    /// Installs a workload into the root.
    pub(crate) fn install(
        &self,
        workload: &Workload,
        form: Form,
        timeout: Timeout<'_>,
    ) -> Result<(), RootError> {
        let (root, scratch) = (&self.root, self.scratch());
        root.install(workload, form, &scratch, &self.making, timeout)
    }

    /// Versions of the packages of a workload that was installed.
    pub(crate) fn versions(&self, workload: &Workload) -> Vec<(String, String)> {
        let mut query = Command::new("dpkg-query");
        query
            .arg("--admindir")
            .arg(self.root.tree().join("var/lib/dpkg"));
        query.args(["--show", "--showformat=${Package} ${Version}\\n"]);
        let output = query.args(&workload.install).stdin(Stdio::null()).output();
        let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
        let text = String::from_utf8_lossy(&text).into_owned();
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs
            .map(|(package, version)| (package.to_owned(), version.to_owned()))
            .collect()
    }

    /// Makes the disk of the root.
    pub(crate) fn finish_root(&self, timeout: Timeout<'_>) -> Result<(), RootError> {
        self.root.finish(&self.making, timeout)
    }

    /// Boots the machine of a size, frozen until its turn.
    pub(crate) fn boot(&mut self, size: u32, interrupt: &Interrupt) -> Result<(), StepError> {
        let machine = BootedMachine::start(
            &mut self.journal,
            &self.tare,
            &self.root,
            &self.dir,
            size,
            &Booting(interrupt),
        )?;
        machine.freeze();
        self.machines.insert(size, machine);
        Ok(())
    }

    /// Whether runs can happen on a platform.
    pub(crate) fn has(&self, place: &Place) -> bool {
        let limited = match place.limit {
            Limit::Cpuset => cgroup::available("cpuset"),
            Limit::Quota => cgroup::available("cpu"),
            Limit::None | Limit::Vcpus => true,
        };
        limited
            && match place.platform {
                Platform::Bare => cgroup::holds(),
                Platform::Container => self.containers.is_some(),
                Platform::Vm | Platform::VmContainer => self.machines.contains_key(&place.size),
                Platform::Appliance => cgroup::holds() && self.kvm.is_some(),
            }
    }

    /// One run.
    pub(crate) fn run(
        &mut self,
        request: &RunRequest<'_>,
        interrupt: &Interrupt,
    ) -> Result<Ran, StepError> {
        match request.cell.place.platform {
            Platform::Bare => self.run_bare(request, interrupt),
            Platform::Container => self.run_container(request, interrupt),
            Platform::Vm => self.run_machine(request, Payload::Step, interrupt),
            Platform::VmContainer => self.run_machine(request, Payload::Container, interrupt),
            Platform::Appliance => self.run_appliance(request, interrupt),
        }
    }

    /// The CPUs of a size.
    fn set(&self, size: u32) -> Vec<u32> {
        self.cpus.iter().copied().take(size as usize).collect()
    }

    /// What holds the runs of a place on the host, kept to its CPUs if the place is.
    fn groups_of(&mut self, place: Place) -> Result<Groups, StepError> {
        if let Some(groups) = self.groups.get(&place) {
            return Ok(groups.clone());
        }
        let set = pin::list(&self.set(place.size));
        let cpus = (place.limit == Limit::Cpuset).then_some(set.as_str());
        let name = format!("tare-lab-{}-{place}", std::process::id());
        let groups = Groups::make(&mut self.journal, &name, cpus, None)?;
        self.groups.insert(place, groups.clone());
        Ok(groups)
    }

    fn run_bare(
        &mut self,
        request: &RunRequest<'_>,
        interrupt: &Interrupt,
    ) -> Result<Ran, StepError> {
        let RunRequest { cell, step, .. } = *request;
        let groups = self.groups_of(cell.place)?;
        let scratch = self.scratch();
        let observed = self.observer.is_some();
        if cell.arm == Arm::Unobserved {
            // Its programs must not run beside what is not observed.
            self.observer = None;
        }
        let observer = self.observer.as_mut();
        let members = Members::Groups(groups.dirs().to_vec());
        let mut looking =
            Looking::new(interrupt, observer, members, None).count_charges(request.warms_up);
        let report = bare::run(self.root.tree(), &scratch, &groups, step, &mut looking);
        let seen = looking.observed;
        if observed && self.observer.is_none() {
            self.observer = Observer::start().ok();
        }
        Ok(Ran {
            report: report?,
            observed: seen,
            engine: None,
        })
    }

    fn run_appliance(
        &mut self,
        request: &RunRequest<'_>,
        interrupt: &Interrupt,
    ) -> Result<Ran, StepError> {
        let RunRequest { cell, step, .. } = *request;
        let root = self.root.appliance(request.workload, request.form);
        let root = root.ok_or(StepError::GivenUp)?;
        let groups = self.groups_of(cell.place)?;
        let cpus = self.set(cell.place.size);
        let (scratch, runs) = (self.scratch(), self.dir.join("run"));
        let members = Members::Groups(groups.dirs().to_vec());
        let mut looking = Looking::new(interrupt, self.observer.as_mut(), members, None)
            .count_charges(request.warms_up);
        let paths = appliance::Paths {
            tree: self.root.tree(),
            scratch: &scratch,
            runs: &runs,
            tare: &self.tare,
            root: &root,
        };
        let report = appliance::run(paths, &cell.place, &cpus, &groups, step, &mut looking);
        let engine = match self.kvm {
            Some(KvmKind::Hardware) => ON_HARDWARE,
            _ => ON_EMULATION,
        };
        Ok(Ran {
            report: report?,
            observed: looking.observed,
            engine: Some(engine.to_owned()),
        })
    }

    fn run_container(
        &mut self,
        request: &RunRequest<'_>,
        interrupt: &Interrupt,
    ) -> Result<Ran, StepError> {
        let RunRequest { cell, step, .. } = *request;
        let place = cell.place;
        let limits = Limits::of(&place, &self.cpus, self.confined);
        let scratch = self.scratch();
        let Some(containers) = &self.containers else {
            return Err(StepError::GivenUp);
        };
        let timeout = Timeout {
            limit: step.limit,
            stop: &|| interrupt.check().is_err(),
        };
        let waiting = containers.ready(self.root.tree(), &scratch, &limits, step, timeout)?;
        let group = cgroup::directory("cpu", waiting.group());
        let quota = (place.limit == Limit::Quota).then(|| group.clone());
        let members = Members::Groups(vec![group]);
        let mut looking = Looking::new(interrupt, self.observer.as_mut(), members, quota)
            .count_charges(request.warms_up);
        let report = containers.run(waiting, step, &mut looking)?;
        Ok(Ran {
            report,
            observed: looking.observed,
            engine: None,
        })
    }

    fn run_machine(
        &mut self,
        request: &RunRequest<'_>,
        inside: Payload,
        interrupt: &Interrupt,
    ) -> Result<Ran, StepError> {
        let RunRequest { cell, step, .. } = *request;
        let place = cell.place;
        let set = self.set(place.size);
        let machine = self.machines.get_mut(&place.size);
        let machine = machine.ok_or(StepError::MachineLost)?;
        machine.place(&self.pins, place.mode, &set)?;
        machine.thaw();
        let members = Members::Process(machine.pid());
        let control = machine.control().map(Path::to_owned);
        let mut looking = Looking::new(interrupt, self.observer.as_mut(), members, None)
            .count_charges(request.warms_up)
            .ask(control.as_deref());
        let result = machine.run(inside, step, &mut looking);
        let engine = Some(machine.engine().name().to_owned());
        machine.freeze();
        if !matches!(result, Ok(_) | Err(StepError::NoVerdict { .. })) {
            self.machines.remove(&place.size);
        }
        Ok(Ran {
            report: result?,
            observed: looking.observed,
            engine,
        })
    }
}

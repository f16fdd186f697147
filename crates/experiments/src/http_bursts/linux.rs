//! Toro's other comparison: the same files from Apache on Debian's kernel,
//! on a kernel tailored to it, and from Tare's image. All three run in QEMU's
//! translator on one processor, where instructions are counted exactly.

use std::path::{Path, PathBuf};
use std::slice;

use tare_control::sentence::chain;
use tare_lab::kit::{Bench, RunError};
use tare_load::interrupt::Interrupt;
use tare_machines::linux::catalog::{self, App, Connection, Phase};
use tare_machines::linux::kernels::{self, Bootable};
use tare_machines::linux::machine::{self, LinuxMachine};
use tare_machines::linux::{LinuxError, files, requests, tailored};
use tare_rootfs::tree::Node;
use tare_rootfs::{Cache, Tree};
use tare_tailor::counter::{Count, Plugin};
use tare_tailor::cut::Cut;

use super::data::Data;
use super::plan::{Plan, Tailored};
use super::sample::{Boot, Line};

/// The application of the Linux arms.
const APP: &str = "apache";
/// Requests.
const REQUEST: &str = "GET /kib.txt HTTP/1.1\r\nHost: guest\r\n\r\n";

/// An arm of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Apache on Debian's kernel.
    Linux,
    /// Apache on its tailored kernel.
    Tailored,
    /// Tare's image.
    Tare,
}

impl Side {
    /// All, in the order in which they are read.
    pub(super) const ALL: [Self; 3] = [Self::Linux, Self::Tailored, Self::Tare];

    /// Name in figures.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Tailored => "tailored",
            Self::Tare => "tare",
        }
    }
}

/// Boots each arm and counts; an unavailable arm is recorded in the data.
pub(super) fn compare(data: &mut Data, plan: &Plan, bench: &mut Bench<'_>) -> Result<(), RunError> {
    if plan.compared == 0 {
        return Ok(());
    }
    let workload = match Workload::gather() {
        Ok(workload) => workload,
        Err(error) => {
            data.uncompared.push(chain(&error));
            return Ok(());
        }
    };
    let image = data.image.clone();
    for side in Side::ALL {
        let step = format!("{} in QEMU's translator: counting", side.name());
        bench.progress.step(&step);
        match workload.count(side, image.as_deref(), plan, bench.interrupt) {
            Ok(counts) => {
                if side == Side::Linux {
                    let versions = files::versions(&workload.app, &workload.cache);
                    bench.recorder.versions_of(versions)?;
                }
                keep(data, bench, side, &counts)?;
            }
            Err(LinuxError::Interrupted(interrupted)) => {
                return Err(LinuxError::from(interrupted).into());
            }
            Err(error) => {
                let why = format!("{}: {}", side.name(), chain(&error));
                data.uncompared.push(why);
            }
        }
    }
    Ok(())
}

/// What the arms share.
struct Workload {
    /// The program that confines QEMU.
    tare: PathBuf,
    app: App,
    plugin: Plugin,
    cache: Cache,
}

/// What one arm took.
struct Counts {
    boot: Count,
    requests: Vec<Count>,
    connections: Vec<Count>,
}

impl Workload {
    fn gather() -> Result<Self, LinuxError> {
        let cache = Cache::open_default()?;
        Ok(Self {
            tare: machine::this_program()?,
            app: catalog::find(APP)?,
            plugin: Plugin::compile(&cache)?,
            cache,
        })
    }

    fn count(
        &self,
        side: Side,
        image: Option<&Path>,
        plan: &Plan,
        interrupt: &Interrupt,
    ) -> Result<Counts, LinuxError> {
        let mut machine = match side {
            Side::Linux => self.on(&kernels::debian(&self.cache)?)?,
            Side::Tailored => self.on(&self.tailored(plan, interrupt)?)?,
            Side::Tare => {
                let image = image.ok_or(LinuxError::NoImage)?;
                let files = self.served()?;
                LinuxMachine::start_image(&self.tare, &self.app, &files, image, &self.plugin)?
            }
        };
        let boot = machine.serve(&self.app, interrupt)?.count;
        let samples = plan.compared;
        let [kept, each] = [Connection::Kept, Connection::EachVisit].map(phase);
        Ok(Counts {
            boot,
            requests: requests::count(&machine, &kept, samples, interrupt)?,
            connections: requests::count(&machine, &each, samples, interrupt)?,
        })
    }

    fn on(&self, kernel: &Bootable) -> Result<LinuxMachine, LinuxError> {
        let tree = files::tree(&self.app, &self.cache)?;
        LinuxMachine::start(&self.tare, &self.app, &tree, kernel, Some(&self.plugin))
    }

    fn tailored(&self, plan: &Plan, interrupt: &Interrupt) -> Result<Bootable, LinuxError> {
        let (name, cuts) = (Side::Tailored.name(), Cut::by_default());
        match plan.tailored {
            Tailored::Made => tailored::kernel(&self.app, name, &cuts, &self.cache, interrupt),
            Tailored::Kept => kernels::kept_for(&self.app, name, &cuts, &self.cache),
        }
    }

    /// The files that Apache serves, below the image's root.
    fn served(&self) -> Result<Tree, LinuxError> {
        let mut tree = Tree::new();
        for file in &self.app.files {
            if let Some(name) = file.path.strip_prefix("/srv/") {
                tree.insert(name, Node::bytes(file.bytes(), 0o644))?;
            }
        }
        Ok(tree)
    }
}

fn phase(connection: Connection) -> Phase {
    Phase {
        name: String::new(),
        connection,
        prepare: String::new(),
        requests: vec![REQUEST.to_owned()],
    }
}

fn keep(
    data: &mut Data,
    bench: &mut Bench<'_>,
    side: Side,
    counts: &Counts,
) -> Result<(), RunError> {
    for (base, counts) in [
        ("tcg_boot_insns", slice::from_ref(&counts.boot)),
        ("tcg_insns_per_request", &counts.requests),
        ("tcg_insns_per_connection", &counts.connections),
    ] {
        // Each arm is booted once.
        let boot = Boot {
            arm: side.name().to_owned(),
            cycle: 0,
        };
        let line = Line::Translated {
            boot: Some(boot),
            figure: format!("{base}.{}", side.name()),
            insns: counts.to_vec(),
        };
        data.keep(bench.recorder, line)?;
    }
    Ok(bench.recorder.flush()?)
}

//! `tare profile --in-guest`: the application in a guest with Debian's kernel, which
//! has every tracer, observed from within; QEMU's translator runs it.
//!
//! The observer there (`tare-observe`) writes its output to a disk, which is a
//! temporary file here. Ctrl-C is a line on the guest's second serial port. Call
//! graphs come from a second run, since tracing would spoil the times: Ctrl-C ends the first run
//! alone, SIGTERM and a closed terminal end both.

mod machine;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tare_control::exit::{ExitCode, RunExit};
use tare_launch::linux;
use tare_probe::graph;
use tare_probe::guest::archive::ArchiveError;
use tare_probe::guest::{FAILURE, OBSERVER, ObserveRequest, PROFILE, STATUS, TRACE};
use tare_profile::table;
use tare_profile::{GuestRun, Profile, Way};
use tare_rootfs::guest::{self, GuestError};
use tare_rootfs::kernel::debian;
use tare_rootfs::root::RootFiles;
use tare_rootfs::tree::Node;
use tare_rootfs::{Cache, Kernel, Task, Tree, cpio};

use super::output::OutFile;
use super::plan::Plan;
use super::read::{ParseError, parse};
use crate::failure::{Explain, Failure, RunResult};
use crate::output::warn;
use crate::signals::Requests;
use machine::ProfiledMachine;

/// The guest's memory, MiB, and what its files may take of it.
const MEMORY_MIB: u32 = 1536;
const FILES_MAX: u64 = 512 << 20;
/// The observer's program, beside the first process's.
const PROGRAM: &str = "tare-observe";

/// Why a guest cannot be profiled.
#[derive(Debug, thiserror::Error)]
enum InGuestError {
    #[error("{PROGRAM} is not beside tare-init; build it with `make build` in the sources")]
    NoObserver,
    #[error("unknown system call {0:?}")]
    NoSuchCall(String),
    #[error("the guest's observer failed: {0}")]
    Observer(String),
    #[error("the guest ended without a profile; see its console above")]
    Nothing(#[source] ArchiveError),
    #[error("the guest's profile is damaged")]
    Profile(#[source] ParseError),
    #[error("cannot write {}", path.display())]
    Graph { path: PathBuf, source: io::Error },
    #[error("cannot write the request for the guest")]
    Request(#[from] serde_json::Error),
}

impl Explain for InGuestError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NoSuchCall(_) => ExitCode::Usage,
            Self::Observer(_) => ExitCode::CannotRun,
            Self::Nothing(_) | Self::Profile(_) => ExitCode::GuestStatus,
            Self::Graph { .. } => ExitCode::Output,
            Self::NoObserver | Self::Request(_) => ExitCode::Internal,
        }
    }
}

/// Runs the command in a guest, and again for call graphs.
pub(super) fn profile(
    plan: &Plan,
    root: &Path,
    command: &[String],
    requests: &Requests,
) -> RunResult {
    for call in &plan.graphs {
        table::number(call).ok_or_else(|| InGuestError::NoSuchCall(call.clone()))?;
    }
    let out = plan.out.as_deref().map(OutFile::open).transpose()?;
    prepare_graphs(plan)?;
    let gathered = Guest::gather(root, command, requests);
    // What a signal ended too has failed for no other reason.
    requests.check()?;
    let guest = gathered?;
    let finds = guest.run(plan, &[], requests)?;
    requests.forget_ctrl_c();
    let profile = profile_of(&finds, plan, root, &guest.task.command)?;
    super::keep(plan, &profile, out)?;
    if !plan.graphs.is_empty() {
        let finds = guest.run(plan, &plan.graphs, requests)?;
        write_graphs(plan, finds.get(TRACE).map_or(&[], Vec::as_slice))?;
    }
    let status = finds
        .get(STATUS)
        .map(|text| String::from_utf8_lossy(text))
        .and_then(|text| text.parse().ok());
    Ok(match (plan.length, status) {
        (None, Some(status)) => RunExit::Status(status),
        _ => ExitCode::Success.into(),
    })
}

/// What the guest boots: a kernel, files, a command.
struct Guest {
    kernel: Kernel,
    tree: Tree,
    task: Task,
    init: PathBuf,
    observer: PathBuf,
}

type Finds = BTreeMap<String, Vec<u8>>;

impl Guest {
    fn gather(root: &Path, command: &[String], requests: &Requests) -> Result<Self, Failure> {
        let init = guest::find_init()?;
        let observer = init.with_file_name(PROGRAM);
        if !observer.is_file() {
            return Err(InGuestError::NoObserver.into());
        }
        let kernel = debian::find_or_obtain(&Cache::open_default()?)?;
        requests.check()?;
        let RootFiles {
            tree,
            task,
            warnings,
            ..
        } = linux::parts(root, command.into(), FILES_MAX)?;
        warnings.iter().for_each(|warning| warn(warning));
        Ok(Self {
            kernel,
            tree,
            task,
            init,
            observer,
        })
    }

    /// Boots it, and returns the observer's output. A signal lets the guest end, and before there is
    /// a guest it is an error.
    fn run(&self, plan: &Plan, graphs: &[String], requests: &Requests) -> Result<Finds, Failure> {
        let order = ObserveRequest {
            command: self.task.command.clone(),
            user: self.task.user.clone(),
            length_ms: plan
                .length
                .map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
            graphs: graphs.to_vec(),
        };
        let word = order.to_argument().map_err(InGuestError::Request)?;
        let mut tree = self.tree.clone();
        let task = Task {
            command: vec![format!("/{OBSERVER}"), word],
            user: String::new(),
            ..self.task.clone()
        };
        let modules = self.kernel.machine_modules(&[])?;
        guest::add_init(&mut tree, task, &modules, &self.init)?;
        let observer = Node::host(&self.observer, 0o755).map_err(|source| GuestError::Read {
            path: self.observer.clone(),
            source,
        })?;
        tree.insert(OBSERVER, observer).map_err(GuestError::from)?;
        let initramfs = cpio::pack(&tree)?;
        requests.check()?;
        let machine = ProfiledMachine::start(&self.kernel, &initramfs, MEMORY_MIB, plan)?;
        let mut finds = machine.finish(requests)?.map_err(InGuestError::Nothing)?;
        match finds.remove(FAILURE) {
            None => Ok(finds),
            Some(why) => {
                let why = String::from_utf8_lossy(&why).into_owned();
                Err(InGuestError::Observer(why.trim().escape_debug().to_string()).into())
            }
        }
    }
}

fn profile_of(
    finds: &Finds,
    plan: &Plan,
    root: &Path,
    command: &[String],
) -> Result<Profile, Failure> {
    let bytes = finds.get(PROFILE).map_or(&[][..], Vec::as_slice);
    let mut profile = parse(bytes).map_err(InGuestError::Profile)?;
    for phase in &mut profile.phases {
        phase.label.clone_from(&plan.label);
        phase.taken.way = Way::Guest(GuestRun {
            root: root.display().to_string(),
            command: command.to_vec(),
        });
    }
    Ok(profile)
}

fn prepare_graphs(plan: &Plan) -> Result<(), InGuestError> {
    if plan.graphs.is_empty() {
        return Ok(());
    }
    let path = &plan.graph_out;
    fs::create_dir_all(path).map_err(|source| InGuestError::Graph {
        path: path.clone(),
        source,
    })
}

/// Each call's graph as text, folded stacks and a picture.
fn write_graphs(plan: &Plan, trace: &[u8]) -> Result<(), Failure> {
    let graph = graph::parse(&String::from_utf8_lossy(trace), None);
    if graph.ignored > 0 {
        let ignored = graph.ignored;
        warn(&format!(
            "{ignored} lines of the trace were not understood, or calls did not end in it"
        ));
    }
    for call in &plan.graphs {
        let root = format!("__x64_sys_{call}");
        let forms = [
            ("txt", graph.text(&root)),
            ("folded", graph.folded(&root)),
            ("svg", graph.svg(&root)),
        ];
        if forms.iter().any(|(_, form)| form.is_none()) {
            warn(&format!("{call} was not called, so it has no graph"));
        }
        for (ending, form) in forms {
            let Some(form) = form else { continue };
            let path = plan.graph_out.join(format!("{call}.{ending}"));
            OutFile::open(&path)?.write(form.as_bytes())?;
        }
    }
    Ok(())
}

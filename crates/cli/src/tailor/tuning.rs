//! `tare tailor --search`: settings by measured effect, on the kernel that was built or on one
//! that exists.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_control::exit::ExitCode;
use tare_hv::{Kvm, KvmKind, Probe};
use tare_qemu::MachineType;
use tare_rootfs::Cache;
use tare_rootfs::modules::Module;
use tare_tailor::counter::Plugin;
use tare_tailor::kconfig::Config;
use tare_tailor::kernel::KernelBuilder;
use tare_tailor::machine::Execution;
use tare_tailor::prove::ProofConfig;
use tare_tailor::tuning::bench::{Bench, BenchError, Ready, measure_of};
use tare_tailor::tuning::elimination::{Search, SearchError, Stage};
use tare_tailor::tuning::journal::{Journal, Recorded};
use tare_tailor::tuning::load::Load;
use tare_tailor::tuning::report::SearchReport;
use tare_tailor::tuning::{Measure, settings};

use super::args::TailorArgs;
use super::subject::Subject;
use super::{Debian, applications, spec, subjects, write};
use crate::failure::{CommandResult, Failure};
use crate::output::{print, warn};
use crate::profile::read;

/// The record of boots, the console of the last one, and the result, in the kernel's directory.
const JOURNAL: &str = "search.jsonl";
const CONSOLE: &str = "logs/search.log";
const RESULT_TEXT: &str = "search.txt";
const RESULT_JSON: &str = "search.json";

/// A kernel that is searched.
pub(super) struct Searched<'a> {
    pub(super) image: &'a Path,
    pub(super) modules: &'a [Module],
    /// Unknown for an image from elsewhere.
    pub(super) config: Option<&'a Config>,
    pub(super) subject: &'a Subject,
    pub(super) machine_type: MachineType,
    /// Directory of the record and the result.
    pub(super) dir: &'a Path,
}

/// The load of a search, checked before a kernel is built; `None` without a search.
pub(super) fn load(args: &TailorArgs, applications: usize) -> Result<Option<Load>, Failure> {
    if args.search.is_none() {
        return Ok(None);
    }
    let wrong = |sentence: &str| Err(Failure::new(ExitCode::Usage, sentence));
    if applications > 1 {
        return wrong("a search measures one application: give profiles of one");
    }
    let check = args.check.first();
    match args.load.clone().or_else(|| check.and_then(Load::of)) {
        Some(load) => Ok(Some(load)),
        None => wrong(
            "a search needs requests to measure: give --load http:PORT/PATH, or tcp:PORT/LINE \
             for a line that has an answer",
        ),
    }
}

/// Searches on a kernel that exists, and builds none.
pub(super) fn on_a_kernel(
    args: &TailorArgs,
    kernel: &Path,
    builder: &KernelBuilder,
    interrupted: &Arc<AtomicBool>,
) -> CommandResult {
    let profiles = read::each(&args.profiles)?;
    let applications = applications::grouped(&profiles);
    let Some(load) = load(args, applications.len())? else {
        let sentence = "--kernel names the kernel of a search: give --search MINUTES";
        return Err(Failure::new(ExitCode::Usage, sentence));
    };
    let mut whole = tare_profile::Profile::empty();
    profiles.iter().for_each(|profile| whole.merge(profile));
    let spec = spec::spec(whole, args);
    let dir = spec::place(args, &applications);
    fs::create_dir_all(&dir).map_err(|error| Failure::new(ExitCode::Output, error))?;
    let subjects = subjects(args, &applications, &spec, &dir, interrupted)?;
    let Some(subject) = subjects.first() else {
        return Err(Failure::new(ExitCode::Usage, "no profile"));
    };
    let is_debians = kernel == Path::new("debian");
    let debian = is_debians.then(|| Debian::obtain(&builder.cache)).flatten();
    let searched = match &debian {
        Some(debian) => Searched {
            image: &debian.kernel.image,
            modules: &debian.modules,
            config: Some(&debian.config),
            subject,
            machine_type: MachineType::Q35,
            dir: &dir,
        },
        None if is_debians => {
            let sentence = "Debian's kernel is unavailable: name another with --kernel FILE";
            return Err(Failure::new(ExitCode::KernelSources, sentence));
        }
        None => Searched {
            image: kernel,
            modules: &[],
            config: None,
            subject,
            machine_type: subject.terms.machine_type,
            dir: &dir,
        },
    };
    let report = searched.run(args, &load, &builder.cache)?;
    let (text, json) = searched.keep(&report)?;
    print(if args.json { &json } else { &text })?;
    if !report.kept.is_empty() && !args.json {
        let parameters = report.kept.join(" ");
        print(&format!(
            "Boot it with: tare run --kernel ... --cmdline '{parameters}'\n"
        ))?;
    }
    Ok(ExitCode::Success)
}

impl Searched<'_> {
    /// Runs the search.
    pub(super) fn run(
        &self,
        args: &TailorArgs,
        load: &Load,
        cache: &Cache,
    ) -> Result<SearchReport, Failure> {
        let minutes = args.search.map_or(1, std::num::NonZeroU64::get);
        let execution = execution();
        let measure = args
            .measure
            .map_or_else(|| measure_of(execution), Measure::from);
        let is_counted = measure == Measure::Instructions;
        // Only the translator counts.
        let execution = if is_counted {
            Execution::Translated
        } else {
            execution
        };
        let plugin = is_counted.then(|| Plugin::compile(cache)).transpose();
        let plugin = plugin.map_err(|error| Failure::new(ExitCode::WeighFailed, error))?;
        let terms = ProofConfig {
            machine_type: self.machine_type,
            execution,
            ..self.subject.terms.clone()
        };
        let console = self.dir.join(CONSOLE);
        let bench = Bench {
            kernel: self.image,
            modules: self.modules,
            application: &self.subject.application,
            terms: &terms,
            load,
            measure,
            plugin: plugin.as_ref(),
            console: &console,
        };
        let (candidates, mut skipped) = settings::candidates(self.config, args.trusting);
        let mut ready = bench.ready(candidates)?;
        let mut journal = self.journal(&ready, minutes)?;
        ready.leave_out(&journal.refused, &mut skipped);
        let settings = ready.settings().to_vec();
        let search = Search {
            measure,
            candidates: settings.len(),
            budget_s: minutes as f64 * 60.0,
            seed: journal.seed,
        };
        let mut recorded = Recorded {
            trials: ready,
            journal: &mut journal,
        };
        let found = search.run(&mut recorded, tell).map_err(|error| {
            if let SearchError::Trials(BenchError::Interrupted) = error {
                let sentence = format!(
                    "interrupted; the boots that were measured are in {}, and the same command \
                     goes on from there",
                    self.dir.join(JOURNAL).display()
                );
                return Failure::new(ExitCode::Interrupted, sentence);
            }
            error.into()
        })?;
        if journal.measured() == 0 {
            warn(&format!(
                "nothing was measured: all {} boots of this search are in {}; remove the file to \
                 measure again",
                found.boots,
                self.dir.join(JOURNAL).display()
            ));
        }
        Ok(SearchReport::new(
            found,
            &settings,
            skipped,
            load.to_string(),
        ))
    }

    /// The record of this search: of an interrupted one, or a new one.
    fn journal(&self, ready: &Ready<'_>, minutes: u64) -> Result<Journal, Failure> {
        let path = self.dir.join(JOURNAL);
        let key = ready.key(minutes)?;
        let there = Journal::resume(&path, &key).map_err(BenchError::from)?;
        if let Some(journal) = there {
            if !journal.is_empty() {
                let boots = journal.len();
                warn(&format!(
                    "{boots} boots of this search are in {}: it goes on from there; remove the \
                     file to begin anew",
                    path.display()
                ));
            }
            return Ok(journal);
        }
        warn("booting once with all settings, to see which of them this kernel knows");
        let refused = ready.refused()?;
        // One seed for all searches would repeat in each what chance does to an arm.
        let seed = RandomState::new().hash_one(());
        Ok(Journal::begin(&path, &key, seed, refused).map_err(BenchError::from)?)
    }

    /// Writes the result beside the kernel; gives its text and its JSON.
    pub(super) fn keep(&self, report: &SearchReport) -> Result<(String, String), Failure> {
        let text = report.to_string();
        let text = tare_host::printable::printable_lines(&text).to_string();
        write(&self.dir.join(RESULT_TEXT), text.as_bytes())?;
        let json = serde_json::to_string_pretty(report)
            .map_err(|error| Failure::new(ExitCode::Internal, error))?;
        let json = json + "\n";
        write(&self.dir.join(RESULT_JSON), json.as_bytes())?;
        Ok((text, json))
    }
}

/// KVM where a processor runs the kernel of a guest; else the translator.
fn execution() -> Execution {
    let probed = || Probe::run(&Kvm::open().ok()?).ok();
    match probed() {
        Some(probe) if probe.kind != KvmKind::Emulated => Execution::Kvm,
        _ => Execution::Translated,
    }
}

fn tell(stage: Stage) {
    warn(&match stage {
        Stage::Screening { candidates, boots } => {
            format!("screening {candidates} settings (up to {boots} boots in all)")
        }
        Stage::Test { candidates } => format!("testing the best {candidates}, on new boots"),
        Stage::Confirmation { settings } => {
            format!("confirming {settings} of them together, on new boots")
        }
    });
}

//! `tare tailor`: from profiles to a kernel that is proven with its application.
//!
//! `crates/tailor` does the work; this module builds its request and prints the result.

mod applications;
pub(crate) mod args;
mod explain;
mod figures;
mod optimized;
mod progress;
mod spec;
mod subject;
mod tuning;

use std::env;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tare_control::exit::ExitCode;
use tare_host::printable::{printable, printable_lines};
use tare_init::Logging;
use tare_profile::Profile;
use tare_rootfs::kernel::debian;
use tare_rootfs::modules::Module;
use tare_rootfs::{Cache, guest};
use tare_tailor::build::Image;
use tare_tailor::check::Check;
use tare_tailor::counts::{COUNTS, ExecutionCounts};
use tare_tailor::cves::Records;
use tare_tailor::kconfig::Config;
use tare_tailor::kernel::{Kernel, KernelBuilder, LOCK, MakeError, Patching};
use tare_tailor::lock::Lock;
use tare_tailor::machine::{Execution, machine_type};
use tare_tailor::prove::{GOES_ON, Proof, ProofConfig, prove};
use tare_tailor::report::{ApplicationLine, Report};
use tare_tailor::root::{self, RootFrom};
use tare_tailor::several::{self, TailoredForAll};
use tare_tailor::source::Source;
use tare_tailor::spec::KernelSpec;
use tare_tailor::starter::{self, Bounds, Starter};
use tare_tailor::tailoring::{Control, Step, Tailored, Tailoring};
use tare_tailor::toolchain::Toolchain;
use tare_tailor::tuning::load::Load;
use tare_tailor::tuning::report::SearchReport;

use crate::failure::{CommandResult, Failure};
use crate::output::{print, warn};
use crate::profile::read;
use crate::signals::{self, Requests};
use applications::Profiled;
use args::TailorArgs;
use progress::Progress;
use subject::Subject;

/// Memory of the guest that proves a kernel, MiB.
const MEMORY_MIB: u32 = 256;
/// Consoles of the proofs, in the kernel's directory.
const LOGS: &str = "logs";
/// Console of the proof of a kernel with its own parameters.
const PARAMETERS_LOG: &str = "proof-parameters.log";
/// The report, in the kernel's directory.
const REPORT_TEXT: &str = "report.txt";
const REPORT_JSON: &str = "report.json";

/// Tailors a kernel, or rebuilds one from its lock file.
pub(crate) fn tailor(args: &TailorArgs) -> CommandResult {
    let builder = KernelBuilder {
        cache: Cache::open_default()?,
        source: args.source.clone().map(Source::at).unwrap_or_default(),
        jobs: args.jobs.unwrap_or_else(cpus),
        patching: Patching::Cached,
        starter: Starter::Tare(this_program()?, bounds(args)),
    };
    let failed = |error| Failure::new(ExitCode::Internal, error);
    let interrupted = signals::flag().map_err(failed)?;
    let requests = Requests::watch().map_err(failed)?;
    let outcome = match (&args.lock, &args.kernel) {
        (Some(lock), _) => again(args, lock, &builder, &interrupted),
        (None, Some(kernel)) => tuning::on_a_kernel(args, kernel, &builder, &interrupted),
        (None, None) => anew(args, &builder, interrupted),
    };
    outcome.map_err(|failure| requests.attribute(failure))
}

/// The bounds of each `make`.
fn bounds(args: &TailorArgs) -> Bounds {
    let usual = starter::bounds();
    let memory = args.build_memory.map(|gib| u64::from(gib.get()) << 30);
    Bounds {
        time: limit(args),
        memory: memory.unwrap_or(usual.memory),
        bytes: u64::from(args.space.get()) << 30,
        ..usual
    }
}

fn limit(args: &TailorArgs) -> Duration {
    Duration::from_secs(args.minutes.get().saturating_mul(60))
}

/// `tare` starts itself to confine other programs.
fn this_program() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(|error| Failure::new(ExitCode::Internal, error))
}

fn cpus() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Rebuilds the kernel of a lock file and prints the differences.
fn again(
    args: &TailorArgs,
    path: &Path,
    builder: &KernelBuilder,
    ended: &AtomicBool,
) -> CommandResult {
    let lock = Lock::read(path)?;
    let counts = match lock.counts {
        Some(_) => {
            Some(ExecutionCounts::read(&path.with_file_name(COUNTS)).map_err(MakeError::from)?)
        }
        None => None,
    };
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| "out/kernel-again".into());
    let mut progress = Progress::new(Vec::new());
    let goes_on = || !ended.load(Ordering::Relaxed);
    let kernel = builder.make_again(&lock, counts.as_ref(), &out, &goes_on, |file| {
        progress.step(&Step::Made(file));
    })?;
    let image = install(&out, &kernel)?;
    for (symbol, why) in &lock.added {
        print(&format!("Added {symbol}: {}\n", printable(why)))?;
    }
    let differences = lock.differences(&kernel.lock);
    if differences.is_empty() {
        print(&format!(
            "Equal bit for bit: {} ({})\n",
            image.display(),
            lock.image_sha256
        ))?;
        return Ok(ExitCode::Success);
    }
    print(&format!("Not equal: {} differ.\n", differences.join(", ")))?;
    Ok(ExitCode::LockDiffers)
}

fn anew(args: &TailorArgs, builder: &KernelBuilder, interrupted: Arc<AtomicBool>) -> CommandResult {
    let begin = Instant::now();
    // First, so that a wrong directory is found before the build.
    let records = args.cves.as_deref().map(Records::read).transpose()?;
    let profiles = read::each(&args.profiles)?;
    let applications = applications::grouped(&profiles);
    let load = tuning::load(args, applications.len())?;
    let mut whole = Profile::empty();
    profiles.iter().for_each(|profile| whole.merge(profile));
    let mut spec = spec::spec(whole, args);
    // Before a guest is started, and sources are downloaded.
    Toolchain::of(&spec.cuts).map_err(MakeError::from)?;
    let is_optimized = optimized::is_wanted(args, &spec, applications.len())?;
    let dir = spec::place(args, &applications);
    let subjects = subjects(args, &applications, &spec, &dir, &interrupted)?;
    let mut trees = subjects.iter().map(|it| &it.application.tree);
    if trees.any(|tree| !guest::capabilities(tree).is_empty()) {
        spec::keep_capabilities(&mut spec);
    }
    let series = builder.source.series(&builder.cache);
    spec.series = series.map_err(MakeError::from)?;
    let debian = Debian::obtain(&builder.cache);
    let control = debian.as_ref().map(Debian::control);
    let mut progress = Progress::new(applications.iter().map(|it| it.name.clone()).collect());
    let limit = limit(args);
    let (first_spec, first_dir) = optimized::first(&spec, &dir, is_optimized);
    let tailorings: Vec<Tailoring<'_>> = subjects
        .iter()
        .map(|subject| Tailoring {
            builder,
            application: &subject.application,
            terms: &subject.terms,
            debian: control,
            dir: &first_dir,
            logs: &subject.logs,
            limit,
        })
        .collect();
    let all = several::run(&tailorings, first_spec, limit, |step| {
        progress.step(&step);
    })?;
    let mut proofs = all.iter().flat_map(|all| all.proofs.iter().flatten());
    if let Some(warning) = proofs.find_map(|proof| proof.warning) {
        warn(warning);
    }
    let (Some(mut all), [first, ..]) = (all, subjects.as_slice()) else {
        return Err(Failure::new(ExitCode::Usage, "no profile"));
    };
    if is_optimized {
        optimized::replace(
            args,
            &mut spec,
            builder,
            &subjects,
            &mut all,
            &dir,
            &mut progress,
        )?;
    }
    let search = match load {
        Some(load) if all.passed() => {
            let tailored = &mut all.tailored;
            let found = search(args, &load, builder, first, tailored, &dir)?;
            if !found.kept.is_empty() {
                progress.say("building the kernel with these parameters as its own");
                spec.parameters.clone_from(&found.kept);
                let step = |step: Step<'_>| progress.step(&step);
                all.proofs = vec![Some(rebuild(
                    &mut spec, builder, first, tailored, &dir, step,
                )?)];
            }
            Some(found)
        }
        Some(_) => {
            warn("no search: the kernel is not proven");
            None
        }
        None => None,
    };
    let image = install(&dir, &all.tailored.kernel)?;
    let figures = figures::Figures {
        args,
        spec: &spec,
        builder,
        application: &first.application,
        terms: &first.terms,
        debian: debian
            .as_ref()
            .map(|debian| (&debian.kernel, debian.control())),
        dir: &dir,
        logs: &first.logs,
        records: records.as_ref(),
    };
    progress.say("weighing the start of both kernels");
    let mut report = figures.report(&all.tailored)?;
    add_applications(&mut report, &subjects, &all);
    report.search = search;
    report.total_s = begin.elapsed().as_secs_f64();
    report.files = files(&dir, &image, &all.tailored);
    // The names in it come from the profile.
    let text = report.to_string();
    let text = printable_lines(&text);
    write(&dir.join(REPORT_TEXT), text.as_bytes())?;
    let json = serde_json::to_string_pretty(&report)
        .map_err(|error| Failure::new(ExitCode::Internal, error))?;
    write(&dir.join(REPORT_JSON), json.as_bytes())?;
    if args.json {
        print(&(json + "\n"))?
    } else {
        print(&text)?
    };
    Ok(if all.passed() {
        ExitCode::Success
    } else {
        ExitCode::NotProven
    })
}

/// Searches settings on the kernel that was tailored.
fn search(
    args: &TailorArgs,
    load: &Load,
    builder: &KernelBuilder,
    subject: &Subject,
    tailored: &Tailored,
    dir: &Path,
) -> Result<SearchReport, Failure> {
    let searched = tuning::Searched {
        image: &tailored.kernel.image.bz_image,
        modules: &[],
        config: Some(&tailored.kernel.config),
        subject,
        machine_type: subject.terms.machine_type,
        dir,
    };
    let report = searched.run(args, load, &builder.cache)?;
    searched.keep(&report)?;
    Ok(report)
}

/// Builds the tailored kernel with the specification's parameters as its own, and proves it.
fn rebuild(
    spec: &mut KernelSpec,
    builder: &KernelBuilder,
    subject: &Subject,
    tailored: &mut Tailored,
    dir: &Path,
    mut step: impl FnMut(Step<'_>),
) -> Result<Proof, Failure> {
    let added = tailored.added.iter();
    spec.add
        .extend(added.map(|it| (it.symbol.clone(), it.why.clone())));
    let Subject {
        application, terms, ..
    } = subject;
    let goes_on = || terms.may_go_on();
    let kernel = builder.make(spec, dir, &goes_on, |file| step(Step::Made(file)))?;
    step(Step::Proving);
    let console = subject.logs.join(PARAMETERS_LOG);
    let proof = prove(&kernel.image.bz_image, &[], application, terms, &console)?;
    tailored.kernels += 1;
    tailored.build_time += kernel.build_time;
    tailored.kernel = kernel;
    tailored.proof = proof.clone();
    Ok(proof)
}

/// The applications with their files and proofs.
fn subjects(
    args: &TailorArgs,
    applications: &[Profiled],
    spec: &KernelSpec,
    dir: &Path,
    interrupted: &Arc<AtomicBool>,
) -> Result<Vec<Subject>, Failure> {
    let checks = applications::checks(applications, &args.check)?;
    let roots = applications::roots(applications, &args.root)?;
    let is_one = applications.len() == 1;
    if !is_one && !args.command.is_empty() {
        let what = "of several applications each has the command of its profile: leave out the \
                    command after --";
        return Err(Failure::new(ExitCode::Usage, what));
    }
    let tare = this_program()?;
    let subject = |((profiled, check), from): ((&Profiled, Check), RootFrom)| {
        let Profiled { name, profile } = profiled;
        let logs = dir.join(LOGS);
        Ok::<_, Failure>(Subject {
            name: name.clone(),
            application: root::gather(&from, profile, &args.command, &check, &spec.cuts)?,
            logs: if is_one { logs } else { logs.join(name) },
            terms: ProofConfig {
                check,
                machine_type: machine_type(spec.target),
                execution: Execution::Translated,
                cmdline: args.cmdline.clone(),
                memory_mib: MEMORY_MIB,
                limit: Duration::from_secs(args.check_timeout),
                goes_on: GOES_ON,
                refusals: Logging::Off,
                interrupted: Arc::clone(interrupted),
                tare: tare.clone(),
            },
        })
    };
    let each = applications.iter().zip(checks).zip(roots);
    each.map(subject).collect()
}

/// Adds the result of each application to the report.
fn add_applications(report: &mut Report, subjects: &[Subject], all: &TailoredForAll) {
    report.applications = applications_of(subjects, all);
    let [first, others @ ..] = subjects else {
        return;
    };
    if others.is_empty() {
        return;
    }
    report.of_several(&first.name);
    for subject in others {
        let of = |note| format!("{}: {note}", subject.name);
        report
            .notes
            .extend(subject.application.notes.iter().map(of));
    }
}

fn applications_of(subjects: &[Subject], all: &TailoredForAll) -> Vec<ApplicationLine> {
    let line = |(subject, proof): (&Subject, &Option<Proof>)| ApplicationLine {
        name: subject.name.clone(),
        check: subject.terms.check.to_string(),
        failure: match proof {
            Some(proof) => proof.failure.clone(),
            None => Some("not tried, since another application is not proven".to_owned()),
        },
        load_requests: proof.as_ref().map_or(0, |proof| proof.requests),
    };
    subjects.iter().zip(&all.proofs).map(line).collect()
}

/// Debian's kernel with the input of its figures and proofs.
struct Debian {
    kernel: tare_rootfs::Kernel,
    modules: Vec<Module>,
    config: Config,
}

impl Debian {
    /// Warns where it is unavailable.
    fn obtain(cache: &Cache) -> Option<Self> {
        let kernel = debian::find_or_obtain(cache)
            .map_err(|error| warn(&format!("Debian's kernel is not compared: {error}")))
            .ok()?;
        let modules = kernel.machine_modules(&[]).unwrap_or_default();
        let text = fs::read_to_string(&kernel.config).ok()?;
        Some(Self {
            modules,
            config: Config::read(&text),
            kernel,
        })
    }

    fn control(&self) -> Control<'_> {
        Control {
            image: &self.kernel.image,
            modules: &self.modules,
            config: &self.config,
        }
    }
}

fn files(dir: &Path, image: &Path, tailored: &Tailored) -> Vec<String> {
    vec![
        format!("Kernel: {}", image.display()),
        format!("Lock: {}", dir.join(LOCK).display()),
        format!("Console: {}", tailored.proof.console.display()),
        format!("Report: {}", dir.join(REPORT_JSON).display()),
    ]
}

/// Copies the images beside the lock file, independent of the build directory.
fn install(dir: &Path, kernel: &Kernel) -> Result<PathBuf, Failure> {
    let Image { bz_image, vmlinux } = &kernel.image;
    let copy = |from: &Path, name: &str| {
        let to = dir.join(name);
        fs::copy(from, &to)
            .map(|_| to)
            .map_err(|error| Failure::new(ExitCode::Output, error))
    };
    copy(vmlinux, "vmlinux")?;
    copy(bz_image, "bzImage")
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|error| {
        let sentence = format!("cannot write {}: {error}", path.display());
        Failure::new(ExitCode::Output, sentence)
    })
}

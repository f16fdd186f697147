//! The cut `pgo`: counts of an instrumented kernel on which the applications are proven, and the kernel
//! that is optimized by them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tare_control::exit::ExitCode;
use tare_tailor::counts::ExecutionCounts;
use tare_tailor::cut::Cut;
use tare_tailor::kernel::KernelBuilder;
use tare_tailor::prove::prove;
use tare_tailor::several::TailoredForAll;
use tare_tailor::spec::{Counted, KernelSpec};
use tare_tailor::tailoring::Step;
use tare_tailor::training::Training;

use super::args::TailorArgs;
use super::progress::Progress;
use super::subject::Subject;
use crate::failure::Failure;

/// The instrumented kernel, in the directory of the other.
const INSTRUMENTED: &str = "instrumented";
/// Consoles of the counted load and of the proof of the optimized kernel.
const LOAD_LOG: &str = "counts.log";
const PROOF_LOG: &str = "proof-optimized.log";

/// Whether a kernel is optimized by counts; the cuts and options must allow it.
pub(super) fn is_wanted(
    args: &TailorArgs,
    spec: &KernelSpec,
    applications: usize,
) -> Result<bool, Failure> {
    let wrong = |sentence: &str| Err(Failure::new(ExitCode::Usage, sentence));
    let is_wanted = spec.cuts.contains(&Cut::Pgo);
    if is_wanted && spec.cuts.contains(&Cut::ThinLto) {
        return wrong(
            "the cuts pgo and thin-lto exclude each other: counts are made and read by gcc, \
             thin-lto is clang's",
        );
    }
    if is_wanted && applications > 1 && args.load.is_some() {
        return wrong("--load is of one application: without it, each one's --check is its load");
    }
    if args.load.is_some() && !is_wanted && args.search.is_none() {
        return wrong("--load is the load of --search or of --cut pgo: give one of them");
    }
    Ok(is_wanted)
}

/// What is built first, and where: with counts, a kernel that is instrumented.
pub(super) fn first(spec: &KernelSpec, dir: &Path, is_wanted: bool) -> (KernelSpec, PathBuf) {
    if is_wanted {
        (spec.instrumented(), dir.join(INSTRUMENTED))
    } else {
        (spec.clone(), dir.to_owned())
    }
}

/// Counts what the applications execute on the instrumented kernel, which is replaced by one that is
/// optimized by that, and proven.
pub(super) fn replace(
    args: &TailorArgs,
    spec: &mut KernelSpec,
    builder: &KernelBuilder,
    subjects: &[Subject],
    all: &mut TailoredForAll,
    dir: &Path,
    progress: &mut Progress,
) -> Result<(), Failure> {
    if let Some(failure) = &all.tailored.proof.failure {
        let console = all.tailored.proof.console.display();
        let sentence = format!(
            "nothing to optimize: the instrumented kernel is not proven: {failure}; the console is \
             in {console}"
        );
        return Err(Failure::new(ExitCode::NotProven, sentence));
    }
    let counts = counts(args, subjects, all, progress)?;
    progress.say(&format!(
        "building the kernel again, by what ran in {} of {} object files",
        counts.objects_run(),
        counts.objects()
    ));
    spec.counted = Some(Counted {
        counts: Arc::new(counts),
        sources: all.tailored.kernel.sources.clone(),
    });
    let mut spec = spec.clone();
    let added = all.tailored.added.iter();
    spec.add
        .extend(added.map(|it| (it.symbol.clone(), it.why.clone())));
    let goes_on = || subjects.iter().all(|subject| subject.terms.may_go_on());
    let kernel = builder.make(&spec, dir, &goes_on, |file| {
        progress.step(&Step::Made(file));
    })?;
    all.proofs = Vec::new();
    for subject in subjects {
        let Subject {
            application, terms, ..
        } = subject;
        progress.step(&Step::Proving);
        let console = subject.logs.join(PROOF_LOG);
        let proof = prove(&kernel.image.bz_image, &[], application, terms, &console)?;
        all.tailored.proof = proof.clone();
        all.proofs.push(Some(proof));
    }
    all.tailored.kernels += 1;
    all.tailored.build_time += kernel.build_time;
    all.tailored.kernel = kernel;
    Ok(())
}

/// The sum of all applications' counts.
fn counts(
    args: &TailorArgs,
    subjects: &[Subject],
    all: &TailoredForAll,
    progress: &mut Progress,
) -> Result<ExecutionCounts, Failure> {
    let objects = all.tailored.kernel.objects();
    let mut sum = ExecutionCounts::default();
    for subject in subjects {
        let name = &subject.name;
        progress.say(&format!("counting what {name} has the kernel execute"));
        let training = Training {
            application: &subject.application,
            terms: &subject.terms,
            load: args.load.as_ref(),
            console: &subject.logs.join(LOAD_LOG),
        };
        sum.add(&training.run(objects)?);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use tare_profile::Profile;

    use super::super::args::parsed;
    use super::super::spec::spec;
    use super::*;

    fn wanted(words: &[&str], applications: usize) -> Result<bool, String> {
        let args = parsed(words);
        let spec = spec(Profile::empty(), &args);
        is_wanted(&args, &spec, applications).map_err(|failure| failure.sentence())
    }

    #[test]
    fn a_load_is_for_a_search_or_counts() {
        let load = ["--load", "http:80/"];
        assert_eq!(wanted(&[], 1), Ok(false));
        assert_eq!(wanted(&["--cut", "pgo"], 2), Ok(true));
        let pgo = [&load[..], &["--cut", "pgo"]].concat();
        assert_eq!(wanted(&pgo, 1), Ok(true));
        assert!(wanted(&pgo, 2).is_err_and(|error| error.contains("of one application")));
        assert!(wanted(&load, 1).is_err_and(|error| error.contains("--cut pgo")));
        let search = [&load[..], &["--search", "5"]].concat();
        assert_eq!(wanted(&search, 1), Ok(false));
    }

    #[test]
    fn gcc_counts_and_clang_optimizes_links() {
        let both = wanted(&["--cut", "pgo", "--cut", "thin-lto"], 1);
        assert!(both.is_err_and(|error| error.contains("exclude each other")));
    }

    #[test]
    fn the_first_kernel_is_instrumented_in_a_directory_of_its_own() {
        let plain = KernelSpec::new(Profile::empty(), tare_tailor::target::Target::Qemu);
        let (spec, dir) = first(&plain, Path::new("out"), true);
        assert_eq!(dir, Path::new("out/instrumented"));
        let added: Vec<&str> = spec.add.keys().map(|symbol| symbol.name()).collect();
        assert_eq!(added, ["DEBUG_FS", "GCOV_KERNEL", "GCOV_PROFILE_ALL"]);
        let (spec, dir) = first(&plain, Path::new("out"), false);
        assert!(spec.add.is_empty() && dir == Path::new("out"));
    }
}

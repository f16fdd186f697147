//! The figures of a report: both kernels' configurations, starts and cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;

use tare_qemu::MachineType;
use tare_rootfs::modules::Module;
use tare_rootfs::{Kernel as DebianKernel, Tree};
use tare_tailor::cut::Cut;
use tare_tailor::cves::Records;
use tare_tailor::kbuild::Kbuild;
use tare_tailor::kconfig::{Config, Prompts};
use tare_tailor::kernel::{KernelBuilder, MakeError, OBJECTS};
use tare_tailor::mapping::hardening::{self, Lacking};
use tare_tailor::prove::{ProofConfig, ProveError, weigh_boot};
use tare_tailor::report::{Boots, CutLine, KernelFigures, Report, SCHEMA, code_kib};
use tare_tailor::root::Application;
use tare_tailor::source::Series;
use tare_tailor::spec::KernelSpec;
use tare_tailor::tailoring::{CONTROL_LOG, Control, Tailored};
use tare_tailor::{calls, code};

use super::args::TailorArgs;
use crate::failure::Failure;
use crate::output::warn;

/// The input of the figures.
pub(super) struct Figures<'a> {
    pub(super) args: &'a TailorArgs,
    pub(super) spec: &'a KernelSpec,
    pub(super) builder: &'a KernelBuilder,
    pub(super) application: &'a Application,
    pub(super) terms: &'a ProofConfig,
    pub(super) debian: Option<(&'a DebianKernel, Control<'a>)>,
    pub(super) dir: &'a Path,
    /// Directory of the consoles of the proofs.
    pub(super) logs: &'a Path,
    /// CVE records, to be counted.
    pub(super) records: Option<&'a Records>,
}

impl Figures<'_> {
    /// The report; the caller adds its files and the total time.
    pub(super) fn report(&self, tailored: &Tailored) -> Result<Report, Failure> {
        let mut notes = self.application.notes.clone();
        let never: Vec<&str> = tailored
            .kernel
            .choice
            .never_there
            .iter()
            .map(String::as_str)
            .collect();
        if !never.is_empty() {
            notes.push(format!(
                "calls that were answered by ENOSYS where they were profiled are left out: {}",
                never.join(", ")
            ));
        }
        if !self.terms.cmdline.is_empty() {
            notes.push(format!(
                "checked with boot parameters; boot the kernel with them: {}",
                self.terms.cmdline
            ));
        }
        let optional = &tailored.kernel.choice.optional;
        if !optional.is_empty() {
            let names: Vec<&str> = optional.keys().map(|symbol| symbol.name()).collect();
            notes.push(format!(
                "only looked at, so left out (--keep builds them): {}",
                names.join(", ")
            ));
        }
        let tree = self
            .builder
            .source
            .tree(&self.builder.cache)
            .map_err(MakeError::from)?;
        let table = calls::of(&tree)
            .map_err(|error| Failure::new(tare_control::exit::ExitCode::KernelSources, error))?;
        let unknown = calls::unknown(&table, &self.spec.profile);
        if !unknown.is_empty() {
            notes.push(format!(
                "Linux {} has no calls of these names, which the profile has: {}",
                tree.version(),
                unknown.join(", ")
            ));
        }
        let (mut tailored_figures, mut debian) =
            self.kernels(tailored, &Prompts::of(&tree), (&table, tree.series()))?;
        if let Some(records) = self.records {
            let kbuild = Kbuild::of(tree.dir());
            let count = |config: &Config| Some(kbuild.count(&records.files, config));
            tailored_figures.cves = count(&tailored.kernel.config);
            if let (Some(debian), Some((_, control))) = (&mut debian, self.debian) {
                debian.cves = count(control.config);
            }
        }
        Ok(Report {
            schema: SCHEMA,
            tailored: tailored_figures,
            debian,
            machines: self.machines(),
            code_bytes: self.code(),
            cve_records: self.records.map(|records| {
                let (count, years) = (records.files.len(), records.years());
                format!(
                    "{count} records of {years}, by the files that their fixes changed, fixed here or \
                     not; modules count"
                )
            }),
            calls_used: self.spec.profile.calls.len(),
            cuts: self.cuts(&tailored.kernel.config)?,
            lacking: self.lacking(&tailored.kernel.config),
            applications: Vec::new(),
            check: self.terms.check.to_string(),
            failure: tailored.proof.failure.clone(),
            load_requests: tailored.proof.requests,
            added: tailored.added.clone(),
            search: None,
            notes,
            kernels: tailored.kernels,
            build_s: tailored.build_time.as_secs_f64(),
            total_s: 0.0,
            files: Vec::new(),
        })
    }

    /// Hardening that Debian's kernel has and this one lacks.
    fn lacking(&self, own: &Config) -> Vec<Lacking> {
        // The configuration at hand is of Debian 12's kernel, 6.1.
        let debian = self.debian.map(|(_, control)| control.config);
        hardening::lacking(
            self.spec,
            own,
            debian.filter(|_| self.spec.series == Series::V6_1),
        )
    }

    /// The machines of both kernels' boots, if they are different: Debian's kernel is for a PC.
    fn machines(&self) -> Option<[&'static str; 2]> {
        let name = |machine| match machine {
            MachineType::Q35 => "QEMU's q35",
            MachineType::Microvm => "QEMU's microvm",
        };
        let own = self.terms.machine_type;
        (own != MachineType::Q35 && self.debian.is_some())
            .then(|| [own, MachineType::Q35].map(name))
    }

    /// Code by directory; empty where the objects cannot be read.
    fn code(&self) -> BTreeMap<String, u64> {
        code::by_directory(&self.dir.join(OBJECTS)).unwrap_or_else(|error| {
            warn(&format!("no figures of the kernel's code: {error}"));
            BTreeMap::new()
        })
    }

    fn kernels(
        &self,
        tailored: &Tailored,
        prompts: &Prompts,
        table: (&BTreeSet<String>, Series),
    ) -> Result<(KernelFigures, Option<KernelFigures>), Failure> {
        let kernel = &tailored.kernel;
        let (own, other) = self.boots(&kernel.image.bz_image)?;
        let lock = &kernel.lock;
        let memory = self.terms.memory_mib;
        let own = KernelFigures::of(
            lock.linux_version.clone(),
            &kernel.config,
            prompts,
            table,
            lock.image_bytes,
        )
        .with_boot(own, memory);
        let own = KernelFigures {
            requested: Some(kernel.choice.symbols.len()),
            code_kib: code_kib(&tailored.proof.console),
            ..own
        };
        let debian = self.debian.map(|(debian, control)| {
            let bytes = fs::metadata(&debian.image).map_or(0, |data| data.len());
            let release = debian.release.clone();
            let figures = KernelFigures::of(release, control.config, prompts, table, bytes);
            KernelFigures {
                code_kib: code_kib(&self.logs.join(CONTROL_LOG)),
                ..figures.with_boot(other, memory)
            }
        });
        Ok((own, debian))
    }

    /// Starts the tailored kernel and Debian's at the same time: instruction counts do not depend
    /// on load. Each also starts without the application's files, since unpacking them is not part
    /// of the kernel's own boot.
    fn boots(&self, image: &Path) -> Result<(Boots, Boots), ProveError> {
        let nothing = Application {
            tree: Tree::new(),
            ..self.application.clone()
        };
        let boot = |image: &Path, modules: &[Module], terms: &ProofConfig, name: &str| {
            let of = |application: &Application, name: String| {
                weigh_boot(image, modules, application, terms, &self.logs.join(name))
            };
            Ok::<_, ProveError>(Boots {
                alone: of(&nothing, format!("{name}-alone.log"))?,
                whole: of(self.application, format!("{name}.log"))?,
            })
        };
        let pc = ProofConfig {
            machine_type: MachineType::Q35,
            ..self.terms.clone()
        };
        thread::scope(|scope| {
            let other = self.debian.map(|(_, debian)| {
                let (boot, pc) = (&boot, &pc);
                scope.spawn(move || boot(debian.image, debian.modules, pc, "boot-debian"))
            });
            let own = boot(image, &[], self.terms, "boot-tailored")?;
            let other = other.and_then(|thread| thread.join().ok()).transpose()?;
            Ok((own, other.unwrap_or_default()))
        })
    }

    /// The cuts; on request with what each saves: options of the kernel with it less options of the
    /// kernel without it.
    fn cuts(&self, config: &Config) -> Result<Vec<CutLine>, Failure> {
        let mut lines = Vec::new();
        for cut in Cut::ALL {
            let taken = self.spec.cuts.contains(&cut);
            let in_configuration = !cut.is_of_source() && cut.flag().is_none();
            let options = if self.args.each_cut && in_configuration && cut != Cut::Packages {
                Some(self.worth(cut, config)?)
            } else {
                None
            };
            lines.push(CutLine {
                cut,
                taken,
                about: cut.about(),
                gives_up: cut.gives_up(),
                options,
            });
        }
        Ok(lines)
    }

    fn worth(&self, cut: Cut, config: &Config) -> Result<i64, Failure> {
        let mut spec = self.spec.clone();
        let taken = !spec.cuts.insert(cut);
        if taken {
            spec.cuts.remove(&cut);
        }
        if cut == Cut::Smp {
            spec.parts.insert(tare_tailor::target::Part::SeveralCpus);
        }
        let goes_on = || self.terms.may_go_on();
        let dir = self.dir.join("each-cut");
        let other = self.builder.configure(&spec, &dir, &goes_on)?;
        let count = |config: &Config| i64::try_from(config.options()).unwrap_or(0);
        let (with, without) = if taken {
            (count(config), count(&other))
        } else {
            (count(&other), count(config))
        };
        Ok(with - without)
    }
}

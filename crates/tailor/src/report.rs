//! What a tailored kernel is, beside Debian's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::Serialize;
use tare_init::Figures;

use crate::calls;
use crate::cut::Cut;
use crate::kconfig::{Config, Prompts};
use crate::machine::{self, NS_PER_INSTRUCTION};
use crate::mapping::hardening::Lacking;
use crate::source::Series;
use crate::tailoring::Added;
use crate::tuning::report::SearchReport;

/// The schema of the JSON form.
pub const SCHEMA: &str = "tare-tailor/1";

/// Figures of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelFigures {
    /// Its version or release.
    pub version: String,
    /// Options that the application, the machine and the cuts request; nothing for a
    /// kernel that was not made here.
    pub requested: Option<usize>,
    /// Options that are on, those included that a compiler or processor has and that
    /// compile nothing (`HAVE_`, `CC_HAS_`, ...).
    pub options: usize,
    /// Those of them that a person can set.
    pub settable: usize,
    /// Those that are modules.
    pub modules: usize,
    /// System calls that are answered.
    pub calls: usize,
    /// The compressed image, bytes.
    pub image_bytes: u64,
    /// Its code that is built in, KiB, as it says itself when it starts.
    pub code_kib: Option<u64>,
    /// CVE records of a file that is compiled in, or as a module.
    pub cves: Option<usize>,
    /// Instructions from power-on to the first process, translated with a
    /// counted clock, of a root that has nothing but this process: the kernel's part.
    pub kernel_instructions: Option<u64>,
    /// The same with the application's root, which the kernel unpacks.
    pub boot_instructions: Option<u64>,
    /// The same with the first process's work, to the start of the application.
    pub ready_instructions: Option<u64>,
    /// Memory that the kernel, the root and the first process take, KiB.
    pub memory_kib: Option<u64>,
}

/// A cut in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CutLine {
    /// The cut.
    pub cut: Cut,
    /// Whether it was taken.
    pub taken: bool,
    /// What is left out.
    pub about: &'static str,
    /// The safety that it gives up.
    pub gives_up: Option<&'static str>,
    /// Options that it is worth.
    pub options: Option<i64>,
}

/// An application in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApplicationLine {
    /// Its name.
    pub name: String,
    /// What its check was.
    pub check: String,
    /// What did not work; `None` for one that is proven.
    pub failure: Option<String>,
    /// Requests of its load.
    pub load_requests: u32,
}

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The tailored kernel.
    pub tailored: KernelFigures,
    /// Debian's, if it is available.
    pub debian: Option<KernelFigures>,
    /// The machines that boots of the tailored kernel and of Debian's were measured on, if they
    /// are different.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<[&'static str; 2]>,
    /// Bytes of code of the tailored kernel, by directory of the sources.
    pub code_bytes: BTreeMap<String, u64>,
    /// What CVE records were looked at, as a sentence has it.
    pub cve_records: Option<String>,
    /// System calls that the profile has.
    pub calls_used: usize,
    /// The cuts.
    pub cuts: Vec<CutLine>,
    /// Hardening that Debian's kernel has and this one lacks, by reason.
    pub lacking: Vec<Lacking>,
    /// The applications that the kernel is for.
    pub applications: Vec<ApplicationLine>,
    /// What the check was; of several applications all of them.
    pub check: String,
    /// What did not work; `None` for a kernel that is proven.
    pub failure: Option<String>,
    /// Requests of the load.
    pub load_requests: u32,
    /// Options that the proof showed to be missing.
    pub added: Vec<Added>,
    /// Settings that were searched; the kernel has those that are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchReport>,
    /// What was left out of the root, and the like.
    pub notes: Vec<String>,
    /// Kernels that were built.
    pub kernels: usize,
    /// Time of the compiler, s.
    pub build_s: f64,
    /// Time of everything, s.
    pub total_s: f64,
    /// The image, the lock and the console, by path.
    pub files: Vec<String>,
}

impl KernelFigures {
    /// What the configuration says; `table` has the calls of a series.
    pub fn of(
        version: String,
        config: &Config,
        prompts: &Prompts,
        (table, series): (&BTreeSet<String>, Series),
        image_bytes: u64,
    ) -> Self {
        Self {
            version,
            options: config.options(),
            settable: prompts.count(config),
            modules: config.modules(),
            calls: calls::reachable(table, config, series).len(),
            image_bytes,
            ..Self::default()
        }
    }

    /// With what its first process reported.
    #[must_use]
    pub fn with_boot(self, boots: Boots, memory_mib: u32) -> Self {
        let instructions = |cycles: u64| cycles / NS_PER_INSTRUCTION;
        let memory = |it: Figures| (u64::from(memory_mib) * 1024).saturating_sub(it.free_kib);
        Self {
            kernel_instructions: boots.alone.map(|it| instructions(it.begin_cycles)),
            boot_instructions: boots.whole.map(|it| instructions(it.begin_cycles)),
            ready_instructions: boots.whole.map(|it| instructions(it.ready_cycles)),
            memory_kib: boots.whole.map(memory),
            ..self
        }
    }
}

/// KiB of code that a kernel has built in, as it says on its console.
pub fn code_kib(console: &Path) -> Option<u64> {
    machine::kernel_code_kib(&machine::console(console))
}

/// Two starts of one kernel, as its first process saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boots {
    /// With nothing in the root but the first process.
    pub alone: Option<Figures>,
    /// With the application.
    pub whole: Option<Figures>,
}

/// Width of paragraphs.
const WIDTH: usize = 79;
/// Most directories whose code is printed.
const MOST_DIRECTORIES: usize = 8;

/// What a line of the table is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// The kernel alone.
    Kernel,
    /// A boot, which depends on the machine too.
    Boot,
}

use About::{Boot, Kernel};

/// One line of the table: a name, what it is about, and how a kernel's figure is shown.
type Line = (&'static str, About, fn(&KernelFigures) -> Option<f64>);

/// The table of both kernels.
const TABLE: &[Line] = &[
    ("options requested", Kernel, |it| Some(it.requested? as f64)),
    ("options on that can be set*", Kernel, |it| {
        Some(it.settable as f64)
    }),
    ("  modules", Kernel, |it| Some(it.modules as f64)),
    ("system calls answered", Kernel, |it| Some(it.calls as f64)),
    ("image, KiB", Kernel, |it| {
        Some(it.image_bytes as f64 / 1024.0)
    }),
    ("code built in, KiB", Kernel, |it| Some(it.code_kib? as f64)),
    ("CVEs in compiled files", Kernel, |it| Some(it.cves? as f64)),
    ("boot, million instructions", Boot, |it| {
        Some(it.kernel_instructions? as f64 / 1e6)
    }),
    ("  with the root unpacked", Boot, |it| {
        Some(it.boot_instructions? as f64 / 1e6)
    }),
    ("to the application, million", Boot, |it| {
        Some(it.ready_instructions? as f64 / 1e6)
    }),
    ("memory at its start, KiB", Boot, |it| {
        Some(it.memory_kib? as f64)
    }),
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let debian = self.debian.as_ref();
        writeln!(
            f,
            "{:<30}{:>14}{:>14}{:>10}",
            "", "tailored", "Debian's", "of it"
        )?;
        for (name, about, figure) in TABLE {
            let mark = match self.machines {
                Some(_) if *about == Boot => " **",
                _ => "",
            };
            let (own, other) = (figure(&self.tailored), debian.and_then(figure));
            let share = own
                .zip(other)
                .filter(|(_, other)| *other > 0.0)
                .map(|(own, other)| format!("{:.1} %", own / other * 100.0));
            let (own, other) = (shown(own), shown(other));
            writeln!(
                f,
                "{name:<30}{own:>14}{other:>14}{:>10}{mark}",
                share.unwrap_or_default()
            )?;
        }
        let all = debian.map_or_else(String::new, |it| format!(" (Debian's: {})", it.options));
        writeln!(
            f,
            "* {}{all} are on in all; most of the others are facts about compiler and\n  \
             processor, which compile nothing.\n\n\
             The application makes {} kinds of system calls.",
            self.tailored.options, self.calls_used
        )?;
        if let Some([own, other]) = self.machines {
            writeln!(
                f,
                "** measured on {own} for the tailored kernel and on {other} for Debian's: the share\n   \
                 has the difference between the machines too."
            )?;
        }
        if let Some(records) = &self.cve_records {
            writeln!(f, "CVEs: {records}.")?;
        }
        self.write_code(f)?;
        self.write_cuts(f)?;
        self.write_lacking(f)?;
        self.write_proof(f)?;
        if let Some(search) = &self.search {
            write!(f, "\n{search}")?;
        }
        for note in &self.notes {
            writeln!(f, "Note: {note}")?;
        }
        for file in &self.files {
            writeln!(f, "{file}")?;
        }
        Ok(())
    }
}

impl Report {
    /// Makes it the report of all of its applications; `first` is the one whose root and
    /// command were weighed.
    pub fn of_several(&mut self, first: &str) {
        let all = || self.applications.iter();
        let checks: Vec<String> = all()
            .map(|it| format!("{}: {}", it.name, it.check))
            .collect();
        let failure = all().find_map(|it| Some(format!("{}: {}", it.name, it.failure.as_ref()?)));
        let requests = all().map(|it| it.load_requests).sum();
        let note = format!(
            "the root that is unpacked, the memory and notes without a name are those of {first}"
        );
        self.check = checks.join(", ");
        self.failure = failure;
        self.load_requests = requests;
        self.notes.push(note);
    }

    /// The largest directories first.
    fn write_code(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut largest: Vec<_> = self.code_bytes.iter().collect();
        largest.sort_by_key(|(_, bytes)| Reverse(**bytes));
        let all: u64 = self.code_bytes.values().sum();
        let kib = |bytes: u64| bytes.div_ceil(1024);
        let shown: Vec<String> = largest
            .iter()
            .take(MOST_DIRECTORIES)
            .map(|(directory, bytes)| format!("{directory} {}", kib(**bytes)))
            .collect();
        if shown.is_empty() {
            return Ok(());
        }
        let shown = shown.join(", ");
        writeln!(f, "Its code, KiB: {} in all; {shown}.", kib(all))
    }

    fn write_cuts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nCuts:")?;
        for line in &self.cuts {
            let taken = if line.taken { "taken" } else { "-" };
            let options = line.options.map(|n| format!("{n:+}")).unwrap_or_default();
            let name = line.cut.name();
            writeln!(f, "  {taken:<6}{name:<18}{options:>5}  {}", line.about)?;
            if let Some(safety) = line.gives_up.filter(|_| line.taken) {
                writeln!(f, "{:33}gives up: {safety}", "")?;
            }
        }
        Ok(())
    }

    fn write_lacking(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lacking.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\nHardening that Debian's kernel has and this one lacks:"
        )?;
        for Lacking { options, why } in &self.lacking {
            for line in folded(&options.join(", "), WIDTH - 2) {
                writeln!(f, "  {line}")?;
            }
            for line in folded(why, WIDTH - 4) {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }

    fn write_proof(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, .. } = self;
        let kernels = match self.kernels {
            1 => "1 kernel".to_owned(),
            several => format!("{several} kernels"),
        };
        match &self.failure {
            None => writeln!(
                f,
                "\nProven by {check}; {} requests under load.",
                self.load_requests
            )?,
            Some(failure) => writeln!(f, "\nNot proven by {check}: {failure}")?,
        }
        if self.applications.len() > 1 {
            for line in &self.applications {
                let came = line.failure.as_ref().map_or("proven", |_| "not proven");
                let (name, check) = (&line.name, &line.check);
                writeln!(f, "  {name:<18} {came} by {check}")?;
            }
        }
        for Added { symbol, why } in &self.added {
            writeln!(f, "Added {symbol}: {why}")?;
        }
        let (build, total) = (self.build_s, self.total_s);
        writeln!(f, "{kernels} built in {build:.0} s, {total:.0} s in all.")
    }
}

/// A text in lines of at most `width` characters, broken at spaces.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn shown(figure: Option<f64>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) if figure.fract() == 0.0 => format!("{figure:.0}"),
        Some(figure) => format!("{figure:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let figures = Figures {
            begin_cycles: 3_000_000,
            ready_cycles: 4_000_000,
            free_kib: 250 * 1024,
            ..Figures::default()
        };
        let alone = Figures {
            begin_cycles: 1_000_000,
            ..figures
        };
        let boots = Boots {
            alone: Some(alone),
            whole: Some(figures),
        };
        let kernel = KernelFigures {
            options: 300,
            settable: 100,
            cves: Some(40),
            ..KernelFigures::default()
        };
        Report {
            schema: SCHEMA,
            tailored: kernel.clone().with_boot(boots, 256),
            debian: Some(KernelFigures {
                options: 700,
                settable: 400,
                ..kernel
            }),
            machines: None,
            code_bytes: [("net".to_owned(), 4096), ("mm".to_owned(), 8192)].into(),
            cve_records: Some("300 records of 2025 and 2026".to_owned()),
            calls_used: 40,
            cuts: vec![CutLine {
                cut: Cut::Dac,
                taken: true,
                about: Cut::Dac.about(),
                gives_up: Cut::Dac.gives_up(),
                options: Some(-3),
            }],
            lacking: Vec::new(),
            applications: Vec::new(),
            check: "http:80/".to_owned(),
            failure: None,
            load_requests: 200,
            added: Vec::new(),
            search: None,
            notes: Vec::new(),
            kernels: 1,
            build_s: 10.0,
            total_s: 20.0,
            files: Vec::new(),
        }
    }

    #[test]
    fn both_kernels_stand_beside_each_other() {
        let text = report().to_string();
        let has = |words: &[&str]| {
            let lines = text
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            lines.into_iter().any(|line| line == words.join(" "))
        };
        assert!(
            has(&["options on that can be set*", "100", "400", "25.0 %"]),
            "{text}"
        );
        assert!(
            text.contains("* 300 (Debian's: 700) are on in all"),
            "{text}"
        );
        assert!(has(&["boot, million instructions", "0.5", "-"]), "{text}");
        assert!(has(&["with the root unpacked", "1.5", "-"]), "{text}");
        assert!(has(&["memory at its start, KiB", "6144", "-"]), "{text}");
        assert!(
            has(&["CVEs in compiled files", "40", "40", "100.0 %"]),
            "{text}"
        );
        assert!(
            text.contains("\nCVEs: 300 records of 2025 and 2026.\n"),
            "{text}"
        );
        assert!(text.contains("\n1 kernel built in "), "{text}");
        assert!(
            text.contains("Its code, KiB: 12 in all; mm 8, net 4."),
            "{text}"
        );
    }

    #[test]
    fn a_kernel_for_several_applications_says_what_came_of_each() {
        let mut report = report();
        let line = |name: &str, failure: Option<&str>| ApplicationLine {
            name: name.to_owned(),
            check: "tcp:7/".to_owned(),
            failure: failure.map(str::to_owned),
            load_requests: 16,
        };
        report.applications = vec![line("a", None), line("b", Some("no answer"))];
        report.of_several("a");
        let text = report.to_string();
        assert!(
            text.contains("\nNot proven by a: tcp:7/, b: tcp:7/: b: no answer\n"),
            "{text}"
        );
        assert!(
            text.contains("  a                  proven by tcp:7/\n"),
            "{text}"
        );
        assert!(
            text.contains("  b                  not proven by tcp:7/\n"),
            "{text}"
        );
        assert_eq!(report.load_requests, 32);
    }

    #[test]
    fn boots_on_different_machines_are_marked() {
        let mut report = report();
        assert!(!report.to_string().contains("**"));
        report.machines = Some(["microvm", "q35"]);
        let text = report.to_string();
        let marked = text.lines().filter(|line| line.ends_with(" **")).count();
        assert_eq!(marked, 4, "{text}");
        assert!(
            text.contains("** measured on microvm for the tailored kernel and on q35 for Debian's"),
            "{text}"
        );
    }

    #[test]
    fn hardening_that_is_lacking_is_listed_with_its_reason() {
        let mut report = report();
        assert!(!report.to_string().contains("Hardening"));
        report.lacking = vec![Lacking {
            options: vec!["SECURITY_YAMA".to_owned(); 8],
            why: "cut lsm: no policy".to_owned(),
        }];
        let text = report.to_string();
        assert!(
            text.contains(
                "\nHardening that Debian's kernel has and this one lacks:\n  SECURITY_YAMA, "
            ),
            "{text}"
        );
        assert!(text.contains("\n    cut lsm: no policy\n"), "{text}");
        let paragraph = text.lines().filter(|line| line.contains("YAMA"));
        let lengths: Vec<_> = paragraph.map(str::len).collect();
        assert!(
            lengths.len() > 1 && lengths.iter().all(|it| *it < 80),
            "{text}"
        );
    }

    #[test]
    fn a_cut_that_is_taken_says_what_it_gives_up() {
        let mut report = report();
        assert!(report.to_string().contains("gives up: user IDs"));
        report.cuts[0].taken = false;
        assert!(!report.to_string().contains("gives up"));
    }
}

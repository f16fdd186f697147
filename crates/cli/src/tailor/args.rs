//! The arguments of `tare tailor`.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tare_tailor::check::Check;
use tare_tailor::cut::Cut;
use tare_tailor::mapping::Symbol;
use tare_tailor::target::{Part, Target};
use tare_tailor::tuning::Measure;
use tare_tailor::tuning::load::Load;

/// `tare tailor`.
#[derive(Debug, Args)]
pub(crate) struct TailorArgs {
    /// Profiles from tare profile. The kernel supports all of them, also if they are of
    /// different commands
    #[arg(value_name = "PROFILE", required_unless_present = "lock")]
    pub(crate) profiles: Vec<PathBuf>,
    /// Command of the guest [default: the profile's, or the root image's]
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,
    /// Kernel sources of Linux 6.1 or 6.12: an archive or a directory [default:
    /// Debian 12's package of 6.1, downloaded once]
    #[arg(long, value_name = "TARBALL|DIR")]
    pub(crate) source: Option<PathBuf>,
    /// The machine that the kernel is for
    #[arg(long = "for", value_name = "ENGINE", default_value = "tare")]
    pub(crate) target: TargetArg,
    /// Hardware that the kernel must support beyond what the profiles show; repeatable:
    /// disk, entropy, cpus, network, volumes
    #[arg(long = "with", value_name = "PART")]
    pub(crate) parts: Vec<PartArg>,
    /// Build a kernel option in (VIRTIO_BALLOON); with the same --out, compiles only what
    /// changed
    #[arg(long, value_name = "OPTION", value_parser = symbol)]
    pub(crate) add: Vec<Symbol>,
    /// Do not apply a default cut, or keep a kernel option that the application only
    /// probed for
    #[arg(long, value_name = "CUT|OPTION", value_parser = keep)]
    pub(crate) keep: Vec<Keep>,
    /// Apply a cut (listed below)
    #[arg(long, value_name = "NAME")]
    pub(crate) cut: Vec<Cut>,
    /// Apply all cuts that give up safety, for guests that run only trusted code
    #[arg(long)]
    pub(crate) trusting: bool,
    /// Test that the application works: a command in the guest, http:PORT/PATH or
    /// tcp:PORT; repeatable [default: that it runs]
    #[arg(long, value_name = "CHECK")]
    pub(crate) check: Vec<Check>,
    /// Boot parameters for guests that check the application, on Debian's kernel too
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true, allow_hyphen_values = true, value_parser = cmdline)]
    pub(crate) cmdline: String,
    /// The application's files: a directory or a container image; of several applications
    /// one for each, in their order [default: the files of this host that the profile names]
    #[arg(long, value_name = "DIR|TAR")]
    pub(crate) root: Vec<PathBuf>,
    /// Rebuild the kernel of a lock file and compare it with the lock
    #[arg(long, value_name = "FILE", conflicts_with_all = ["profiles", "command", "target", "parts", "add", "keep", "cut", "trusting", "check", "cmdline", "root", "cves", "each_cut", "json"])]
    pub(crate) lock: Option<PathBuf>,
    /// Directory for the kernel, its lock file, report and objects; later builds reuse it
    /// [default: out/kernel-NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Parallel compiler processes [default: the number of CPUs]
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Minutes after which to end a build, and to try no further kernel
    #[arg(long, value_name = "N", default_value = "60")]
    pub(crate) minutes: NonZeroU64,
    /// GiB of memory that all processes of a build may take together [default: 16, or three
    /// quarters of the host's]
    #[arg(long, value_name = "N")]
    pub(crate) build_memory: Option<NonZeroU32>,
    /// GiB on the disk that the objects of a build may take
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) space: NonZeroU32,
    /// Seconds to wait for a check to pass
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(crate) check_timeout: u64,
    /// Count the CVEs of the last two years that affect a compiled file, from the
    /// kernel's records (cve/published of vulns.git)
    #[arg(long, value_name = "DIR")]
    pub(crate) cves: Option<PathBuf>,
    /// Search for N minutes for boot parameters and sysctls with which the application is
    /// faster. What held-out boots confirm becomes part of the kernel
    #[arg(long, value_name = "MINUTES", conflicts_with = "lock")]
    pub(crate) search: Option<NonZeroU64>,
    /// Request that the search and the cut pgo send to the application: http:PORT/PATH, or tcp:PORT/LINE
    /// for a line that has an answer (tcp:6379/PING) [default: the --check]
    #[arg(long, value_name = "LOAD", conflicts_with = "lock")]
    pub(crate) load: Option<Load>,
    /// What the search compares [default: rate where KVM runs Linux guests, else
    /// instructions]
    #[arg(long, value_name = "FIGURE", requires = "search")]
    pub(crate) measure: Option<MeasureArg>,
    /// Search on this kernel and build none: a bzImage, or debian for Debian's
    #[arg(long, value_name = "FILE", requires = "search", conflicts_with_all = ["lock", "each_cut", "add", "keep"])]
    pub(crate) kernel: Option<PathBuf>,
    /// Report how many kernel options each cut saves; solves one configuration for each
    #[arg(long)]
    pub(crate) each_cut: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--for`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetArg {
    /// Tare's monitor
    Tare,
    /// QEMU
    Qemu,
    /// Firecracker
    Firecracker,
}

/// `--with`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartArg {
    /// A disk with ext4
    Disk,
    /// A source of random numbers
    Entropy,
    /// Several CPUs
    Cpus,
    /// A network card
    Network,
    /// Directories of the host (tare run -v)
    Volumes,
}

/// `--measure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MeasureArg {
    /// Instructions a request, counted in QEMU's translator
    Instructions,
    /// Requests a second
    Rate,
}

/// `--keep`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// What a cut would take.
    Cut(Cut),
    /// An option.
    Option(Symbol),
}

impl From<TargetArg> for Target {
    fn from(target: TargetArg) -> Self {
        match target {
            TargetArg::Tare => Self::Tare,
            TargetArg::Qemu => Self::Qemu,
            TargetArg::Firecracker => Self::Firecracker,
        }
    }
}

impl From<MeasureArg> for Measure {
    fn from(measure: MeasureArg) -> Self {
        match measure {
            MeasureArg::Instructions => Self::Instructions,
            MeasureArg::Rate => Self::Rate,
        }
    }
}

impl From<PartArg> for Part {
    fn from(part: PartArg) -> Self {
        match part {
            PartArg::Disk => Self::Disk,
            PartArg::Entropy => Self::Entropy,
            PartArg::Cpus => Self::SeveralCpus,
            PartArg::Network => Self::Network,
            PartArg::Volumes => Self::Volumes,
        }
    }
}

fn symbol(word: &str) -> Result<Symbol, String> {
    Symbol::new(word).ok_or_else(|| format!("`{word}` is not the name of an option"))
}

/// Boot parameters, as far as a kernel takes them.
fn cmdline(text: &str) -> Result<String, String> {
    const MOST: usize = 1024;
    let text = text.trim();
    match text.chars().find(|c| !matches!(c, ' '..='~')) {
        Some(c) => Err(format!("{c:?} is not printable ASCII")),
        None if text.len() > MOST => Err(format!("{} bytes (limit: {MOST})", text.len())),
        None => Ok(text.to_owned()),
    }
}

/// Names of cuts are in lower case, options in upper case.
fn keep(word: &str) -> Result<Keep, String> {
    match word.parse::<Cut>() {
        Ok(cut) => Ok(Keep::Cut(cut)),
        Err(_) if word.chars().any(|c| c.is_ascii_uppercase()) => symbol(word).map(Keep::Option),
        Err(error) => Err(error.to_string()),
    }
}

/// The list of cuts for the verb's help.
pub(crate) fn cuts() -> String {
    use std::fmt::Write as _;
    let mut text = String::from("Cuts (* by default, ! gives up safety: --trusting):");
    for cut in Cut::ALL {
        let mark = match cut {
            cut if Cut::by_default().contains(&cut) => '*',
            cut if cut.gives_up().is_some() => '!',
            _ => ' ',
        };
        let about = textwrap::fill(cut.about(), 54).replace('\n', &format!("\n{:23}", ""));
        let _ = write!(text, "\n  {mark} {:<18} {about}", cut.name());
    }
    text
}

/// The arguments in `tare tailor p.json WORDS`.
#[cfg(test)]
pub(super) fn parsed(words: &[&str]) -> TailorArgs {
    #[derive(clap::Parser)]
    struct TestCli {
        #[command(flatten)]
        args: TailorArgs,
    }

    let all = [&["tailor", "p.json"], words].concat();
    let parsed: TestCli = clap::Parser::try_parse_from(all).unwrap();
    parsed.args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_differs_from_an_option() {
        assert_eq!(keep("smp"), Ok(Keep::Cut(Cut::Smp)));
        let option = Symbol::new("PSI").map(Keep::Option);
        assert_eq!(keep("CONFIG_PSI").ok(), option);
        assert!(keep("nonsense").is_err_and(|error| error.contains("io-scheduler")));
    }

    #[test]
    fn boot_parameters_are_printable_and_bounded() {
        assert_eq!(
            cmdline(" hugepages=8 x=\"a b\" ").as_deref(),
            Ok("hugepages=8 x=\"a b\"")
        );
        assert!(cmdline("a\nb").is_err_and(|error| error.contains("'\\n'")));
        assert!(cmdline(&"a".repeat(1025)).is_err_and(|error| error.contains("limit: 1024")));
    }

    #[test]
    fn the_list_of_cuts_fits_a_terminal() {
        assert!(cuts().lines().all(|line| line.len() < 80));
    }
}

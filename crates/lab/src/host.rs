//! The machine that an experiment runs on, from /proc and /sys.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tare_control::stats::Kvm;
use tare_machines::observe::Crowd;
use tare_machines::versions::{self, Versions};
use tare_tailor::lock::{sha256, sha256_of_file};

/// Facts that figures depend on. What cannot be read is empty or absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Processor model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// What executed guests, which is known once one has run; none where KVM was not used.
    #[serde(default)]
    pub kvm: Kvm,
    /// Whether there is a KVM that this user may use; earlier records do not say.
    #[serde(default)]
    pub has_kvm: Option<bool>,
    /// KVM's longest poll on a halt, ns.
    pub halt_poll_ns: Option<u64>,
    /// Processes that wanted a CPU over the last minute, at the begin.
    pub load_average: Option<f64>,
    /// The frequency governor of the first CPU.
    pub governor: Option<String>,
    /// The same load at the end.
    #[serde(default)]
    pub load_average_after: Option<f64>,
    /// Share of all CPU time that others took during the run, percent.
    #[serde(default)]
    pub others_cpu_pct: Option<f64>,
    /// Of the time that the run's own threads wanted a CPU, the share that they waited for
    /// one, percent.
    #[serde(default)]
    pub own_wait_pct: Option<f64>,
}

impl HostFacts {
    /// Reads them. `kvm` is [`Kvm::None`] until a machine has said otherwise.
    pub fn read() -> Self {
        let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
        let meminfo = text("/proc/meminfo").unwrap_or_default();
        let memory_kib: u64 = field(&meminfo, "MemTotal")
            .and_then(|v| v.split_whitespace().next()?.parse().ok())
            .unwrap_or(0);
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or_default().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            kernel: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            memory_mib: memory_kib >> 10,
            has_kvm: Some(may_use_kvm()),
            halt_poll_ns: number("/sys/module/kvm/parameters/halt_poll_ns"),
            load_average: load_average(),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            ..Self::default()
        }
    }
}

/// Whether this user may open `/dev/kvm`.
fn may_use_kvm() -> bool {
    let mut options = fs::File::options();
    options.read(true).write(true).open("/dev/kvm").is_ok()
}

/// Load per CPU above which a machine is busy, where nothing was measured during the run: another
/// program runs a third of the time.
const BUSY: f64 = 0.3;
/// Share of the CPU time, percent, that others may take meanwhile.
const OTHERS_PCT: f64 = 10.0;
/// Share of the time, percent, that threads of a run may wait for a CPU: above it figures are
/// of the host's other work. Where others take less than this of all CPU time, the run's
/// threads wait for each other, as they do on a quiet host.
pub const CROWDED_PCT: f64 = 3.0;

impl HostFacts {
    /// The facts as a record has them before a guest has run: without what executes guests.
    pub(crate) fn before_guests(&self) -> serde_json::Value {
        let mut facts = serde_json::json!(self);
        if let Some(fields) = facts.as_object_mut() {
            fields.remove("kvm");
        }
        facts
    }

    /// Why figures of this run are of a busy machine: a sentence without its subject's
    /// capital; `None` if it was quiet. The load average is of the minute before, in which this run
    /// may have been built or another one ended: it counts only without a measured share.
    pub fn busy(&self) -> Option<String> {
        let load = self
            .load_average
            .filter(|load| self.others_cpu_pct.is_none() && *load > BUSY * self.cores as f64);
        let others = self.others_cpu_pct.filter(|pct| *pct > OTHERS_PCT);
        match (load, others) {
            (Some(load), _) => Some(format!(
                "the machine was busy: its load average was {load:.2} on {} CPUs before the run",
                self.cores
            )),
            (None, Some(pct)) => Some(format!(
                "the machine was busy: others took {pct:.0} % of its CPU time during the run"
            )),
            (None, None) => None,
        }
    }

    /// Why goals of this run are not judged; `None` if they are.
    pub(crate) fn not_judged(&self) -> Option<String> {
        let waited = self.own_wait_pct.filter(|pct| *pct > CROWDED_PCT)?;
        let others = self.others_cpu_pct.is_none_or(|pct| pct > CROWDED_PCT);
        others.then(|| format!("not judged: others wanted the CPU for {waited:.0} % of the time"))
    }

    /// Takes over how long an experiment saw its own threads wait, if that is longer.
    pub(crate) fn waited_at_least(&mut self, pct: Option<f64>) {
        self.own_wait_pct = match (self.own_wait_pct, pct) {
            (Some(seen), Some(pct)) => Some(seen.max(pct)),
            (seen, pct) => seen.or(pct),
        };
    }

    /// Takes over what was seen during the run.
    pub fn seen(&mut self, crowd: Crowd) {
        self.others_cpu_pct = Some(crowd.others_cpu_pct);
        self.own_wait_pct = Some(crowd.own_wait_pct);
    }

    /// What tells this computer from others of its name: of its machine ID and processor.
    pub fn identity(&self) -> String {
        let id = text("/etc/machine-id").unwrap_or_default();
        let whole = format!("{id}\n{}\n{}", self.cpu, self.cores);
        sha256(whole.as_bytes())[..8].to_owned()
    }
}

/// What runs besides the kernel: digests of this program and of the images, versions of
/// others. `image` is measured: one that is named by its path is beside no program.
pub(crate) fn programs(image: Option<&str>) -> serde_json::Value {
    // To hash a program that is not optimised, with one that is not, takes seconds.
    let this = (!cfg!(debug_assertions)).then(|| sha256_of_file(Path::new("/proc/self/exe")).ok());
    serde_json::json!({
        "program_sha256": this.flatten(),
        "images_sha256": images(image),
        "versions": versions(),
    })
}

/// SHA-256 of each guest image beside this program, by name, and of `image` if it is a path.
fn images(image: Option<&str>) -> BTreeMap<String, String> {
    let program = std::env::current_exe().ok();
    let dir = program.and_then(|program| fs::read_dir(program.parent()?.join("images")).ok());
    let files = dir.into_iter().flatten().flatten();
    let beside = files.filter_map(|file| Some((file.file_name().into_string().ok()?, file.path())));
    let by_path = image.filter(|image| image.contains('/'));
    let by_path = by_path.map(|image| (image.to_owned(), image.into()));
    let digests = beside
        .chain(by_path)
        .filter_map(|(name, path)| Some((name, sha256_of_file(&path).ok()?)));
    digests.collect()
}

/// SHA-256 of text in hexadecimal.
pub fn sha256_of_text(text: &str) -> String {
    sha256(text.as_bytes())
}

/// Versions of the host's programs and of its kernel's build.
fn versions() -> Versions {
    let mut versions = versions::of_host();
    if let Some(version) = text("/proc/sys/kernel/version") {
        versions.insert("linux".to_owned(), version);
    }
    versions
}

/// Processes that wanted a CPU over the last minute.
pub(crate) fn load_average() -> Option<f64> {
    text("/proc/loadavg")?.split(' ').next()?.parse().ok()
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    text(path)?.parse().ok()
}

/// The value of `name: value` in a /proc file.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_facts() {
        let facts = HostFacts::read();
        assert!(facts.cores > 0 && facts.memory_mib > 0);
        assert!(!facts.kernel.is_empty());
        assert_eq!(facts.has_kvm, Some(may_use_kvm()));
    }

    #[test]
    fn a_busy_machine_is_named_with_its_load() {
        let quiet = HostFacts {
            cores: 2,
            load_average: Some(0.4),
            others_cpu_pct: Some(2.0),
            ..HostFacts::default()
        };
        assert_eq!(quiet.busy(), None);
        // What was measured decides.
        let before = HostFacts {
            load_average: Some(4.2),
            ..quiet.clone()
        };
        assert_eq!(before.busy(), None);
        let loaded = HostFacts {
            others_cpu_pct: None,
            ..before
        };
        assert!(
            loaded
                .busy()
                .is_some_and(|why| why.contains("4.20 on 2 CPUs"))
        );
        let beside = HostFacts {
            others_cpu_pct: Some(35.0),
            ..quiet
        };
        assert!(beside.busy().is_some_and(|why| why.contains("35 %")));
    }

    #[test]
    fn a_run_among_others_is_not_judged_and_one_among_its_own_threads_is() {
        let of = |own_wait_pct, others_cpu_pct| HostFacts {
            own_wait_pct,
            others_cpu_pct,
            ..HostFacts::default()
        };
        let crowded = of(Some(35.2), Some(40.0)).not_judged().unwrap();
        assert_eq!(
            crowded,
            "not judged: others wanted the CPU for 35 % of the time"
        );
        assert_eq!(of(Some(35.2), Some(1.0)).not_judged(), None);
        assert_eq!(of(Some(2.9), Some(40.0)).not_judged(), None);
        // Earlier records do not tell.
        assert_eq!(of(None, Some(40.0)).not_judged(), None);
        assert!(of(Some(35.2), None).not_judged().is_some());
    }

    #[test]
    fn a_computer_is_more_than_its_name() {
        let this = HostFacts::read();
        let other = HostFacts {
            cpu: "another".to_owned(),
            ..this.clone()
        };
        assert_eq!(this.identity(), HostFacts::read().identity());
        assert_ne!(this.identity(), other.identity());
    }

    #[test]
    fn an_image_that_is_named_by_its_path_has_its_digest() {
        let empty = sha256_of_text("");
        assert_eq!(images(Some("/dev/null")).get("/dev/null"), Some(&empty));
        for other in [None, Some("http"), Some("/nonexistent")] {
            let images = images(other);
            let name = other.unwrap_or_default();
            assert!(!name.contains('/') || !images.contains_key(name), "{name}");
        }
    }

    #[test]
    fn files_and_texts_have_the_digest_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256_of_text(""), empty);
        assert_eq!(sha256_of_file(Path::new("/dev/null")).unwrap(), empty);
        assert!(sha256_of_file(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "cpu MHz\t: 1\nmodel\t\t: 17\nmodel name\t: EPYC: fast\n";
        assert_eq!(field(text, "model name"), Some("EPYC: fast"));
        assert_eq!(field(text, "flags"), None);
    }
}

//! One trial: a boot of the kernel in QEMU, and the application under its load.

use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use tare_init::Logging;
use tare_rootfs::cpio::PackError;
use tare_rootfs::guest::GuestError;
use tare_rootfs::modules::Module;
use tare_rootfs::{cpio, guest};

use super::journal::JournalError;
use super::load::{Client, Load};
use super::settings::{self, Setting, Skipped};
use super::{Boot, Measure, Trials};
use crate::counter::{CounterError, Plugin};
use crate::lock;
use crate::machine::{Execution, MachineError, ProofMachine, Running};
use crate::prove::{ProofConfig, alarm, said};
use crate::root::Application;

/// Between two tries of the first request.
const TRY: Duration = Duration::from_millis(100);
/// The first answers may be lost by QEMU's network: a try waits at least so long, and a half of
/// the time that has gone by, but no longer than a signal may wait.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
const LATER_ANSWER: Duration = Duration::from_secs(2);
/// For what a request leaves to be done: the guest is idle after this time or a little later, at
/// the latest after the longest one.
const SETTLE: Duration = Duration::from_millis(4);
const LOOK: Duration = Duration::from_millis(1);
const LONGEST_SETTLE: Duration = Duration::from_millis(300);
/// Requests before those that are counted, the counted ones, and those of them that are taken.
const WARM_REQUESTS: usize = 5;
const COUNTED_REQUESTS: usize = 80;
const FASTEST: usize = 30;
/// Clients of a rate, and how long they ask before and while they are counted.
const CLIENTS: usize = 4;
const WARM: Duration = Duration::from_millis(300);
const RATED: Duration = Duration::from_secs(2);

/// Parameters of each boot that is measured: a quiet start, and in the translator, whose clock a
/// busy host delays, no judgement of that clock. The kernel's lines have their time, by which its
/// alarms are known ([`alarm`]).
const QUIET: &str = "quiet printk.time=1";
const STEADY: &str = "quiet printk.time=1 tsc=reliable clocksource=tsc";

/// What is booted.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The compressed image.
    pub kernel: &'a Path,
    /// Modules that its machine needs.
    pub modules: &'a [Module],
    /// The application.
    pub application: &'a Application,
    /// Its machine; the check is not made.
    pub terms: &'a ProofConfig,
    /// Its requests.
    pub load: &'a Load,
    /// What is measured.
    pub measure: Measure,
    /// Counts instructions; a rate needs none.
    pub plugin: Option<&'a Plugin>,
    /// Where the console of the last boot goes.
    pub console: &'a Path,
}

/// A bench that boots.
#[derive(Debug)]
pub struct Ready<'a> {
    bench: &'a Bench<'a>,
    initramfs: File,
    settings: Vec<Setting>,
}

/// Boots that cannot be made at all.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The guest's files.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The initramfs.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The counter.
    #[error(transparent)]
    Counter(#[from] CounterError),
    /// The record of boots.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A signal.
    #[error("interrupted")]
    Interrupted,
}

impl<'a> Bench<'a> {
    /// Packs the guest's files.
    pub fn ready(&'a self, settings: Vec<Setting>) -> Result<Ready<'a>, BenchError> {
        if let Some(dir) = self.console.parent() {
            fs::create_dir_all(dir).map_err(file(dir))?;
        }
        let mut tree = self.application.tree.clone();
        let mut task = self.application.task.clone();
        task.figures = Logging::On;
        guest::add_init(&mut tree, task, self.modules, &guest::find_init()?)?;
        Ok(Ready {
            bench: self,
            initramfs: cpio::pack(&tree)?,
            settings,
        })
    }

    /// What makes boots comparable besides the guest's files: the kernel, its machine, how that is
    /// measured.
    fn key(&self) -> io::Result<String> {
        let kernel = lock::sha256_of(File::open(self.kernel)?)?;
        let Self { load, measure, .. } = self;
        let ProofConfig {
            machine_type,
            execution,
            memory_mib,
            cmdline,
            ..
        } = self.terms;
        let of_terms = format!("{memory_mib} {machine_type:?} {execution:?} {cmdline}");
        Ok(format!(
            "{} {kernel} {load} {measure:?} {}",
            env!("CARGO_PKG_VERSION"),
            of_terms.trim_end()
        ))
    }
}

impl Ready<'_> {
    /// Leaves out settings that the kernel says it does not know when it is started with all of
    /// them; gives their words. A kernel that does not start so says nothing: each of its
    /// settings is tried.
    pub fn refused(&self) -> Result<Vec<String>, BenchError> {
        let words: Vec<&str> = self.settings.iter().map(|it| it.word.as_str()).collect();
        let mut running = self.start(&words.join(" "), false)?;
        let interrupted = &self.bench.terms.interrupted;
        running.until(self.bench.terms.limit, |console| {
            tare_init::Figures::on(console).is_some() || interrupted.load(Ordering::Relaxed)
        });
        if interrupted.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        Ok(settings::refused(&self.settings, &running.console()))
    }

    /// Takes settings out that the kernel does not know, and says so.
    pub fn leave_out(&mut self, refused: &[String], skipped: &mut Vec<Skipped>) {
        let settings = std::mem::take(&mut self.settings);
        self.settings = settings::without_refused(settings, refused, skipped);
    }

    /// Settings that are tried.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Identifies this search for a journal: its bench, the guest's files, its settings, its
    /// budget. The application's command, environment, user and directory are in one of the files.
    pub fn key(&self, minutes: u64) -> Result<String, BenchError> {
        let bench = self.bench.key().map_err(file(self.bench.kernel))?;
        let files = self.files().map_err(file(Path::new("the initramfs")))?;
        let words: Vec<&str> = self.settings.iter().map(|it| it.word.as_str()).collect();
        let text = format!("{bench} {files} {minutes} {}", words.join(" "));
        Ok(lock::sha256(text.as_bytes()))
    }

    /// SHA-256 of the initramfs.
    fn files(&self) -> io::Result<String> {
        let mut initramfs = &self.initramfs;
        initramfs.rewind()?;
        lock::sha256_of(initramfs)
    }

    fn start(&self, words: &str, is_counted: bool) -> Result<Running, BenchError> {
        let bench = self.bench;
        Ok(ProofMachine {
            kernel: bench.kernel,
            initramfs: &self.initramfs,
            words: &format!("{} {words}", bench.terms.cmdline),
            memory_mib: bench.terms.memory_mib,
            port: Some(bench.load.port()),
            machine_type: bench.terms.machine_type,
            execution: bench.terms.execution,
            console: bench.console,
            plugin: bench.plugin.filter(|_| is_counted),
            counts: Logging::Off,
            tare: &bench.terms.tare,
        }
        .start()?)
    }

    /// The value of a boot, or why it has none.
    fn measure(&self, words: &str) -> Result<Result<f64, String>, BenchError> {
        let steady = match self.bench.terms.execution {
            Execution::Kvm => QUIET,
            Execution::Translated | Execution::Counted => STEADY,
        };
        let mut running = self.start(&format!("{steady} {words}"), true)?;
        let client = match self.meet(&mut running)? {
            Ok(client) => client,
            Err(why) => return Ok(Err(why)),
        };
        let measured = match self.bench.measure {
            Measure::Instructions => self.instructions(&running, client)?,
            Measure::Rate => self.rate(&client)?,
        };
        let value = match measured {
            Err(why) => Err(said(&running, &why)),
            Ok(_) if !running.is_alive() => Err(said(&running, "the guest ended under load")),
            Ok(value) => match alarm(&running.console()) {
                Some(alarm) => Err(format!("the guest's kernel said: {alarm}")),
                None => Ok(value),
            },
        };
        Ok(value)
    }

    /// Waits until the application answers.
    fn meet(&self, running: &mut Running) -> Result<Result<Client<'_>, String>, BenchError> {
        let begin = Instant::now();
        let mut last = "no answer".to_owned();
        while begin.elapsed() < self.bench.terms.limit {
            self.check()?;
            if !running.is_alive() {
                return Ok(Err(said(running, "the guest ended")));
            }
            let limit = (begin.elapsed() / 2).clamp(FIRST_ANSWER, LATER_ANSWER);
            let port = running.port.unwrap_or_default();
            let interrupted = &self.bench.terms.interrupted;
            match Client::meet(self.bench.load, port, limit, interrupted) {
                Ok(client) => return Ok(Ok(client)),
                Err(why) => last = why,
            }
            thread::sleep(TRY);
        }
        let waited = self.bench.terms.limit.as_secs();
        let last = said(running, &last);
        Ok(Err(format!("no answer to the load in {waited} s: {last}")))
    }

    /// The mean of the 30 fastest, as in Kernel Tailoring: how many ticks fall into the others
    /// depends on how busy the host is (boots on a host at 16 times its load differed by 4 %
    /// by their middle half).
    fn instructions(
        &self,
        running: &Running,
        mut client: Client<'_>,
    ) -> Result<Result<f64, String>, BenchError> {
        let mut counts = Vec::new();
        for request in 0..WARM_REQUESTS + COUNTED_REQUESTS {
            self.check()?;
            let before = running.count()?;
            if let Err(why) = client.ask() {
                return Ok(Err(why));
            }
            settle(running);
            let spent = running.count()? - before;
            if request >= WARM_REQUESTS {
                counts.push(spent.total() as f64);
            }
        }
        counts.sort_unstable_by(f64::total_cmp);
        counts.truncate(FASTEST);
        let mean = tare_stats::mean(&counts).ok_or_else(|| "nothing was counted".to_owned());
        Ok(mean)
    }

    /// Requests of all clients together in a second.
    fn rate(&self, client: &Client<'_>) -> Result<Result<f64, String>, BenchError> {
        let interrupted = &self.bench.terms.interrupted;
        let begin = Instant::now();
        let ask = |mut client: Client<'_>| -> Result<u64, String> {
            let mut answers = 0;
            while begin.elapsed() < WARM + RATED && !interrupted.load(Ordering::Relaxed) {
                client.ask()?;
                answers += u64::from(begin.elapsed() >= WARM);
            }
            Ok(answers)
        };
        let all: Vec<Result<u64, String>> = thread::scope(|scope| {
            let start = |_| scope.spawn(|| ask(client.another()));
            let clients: Vec<_> = (0..CLIENTS).map(start).collect();
            let ended = || Err("a client ended".to_owned());
            let joined = clients.into_iter().map(|it| it.join());
            joined.map(|it| it.unwrap_or_else(|_| ended())).collect()
        });
        self.check()?;
        let answers = all.into_iter().sum::<Result<u64, String>>();
        Ok(answers.map(|answers| answers as f64 / RATED.as_secs_f64()))
    }

    fn check(&self) -> Result<(), BenchError> {
        if self.bench.terms.interrupted.load(Ordering::Relaxed) {
            Err(BenchError::Interrupted)
        } else {
            Ok(())
        }
    }
}

impl Trials for Ready<'_> {
    type Error = BenchError;

    fn boot(&mut self, settings: &[usize]) -> Result<Boot, BenchError> {
        let words = settings.iter().filter_map(|it| self.settings.get(*it));
        let words: Vec<&str> = words.map(|setting| setting.word.as_str()).collect();
        let begin = Instant::now();
        let measured = self.measure(&words.join(" "))?;
        self.check()?;
        Ok(Boot {
            measured,
            seconds: begin.elapsed().as_secs_f64(),
        })
    }
}

/// Waits until the guest is idle, as two looks see it: on a busy host work of one request would
/// be counted with the next.
fn settle(running: &Running) {
    let begin = Instant::now();
    thread::sleep(SETTLE);
    let mut idle = 0;
    while idle < 2 && begin.elapsed() < LONGEST_SETTLE {
        idle = if running.is_idle() { idle + 1 } else { 0 };
        thread::sleep(LOOK);
    }
}

/// How a bench executes and measures: a processor's work shows in its speed, a translator's in
/// what it executes.
pub const fn measure_of(execution: Execution) -> Measure {
    match execution {
        Execution::Kvm => Measure::Rate,
        Execution::Translated | Execution::Counted => Measure::Instructions,
    }
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> BenchError {
    let path = path.to_owned();
    move |source| BenchError::File { path, source }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tare_qemu::MachineType;
    use tare_rootfs::tree::Node;
    use tare_rootfs::{Task, Tree};

    use super::*;
    use crate::check::Check;

    /// The key of a search with this file.
    fn key(content: &str, execution: Execution) -> String {
        let place = tempfile::tempdir().unwrap();
        let kernel = place.path().join("kernel");
        fs::write(&kernel, "kernel").unwrap();
        let mut tree = Tree::new();
        let app = Node::bytes(content.as_bytes().to_vec(), 0o755);
        tree.insert("app", app).unwrap();
        let initramfs = cpio::pack(&tree).unwrap();
        let application = Application {
            tree,
            task: Task::default(),
            notes: Vec::new(),
        };
        let terms = ProofConfig {
            check: Check::Runs,
            machine_type: MachineType::Q35,
            execution,
            cmdline: String::new(),
            memory_mib: 256,
            limit: Duration::ZERO,
            goes_on: Duration::ZERO,
            refusals: Logging::Off,
            interrupted: Arc::default(),
            tare: PathBuf::new(),
        };
        let bench = Bench {
            kernel: &kernel,
            modules: &[],
            application: &application,
            terms: &terms,
            load: &"http:80/".parse().unwrap(),
            measure: Measure::Rate,
            plugin: None,
            console: Path::new("console"),
        };
        let ready = Ready {
            bench: &bench,
            initramfs,
            settings: Vec::new(),
        };
        let key = ready.key(5).unwrap();
        assert_eq!(ready.key(5).unwrap(), key);
        assert_ne!(ready.key(6).unwrap(), key);
        key
    }

    #[test]
    fn a_search_of_other_files_or_another_execution_has_another_key() {
        let first = key("one", Execution::Kvm);
        assert_eq!(key("one", Execution::Kvm), first);
        assert_ne!(key("two", Execution::Kvm), first);
        assert_ne!(key("one", Execution::Translated), first);
    }
}

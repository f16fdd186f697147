//! What an application executes of an instrumented kernel, while a load of it runs in a guest.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tare_init::Logging;

use crate::build::BZ_IMAGE;
use crate::counts::ExecutionCounts;
use crate::machine::{ProofMachine, Running};
use crate::prove::{self, ProofConfig, ProveError, TIMED};
use crate::root::Application;
use crate::tuning::load::{Client, Load};

/// Requests with a connection each, and on one that stays open.
const REQUESTS: u32 = 1_000;
/// Longest load of one kind: a slow application has made enough of them by then.
const LONGEST: Duration = Duration::from_secs(60);
/// Between two tries of the load while the application starts.
const PAUSE: Duration = Duration::from_millis(100);

/// An application that is to be counted.
#[derive(Clone, Copy, Debug)]
pub struct Training<'a> {
    /// The application.
    pub application: &'a Application,
    /// How its guest is made and what shows that it works.
    pub terms: &'a ProofConfig,
    /// Its load; `None` for its check again and again.
    pub load: Option<&'a Load>,
    /// Where the console goes.
    pub console: &'a Path,
}

/// Counts that were not made.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The guest.
    #[error(transparent)]
    Prove(#[from] ProveError),
    /// It does not work, or has sent no counts.
    #[error(
        "no execution counts, and no kernel optimized by them: {why}; the console is in {console}"
    )]
    Failed {
        /// Why.
        why: String,
        /// The console's log.
        console: String,
    },
}

impl Training<'_> {
    /// Runs the load on a kernel that was built with counters in `objects`: what is executed from the start of
    /// the application on counts, the kernel's own start does not.
    pub fn run(&self, objects: &Path) -> Result<ExecutionCounts, TrainError> {
        let terms = self.terms;
        prove::make_parent(self.console)?;
        let initramfs = prove::initramfs(self.application, &[], terms, Logging::On)?;
        let mut running = ProofMachine {
            kernel: &objects.join(BZ_IMAGE),
            initramfs: &initramfs,
            words: &format!("{TIMED} {}", terms.cmdline),
            memory_mib: terms.memory_mib,
            port: self.load.map(Load::port).or(terms.check.port()),
            machine_type: terms.machine_type,
            execution: terms.execution,
            console: self.console,
            plugin: None,
            counts: Logging::On,
            tare: &terms.tare,
        }
        .start()
        .map_err(ProveError::from)?;
        let failed = |why: String| TrainError::Failed {
            why,
            console: self.console.display().to_string(),
        };
        let loaded = match self.load {
            Some(load) => self.given(load, &mut running),
            None => self.of_check(&mut running)?,
        };
        prove::go_on(terms)?;
        loaded.map_err(|why| failed(prove::said(&running, &why)))?;
        let counts = running.execution_counts(objects, || terms.may_go_on());
        prove::go_on(terms)?;
        let counts = counts.map_err(|error| failed(prove::said(&running, &error.to_string())))?;
        match prove::alarm(&running.console()) {
            None => Ok(counts),
            Some(alarm) => Err(failed(format!("the guest's kernel said: {alarm}"))),
        }
    }

    /// The check, and where it is a request that many times.
    fn of_check(&self, running: &mut Running) -> Result<Result<(), String>, ProveError> {
        let terms = self.terms;
        if let Some(why) = prove::judge(running, terms)? {
            return Ok(Err(why));
        }
        let begin = Instant::now();
        let in_time = || begin.elapsed() < LONGEST && terms.may_go_on();
        let all = prove::load(running.port, terms, REQUESTS, in_time);
        if let Some((kind, count)) = all.errors.first_key_value() {
            let why = format!("{count} of {} requests failed: {kind}", all.requests);
            return Ok(Err(why));
        }
        Ok(match (Load::of(&terms.check), running.port) {
            (Some(load), Some(port)) => self.on_one_connection(&load, port, LONGEST),
            _ => Ok(()),
        })
    }

    /// A load, as soon as the application answers it.
    fn given(&self, load: &Load, running: &mut Running) -> Result<(), String> {
        let begin = Instant::now();
        let port = running.port.ok_or("the guest has no port")?;
        loop {
            let lives = running.is_alive();
            let Err(why) = self.on_one_connection(load, port, Duration::ZERO) else {
                return self.on_one_connection(load, port, LONGEST);
            };
            if !lives || begin.elapsed() > self.terms.limit || !self.terms.may_go_on() {
                return Err(why);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Requests one after the other, for as long as `limit`, at least one.
    fn on_one_connection(&self, load: &Load, port: u16, limit: Duration) -> Result<(), String> {
        let terms = self.terms;
        let begin = Instant::now();
        let mut client = Client::meet(load, port, terms.limit, &terms.interrupted)?;
        for _ in 1..REQUESTS {
            if begin.elapsed() >= limit || !terms.may_go_on() {
                break;
            }
            client.ask()?;
        }
        Ok(())
    }
}

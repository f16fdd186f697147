//! `cargo xtask soak`: the hostile guest for a long time, on one and on two vCPUs, then ten million
//! interrupts, requests at random of the gates into ring 0 and wild ends of ring 3, kills and failures of power below
//! a disk that is written, ten million random system calls, and each fuzz target. The monitor must
//! survive, must not grow, and must stop on request.

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::build;
use crate::{fuzz, shell};

/// Operations of one machine.
const OPERATIONS: u64 = 400_000;
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a machine may take to stop.
const STOP: Duration = Duration::from_secs(30);
/// Most memory of a monitor without its guest's, KiB; of one with debug assertions too.
const MONITOR_KIB: u64 = 8 << 10;
/// Most that it may grow after its first samples, KiB.
const GROWTH_KIB: u64 = 1 << 10;
/// Most that a machine may write to its terminal, bytes.
const OUTPUT_BYTES: u64 = 64 << 10;
/// Most descriptors that a monitor may get after its first samples. No thread of it may make
/// one but by accepting clients of the control socket, of which it has at most 16
/// (`tare_daemon::http`): what a guest can cause beyond is a leak.
const CLIENTS: usize = 16;
/// Samples until a monitor has touched all that it needs.
const WARM_UP: u64 = 10;
/// Exit codes that end a hostile guest: its status 0, and its own crash, since devices
/// may overwrite it (`docs/exit-codes.md`).
const ENDS: [i32; 5] = [0, 70, 71, 72, 73];

/// What to run, for how long.
#[derive(Debug)]
pub(crate) struct Soak {
    /// Seconds of the hostile guest, for each number of vCPUs.
    pub seconds: u64,
    /// Seconds of each fuzz target; 0: none, and neither gates, interrupts nor disks.
    pub fuzz: u32,
    /// Where `tare` and `images` are; otherwise they are built.
    pub programs: Option<PathBuf>,
}

/// What was seen of all machines of a size.
#[derive(Debug, Default)]
struct Seen {
    machines: u64,
    crashes: u64,
    operations: u64,
    notifications: u64,
    resets: u64,
    most_kib: u64,
    most_descriptors: usize,
    most_output: u64,
    samples: u64,
}

impl Seen {
    /// Whether there was anything to see.
    fn check(&self) -> Result<()> {
        ensure!(self.samples > 0, "no monitor answered: {self:?}");
        ensure!(self.operations > 0, "no guest reported: {self:?}");
        ensure!(
            self.crashes < self.machines,
            "every guest crashed: {self:?}"
        );
        Ok(())
    }
}

/// Runs it.
pub(crate) fn run(soak: &Soak) -> Result<()> {
    let programs = if let Some(programs) = &soak.programs {
        programs.clone()
    } else {
        build::release()?;
        shell::target_dir().join("release")
    };
    let place = tempfile::tempdir()?;
    for cpus in [1, 2] {
        let mut seen = Seen::default();
        let end = Instant::now() + Duration::from_secs(soak.seconds);
        while Instant::now() < end {
            let machine = SoakMachine::start(&programs, place.path(), cpus, seen.machines + 1)?;
            machine.live(end, &mut seen)?;
        }
        println!("soak on {cpus} vCPUs: {seen:?}");
        seen.check()?;
    }
    if soak.fuzz == 0 {
        println!("SKIP gates, interrupts, disks and fuzz targets: FUZZ is 0");
        return Ok(());
    }
    gates(&programs, place.path())?;
    wild_ends(&programs, place.path())?;
    interrupts(&programs, place.path())?;
    disks()?;
    system_calls()?;
    fuzz::run(soak.fuzz)
}

/// Interrupts on one vCPU, and on two, where a sender waits for the other one's thread.
const INTERRUPTS: [(u32, u64); 2] = [(1, 10_000_000), (2, 1_000_000)];
/// Seeds of the requests of the gates, and requests of each.
const GATE_SEEDS: std::ops::Range<u64> = 1..21;
const GATE_REQUESTS: u64 = 200_000;
/// Exit code of a machine whose guest ended by a fault (`docs/exit-codes.md`).
const FAULT: i32 = 71;
/// Machines that end wildly.
const WILD_ENDS: u64 = 600;

/// No interrupt is lost on the way to an image in ring 3: some minutes, an hour on a busy
/// host that emulates ring 0.
fn interrupts(programs: &Path, place: &Path) -> Result<()> {
    for (cpus, number) in INTERRUPTS {
        let said = in_ring_3(programs, place, cpus, &format!("interrupts={number}"))?;
        print!("{said}");
        let all = format!("{number} raised, {number} arrived, {number} handled");
        ensure!(said.contains(&all), "interrupts are lost:\n{said}");
    }
    Ok(())
}

/// The gates into ring 0 survive any registers in any order.
fn gates(programs: &Path, place: &Path) -> Result<()> {
    for seed in GATE_SEEDS {
        let cmdline = format!("trespass=gates seed={seed} requests={GATE_REQUESTS}");
        let said = in_ring_3(programs, place, 1, &cmdline)?;
        let all = format!("gates: {GATE_REQUESTS} requests");
        ensure!(said.contains(&all), "seed {seed}:\n{said}");
    }
    println!("gates: {GATE_REQUESTS} requests of each of {GATE_SEEDS:?}");
    Ok(())
}

/// However an image in ring 3 ends itself, the monitor reports a fault with registers.
fn wild_ends(programs: &Path, place: &Path) -> Result<()> {
    for seed in 0..WILD_ENDS {
        let cmdline = format!("trespass=wild seed={seed}");
        let ended = in_ring_3_command(programs, place, 1, &cmdline).output()?;
        let said = String::from_utf8_lossy(&ended.stdout);
        let is_report = said.contains("wild: ") && said.contains("rip ");
        ensure!(
            ended.status.code() == Some(FAULT) && is_report,
            "seed {seed}: {}:\n{said}{}",
            ended.status,
            String::from_utf8_lossy(&ended.stderr)
        );
    }
    println!("wild ends: {WILD_ENDS}, each with a report of registers");
    Ok(())
}

/// What the selftest prints in ring 3 until it ends with status 0.
fn in_ring_3(programs: &Path, place: &Path, cpus: u32, cmdline: &str) -> Result<String> {
    shell::output(&mut in_ring_3_command(programs, place, cpus, cmdline))
}

fn in_ring_3_command(programs: &Path, place: &Path, cpus: u32, cmdline: &str) -> Command {
    let mut command = Command::new(programs.join("tare"));
    command
        .env("TARE_RUN_ROOT", place.join("run"))
        .env("TARE_IMAGES", programs.join("images"))
        .args(["run", "selftest", "--engine", "tare", "--ring", "3"])
        .args(["--net", "none", "--cpus", &cpus.to_string()])
        .args(["--cmdline", cmdline]);
    command
}

/// 200 kills of `tare blk`, 50 of the monitor, 4,000 failures of power: some minutes.
fn disks() -> Result<()> {
    let rounds = ["test", "-q", "-p", "tare", "--test", "blk", "rounds::"];
    shell::run(&mut shell::cargo(&["build", "-q", "-p", "tare-monitor"]))?;
    let mut rounds = shell::cargo(&rounds);
    // Tests that were skipped would have shown nothing.
    shell::run(rounds.env("TARE_SOAK", "1").env("TARE_REQUIRE_KVM", "1"))
}

/// Sequences of each of the seven kinds of random system calls, 2,000 calls each: ten million
/// calls, some minutes.
const CALL_SEQUENCES: u32 = 720;

/// Random system calls of a program answer as Linux does.
fn system_calls() -> Result<()> {
    let test = "random_system_calls_answer_as_linux_does";
    let args = ["test", "-q", "-p", "tare", "--test", "programs", test];
    let mut calls = shell::cargo(&args);
    calls.env("TARE_SOAK", CALL_SEQUENCES.to_string());
    shell::run(calls.env("TARE_REQUIRE_KVM", "1"))?;
    println!("system calls: {CALL_SEQUENCES} sequences of each kind");
    Ok(())
}

struct SoakMachine<'a> {
    tare: PathBuf,
    place: &'a Path,
    name: String,
    output: PathBuf,
    child: Child,
}

impl<'a> SoakMachine<'a> {
    fn start(programs: &Path, place: &'a Path, cpus: u32, seed: u64) -> Result<Self> {
        let name = format!("soak-{cpus}-{seed}");
        let (fast, slow) = (place.join("fast.img"), place.join("slow.img"));
        for disk in [&fast, &slow] {
            File::create(disk)?.set_len(2 << 20)?;
        }
        let output = place.join(format!("{name}.log"));
        let log = File::create(&output)?;
        let tare = programs.join("tare");
        let mut command = Command::new(&tare);
        command
            .env("TARE_RUN_ROOT", place.join("run"))
            .env("TARE_IMAGES", programs.join("images"))
            .args(["run", "hostile", "--engine", "tare", "--name", &name])
            .args(["--cpus", &cpus.to_string(), "--disk"])
            .arg(&fast)
            .arg("--disk")
            .arg(format!("{},latency_us=300,iops=20000", slow.display()))
            .arg("--cmdline")
            .arg(format!("operations={OPERATIONS} seed={seed}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn().context("cannot start tare run")?;
        Ok(Self {
            tare,
            place,
            name,
            output,
            child,
        })
    }

    /// Watches it to its end, or stops it at `end`.
    fn live(mut self, end: Instant, seen: &mut Seen) -> Result<()> {
        let mut first_kib = None;
        let mut first_descriptors = None;
        let mut samples = 0;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() >= end {
                break self.stop()?;
            }
            thread::sleep(INTERVAL);
            let Some((kib, pid)) = self.monitor() else {
                continue;
            };
            samples += 1;
            let first = if samples == WARM_UP {
                *first_kib.get_or_insert(kib)
            } else {
                first_kib.unwrap_or(kib)
            };
            seen.most_kib = seen.most_kib.max(kib);
            let descriptors = descriptors(pid);
            seen.most_descriptors = seen.most_descriptors.max(descriptors);
            let name = &self.name;
            let first_open = *first_descriptors.get_or_insert(descriptors);
            ensure!(
                descriptors <= first_open + CLIENTS,
                "{name}: the monitor has {descriptors} descriptors, {first_open} at first"
            );
            ensure!(kib <= MONITOR_KIB, "{name}: the monitor has {kib} KiB");
            ensure!(
                kib <= first + GROWTH_KIB,
                "{name}: the monitor grew from {first} to {kib} KiB"
            );
        };
        seen.samples += samples;
        self.judge(status, seen)
    }

    fn judge(&self, status: ExitStatus, seen: &mut Seen) -> Result<()> {
        let output = fs::read(&self.output)?;
        let text = String::from_utf8_lossy(&output);
        let name = &self.name;
        let code = status.code();
        if !code.is_some_and(|code| ENDS.contains(&code)) {
            bail!("{name} ended with {status}:\n{text}");
        }
        let bytes = output.len() as u64;
        ensure!(bytes <= OUTPUT_BYTES, "{name} wrote {bytes} bytes:\n{text}");
        seen.machines += 1;
        seen.crashes += u64::from(code != Some(0));
        seen.most_output = seen.most_output.max(bytes);
        let [operations, notifications, resets] = progress(&text);
        seen.operations += operations;
        seen.notifications += notifications;
        seen.resets += resets;
        Ok(())
    }

    fn tare(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.tare);
        command.env("TARE_RUN_ROOT", self.place.join("run"));
        shell::output(command.args(args))
    }

    /// Resident memory of the monitor without the guest's in KiB, and its process; None before it
    /// answers and after its end.
    fn monitor(&self) -> Option<(u64, u64)> {
        let stats = self.tare(&["stats", &self.name, "--json"]).ok()?;
        let stats: Value = serde_json::from_str(&stats).ok()?;
        let bytes = stats["memory"]["monitor_resident_bytes"].as_u64()?;
        Some((bytes >> 10, stats["pid"].as_u64()?))
    }

    fn stop(&mut self) -> Result<ExitStatus> {
        // Fails as well if the machine has just ended by itself.
        let asked = self.tare(&["stop", &self.name]);
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if begin.elapsed() > STOP {
                asked?;
                bail!("{} did not stop", self.name);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for SoakMachine<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Descriptors of a process; 0 of one that has ended.
fn descriptors(pid: u64) -> usize {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    open.map_or(0, Iterator::count)
}

/// Operations, notifications and resets in the last report of a guest: `hostile: 25000 operations,
/// 2100 notifications, 1300 resets`.
fn progress(text: &str) -> [u64; 3] {
    let last = text.lines().rev().find(|line| line.contains(" operations"));
    ["operations", "notifications", "resets"].map(|what| {
        let words: Vec<_> = last.unwrap_or_default().split([' ', ',']).collect();
        let at = words.iter().position(|word| *word == what);
        let number = at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok());
        number.unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_without_coverage_fails() {
        let seen = |machines, crashes, operations, samples| Seen {
            machines,
            crashes,
            operations,
            samples,
            ..Seen::default()
        };
        assert!(seen(2, 1, 10, 3).check().is_ok());
        for nothing in [seen(2, 0, 10, 0), seen(2, 0, 0, 3), seen(2, 2, 10, 3)] {
            assert!(nothing.check().is_err(), "{nothing:?}");
        }
    }

    #[test]
    fn the_last_figures_of_a_guest_count() {
        let text = "hostile: 10 operations, 7 notifications, 3 resets\n\
                    hostile: done, 20 operations, 9 notifications, 4 resets, 1 of them\n";
        assert_eq!(progress(text), [20, 9, 4]);
        assert_eq!(progress(""), [0, 0, 0]);
    }
}

//! A database over `tare blk`, off against vIC: PostgreSQL and pgbench's TPC-B in
//! one Linux guest in QEMU, whose disk changes between the two by `PUT
//! /v1/settings` (what `tare set` sends), in turns.
//!
//! Neighbours: `appliance::served` starts the machine, `cluster` makes its disk,
//! `guest` what boots. Where KVM emulates, QEMU translates: transactions a second
//! are the translator's, interrupts for each request are the rule's.

mod cluster;
mod guest;
mod plan;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tare_control::sentence::chain;
use tare_control::settings::SettingsChange;
use tare_control::stats::{Kvm, Stats};
use tare_lab::kit::{Bench, RunError, Samples};
use tare_machines::appliance::{Guest, ServedGuest};
use tare_machines::linux::LinuxError;
use tare_qemu::Accelerator;
use tempfile::TempDir;

pub(super) use self::plan::Plan;
use self::plan::TRANSLATED;
use super::metrics::METRICS;
use super::plan::Arm;
use crate::guest_bench::{self, ArmRound};

/// Longest silence: the translator boots, and a run.
const SILENCE: Duration = Duration::from_secs(90);
/// Whose turn it is. Each goes first as often as the other.
const TURNS: [Arm; 4] = [Arm::Off, Arm::Vic, Arm::Vic, Arm::Off];

/// Why there is nothing to weigh.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error(transparent)]
    Cluster(#[from] cluster::ClusterError),
    #[error(transparent)]
    Guest(#[from] LinuxError),
}

/// Files of the machine, which go with it.
struct Prepared {
    _directory: TempDir,
    disk: PathBuf,
    guest: guest::Guest,
    version: Option<String>,
}

impl Prepared {
    fn make(plan: &Plan) -> Result<Self, PrepareError> {
        let postgres = cluster::Postgres::find()?;
        let directory = tempfile::Builder::new()
            .prefix("tare-vic-db-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir()
            .map_err(LinuxError::file("a temporary directory"))?;
        let guest = guest::make(&postgres, directory.path(), plan)?;
        let disk = cluster::make(&postgres, directory.path(), plan.scale, plan.disk_mib)?;
        Ok(Self {
            _directory: directory,
            disk,
            guest,
            version: postgres.version(),
        })
    }
}

/// Weighs the database; the outcome is why not, where it cannot be.
pub(super) fn weigh(
    bench: &mut Bench<'_>,
    plan: &Plan,
    kvm: Kvm,
    samples: &mut Samples,
) -> Result<Option<String>, RunError> {
    bench
        .progress
        .step("a database over tare blk: making its tables");
    let prepared = match Prepared::make(plan) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Some(chain(&error))),
    };
    if let Some(version) = &prepared.version {
        bench.recorder.version("postgres", version)?;
    }
    let native = kvm == Kvm::Hardware;
    let latency_us = if native { 0 } else { plan.latency_us };
    let spec = ServedGuest {
        label: "database".to_owned(),
        disk: format!("{},latency_us={latency_us}", prepared.disk.display()),
        kernel: prepared.guest.kernel.clone(),
        initramfs: prepared.guest.initramfs.clone(),
        cmdline: prepared.guest.cmdline.clone(),
        accelerator: if native {
            Accelerator::Kvm
        } else {
            Accelerator::Tcg
        },
        cpus: 2,
        memory_mib: plan.memory_mib,
    };
    let rule = if native { &[][..] } else { &TRANSLATED };
    guest_bench::optional(runs(bench, &spec, rule, samples))
}

/// All runs in one machine.
pub(super) fn runs(
    bench: &mut Bench<'_>,
    spec: &ServedGuest,
    rule: &[&str],
    samples: &mut Samples,
) -> Result<(), RunError> {
    let mut guest = bench.executor.serve(spec)?;
    let mut run = Run::default();
    loop {
        let record = guest.record(SILENCE, bench.interrupt)?;
        let number = |name: &str| record.get(name).and_then(Value::as_u64);
        if let Some(number) = number("next") {
            run = Run::of(number as usize);
            let what = format!("a database over tare blk, {}", run.arm.name());
            bench.progress.step(&what);
            change(&mut *guest, run.arm, rule)?;
        }
        let place = run.place();
        guest_bench::keep(bench, place, "database", &record)?;
        add(samples, place.arm, &record);
        if number("begin").is_some() {
            run.begin = guest.stats()?;
        } else if number("end").is_some() {
            run.end = guest.stats()?;
            if let Some(counted) = run.counted() {
                guest_bench::keep(bench, place, "database counters", &counted)?;
                add(samples, place.arm, &counted);
            }
        } else if record.get("done").is_some() {
            bench.recorder.flush()?;
            return Ok(());
        }
    }
}

/// Adds the figures of a line of the guest, or of what the disk counted; of others nothing.
pub(super) fn add(samples: &mut Samples, arm: &str, line: &Value) {
    let number = |name: &str| line.get(name).and_then(Value::as_f64);
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            samples.add_of(METRICS, &format!("{name}.{arm}"), value);
        }
    };
    put("tps", number("tps"));
    put("db_latency_ms", number("latency_ms"));
    let ratio = |name: &str, by: &str| Some(number(name)? / number(by)?);
    put("db_interrupts_per_s", ratio("interrupts", "seconds"));
    put("db_interrupts_per_io", ratio("interrupts", "requests"));
    put("db_iops", ratio("requests", "seconds"));
    put("db_in_flight", number("in_flight"));
}

/// The arm's rule, from now on.
fn change(guest: &mut dyn Guest, arm: Arm, rule: &[&str]) -> Result<(), RunError> {
    let mode = match arm {
        Arm::Vic => "disk0.coalesce=auto",
        _ => "disk0.coalesce=off",
    };
    let mut change = SettingsChange::default();
    for word in [mode].iter().chain(rule) {
        // Words of this file, which its test sets.
        let _ = change.set(word);
    }
    guest.set(&change)?;
    Ok(())
}

/// One run.
#[derive(Debug)]
struct Run {
    arm: Arm,
    round: usize,
    begin: Option<Stats>,
    end: Option<Stats>,
}

impl Default for Run {
    fn default() -> Self {
        Self::of(0)
    }
}

impl Run {
    fn of(number: usize) -> Self {
        Self {
            arm: TURNS[number % TURNS.len()],
            round: number / 2,
            begin: None,
            end: None,
        }
    }

    fn place(&self) -> ArmRound {
        ArmRound {
            arm: self.arm.name(),
            round: self.round,
        }
    }

    /// What the disk counted meanwhile.
    fn counted(&self) -> Option<Value> {
        let (begin, end) = self.begin.as_ref().zip(self.end.as_ref())?;
        let seconds = end.uptime_ns.saturating_sub(begin.uptime_ns) as f64 / 1e9;
        let count = |name: &str| counter(end, name).saturating_sub(counter(begin, name)) as f64;
        let interrupts = count("interrupts");
        let requests = count("reads") + count("writes") + count("flushes");
        let depth = count("in_flight_sum") / requests;
        Some(json!({
            "seconds": seconds, "interrupts": interrupts, "requests": requests,
            "reads": count("reads"), "writes": count("writes"), "flushes": count("flushes"),
            "in_flight": depth,
        }))
    }
}

fn counter(stats: &Stats, name: &str) -> u64 {
    let disk = stats.devices.first();
    let count = disk.and_then(|disk| disk.counters.get(name));
    count.copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_rule_is_a_setting() {
        for word in TRANSLATED {
            assert!(SettingsChange::default().set(word).is_ok(), "{word}");
        }
        for arm in TURNS {
            assert!(arm == Arm::Off || arm == Arm::Vic);
        }
    }

    #[test]
    fn each_arm_goes_first_as_often_as_the_other() {
        let first = |number: usize| Run::of(number).arm;
        let firsts: Vec<Arm> = (0..8).step_by(2).map(first).collect();
        assert_eq!(firsts, [Arm::Off, Arm::Vic, Arm::Off, Arm::Vic]);
        for pair in 0..4 {
            assert_ne!(first(pair * 2), first(pair * 2 + 1));
            assert_eq!(Run::of(pair * 2).round, Run::of(pair * 2 + 1).round);
        }
    }

    #[test]
    fn what_the_disk_counted_becomes_rates() {
        let at = |seconds: u64, interrupts: u64, reads: u64| {
            let mut stats = tare_machines::appliance::fake::stats(Kvm::None, 1, 0);
            stats.uptime_ns = seconds * 1_000_000_000;
            let counters = [
                ("interrupts", interrupts),
                ("reads", reads),
                ("flushes", reads / 2),
                ("in_flight_sum", reads * 6),
            ];
            let counters = counters.map(|(name, count)| (name.to_owned(), count));
            stats.devices.push(tare_control::stats::DeviceStats {
                counters: counters.into(),
                ..Default::default()
            });
            stats
        };
        let mut run = Run::of(1);
        run.begin = Some(at(1, 10, 100));
        run.end = Some(at(3, 70, 180));
        let mut samples = Samples::default();
        let counted = run.counted();
        add(&mut samples, run.arm.name(), &counted.unwrap_or_default());
        assert_eq!(samples.values("db_interrupts_per_s.vic"), [30.0]);
        assert_eq!(samples.values("db_interrupts_per_io.vic"), [0.5]);
        assert_eq!(samples.values("db_iops.vic"), [60.0]);
        assert_eq!(samples.values("db_in_flight.vic"), [4.0]);
    }
}

//! Records that are continued or merged: whether they belong to this weighing, and what they say
//! of their machine.

use std::path::Path;

use serde_json::Value;
use tare_lab::kit::{Merged, Record, WeighError, sha256_of_text};

use super::{Platform, Platforms, data, names};

impl Platforms {
    /// Runs of another form, in other containers or on other platforms are not of
    /// the same.
    pub(crate) fn check_record(&self, dir: &Path) -> Result<(), WeighError> {
        let Some(plan) = data::planned(dir) else {
            return Ok(());
        };
        let form = self.form.name().to_owned();
        let engine = self.options.container_engine.name().to_owned();
        let word = |key: &str| Some(plan.get(key)?.as_str()?.to_owned());
        // Records from before there was a choice are of all platforms.
        let platforms =
            plan.get("platforms")
                .and_then(Value::as_array)
                .map_or(names(&Platform::ALL), |all| {
                    let all = all.iter().filter_map(Value::as_str);
                    all.collect::<Vec<_>>().join(", ")
                });
        for (key, theirs, ours) in [
            ("form", word("form"), form),
            ("container_engine", word("container_engine"), engine),
            ("platforms", Some(platforms), names(&self.options.wanted())),
        ] {
            if let Some(theirs) = theirs.filter(|theirs| *theirs != ours) {
                return Err(WeighError::Option(format!(
                    "the record {} has the {key} {theirs}, and this weighing {ours}: resume it as \
                     its command.txt says",
                    dir.display()
                )));
            }
        }
        Ok(())
    }

    /// A record with a workload that has been edited since is not continued.
    pub(crate) fn check_workloads(&self, dir: &Path) -> Result<(), WeighError> {
        let plan = data::planned(dir).unwrap_or_default();
        let recorded = plan.get("workload_sha256");
        for workload in &self.workloads {
            let theirs = recorded.and_then(|all| all.get(&workload.name)?.as_str());
            if theirs.is_some_and(|theirs| theirs != sha256_of_text(&workload.text)) {
                return Err(WeighError::Option(format!(
                    "workload {} has been edited since the record {} began: weigh it anew",
                    workload.name,
                    dir.display()
                )));
            }
        }
        let theirs = plan.get("host").and_then(Value::as_str);
        match theirs {
            // Earlier records have the name alone.
            Some(theirs)
                if theirs != self.host && !self.host.starts_with(&format!("{theirs}#")) =>
            {
                Err(WeighError::Option(format!(
                    "the record {} is of the host {theirs}, and this is {}",
                    dir.display(),
                    self.host
                )))
            }
            _ => Ok(()),
        }
    }

    /// Takes over what a record says of its machine.
    pub(crate) fn merge(&mut self, dir: &Path, added: usize) -> Result<(), WeighError> {
        let record = Record::read(dir)?;
        if added == 0 {
            return Err(WeighError::Option(format!(
                "{} adds no runs: it has none, or they are in a record before it",
                dir.display()
            )));
        }
        let mut machine = record.machine();
        machine.own_wait_pct = record.greatest("own_wait_pct");
        machine.others_cpu_pct = record.greatest("others_cpu_pct");
        let revision = record.word("revision").unwrap_or_default();
        let started = record.word("started").unwrap_or_default();
        match &mut self.merged {
            None => {
                self.merged = Some(Merged {
                    machine,
                    revision,
                    started,
                });
            }
            Some(merged) => {
                if !merged.machine.cpu.contains(&machine.cpu) {
                    merged.machine.cpu = format!("{}; {}", merged.machine.cpu, machine.cpu);
                }
                if !merged.revision.contains(&revision) {
                    merged.revision = format!("{}, {revision}", merged.revision);
                }
                merged.machine.cores = merged.machine.cores.max(machine.cores);
                let worse = |one: Option<f64>, other: Option<f64>| match (one, other) {
                    (Some(one), Some(other)) => Some(one.max(other)),
                    (one, other) => one.or(other),
                };
                let of = &mut merged.machine;
                of.own_wait_pct = worse(of.own_wait_pct, machine.own_wait_pct);
                of.others_cpu_pct = worse(of.others_cpu_pct, machine.others_cpu_pct);
                merged.started = started.min(merged.started.clone());
            }
        }
        Ok(())
    }
}

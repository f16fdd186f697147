//! Runs as they are recorded, and records read back.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tare_lab::kit::csv_field;

use super::observe::Observed;
use super::plan::{Arm, Cell};

/// One run, a line of `raw.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Always `run`.
    pub(crate) sample: String,
    /// Host on which it ran.
    pub(crate) host: String,
    /// CPUs of the host.
    pub(crate) host_cpus: u32,
    #[serde(flatten)]
    pub(crate) cell: Cell,
    /// Round, from 0.
    pub(crate) round: u32,
    /// Runs of one block came one after the other: when it began, ms since 1970.
    #[serde(default)]
    pub(crate) block: Option<u64>,
    /// Whether it only warmed up.
    pub(crate) warm_up: bool,
    /// The metric.
    pub(crate) value: Option<f64>,
    /// Its unit.
    pub(crate) unit: String,
    /// The metric as a time: more is worse.
    pub(crate) time: Option<f64>,
    /// Why it does not count.
    pub(crate) failure: Option<String>,
    /// How long it ran, by the platform's clock, s.
    pub(crate) wall_s: f64,
    /// All that went with it, by the lab's clock, s.
    pub(crate) took_s: f64,
    /// What was seen beside it.
    pub(crate) observed: Observed,
    /// What executed the machine.
    pub(crate) engine: Option<String>,
}

/// The plan of a record, the last of them; `None` where there is none.
pub(crate) fn planned(dir: &Path) -> Option<Value> {
    let text = fs::read_to_string(dir.join("raw.jsonl")).ok()?;
    let mut lines = text
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.find_map(|mut line| Some(line.get_mut("plan")?.take()))
}

/// All runs so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) runs: Vec<Run>,
    /// Processor of each host that a record's plan names.
    processors: BTreeMap<String, String>,
}

impl Data {
    /// Times that count, of one kind of run on one host.
    pub(crate) fn times(&self, host: &str, cell: &Cell) -> Vec<f64> {
        let of = |run: &&Run| run.host == host && run.cell == *cell && !run.warm_up;
        let counting = self.runs.iter().filter(of);
        counting.filter_map(|run| run.time).collect()
    }

    /// How much longer the first kind of run took than the second, as a ratio for each
    /// block in which both count: whatever changes slowly is in both.
    pub(crate) fn pairs(&self, host: &str, first: &Cell, second: &Cell) -> Vec<f64> {
        let of = |run: &&Run| run.host == host && !run.warm_up && run.block.is_some();
        let mut blocks: BTreeMap<u64, [Option<f64>; 2]> = BTreeMap::new();
        for run in self.runs.iter().filter(of) {
            for (place, cell) in [first, second].into_iter().enumerate() {
                if let Some(block) = run.block.filter(|_| run.cell == *cell) {
                    blocks.entry(block).or_default()[place] = run.time;
                }
            }
        }
        let ratio = |times: [Option<f64>; 2]| Some(times[0]? / times[1]?);
        blocks.into_values().filter_map(ratio).collect()
    }

    /// Hosts with their CPUs, in order.
    pub(crate) fn hosts(&self) -> Vec<(String, u32)> {
        let runs = self.runs.iter();
        let hosts: BTreeMap<&str, u32> =
            runs.map(|run| (run.host.as_str(), run.host_cpus)).collect();
        let owned = |(host, cpus): (&str, u32)| (host.to_owned(), cpus);
        hosts.into_iter().map(owned).collect()
    }

    /// Workloads that ran.
    pub(crate) fn workloads(&self) -> Vec<String> {
        let mut names: Vec<String> = self.runs.iter().map(|r| r.cell.workload.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Kinds of runs of a workload that are compared.
    pub(crate) fn cells(&self, workload: &str) -> Vec<Cell> {
        let of = |run: &&Run| run.cell.workload == workload && run.cell.arm == Arm::Main;
        let mut cells: Vec<Cell> = self
            .runs
            .iter()
            .filter(of)
            .map(|r| r.cell.clone())
            .collect();
        cells.sort();
        cells.dedup();
        cells
    }

    /// Adds the runs of a record and says how many were new. Lines that are not runs, a last
    /// one that was cut off, and runs that are there already are passed over.
    pub(crate) fn read(&mut self, dir: &Path) -> io::Result<usize> {
        let text = fs::read_to_string(dir.join("raw.jsonl"))?;
        let before = self.runs.len();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut processor = String::new();
        for line in lines {
            if let Some(cpu) = line.pointer("/machine/cpu").and_then(Value::as_str) {
                cpu.clone_into(&mut processor);
            }
            let run = serde_json::from_value(line).ok();
            let Some(run) = run.filter(|run: &Run| run.sample == "run") else {
                continue;
            };
            self.runs_on(&run.host, &processor);
            // Clocks and counters make two runs differ: equal ones are the same run.
            let same = |known: &Run| {
                known.took_s == run.took_s
                    && Run {
                        host: run.host.clone(),
                        ..known.clone()
                    } == run
            };
            if !self.runs[..before].iter().any(same) {
                self.runs.push(run);
            }
        }
        self.unite_hosts();
        Ok(self.runs.len() - before)
    }

    /// Notes the processor of a host.
    pub(crate) fn runs_on(&mut self, host: &str, processor: &str) {
        if !self.processors.contains_key(host) {
            self.processors
                .insert(host.to_owned(), processor.to_owned());
        }
    }

    /// Runs of the earlier form, with the name alone, that are known to be of this `host`.
    pub(crate) fn adopt(&mut self, host: &str) {
        let name = host.split('#').next();
        for run in &mut self.runs {
            if Some(run.host.as_str()) == name {
                host.clone_into(&mut run.host);
            }
        }
    }

    /// Earlier records have a host's name alone, later ones `NAME#IDENTITY`: both are one host
    /// where name, processor and number of CPUs agree with one later record's.
    fn unite_hosts(&mut self) {
        let processors = &self.processors;
        let whole = |run: &&Run| run.host.contains('#');
        let mut known: Vec<(String, u32)> = self
            .runs
            .iter()
            .filter(whole)
            .map(|run| (run.host.clone(), run.host_cpus))
            .collect();
        known.sort();
        known.dedup();
        for run in self.runs.iter_mut().filter(|run| !run.host.contains('#')) {
            let alike = known.iter().filter(|(host, cpus)| {
                host.split('#').next() == Some(run.host.as_str())
                    && *cpus == run.host_cpus
                    && processors.get(host) == processors.get(&run.host)
            });
            if let [(host, _)] = alike.collect::<Vec<_>>()[..] {
                run.host.clone_from(host);
            }
        }
    }

    /// All runs as CSV. Charges are those of runs in which they were counted, which warmed up.
    pub(crate) fn csv(&self) -> String {
        let mut out = String::from(
            "host,workload,platform,mode,size,limit,arm,round,block,warm_up,value,unit,time,wall_s,\
             context_switches,migrations,charges,charged_groups,on_cpu_s,throttled_s,steal_s,disk_requests,disk_busy_s,\
             disk_wait_s,kvm_exits,failure\n",
        );
        for run in &self.runs {
            let place = &run.cell.place;
            let sched = run.observed.sched.as_ref();
            let exits = run.observed.kvm.as_ref().and_then(|kvm| kvm.get("exits"));
            let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
            let cells = [
                run.host.clone(),
                run.cell.workload.clone(),
                place.platform.name().to_owned(),
                place.mode.name().to_owned(),
                place.size.to_string(),
                format!("{:?}", place.limit).to_lowercase(),
                format!("{:?}", run.cell.arm).to_lowercase(),
                run.round.to_string(),
                run.block.map_or(String::new(), |block| block.to_string()),
                run.warm_up.to_string(),
                number(run.value),
                run.unit.clone(),
                number(run.time),
                run.wall_s.to_string(),
                run.observed.context_switches.to_string(),
                number(sched.map(|s| s.migrations as f64)),
                number(sched.and_then(|s| Some(s.charges? as f64))),
                number(sched.and_then(|s| Some(s.charged_groups? as f64))),
                number(sched.map(|s| s.on_cpu_ns as f64 / 1e9)),
                number(run.observed.throttled_us.map(|us| us as f64 / 1e6)),
                run.observed.steal_s.to_string(),
                run.observed.disk_requests.to_string(),
                run.observed.disk_busy_s.to_string(),
                run.observed.disk_wait_s.to_string(),
                number(exits.map(|exits| *exits as f64)),
                run.failure.clone().unwrap_or_default(),
            ];
            out.push_str(&cells.map(|cell| csv_field(&cell)).join(","));
            out.push('\n');
        }
        out
    }
}

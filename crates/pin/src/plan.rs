//! Where each thread of a target shall go.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use tare_policy::placement::{Cpu, CpuMask, Demand, Isolation, Placement, Sharing, place};
use tare_probe::vm::Role;

use crate::cpu_list::CpuList;
use crate::host::Host;
use crate::load::permille;
use crate::target::{Cpuset, Target, TargetKind};
use crate::task::{self, Task};

/// How long a target's own load is looked at.
const LOOK: Duration = Duration::from_millis(150);

/// Which CPUs may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Those that suit, by topology and load.
    Auto,
    /// Only these.
    Cpus(CpuList),
}

/// Why a placement cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// CPUs that were named do not exist.
    #[error("this host has no CPU {}: its CPUs are {}", .0[0], .0[1])]
    Missing(Box<[CpuList; 2]>),
    /// CPUs that were named are off.
    #[error("CPU {} is offline: those online are {}", .0[0], .0[1])]
    Offline(Box<[CpuList; 2]>),
    /// The target's cgroup does not have them.
    #[error("CPU {} is not allowed for {}: its cgroup has {}", .0[0], .1, .0[1])]
    NotAllowed(Box<[CpuList; 2]>, String),
    /// No CPU is left to use.
    #[error("none of the CPUs that {0} may use is online")]
    NoCpu(String),
    /// It has no thread any more.
    #[error("{0} has no threads: it has ended, is empty, or belongs to another user")]
    NoThread(String),
}

/// Where a target's threads go.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whose.
    pub target: Target,
    /// On which CPUs.
    pub placement: Placement,
    /// What the user should know about it.
    pub notes: Vec<String>,
}

/// One thread and its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The thread.
    pub task: Task,
    /// What it does.
    pub role: Role,
    /// Where it shall run.
    pub cpus: CpuMask,
}

impl Plan {
    /// Plans for these CPUs, or for those that suit. Looks at the load for a sixth
    /// of a second where it has a choice.
    pub fn make(target: &Target, host: &Host, choice: &Choice) -> Result<Self, PlanError> {
        let allowed = allowed(target, host)?;
        if target.tasks().is_empty() {
            return Err(PlanError::NoThread(target.name.clone()));
        }
        let asked = match choice {
            Choice::Auto => allowed,
            Choice::Cpus(list) => check(list, target, host, allowed)?,
        };
        let mut cpus: Vec<Cpu> = host.cpus.clone();
        cpus.retain(|cpu| asked.contains(cpu.number));
        let is_vm = target.vcpus().is_some();
        let placement = match choice {
            Choice::Cpus(_) if !is_vm => Some(Placement::whole(asked)),
            _ => {
                let busy_millicpus = discount_own_load(target, &mut cpus);
                if !is_vm {
                    drop_isolated(&mut cpus);
                }
                let demand = Demand {
                    vcpus: demand(target, busy_millicpus, cpus.len()),
                    memory_node: memory_node(target, host),
                };
                place(&cpus, demand)
            }
        };
        let placement = placement.ok_or_else(|| PlanError::NoCpu(target.name.clone()))?;
        let notes = notes(target, host, &placement);
        Ok(Self {
            target: target.clone(),
            placement,
            notes,
        })
    }

    /// The CPUs of a thread that does this.
    pub(crate) fn cpus_of(&self, role: Role) -> CpuMask {
        match (self.target.vcpus(), role) {
            (Some(_), Role::Vcpu(index)) => {
                let index = u16::try_from(index).unwrap_or(u16::MAX);
                self.placement.vcpu(index)
            }
            (Some(_), _) => self.placement.helpers,
            (None, _) => self.placement.all,
        }
    }

    /// Each thread that the target has now, with its CPUs.
    pub fn seats(&self) -> Vec<Seat> {
        let tasks = self.target.tasks().into_iter();
        tasks
            .map(|(task, role)| Seat {
                task,
                role,
                cpus: self.cpus_of(role),
            })
            .collect()
    }

    /// The cgroup that is bounded, where the target has one.
    pub fn cpuset(&self) -> Option<&Cpuset> {
        match &self.target.kind {
            TargetKind::Container(container) => container.cpuset.as_ref(),
            _ => None,
        }
    }
}

/// CPUs that are online and that the target's cgroup has.
fn allowed(target: &Target, host: &Host) -> Result<CpuMask, PlanError> {
    let online = host.online();
    let allowed = target.limit().map_or(online, |limit| limit.and(&online));
    if allowed.is_empty() {
        Err(PlanError::NoCpu(target.name.clone()))
    } else {
        Ok(allowed)
    }
}

fn check(
    list: &CpuList,
    target: &Target,
    host: &Host,
    allowed: CpuMask,
) -> Result<CpuMask, PlanError> {
    let beyond = |limit: &CpuMask| -> Option<CpuList> {
        let beyond: CpuMask = list.iter().filter(|cpu| !limit.contains(*cpu)).collect();
        (!beyond.is_empty()).then_some(CpuList(beyond))
    };
    let online = host.online();
    if let Some(missing) = beyond(&host.present) {
        return Err(PlanError::Missing(Box::new([
            missing,
            CpuList(host.present),
        ])));
    }
    if let Some(offline) = beyond(&online) {
        return Err(PlanError::Offline(Box::new([offline, CpuList(online)])));
    }
    match beyond(&allowed) {
        Some(refused) => {
            let name = target.name.clone();
            Err(PlanError::NotAllowed(
                Box::new([refused, CpuList(allowed)]),
                name,
            ))
        }
        None => Ok(list.0),
    }
}

/// On isolated CPUs the scheduler does not spread threads: no place for a group.
fn drop_isolated(cpus: &mut Vec<Cpu>) {
    if cpus.iter().any(|cpu| cpu.isolated == Isolation::Shared) {
        cpus.retain(|cpu| cpu.isolated == Isolation::Shared);
    }
}

/// Takes what the target's own threads ask for off the CPUs' loads; says how much
/// they run, thousandths of a CPU.
fn discount_own_load(target: &Target, cpus: &mut [Cpu]) -> u64 {
    let begin = Instant::now();
    let before: BTreeMap<_, _> = target
        .tasks()
        .into_iter()
        .map(|(task, _)| (task.id, task))
        .collect();
    std::thread::sleep(LOOK);
    let after = target.tasks();
    let window = begin.elapsed();
    let mut all_ns = 0;
    for (now, _) in after {
        let Some(then) = before.get(&now.id) else {
            continue;
        };
        let run_ns = now.run_ns.saturating_sub(then.run_ns);
        let ready_ns = now.ready_ns.saturating_sub(then.ready_ns);
        all_ns += run_ns;
        if let Some(cpu) = cpus.iter_mut().find(|cpu| cpu.number == now.cpu) {
            let own = permille(run_ns + ready_ns, window);
            cpu.load_permille = cpu.load_permille.saturating_sub(own);
        }
    }
    let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
    all_ns * 1000 / window_ns.max(1)
}

/// vCPUs of a machine; of others the CPUs of its quota, else those it keeps busy.
fn demand(target: &Target, busy_millicpus: u64, cpus: usize) -> u16 {
    let whole = |millicpus: u64| usize::try_from(millicpus.div_ceil(1000)).unwrap_or(usize::MAX);
    let wanted = match target.vcpus() {
        Some(vcpus) => vcpus.max(1),
        None => whole(
            target
                .quota()
                .map_or(busy_millicpus, |quota| quota.millicpus),
        )
        .min(cpus)
        .max(1),
    };
    u16::try_from(wanted).unwrap_or(u16::MAX)
}

/// The node that most of a target's memory is on; not asked where there is one.
fn memory_node(target: &Target, host: &Host) -> Option<u16> {
    if host.nodes() < 2 {
        return None;
    }
    let path = task::process(target.pid()?).join("numa_maps");
    pages_by_node(&fs::read_to_string(path).ok()?)
        .into_iter()
        .max_by_key(|(_, pages)| *pages)
        .map(|(node, _)| node)
}

/// Pages by node in `numa_maps` (`N0=12`), all of one size taken as equal.
fn pages_by_node(text: &str) -> BTreeMap<u16, u64> {
    let mut nodes = BTreeMap::new();
    for field in text.split_whitespace() {
        let found = field
            .strip_prefix('N')
            .and_then(|rest| rest.split_once('='));
        let Some((node, pages)) = found else { continue };
        if let (Ok(node), Ok(pages)) = (node.parse(), pages.parse::<u64>()) {
            *nodes.entry(node).or_default() += pages;
        }
    }
    nodes
}

fn notes(target: &Target, host: &Host, placement: &Placement) -> Vec<String> {
    let mut notes = Vec::new();
    let used = placement.all.or(&placement.helpers);
    match (target.vcpus(), placement.sharing) {
        (Some(vcpus), Sharing::Overcommitted) => notes.push(format!(
            "{vcpus} vCPUs must share {} CPU(s), and will preempt each other",
            used.count()
        )),
        (Some(_), Sharing::WithHelpers) => notes.push(
            "no CPU is left for emulator and I/O threads: they share those of the vCPUs".to_owned(),
        ),
        _ => {}
    }
    let mut nodes: Vec<_> = used.iter().filter_map(|cpu| host.node_of(cpu)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.len() > 1 {
        notes.push(format!("these CPUs lie on {} NUMA nodes", nodes.len()));
    }
    let isolated = used.and(&host.isolated());
    if target.vcpus().is_none() && isolated.count() > 1 {
        notes.push(format!(
            "CPUs {} are isolated: the kernel does not spread threads over them",
            CpuList(isolated)
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Target {
        Target::of_pid(std::process::id()).unwrap()
    }

    fn list(text: &str) -> Choice {
        Choice::Cpus(text.parse().unwrap())
    }

    #[test]
    fn cpus_that_do_not_exist_or_are_off_are_refused() {
        let mut host = Host::read().unwrap();
        let last = host.cpus.last().unwrap().number;
        let error = Plan::make(&own(), &host, &list("900-901")).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("this host has no CPU 900-901"), "{said}");
        host.cpus.pop();
        host.cpus.push(Cpu {
            number: 800,
            ..host.cpus.first().copied().unwrap_or(Cpu {
                number: 0,
                core: 0,
                node: 0,
                isolated: Isolation::Shared,
                load_permille: 0,
            })
        });
        let error = Plan::make(&own(), &host, &list(&last.to_string())).unwrap_err();
        assert!(matches!(error, PlanError::Offline(..)), "{error}");
    }

    #[test]
    fn all_threads_of_a_process_get_the_list_as_it_is() {
        let host = Host::read().unwrap();
        let online = CpuList(host.online());
        let plan = Plan::make(&own(), &host, &Choice::Cpus(online)).unwrap();
        assert_eq!(plan.placement.all, online.0);
        assert!(plan.seats().iter().all(|seat| seat.cpus == online.0));
        let auto = Plan::make(&own(), &host, &Choice::Auto).unwrap();
        assert!(auto.placement.all.is_within(&online.0) && !auto.placement.all.is_empty());
    }

    #[test]
    fn memory_is_counted_by_node() {
        let text = "7f00 default anon=3 N0=1 N1=2 kernelpagesize_kB=4\n7f01 default N1=5 Nx=1\n";
        assert_eq!(pages_by_node(text), BTreeMap::from([(0, 1), (1, 7)]));
    }
}

//! Which CPU each thread of a machine, container or process gets.
//!
//! Pure: CPUs with their core, node and load come in, sets of CPUs go out. The
//! rules, in the order in which they decide:
//!
//! 1. All CPUs of one node, if one node has enough; of such nodes the one that the
//!    memory is on, else the least loaded.
//! 2. vCPUs get isolated CPUs where there are enough: the host's scheduler puts
//!    no other thread there.
//! 3. vCPUs get their own cores before they share one with a sibling thread.
//! 4. The less loaded CPU is taken first; between equals the higher number, since
//!    interrupts and services of a host are mostly on the first.
//! 5. Emulator and I/O threads get the node's CPUs that no vCPU has. Where none is
//!    left they share the vCPUs'.
//! 6. Fewer CPUs than vCPUs: no vCPU is pinned to one, all share all of them. Two
//!    vCPUs on one CPU stop each other in the middle of a lock.
//!
//! CHR, the share of a host's cores that a container is assigned, is the measure
//! of size in CPU-Pinning 2020 ([`chr_permille`], [`ChrRange`]).

mod chr;
mod cpus;

pub use chr::{ChrRange, Class, chr_permille};
pub use cpus::CpuMask;

/// Most CPUs that are placed on.
pub const MAX_CPUS: usize = CpuMask::BITS;

/// A CPU that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub number: u16,
    /// Its core: the lowest number of the CPUs that share it.
    pub core: u16,
    /// Its NUMA node.
    pub node: u16,
    /// Left out by the host's scheduler (`isolcpus`).
    pub isolated: Isolation,
    /// What others ask of it, thousandths: more than 1000 where threads queue for it.
    pub load_permille: u16,
}

/// Whether the host's scheduler leaves a CPU alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Any thread may run there.
    Shared,
    /// Only who was put there.
    Isolated,
}

/// What is to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// vCPUs, or CPUs of a container or process.
    pub vcpus: u16,
    /// The node that most of the memory is on.
    pub memory_node: Option<u16>,
}

/// Where things go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Every vCPU's CPU in order, as far as [`Placement::vcpu`] says.
    order: [u16; MAX_VCPUS],
    vcpus: u16,
    /// All CPUs of vCPUs together.
    pub all: CpuMask,
    /// Emulator, I/O and other threads.
    pub helpers: CpuMask,
    /// How vCPUs have their CPUs.
    pub sharing: Sharing,
}

/// Most vCPUs that get a CPU each.
pub(crate) const MAX_VCPUS: usize = 512;

/// Who shares with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each vCPU has a CPU, and helpers others.
    Apart,
    /// Each vCPU has a CPU, and helpers run there too.
    WithHelpers,
    /// More vCPUs than CPUs: all share all.
    Overcommitted,
}

impl Placement {
    /// All threads on all of these CPUs.
    pub fn whole(cpus: CpuMask) -> Self {
        Self {
            order: [0; MAX_VCPUS],
            vcpus: 0,
            all: cpus,
            helpers: cpus,
            sharing: Sharing::Overcommitted,
        }
    }

    /// The CPUs of vCPU `index`.
    pub fn vcpu(&self, index: u16) -> CpuMask {
        match self.sharing {
            Sharing::Overcommitted => self.all,
            _ if index >= self.vcpus => self.all,
            _ => CpuMask::of(self.order[usize::from(index)]),
        }
    }
}

/// Places on these CPUs; `None` if there is none, or nothing to place.
pub fn place(cpus: &[Cpu], demand: Demand) -> Option<Placement> {
    let wanted = usize::from(demand.vcpus).min(MAX_VCPUS);
    if cpus.is_empty() || wanted == 0 {
        return None;
    }
    if cpus.len() < wanted || usize::from(demand.vcpus) > MAX_VCPUS {
        return Some(Placement::whole(
            cpus.iter().map(|cpu| cpu.number).collect(),
        ));
    }
    let node = node(cpus, demand, wanted);
    let isolated = cpus.iter().filter(|cpu| on(cpu, node) && is_isolated(cpu));
    let only_isolated = isolated.count() >= wanted;
    let mut placement = Placement {
        order: [0; MAX_VCPUS],
        vcpus: 0,
        all: CpuMask::EMPTY,
        helpers: CpuMask::EMPTY,
        sharing: Sharing::Apart,
    };
    for index in 0..wanted {
        let free = |cpu: &&Cpu| {
            on(cpu, node)
                && !placement.all.contains(cpu.number)
                && (!only_isolated || is_isolated(cpu))
        };
        let best = cpus
            .iter()
            .filter(free)
            .min_by_key(|cpu| rank(cpu, cpus, &placement.all))?;
        placement.order[index] = best.number;
        placement.all.insert(best.number);
    }
    placement.vcpus = wanted as u16;
    place_helpers(cpus, node, &mut placement);
    Some(placement)
}

/// The CPUs that no vCPU has: the node's, else any; the vCPUs' if there is none.
/// Isolated ones stay free, unless nothing else is left.
fn place_helpers(cpus: &[Cpu], node: Option<u16>, placement: &mut Placement) {
    let free = |cpu: &Cpu| !placement.all.contains(cpu.number);
    let tries: [&dyn Fn(&Cpu) -> bool; 3] = [
        &|cpu| free(cpu) && on(&cpu, node) && !is_isolated(&cpu),
        &|cpu| free(cpu) && !is_isolated(&cpu),
        &|cpu| free(cpu),
    ];
    for suits in tries {
        let mut mask = CpuMask::EMPTY;
        for cpu in cpus.iter().filter(|cpu| suits(cpu)) {
            mask.insert(cpu.number);
        }
        if !mask.is_empty() {
            placement.helpers = mask;
            return;
        }
    }
    placement.helpers = placement.all;
    placement.sharing = Sharing::WithHelpers;
}

/// The one node to use, if one has enough CPUs.
fn node(cpus: &[Cpu], demand: Demand, wanted: usize) -> Option<u16> {
    let size = |node: u16| cpus.iter().filter(|cpu| cpu.node == node).count();
    let load = |node: u16| {
        let members = cpus.iter().filter(|cpu| cpu.node == node);
        let sum: u64 = members.map(|cpu| u64::from(cpu.load_permille)).sum();
        sum * 1000 / size(node).max(1) as u64
    };
    let near = |node: u16| demand.memory_node != Some(node);
    // One more than the vCPUs leaves a place for helpers.
    let tight = |node: u16| size(node) == wanted;
    cpus.iter()
        .map(|cpu| cpu.node)
        .filter(|node| size(*node) >= wanted)
        .min_by_key(|node| (near(*node), tight(*node), load(*node), *node))
}

/// The lower the better.
fn rank(cpu: &Cpu, cpus: &[Cpu], taken: &CpuMask) -> (bool, u16, u16) {
    let siblings = cpus.iter().filter(|other| other.core == cpu.core);
    let shares = siblings
        .filter(|other| taken.contains(other.number))
        .count()
        > 0;
    (shares, cpu.load_permille, u16::MAX - cpu.number)
}

fn on(cpu: &&Cpu, node: Option<u16>) -> bool {
    node.is_none_or(|node| cpu.node == node)
}

fn is_isolated(cpu: &&Cpu) -> bool {
    cpu.isolated == Isolation::Isolated
}

#[cfg(test)]
mod tests;

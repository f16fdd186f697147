//! Which CPUs this host has: number, core, node, isolation, load.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tare_policy::placement::{Cpu, CpuMask, Isolation};

use crate::cpu_list::CpuList;
use crate::load::{Asked, permille};

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";
/// How long load is looked at.
const LOOK: Duration = Duration::from_millis(150);

/// Why the CPUs of this host are not known.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file of the kernel cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds no list of CPUs.
    #[error("{0} does not contain a list of CPUs")]
    NoList(PathBuf),
}

/// The CPUs of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// CPUs that exist, online or not.
    pub present: CpuMask,
    /// CPUs that are online, by number.
    pub cpus: Vec<Cpu>,
}

impl Host {
    /// This host. Takes a sixth of a second, in which the load is looked at: what
    /// threads ask of each CPU, and where their times are hidden how busy it is.
    pub fn read() -> Result<Self, HostError> {
        let mut host = Self::read_in(Path::new(CPUS), Path::new(NODES))?;
        let before = fs::read_to_string("/proc/stat").unwrap_or_default();
        let asked = Asked::now();
        let begin = Instant::now();
        std::thread::sleep(LOOK);
        let window = begin.elapsed();
        let threads = asked.since();
        let after = fs::read_to_string("/proc/stat").unwrap_or_default();
        for cpu in &mut host.cpus {
            let here = threads.iter().filter(|(task, _)| task.cpu == cpu.number);
            let asked = permille(here.map(|(_, ns)| ns).sum(), window);
            let busy = load_permille(&before, &after, cpu.number).unwrap_or(0);
            cpu.load_permille = asked.max(busy);
        }
        Ok(host)
    }

    pub(crate) fn read_in(cpus: &Path, nodes: &Path) -> Result<Self, HostError> {
        let list = |name: &str| {
            let path = cpus.join(name);
            match fs::read_to_string(&path) {
                Ok(text) => CpuList::from_kernel(&text).ok_or(HostError::NoList(path)),
                Err(source) => Err(HostError::Unreadable { path, source }),
            }
        };
        let online = list("online")?;
        let present = list("present").unwrap_or(online);
        let isolated = list("isolated").map_or(CpuMask::EMPTY, |list| list.0);
        let nodes = nodes_of(nodes);
        let cpu = |number| Cpu {
            number,
            core: core(cpus, number),
            node: nodes
                .iter()
                .find(|(_, members)| members.contains(number))
                .map_or(0, |(node, _)| *node),
            isolated: if isolated.contains(number) {
                Isolation::Isolated
            } else {
                Isolation::Shared
            },
            load_permille: 0,
        };
        Ok(Self {
            present: present.0,
            cpus: online.iter().map(cpu).collect(),
        })
    }

    /// CPUs that are online.
    pub fn online(&self) -> CpuMask {
        self.cpus.iter().map(|cpu| cpu.number).collect()
    }

    /// CPUs that the host's scheduler leaves alone.
    pub fn isolated(&self) -> CpuMask {
        let isolated = |cpu: &&Cpu| cpu.isolated == Isolation::Isolated;
        let cpus = self.cpus.iter().filter(isolated);
        cpus.map(|cpu| cpu.number).collect()
    }

    /// Nodes with CPUs.
    pub fn nodes(&self) -> usize {
        let mut nodes: Vec<u16> = self.cpus.iter().map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    /// The node of a CPU.
    pub fn node_of(&self, number: u16) -> Option<u16> {
        let cpu = self.cpus.iter().find(|cpu| cpu.number == number)?;
        Some(cpu.node)
    }

    /// The core of a CPU.
    pub fn core_of(&self, number: u16) -> Option<u16> {
        let cpu = self.cpus.iter().find(|cpu| cpu.number == number)?;
        Some(cpu.core)
    }
}

/// The lowest CPU of a core stands for it.
fn core(cpus: &Path, number: u16) -> u16 {
    let file = format!("cpu{number}/topology/thread_siblings_list");
    let text = fs::read_to_string(cpus.join(file)).unwrap_or_default();
    CpuList::from_kernel(&text)
        .and_then(|siblings| siblings.iter().next())
        .unwrap_or(number)
}

fn nodes_of(folder: &Path) -> Vec<(u16, CpuMask)> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let node = |entry: io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let number = path.file_name()?.to_str()?.strip_prefix("node")?;
        let text = fs::read_to_string(path.join("cpulist")).ok()?;
        Some((number.parse().ok()?, CpuList::from_kernel(&text)?.0))
    };
    let mut nodes: Vec<_> = entries.filter_map(node).collect();
    nodes.sort_unstable_by_key(|(node, _)| *node);
    nodes
}

/// Busy time of a CPU between two readings of `/proc/stat`.
fn load_permille(before: &str, after: &str, cpu: u16) -> Option<u16> {
    let (then, now) = (ticks(before, cpu)?, ticks(after, cpu)?);
    let busy = now.0.saturating_sub(then.0);
    let all = busy + now.1.saturating_sub(then.1);
    u16::try_from((busy * 1000).checked_div(all)?).ok()
}

/// Busy and idle ticks of a CPU.
fn ticks(stat: &str, cpu: u16) -> Option<(u64, u64)> {
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .take(8)
        .collect();
    let idle = fields.get(3)? + fields.get(4)?;
    Some((fields.iter().sum::<u64>() - idle, idle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn cores_nodes_and_isolation_are_read() {
        let dir = tree(&[
            ("cpu/online", "0-2\n"),
            ("cpu/present", "0-3\n"),
            ("cpu/isolated", "2\n"),
            ("cpu/cpu0/topology/thread_siblings_list", "0,2\n"),
            ("cpu/cpu1/topology/thread_siblings_list", "1,3\n"),
            ("cpu/cpu2/topology/thread_siblings_list", "0,2\n"),
            ("node/node0/cpulist", "0,2\n"),
            ("node/node1/cpulist", "1,3\n"),
            ("node/online", "0-1\n"),
        ]);
        let host = Host::read_in(&dir.path().join("cpu"), &dir.path().join("node")).unwrap();
        let places: Vec<_> = host.cpus.iter().map(|cpu| (cpu.core, cpu.node)).collect();
        assert_eq!(places, [(0, 0), (1, 1), (0, 0)]);
        assert_eq!(host.isolated(), CpuMask::of(2));
        assert!(host.present.contains(3) && !host.online().contains(3));
        assert_eq!(host.nodes(), 2);
    }

    #[test]
    fn a_host_that_says_nothing_of_cores_has_one_for_each_cpu() {
        let dir = tree(&[("cpu/online", "0-1")]);
        let host = Host::read_in(&dir.path().join("cpu"), &dir.path().join("none")).unwrap();
        assert_eq!(host.cpus[1].core, 1);
        assert!(Host::read_in(dir.path(), dir.path()).is_err());
    }

    #[test]
    fn load_is_the_busy_share() {
        let before = "cpu  1 1\ncpu1 10 0 10 80 0 0 0 0 5 0\n";
        let after = "cpu  1 1\ncpu1 35 0 10 155 0 0 0 0 9 0\n";
        assert_eq!(load_permille(before, after, 1), Some(250));
        assert_eq!(load_permille(before, after, 0), None);
        assert_eq!(load_permille(before, before, 1), None);
    }
}

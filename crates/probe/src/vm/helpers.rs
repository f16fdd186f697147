//! Processes that work for one virtual machine: passt, vhost-user daemons, virtiofsd.
//!
//! A vhost-user daemon maps the guest's memory: the file behind the monitor's shared
//! mapping (a memfd, or a file in hugetlbfs). passt and others that only serve a socket
//! are known by name, and belong to the monitor at the other end (`unix_diag`) or that
//! is their parent. A process that serves several machines belongs to none of them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;

use super::sockets;
use super::{Descriptors, Vm};
use crate::proc;

/// Helpers that need not map the guest's memory, by the beginning of their names.
const SERVERS: [&str; 7] = [
    "tare-ports",
    "passt",
    "pasta",
    "slirp4netns",
    "virtiofsd",
    "swtpm",
    "qemu-storage-da",
];
/// Shorter shared mappings are not the guest's memory.
const LEAST_BYTES: u64 = 1 << 20;

/// Helpers by the process of the machine that they work for.
pub(crate) fn helpers(vms: &[&Vm], open: &HashMap<u32, Descriptors>) -> HashMap<u32, Vec<u32>> {
    let machines = Machines::of(vms, open);
    let mut memory = SharedMemory::default();
    let mut found: HashMap<u32, Vec<u32>> = HashMap::new();
    let ours: HashSet<u32> = vms.iter().map(|vm| vm.pid).collect();
    for pid in proc::numbers(Path::new("/proc")).unwrap_or_default() {
        if ours.contains(&pid) || pid == std::process::id() {
            continue;
        }
        let Some(candidate) = Candidate::of(pid) else {
            continue;
        };
        if let Some(vm) = candidate.serves(&machines, |pid| memory.of(pid)) {
            found.entry(vm).or_default().push(pid);
        }
    }
    found
}

/// Processes that work for this machine and for no other that is listed.
pub fn of(vm: &Vm) -> Vec<u32> {
    let listed = super::list().vms;
    let others = listed.iter().filter(|other| other.pid != vm.pid);
    let vms: Vec<&Vm> = others.chain([vm]).collect();
    let open = vms
        .iter()
        .map(|vm| (vm.pid, Descriptors::of(vm.pid).unwrap_or_default()))
        .collect();
    helpers(&vms, &open).remove(&vm.pid).unwrap_or_default()
}

/// How machines are connected.
#[derive(Debug, Default)]
struct Machines {
    all: BTreeSet<u32>,
    /// Sockets at the other end of a machine's, by inode, with the machine.
    peers: HashMap<u32, u32>,
    /// Machines that may have sockets which are not listed to us: those of other network
    /// namespaces, and all without `unix_diag`.
    hidden: BTreeSet<u32>,
}

impl Machines {
    fn of(vms: &[&Vm], open: &HashMap<u32, Descriptors>) -> Self {
        let machines = vms.iter().map(|vm| vm.pid);
        Self::connected_by(sockets::peers().ok().as_ref(), machines, open)
    }

    fn connected_by(
        peers: Option<&HashMap<u32, u32>>,
        all: impl Iterator<Item = u32>,
        open: &HashMap<u32, Descriptors>,
    ) -> Self {
        let mut machines = Self::default();
        for vm in all {
            machines.all.insert(vm);
            if peers.is_none() || !proc::shares_network(vm) {
                machines.hidden.insert(vm);
            }
            // A monitor in its own namespace keeps the sockets that it was started with.
            let Some(peers) = peers else {
                continue;
            };
            let sockets = open.get(&vm).map(Descriptors::sockets);
            for socket in sockets.unwrap_or_default() {
                if let Some(peer) = peers.get(&socket) {
                    machines.peers.insert(*peer, vm);
                }
            }
        }
        machines
    }
}

/// Files behind shared mappings by process, as `device inode`: of those alone that may
/// share memory, since the mappings of one process are many lines.
#[derive(Default)]
struct SharedMemory(HashMap<u32, BTreeSet<String>>);

impl SharedMemory {
    fn of(&mut self, pid: u32) -> BTreeSet<String> {
        let files = self.0.entry(pid).or_insert_with(|| shared_files(pid));
        files.clone()
    }
}

/// A process that may be a helper.
struct Candidate {
    pid: u32,
    parent: u32,
    is_server: bool,
    sockets: BTreeSet<u32>,
}

impl Candidate {
    /// `None` for processes without a socket (kernel threads), and those that have ended.
    fn of(pid: u32) -> Option<Self> {
        let sockets = Descriptors::of(pid).ok()?.sockets();
        (!sockets.is_empty()).then_some(())?;
        let stat = proc::stat(&proc::process(pid))?;
        Some(Self {
            pid,
            parent: stat.parent,
            is_server: SERVERS.iter().any(|name| stat.comm.starts_with(name)),
            sockets,
        })
    }

    /// The one machine that it serves: one that it shares memory with, as a vhost-user
    /// daemon does, which keeps its socket; or, for those that only serve a socket, the one
    /// at the other end, or its parent.
    fn serves(
        &self,
        machines: &Machines,
        mut memory: impl FnMut(u32) -> BTreeSet<String>,
    ) -> Option<u32> {
        let sockets = self.sockets.iter();
        let connected: BTreeSet<u32> = sockets
            .filter_map(|socket| machines.peers.get(socket).copied())
            .collect();
        let parent = machines.all.get(&self.parent).copied();
        let may_share: Vec<u32> = connected.union(&machines.hidden).copied().collect();
        let mut served: BTreeSet<u32> = if self.is_server {
            connected.into_iter().chain(parent).collect()
        } else {
            BTreeSet::new()
        };
        if !may_share.is_empty() {
            let own = memory(self.pid);
            let shares = |vm: &u32| !own.is_empty() && !memory(*vm).is_disjoint(&own);
            served.extend(may_share.into_iter().filter(shares));
        }
        match served.len() {
            1 => served.pop_first(),
            _ => None,
        }
    }
}

/// Files of large shared mappings.
fn shared_files(pid: u32) -> BTreeSet<String> {
    let maps = fs::read_to_string(proc::process(pid).join("maps")).unwrap_or_default();
    maps.lines().filter_map(shared_file).collect()
}

/// The file of one line of `maps`, if the mapping is shared, writable and large.
fn shared_file(line: &str) -> Option<String> {
    let mut fields = line.split_whitespace();
    let (begin, end) = fields.next()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let bytes = address(end)?.checked_sub(address(begin)?)?;
    let is_shared = fields.next()?.starts_with("rw-s") || line.contains(" rwxs ");
    let (_, device, inode) = (fields.next()?, fields.next()?, fields.next()?);
    (is_shared && bytes >= LEAST_BYTES && inode != "0").then(|| format!("{device} {inode}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_shared_files_are_a_guest_s_memory() {
        let guest = "7f00c0000000-7f00c4000000 rw-s 00000000 00:01 2055 /memfd:ram (deleted)";
        assert_eq!(shared_file(guest).as_deref(), Some("00:01 2055"));
        for other in [
            "7f00c0000000-7f00c4000000 rw-p 00000000 00:01 2055 /memfd:ram (deleted)",
            "7f00c0000000-7f00c4000000 r--s 00000000 00:01 2055 /var/cache/x",
            "7f00c0000000-7f00c0001000 rw-s 00000000 00:01 2055 /dev/shm/x",
            "7f00c0000000-7f00c4000000 rw-s 00000000 00:00 0",
            "x-y rw-s 0 00:01 7",
            "",
        ] {
            assert_eq!(shared_file(other), None, "{other}");
        }
    }

    #[test]
    fn a_helper_shares_memory_or_a_socket_with_its_machine() {
        let machines = Machines {
            all: [9, 10].into(),
            peers: [(40, 9), (50, 10)].into(),
            hidden: BTreeSet::new(),
        };
        let memory = |pid: u32| match pid {
            9 | 77 => ["00:01 7".to_owned()].into(),
            _ => BTreeSet::new(),
        };
        let candidate = |pid, is_server, sockets: &[u32]| Candidate {
            pid,
            parent: 1,
            is_server,
            sockets: sockets.iter().copied().collect(),
        };
        let serves = |candidate: Candidate| candidate.serves(&machines, memory);
        assert_eq!(serves(candidate(77, false, &[40])), Some(9));
        assert_eq!(serves(candidate(78, true, &[40])), Some(9));
        // A client of the monitor's control socket is not a helper.
        assert_eq!(serves(candidate(78, false, &[40])), None);
        // Who serves several belongs to none.
        assert_eq!(serves(candidate(78, true, &[40, 50])), None);
        assert_eq!(serves(candidate(77, true, &[41])), None);
        let child = Candidate {
            parent: 9,
            ..candidate(78, true, &[1])
        };
        assert_eq!(serves(child), Some(9));
    }

    #[test]
    fn without_a_list_of_sockets_all_machines_are_known_by_their_memory() {
        let hidden = |peers: Option<&HashMap<u32, u32>>| {
            let own = std::process::id();
            Machines::connected_by(peers, [own].into_iter(), &HashMap::new()).hidden
        };
        assert_eq!(hidden(None), [std::process::id()].into());
        assert_eq!(hidden(Some(&HashMap::new())), [].into());
    }

    #[test]
    fn a_machine_of_another_network_namespace_keeps_its_listed_sockets() {
        let _socket = std::os::unix::net::UnixStream::pair().unwrap();
        // No process has this number, so it is in no namespace of ours.
        let vm = u32::MAX;
        let open = Descriptors::of(std::process::id()).unwrap();
        let peers: HashMap<u32, u32> = open.sockets().into_iter().zip([40, 41]).collect();
        let machines = Machines::connected_by(Some(&peers), [vm].into_iter(), &[(vm, open)].into());
        assert_eq!(machines.hidden, [vm].into());
        assert_eq!(machines.peers.get(&40), Some(&vm));
    }

    #[test]
    fn a_machine_of_another_network_namespace_is_known_by_its_memory() {
        let machines = Machines {
            all: [9].into(),
            peers: HashMap::new(),
            hidden: [9].into(),
        };
        let candidate = Candidate {
            pid: 77,
            parent: 1,
            is_server: false,
            sockets: [3].into(),
        };
        let memory = |_| [String::from("00:01 7")].into();
        assert_eq!(candidate.serves(&machines, memory), Some(9));
    }
}

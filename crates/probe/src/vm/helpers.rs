//! Processes that work for one virtual machine: passt, vhost-user daemons, virtiofsd.
//!
//! A vhost-user daemon maps the guest's memory: the file behind the monitor's shared
//! mapping (a memfd, or a file in hugetlbfs). passt and others that only serve a socket
//! are known by name, and belong to the monitor at the other end (`unix_diag`) or that
//! is their parent. A process that serves several machines belongs to none of them.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use super::Vm;
use super::sockets;
use crate::proc;

/// Helpers that need not map the guest's memory, by the beginning of their names.
const SERVERS: [&str; 6] = [
    "passt",
    "pasta",
    "slirp4netns",
    "virtiofsd",
    "swtpm",
    "qemu-storage-da",
];
/// Shorter shared mappings are not the guest's memory.
const LEAST_BYTES: u64 = 1 << 20;

/// What a machine shares with its helpers.
#[derive(Debug, Default)]
struct Shared {
    /// Files behind shared mappings, as `device inode`.
    memory: BTreeSet<String>,
    /// Sockets at the other end of the monitor's, by inode.
    peers: BTreeSet<u32>,
}

/// Helpers by the process of the machine that they work for.
pub(crate) fn helpers(vms: &[&Vm]) -> HashMap<u32, Vec<u32>> {
    let peers = sockets::peers().unwrap_or_default();
    let shared: Vec<(u32, Shared)> = vms
        .iter()
        .map(|vm| (vm.pid, Shared::of(vm.pid, &peers)))
        .collect();
    let memory = if shared.iter().any(|(_, shared)| !shared.memory.is_empty()) {
        Memory::Compared
    } else {
        Memory::OfNoMachine
    };
    let mut found: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in proc::numbers(Path::new("/proc")).unwrap_or_default() {
        let is_machine = vms.iter().any(|vm| vm.pid == pid);
        if is_machine || pid == std::process::id() {
            continue;
        }
        let Some(helper) = Candidate::of(pid, memory) else {
            continue;
        };
        let mut served = shared.iter().filter(|(vm, with)| helper.serves(*vm, with));
        if let (Some((vm, _)), None) = (served.next(), served.next()) {
            found.entry(*vm).or_default().push(pid);
        }
    }
    found
}

impl Shared {
    fn of(pid: u32, peers: &HashMap<u32, u32>) -> Self {
        let own = socket_inodes(pid);
        Self {
            memory: shared_files(pid),
            peers: own
                .iter()
                .filter_map(|inode| peers.get(inode).copied())
                .collect(),
        }
    }
}

/// Whether any machine shares its memory: only then others' mappings are read.
#[derive(Clone, Copy)]
enum Memory {
    Compared,
    OfNoMachine,
}

/// A process that may be a helper.
struct Candidate {
    parent: u32,
    is_server: bool,
    sockets: BTreeSet<u32>,
    memory: BTreeSet<String>,
}

impl Candidate {
    /// `None` for kernel threads and processes that have ended.
    fn of(pid: u32, memory: Memory) -> Option<Self> {
        let folder = proc::process(pid);
        let stat = proc::stat(&folder)?;
        // A kernel thread maps nothing.
        fs::read_link(folder.join("exe")).ok()?;
        let is_server = SERVERS.iter().any(|name| stat.comm.starts_with(name));
        Some(Self {
            parent: stat.parent,
            is_server,
            sockets: if is_server {
                socket_inodes(pid)
            } else {
                BTreeSet::new()
            },
            memory: match memory {
                Memory::Compared => shared_files(pid),
                Memory::OfNoMachine => BTreeSet::new(),
            },
        })
    }

    fn serves(&self, vm: u32, shared: &Shared) -> bool {
        let by_memory = !self.memory.is_disjoint(&shared.memory);
        let by_socket = !self.sockets.is_disjoint(&shared.peers) || self.parent == vm;
        by_memory || (self.is_server && by_socket)
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

/// Sockets that a process holds.
fn socket_inodes(pid: u32) -> BTreeSet<u32> {
    let entries = fs::read_dir(proc::process(pid).join("fd"));
    let entries = entries.into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let inode = |link: &Path| {
        let text = link.to_str()?.strip_prefix("socket:[")?;
        text.strip_suffix(']')?.parse().ok()
    };
    links.filter_map(|link| inode(&link)).collect()
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
        let machine = Shared {
            memory: ["00:01 7".to_owned()].into(),
            peers: [40].into(),
        };
        let candidate = |is_server, sockets: &[u32], memory: &[&str]| Candidate {
            parent: 1,
            is_server,
            sockets: sockets.iter().copied().collect(),
            memory: memory.iter().map(|file| (*file).to_owned()).collect(),
        };
        assert!(candidate(false, &[], &["00:01 7"]).serves(9, &machine));
        assert!(candidate(true, &[40], &[]).serves(9, &machine));
        // A client of the monitor's control socket is not a helper.
        assert!(!candidate(false, &[40], &[]).serves(9, &machine));
        assert!(!candidate(true, &[41], &["00:01 8"]).serves(9, &machine));
        let child = Candidate {
            parent: 9,
            ..candidate(true, &[], &[])
        };
        assert!(child.serves(9, &machine));
    }
}

//! Arguments that select kernel features, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use tare_profile::{
    CloneUse, Features, FileUse, FlagsUse, IoctlUse, MountUse, OptionUse, PrctlUse, SocketUse,
    paths,
};

use super::record::PathRecord;
use crate::bpf::Object;

/// Most files and names that are remembered.
const MOST: usize = 65_536;
/// The descriptor that stands for the working directory.
const AT_FDCWD: u32 = -100_i32 as u32;
/// `S_IFMT`, `S_IFCHR`, `S_IFBLK`, `S_IFDIR`.
const TYPE: u64 = 0o170_000;
const CHARACTER: u64 = 0o020_000;
const BLOCK: u64 = 0o060_000;
const DIRECTORY: u64 = 0o040_000;

/// Files and mounts seen so far.
#[derive(Debug, Default)]
pub(super) struct Paths {
    files: BTreeMap<[u64; 2], Named>,
    programs: Features,
    devices: BTreeSet<String>,
    dropped: u64,
}

#[derive(Debug)]
struct Named {
    file_system: String,
    path: String,
}

impl Paths {
    /// A file was opened for the first time; while its task lives, its path can
    /// be completed.
    pub(super) fn opened(&mut self, record: &PathRecord) {
        let path = absolute(record);
        if matches!(record.mode & TYPE, CHARACTER | BLOCK) {
            self.devices.insert(paths::normal(&path));
        }
        let path = match record.mode & TYPE {
            DIRECTORY => paths::directory_in_profile(&path),
            _ => paths::in_profile(&path),
        };
        self.insert(record, record.file_system.clone(), path);
    }

    /// A name of the kernel's was looked at for the first time.
    pub(super) fn looked_at(&mut self, record: &PathRecord) {
        let normal = paths::normal(&record.path);
        if let Some(file_system) = paths::file_system(&normal) {
            let path = paths::in_profile(&normal);
            self.insert(record, file_system.to_owned(), path);
        }
    }

    /// A program was started.
    pub(super) fn started(&mut self, record: &PathRecord) {
        let one = Features {
            files: vec![FileUse {
                file_system: record.file_system.clone(),
                path: paths::in_profile(&absolute(record)),
                count: 1,
            }],
            ..Features::default()
        };
        self.programs.merge(&one);
    }

    /// Something was mounted.
    pub(super) fn mounted(&mut self, record: &PathRecord) {
        /// Flags of mounts that name no file system: remount, bind, propagation,
        /// move.
        const NO_NEW: u64 = 32 | 4096 | 8192 | (1 << 17) | (1 << 18) | (1 << 19) | (1 << 20);
        let file_system = match record.mode & NO_NEW {
            0 => record.file_system.clone(),
            _ => String::new(),
        };
        let one = Features {
            mounts: vec![MountUse {
                file_system,
                count: 1,
            }],
            ..Features::default()
        };
        self.programs.merge(&one);
    }

    /// Everything with its counts; the devices; how many files are not listed.
    /// `uses` are keys and counts of features that numbers identify.
    pub(super) fn finish(
        self,
        object: &Object,
        uses: &[([u64; 2], u64)],
    ) -> (Features, Vec<String>, u64) {
        let mut features = numbers(uses);
        let mut unnamed = self.dropped;
        let mut files = BTreeMap::<(String, String), u64>::new();
        for (key, [count]) in object.entries::<2, 1>("files") {
            match self.files.get(&key) {
                None => unnamed += 1,
                Some(file) => {
                    let place = (file.file_system.clone(), file.path.clone());
                    *files.entry(place).or_default() += count;
                }
            }
        }
        let uses = files
            .into_iter()
            .map(|((file_system, path), count)| FileUse {
                file_system,
                path,
                count,
            });
        features.files.extend(uses);
        features.merge(&self.programs);
        (features, self.devices.into_iter().collect(), unnamed)
    }

    fn insert(&mut self, record: &PathRecord, file_system: String, path: String) {
        if self.files.len() == MOST {
            self.dropped += 1;
            return;
        }
        self.files.insert(record.key, Named { file_system, path });
    }
}

/// The path from the root while its task still lives; else as it was written.
fn absolute(record: &PathRecord) -> String {
    if record.path.starts_with('/') {
        return record.path.clone();
    }
    let base = match record.what {
        AT_FDCWD => format!("/proc/{}/cwd", record.tid),
        descriptor => format!("/proc/{}/fd/{descriptor}", record.tid),
    };
    match fs::read_link(base) {
        Ok(base) => format!("{}/{}", base.display(), record.path),
        Err(_) => record.path.clone(),
    }
}

/// What is counted by numbers alone.
fn numbers(uses: &[([u64; 2], u64)]) -> Features {
    let mut features = Features::default();
    for ([first, second], count) in uses {
        let (kind, a) = (first & 0xffff_ffff, first >> 32);
        let (b, c) = (second & 0xffff_ffff, second >> 32);
        features.merge(&one(kind, [a, b, c], *count));
    }
    features
}

/// One use (`enum use` of the kernel side).
fn one(kind: u64, [a, b, c]: [u64; 3], count: u64) -> Features {
    let mut features = Features::default();
    match kind {
        1 => features.sockets.push(SocketUse::of(a, b, c, count)),
        2 => features.socket_options.push(OptionUse::of(a, b, count)),
        3 => features.ioctls.push(IoctlUse::of(a, count)),
        4 => features.clones.push(CloneUse::of(c << 32 | b, count)),
        5 => features.prctls.push(PrctlUse::of(a, count)),
        6 => features.prctls.push(PrctlUse::of_arch(a, count)),
        7 => {
            features
                .socket_options
                .extend(OptionUse::of_module("TCP_CONGESTION", [a, b, c], count))
        }
        8 => features
            .socket_options
            .extend(OptionUse::of_module("TCP_ULP", [a, b, c], count)),
        9 => features.flags.push(FlagsUse::of_open(a, count)),
        10 => features.flags.push(FlagsUse::of_mmap(a, b, count)),
        11 => features.flags.push(FlagsUse::of_fcntl(a, count)),
        _ => {}
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(path: &str, mode: u64) -> PathRecord {
        PathRecord {
            tid: u32::MAX,
            tgid: u32::MAX,
            what: AT_FDCWD,
            key: [1, 2],
            mode,
            file_system: "ext4".to_owned(),
            path: path.to_owned(),
        }
    }

    #[test]
    fn numbers_become_names() {
        let socket = &one(1, [2, 1, 6], 4).sockets[0];
        assert_eq!(
            (socket.family.as_str(), socket.kind.as_str()),
            ("AF_INET", "SOCK_STREAM")
        );
        assert_eq!((socket.protocol, socket.count), (6, 4));
        let bytes = |text: &[u8; 4]| u64::from(u32::from_le_bytes(*text));
        let module = one(7, [bytes(b"west"), bytes(b"wood"), 0], 2);
        let option = &module.socket_options[0];
        assert_eq!(option.name, "TCP_CONGESTION=westwood");
        assert_eq!((option.level.as_str(), option.count), ("IPPROTO_TCP", 2));
        let hostile = one(7, [bytes(b"a\x1b[2"), 0, 0], 1);
        assert!(hostile.socket_options.is_empty());
        let opened = &one(9, [0o2_000_000, 0, 0], 3).flags[0];
        assert_eq!((opened.call.as_str(), opened.count), ("open", 3));
        assert_eq!(opened.flags, ["O_CLOEXEC"]);
        let mapped = one(10, [0x22, 3, 0], 1);
        let names = ["MAP_ANONYMOUS", "MAP_PRIVATE", "PROT_READ", "PROT_WRITE"];
        assert_eq!(mapped.flags[0].flags, names);
        assert_eq!(one(11, [1024, 0, 0], 1).flags[0].flags, ["F_SETLEASE"]);
        let clone = one(4, [0, 0x4000_0000, 2], 1);
        assert_eq!(clone.clones[0].flags, ["CLONE_INTO_CGROUP", "CLONE_NEWNET"]);
    }

    #[test]
    fn a_bind_mount_mounts_no_file_system() {
        let mut paths = Paths::default();
        paths.mounted(&record("", 4096));
        paths.mounted(&record("", 0));
        let names: Vec<_> = paths.programs.mounts.iter().collect();
        assert_eq!(names.len(), 2);
        assert_eq!(names[0].file_system, "");
        assert_eq!(names[1].file_system, "ext4");
    }

    #[test]
    fn devices_are_those_whose_inode_is_one() {
        let mut paths = Paths::default();
        paths.opened(&record("/dev/null", CHARACTER | 0o666));
        paths.opened(&record("/dev/file", 0o100_644));
        assert_eq!(paths.devices.into_iter().collect::<Vec<_>>(), ["/dev/null"]);
    }

    #[test]
    fn a_path_whose_task_is_gone_stays_as_written() {
        assert_eq!(absolute(&record("a/b", 0)), "a/b");
    }
}

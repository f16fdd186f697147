//! Files of this computer for a guest, within a limit: whoever wrote the profile chose them, and
//! the guest's memory and this host's hold all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tare_host::printable::printable;
use tare_rootfs::cpio::entry_bytes;
use tare_rootfs::host::HostError;
use tare_rootfs::tree::{EntryKind, Node};
use tare_rootfs::{Tree, host};

/// Most directories named in an error.
const MOST_NAMED: usize = 3;

/// What `statfs` calls the file systems whose files are the kernel's
/// (`include/uapi/linux/magic.h`; mqueue's in `ipc/mqueue.c`). `/dev` is a tmpfs.
const KERNELS_MAGIC: &[u64] = &[
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x1cd1,      // devpts
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x1980_0202, // mqueue
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
];

/// Files that were gathered until now.
#[derive(Debug)]
pub(super) struct HostFiles {
    /// What goes into the guest.
    pub(super) tree: Tree,
    /// What a profile names and not every user may read.
    pub(super) refused: BTreeSet<String>,
    limit_bytes: u64,
    /// Size of the tree's archive, without directories that were not named.
    bytes: u64,
}

/// A file that cannot be taken along.
#[derive(Debug, thiserror::Error)]
pub enum HostFilesError {
    /// A program or file of this computer.
    #[error(transparent)]
    Host(#[from] HostError),
    /// All of them together.
    #[error(
        "the files of this computer that the profile names are too large: {} ({} MiB) does not fit \
         into {} MiB any more{}",
        printable(&file.to_string_lossy()), bytes >> 20, limit_bytes >> 20, list(largest)
    )]
    TooLarge {
        /// The first file beyond the limit.
        file: PathBuf,
        /// Its size.
        bytes: u64,
        /// Most bytes of all files.
        limit_bytes: u64,
        /// Directories whose files take most of it, with bytes of these.
        largest: Vec<(String, u64)>,
    },
}

fn list(largest: &[(String, u64)]) -> String {
    let one = |(dir, bytes): &(String, u64)| format!("/{} {} MiB", printable(dir), bytes >> 20);
    let all: Vec<String> = largest.iter().map(one).collect();
    if all.is_empty() {
        return String::new();
    }
    format!(" (largest directories before it: {})", all.join(", "))
}

impl HostFiles {
    /// None yet, and at most `limit_bytes`.
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            tree: Tree::new(),
            refused: BTreeSet::new(),
            limit_bytes,
            bytes: 0,
        }
    }

    /// Remembers what stays out.
    pub(super) fn refuse(&mut self, path: &Path) {
        self.refused.insert(path.to_string_lossy().into_owned());
    }

    /// Adds or replaces an entry at the place of a path.
    pub(super) fn insert(&mut self, path: &Path, node: Node) -> Result<(), HostFilesError> {
        let place = host::place(path);
        let replaced = self.tree.get(&place).map(|node| entry_bytes(&place, node));
        let added = entry_bytes(&place, &node);
        let bytes = self.bytes.saturating_add(added);
        let bytes = bytes.saturating_sub(replaced.unwrap_or(0));
        if bytes > self.limit_bytes {
            return Err(HostFilesError::TooLarge {
                file: path.to_owned(),
                bytes: added,
                limit_bytes: self.limit_bytes,
                largest: self.largest(),
            });
        }
        self.tree.insert(&place, node).map_err(HostError::from)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Adds a file that the user names, or that belongs to every guest.
    pub(super) fn file(&mut self, path: &Path) -> Result<(), HostFilesError> {
        self.insert(path, host::file(path)?)
    }

    /// Adds a program that the user names, with what it needs; gives its path.
    pub(super) fn program(&mut self, program: &str) -> Result<PathBuf, HostFilesError> {
        let (path, files) = host::program_files(program)?;
        files.iter().try_for_each(|file| self.file(file))?;
        Ok(path)
    }

    /// Adds a file that every user of this computer may read; `false` for any other. A profile can come
    /// from someone else or from a guest, who choose what it names.
    pub(super) fn public(&mut self, path: &Path) -> Result<bool, HostFilesError> {
        let Some(node) = Node::public(path).filter(|_| !is_kernels(path)) else {
            self.refuse(path);
            return Ok(false);
        };
        self.insert(path, node)?;
        Ok(true)
    }

    /// The same of a program with what it needs, which its author chose as well.
    pub(super) fn public_program(&mut self, program: &Path) -> Result<bool, HostFilesError> {
        if !self.public(program)? {
            return Ok(false);
        }
        for needed in host::libraries(program)? {
            self.public(&needed)?;
        }
        Ok(true)
    }

    /// The same of a library that programs load by themselves.
    pub(super) fn public_plugin(&mut self, plugin: &Path) -> Result<(), HostFilesError> {
        if self.public(plugin)? {
            for needed in host::libraries_of_plugin(plugin)? {
                self.public(&needed)?;
            }
        }
        Ok(())
    }

    fn largest(&self) -> Vec<(String, u64)> {
        let mut dirs: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, node) in self.tree.entries() {
            if let EntryKind::File(content) = &node.kind {
                let (dir, _) = name.rsplit_once('/').unwrap_or(("", name));
                *dirs.entry(dir).or_default() += content.len();
            }
        }
        let mut dirs: Vec<_> = dirs.into_iter().collect();
        dirs.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        dirs.truncate(MOST_NAMED);
        let owned = |(dir, bytes): (&str, u64)| (dir.to_owned(), bytes);
        dirs.into_iter().map(owned).collect()
    }
}

/// Whether what a path leads to is this kernel's own, whatever a profile calls its
/// file system: a guest has its own kernel, and this one's symbols and processes
/// are not part of an application.
pub(super) fn is_kernels(path: &Path) -> bool {
    path.starts_with("/dev")
        || rustix::fs::statfs(path).is_ok_and(|fs| KERNELS_MAGIC.contains(&(fs.f_type as u64)))
}

//! The initramfs of a command: its files, the modules that its machine needs,
//! the first process and its task.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use tare_init::{END_FILE, FileCapabilities, TASK_FILE, Task, TaskError, WORK_DIR};
use tare_program::names;

use crate::modules::Module;
use crate::tree::{NameError, Node, Tree};

/// The first process's program, in the initramfs.
pub const INIT: &str = ".tare/init";
/// Words for the kernel's command line, without which it does not start our
/// first process.
pub const CMDLINE: &str = "rdinit=/.tare/init";
/// Words for every kernel: its console, an end instead of a stop.
pub const WORDS: &str = "console=ttyS0 panic=-1";
/// No test of the timer's interrupt against time, which a busy translator fails.
pub const UNTIMED: &str = "no_timer_check";
/// Modules for the devices of Tare's machines and of QEMU's with virtio.
pub const MACHINE_MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_mmio",
    "virtio_net",
    "virtio_blk",
    "virtio_rng",
    "virtio_console",
];
/// The file's place beside `tare`.
const PROGRAM: &str = "linux/tare-init";

/// A guest that cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The first process's program is missing.
    #[error(
        "{PROGRAM} is not beside tare; build it with `make build` in the sources, or set TARE_INIT to its path"
    )]
    NoInit,
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The task cannot be written.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A file of the root stands where Tare's own must be.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Whether a kernel with this command line starts our first process.
pub fn starts_init(cmdline: &str) -> bool {
    cmdline.split_ascii_whitespace().any(|arg| arg == CMDLINE)
}

/// Capabilities of a tree's files, which the first process sets.
pub fn capabilities(tree: &Tree) -> Vec<FileCapabilities> {
    let of = |(name, node): (&str, &Node)| {
        let value = node.capability?.value().to_vec();
        let path = names::bytes(name).into_owned();
        Some(FileCapabilities { path, value })
    };
    tree.entries().filter_map(of).collect()
}

/// Adds the first process, its modules and its task to the files of a guest.
/// With its root on a disk, `tree` is empty: the initramfs only leads there, and the task
/// has the [`capabilities`] of the disk's files.
pub fn add_init(
    tree: &mut Tree,
    mut task: Task,
    modules: &[Module],
    init: &Path,
) -> Result<(), GuestError> {
    // Whatever the root has there is not ours.
    tree.remove(WORK_DIR);
    task.capabilities.extend(capabilities(tree));
    insert(tree, INIT, init, 0o755)?;
    tree.insert(END_FILE, Node::bytes(Vec::new(), 0o644))?;
    for (number, module) in modules.iter().enumerate() {
        let place = format!("{WORK_DIR}/modules/{number:03}-{}.ko", module.name);
        insert(tree, &place, &module.path, 0o644)?;
        task.modules.push(place);
    }
    tree.insert(TASK_FILE, Node::bytes(task.document()?, 0o600))?;
    Ok(())
}

fn insert(tree: &mut Tree, name: &str, path: &Path, permissions: u32) -> Result<(), GuestError> {
    let node = Node::host(path, permissions).map_err(|source| GuestError::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok(tree.insert(name, node)?)
}

/// The first process's program: `$TARE_INIT`, else beside this program.
pub fn find_init() -> Result<PathBuf, GuestError> {
    if let Some(path) = env::var_os("TARE_INIT").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let here = env::current_exe().ok();
    // A test lies one directory below what it tests.
    here.iter()
        .flat_map(|exe| exe.ancestors().skip(1).take(2))
        .map(|dir| dir.join(PROGRAM))
        .find(|path| is_static(path))
        .ok_or(GuestError::NoInit)
}

/// What a plain `cargo build` leaves is linked dynamically and of no use.
fn is_static(path: &Path) -> bool {
    path.is_file() && crate::host::libraries(path).is_ok_and(|needed| needed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Content, EntryKind};

    #[test]
    fn the_end_is_packed_after_all_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut tree = Tree::new();
        for name in ["lib/a", "zz"] {
            let node = Node::host(file.path(), 0o644).unwrap();
            tree.insert(name, node).unwrap();
        }
        let task = Task {
            command: vec!["/bin/true".to_owned()],
            ..Task::default()
        };
        add_init(&mut tree, task, &[], file.path()).unwrap();
        let mut archive = Vec::new();
        crate::cpio::archive(&tree, &mut archive).unwrap();
        let place = |name: &str| {
            let name = format!("{name}\0");
            let mut names = archive.windows(name.len()).enumerate();
            names.find(|(_, it)| *it == name.as_bytes()).unwrap().0
        };
        for name in [INIT, TASK_FILE, "lib/a", "zz"] {
            assert!(place(name) < place(END_FILE), "{name}");
        }
    }

    #[test]
    fn the_task_names_its_modules_in_order() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let module = |name: &str| Module {
            name: name.to_owned(),
            path: file.path().to_owned(),
        };
        let task = Task {
            command: vec!["/bin/true".to_owned()],
            ..Task::default()
        };
        let mut tree = Tree::new();
        tree.insert(".tare/init", Node::link("/elsewhere")).unwrap();
        add_init(
            &mut tree,
            task,
            &[module("virtio"), module("a")],
            file.path(),
        )
        .unwrap();
        let EntryKind::File(Content::Bytes(document)) = &tree.get(TASK_FILE).unwrap().kind else {
            panic!("no task");
        };
        let modules = Task::parse(document).unwrap().modules;
        assert_eq!(
            modules,
            [".tare/modules/000-virtio.ko", ".tare/modules/001-a.ko"]
        );
        assert!(modules.iter().all(|name| tree.get(name).is_some()));
        assert!(matches!(tree.get(INIT).unwrap().kind, EntryKind::File(_)));
    }
}

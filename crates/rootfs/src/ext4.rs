//! A tree as an ext4 disk, made by `mke2fs -d` without mounting anything.
//!
//! `mke2fs` copies owners and permissions of a directory that an ordinary user cannot give to files
//! (`directory`): for such a user `debugfs` writes them into the disk's inodes.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tare_program::names;

use crate::directory::{self, Owners, WriteError};
use crate::tree::{EntryKind, Tree};

const MAKER: &str = "mke2fs";

/// A disk that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The files cannot be laid out.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A temporary file or directory cannot be made.
    #[error("cannot make the disk's file")]
    Layout(#[source] io::Error),
    /// The program is missing.
    #[error("{0} is not installed; install it (Debian: e2fsprogs)")]
    NoProgram(&'static str),
    /// The program failed; most often the disk is too small.
    #[error("{program} failed: {said}")]
    Failed {
        /// The program.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// Its commands are lines.
    #[error("{0:?} has a line break in its name, and only root can give it to its owner")]
    Name(String),
}

impl DiskError {
    /// Whether a larger disk may do.
    pub fn may_be_too_small(&self) -> bool {
        matches!(self, Self::Failed { program, .. } if *program == MAKER)
    }
}

/// Makes the file `disk`, `bytes` large and sparse, with an ext4 file system that
/// holds `tree`.
pub fn make(tree: &Tree, disk: &Path, bytes: u64) -> Result<(), DiskError> {
    let dir = tempfile::tempdir().map_err(DiskError::Layout)?;
    directory::write(tree, dir.path(), Owners::Kept)?;
    File::create(disk)
        .and_then(|file| file.set_len(bytes))
        .map_err(DiskError::Layout)?;
    run(MAKER, |command| {
        let made = ["-q", "-F", "-t", "ext4", "-E", "root_owner=0:0", "-d"];
        command.args(made).arg(dir.path()).arg(disk)
    })?;
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let commands = dir.path().join(".tare-owners");
    fs::write(&commands, owners(tree)?).map_err(DiskError::Layout)?;
    let output = run("debugfs", |command| {
        command.args(["-w", "-f"]).arg(&commands).arg(disk)
    })?;
    // It goes on after a command that fails. Its first line is its version.
    let said = String::from_utf8_lossy(&output.stderr);
    match said.lines().find(|line| !line.starts_with("debugfs ")) {
        None => Ok(()),
        Some(line) => Err(DiskError::Failed {
            program: "debugfs",
            said: line.to_owned(),
        }),
    }
}

/// Commands that give each inode its owner and its mode (`set_inode_field` of debugfs(8)).
fn owners(tree: &Tree) -> Result<Vec<u8>, DiskError> {
    let mut text = String::new();
    for (name, node) in tree.entries() {
        if name.contains('\n') {
            return Err(DiskError::Name(name.to_owned()));
        }
        let quoted = name.replace('"', "\"\"");
        let mut set = |field: &str, value: u32| {
            let _ = writeln!(text, "set_inode_field \"/{quoted}\" {field} 0{value:o}");
        };
        set("uid", node.uid);
        set("gid", node.gid);
        if !matches!(node.kind, EntryKind::Link(_)) {
            set("mode", node.mode());
        }
    }
    Ok(names::bytes(&text).into_owned())
}

fn run(
    program: &'static str,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<Output, DiskError> {
    let mut command = Command::new(program);
    let output = arguments(&mut command)
        .env("PATH", search_path())
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(output),
        Ok(output) => Err(DiskError::Failed {
            program,
            said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(DiskError::NoProgram(program)),
        Err(error) => Err(DiskError::Layout(error)),
    }
}

/// The program lies where only root looks.
fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::process::CommandExt as _;

    use super::*;
    use crate::tree::Node;

    /// Names that a command of debugfs could take for something else.
    const ODD: &str = "usr/a \"b\" <2>";
    /// The text of a name that is not UTF-8.
    const OF_BYTES: &str = "usr/caf\u{10FFE9}";

    /// As of an image of Fedora: `/usr` that may not be changed and a file without permissions.
    fn tree() -> Tree {
        let mut tree = Tree::new();
        let mut usr = Node::directory();
        usr.permissions = 0o555;
        tree.insert("usr", usr).unwrap();
        for (name, owner, permissions) in [
            ("usr/shadow", (0, 42), 0),
            ("usr/su", (0, 0), 0o4755),
            (ODD, (100_000, 100_001), 0o640),
            (OF_BYTES, (7, 8), 0o604),
        ] {
            let mut node = Node::bytes(*b"x", 0);
            (node.uid, node.gid) = owner;
            node.permissions = permissions;
            tree.insert(name, node).unwrap();
        }
        tree
    }

    /// Another process for an ordinary user, where root runs the tests.
    #[test]
    fn an_ordinary_users_disk_has_its_owners_and_leaves_nothing_behind() {
        const AGAIN: &str = "TARE_TEST_DISK";
        if let Some(disk) = std::env::var_os(AGAIN) {
            return make(&tree(), Path::new(&disk), 16 << 20).unwrap();
        }
        let place = tempfile::tempdir().unwrap();
        let scratch = place.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        let disk = place.path().join("disk");
        let mut again = Command::new(std::env::current_exe().unwrap());
        let name = "ext4::tests::an_ordinary_users_disk_has_its_owners_and_leaves_nothing_behind";
        again.args(["--exact", name]).env(AGAIN, &disk);
        again.env("TMPDIR", &scratch);
        if rustix::process::geteuid().is_root() {
            for path in [place.path(), &scratch] {
                std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
            }
            again.uid(65534).gid(65534);
        }
        let ended = again.output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
        let stat = |name: &str| {
            let quoted = name.replace('"', "\"\"");
            let request = format!("stat \"/{quoted}\"");
            let output = run("debugfs", |command| {
                let request = names::bytes(&request);
                command
                    .arg("-R")
                    .arg(OsStr::from_bytes(&request))
                    .arg(&disk)
            });
            let text = String::from_utf8(output.unwrap().stdout).unwrap();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        for (name, mode, owner) in [
            ("usr", "0555", (0, 0)),
            ("usr/shadow", "0000", (0, 42)),
            ("usr/su", "04755", (0, 0)),
            (ODD, "0640", (100_000, 100_001)),
            (OF_BYTES, "0604", (7, 8)),
        ] {
            let stat = stat(name);
            assert!(stat.contains(&format!("Mode: {mode} ")), "{name}: {stat}");
            let owner = format!("User: {} Group: {} ", owner.0, owner.1);
            assert!(stat.contains(&owner), "{name}: {stat}");
        }
        let checked = run("e2fsck", |command| command.args(["-f", "-n"]).arg(&disk));
        assert!(checked.is_ok(), "{checked:?}");
    }
}

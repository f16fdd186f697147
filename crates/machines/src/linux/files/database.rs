//! PostgreSQL's files of a new database, made on this computer by the programs of Debian's
//! packages and kept in the cache, so that no translated guest has to.
//!
//! Root is refused by these programs, and the cache of root is closed to other users: they run
//! in a temporary directory that has all that they need, for root as another user.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use tare_rootfs::directory::{self, Owners};
use tare_rootfs::tree::{EntryKind, Node};
use tare_rootfs::walk::{Links, walk};
use tare_rootfs::{Cache, Tree};
use tare_tailor::lock;
use tempfile::TempDir;

use super::packages::{LIBRARIES, LINKER, Packages, failed};
use crate::linux::LinuxError;
use crate::linux::catalog::{App, Database};

/// The cache's directory of databases.
const ENTRIES: &str = "databases";
/// As whom the programs run for root.
const ANOTHER_ID: u32 = 65534;
/// What makes a database, and what fills it.
const INITDB: &str = "initdb";
const SERVER: &str = "postgres";
/// Libraries that the server loads while a database is made.
const MODULES: [&str; 2] = ["dict_snowball.so", "plpgsql.so"];
/// Most bytes of a database.
const LARGEST: u64 = 1 << 30;

/// Adds a database to a guest's files, as its owner's.
pub(super) fn add(
    tree: &mut Tree,
    database: &Database,
    packages: &Packages<'_>,
    cache: &Cache,
) -> Result<(), LinuxError> {
    let app = packages.app;
    let recipe = format!("{} {database:?}", app.packages.join(" "));
    let hash = lock::sha256(recipe.as_bytes());
    let entry = format!("{ENTRIES}/{}-{}", app.name, &hash[..12]);
    let made = cache.get_or_fill(&entry, |dir| make(database, packages, dir))?;
    let place = database.directory.trim_start_matches('/');
    for (name, mut node) in owned(&made, database.owner)? {
        if matches!(node.kind, EntryKind::Directory) {
            // The server refuses a directory that others may read.
            node.permissions = 0o700;
        }
        let name = format!("{place}/{name}");
        tree.insert(name.trim_end_matches('/'), node)?;
    }
    Ok(())
}

/// The files of a directory as `owner`'s, the directory itself first.
fn owned(dir: &Path, owner: u32) -> Result<Vec<(String, Node)>, LinuxError> {
    let listing = walk(dir, Links::Kept, LARGEST)?;
    let first = (String::new(), Node::directory());
    let rest = listing.tree.entries();
    let rest = rest.map(|(name, node)| (name.to_owned(), node.clone()));
    let all = std::iter::once(first).chain(rest);
    Ok(all
        .map(|(name, mut node)| {
            (node.uid, node.gid) = (owner, owner);
            (name, node)
        })
        .collect())
}

/// Makes it, fills its tables and copies it into `dir`.
fn make(database: &Database, packages: &Packages<'_>, dir: &Path) -> Result<(), LinuxError> {
    let installed = DatabasePrograms::lay_out(database, packages)?;
    let data = installed.home.join("data");
    let args = [
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--wal-segsize=1",
        "--no-sync",
    ];
    installed.run(INITDB, args.map(String::from).as_slice(), &data, "")?;
    let alone = [String::from("--single")];
    installed.run(SERVER, &alone, &data, &database.tables)?;
    let mut tree = Tree::new();
    for (name, node) in owned(&data, geteuid().as_raw())?.into_iter().skip(1) {
        tree.insert(&name, node)?;
    }
    Ok(directory::write(&tree, dir, Owners::Caller)?)
}

/// The programs with their libraries and data files, where their user finds them.
struct DatabasePrograms<'a> {
    app: &'a App,
    /// Removed with all that is in it.
    _directory: TempDir,
    /// The programs' own directory: they look for data files from there.
    programs: PathBuf,
    /// Where they write.
    home: PathBuf,
    /// The dynamic linker with its search path, and then the program's own name.
    linker: Vec<String>,
}

impl<'a> DatabasePrograms<'a> {
    fn lay_out(database: &Database, packages: &Packages<'a>) -> Result<Self, LinuxError> {
        let programs = database.programs.trim_start_matches('/');
        let modules = format!("{}/lib", programs.trim_end_matches("/bin"));
        let objects = [INITDB, SERVER].map(|name| format!("{programs}/{name}"));
        let modules = MODULES.map(|name| format!("{modules}/{name}"));
        let mut tree = Tree::new();
        for object in objects.iter().chain(&modules) {
            packages.add_with_libraries(&mut tree, object)?;
        }
        packages.add(&mut tree, LINKER)?;
        packages.add_tree(&mut tree, &database.share)?;
        let directory =
            TempDir::with_prefix("tare-database-").map_err(LinuxError::file("a directory"))?;
        let (root, home) = (directory.path().join("root"), directory.path().join("home"));
        for dir in [&root, &home] {
            fs::create_dir(dir).map_err(LinuxError::file(dir))?;
        }
        for dir in [directory.path(), &root] {
            let everyone = Permissions::from_mode(0o755);
            fs::set_permissions(dir, everyone).map_err(LinuxError::file(dir))?;
        }
        if geteuid().is_root() {
            let owner = Some(ANOTHER_ID);
            chown(&home, owner, owner).map_err(LinuxError::file(&home))?;
        }
        directory::write(&tree, &root, Owners::Kept)?;
        let place = |name: &str| root.join(name).display().to_string();
        let search = LIBRARIES.map(place).join(":");
        let linker = [&place(LINKER), "--library-path", &search, "--argv0"].map(String::from);
        let installed = Self {
            app: packages.app,
            programs: root.join(programs),
            _directory: directory,
            home,
            linker: linker.into(),
        };
        installed.wrap_server()?;
        Ok(installed)
    }

    /// `initdb` starts the server by its name, which has to find the packages' libraries too.
    fn wrap_server(&self) -> Result<(), LinuxError> {
        let server = self.programs.join(SERVER);
        let moved = self.programs.join("server");
        fs::rename(&server, &moved).map_err(LinuxError::file(&server))?;
        let linker = self.linker.join("' '");
        let script = format!(
            "#!/bin/sh\nexec '{linker}' \"$0\" '{}' \"$@\"\n",
            moved.display()
        );
        fs::write(&server, script).map_err(LinuxError::file(&server))?;
        let executable = Permissions::from_mode(0o755);
        fs::set_permissions(&server, executable).map_err(LinuxError::file(&server))
    }

    /// Runs one of the programs to its end.
    fn run(&self, name: &str, args: &[String], data: &Path, input: &str) -> Result<(), LinuxError> {
        let program = self.programs.join(name);
        let mut command = if name == SERVER {
            Command::new(&program)
        } else {
            let mut command = Command::new(&self.linker[0]);
            command.args(&self.linker[1..]).arg(&program).arg(&program);
            command
        };
        command.args(args).arg("-D").arg(data);
        if name == SERVER {
            command.arg("postgres");
        }
        command
            .current_dir(&self.home)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            // The one zone that the server knows without files.
            .env("TZ", "GMT")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if geteuid().is_root() {
            command.uid(ANOTHER_ID).gid(ANOTHER_ID);
        }
        let mut child = command.spawn().map_err(LinuxError::file(&program))?;
        if let Some(mut stdin) = child.stdin.take() {
            let written = stdin.write_all(input.as_bytes());
            written.map_err(LinuxError::file(&program))?;
        }
        let output = child
            .wait_with_output()
            .map_err(LinuxError::file(&program))?;
        // Alone, the server goes on after a statement that failed.
        let is_failed = String::from_utf8_lossy(&output.stderr).contains("ERROR:");
        if output.status.success() && !is_failed {
            return Ok(());
        }
        Err(failed(self.app, name, &output.stderr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_become_the_owners_and_the_directory_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("base")).unwrap();
        fs::write(dir.path().join("base/1"), "x").unwrap();
        let all = owned(dir.path(), 70).unwrap();
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["", "base", "base/1"]);
        assert!(all.iter().all(|(_, node)| (node.uid, node.gid) == (70, 70)));
    }
}

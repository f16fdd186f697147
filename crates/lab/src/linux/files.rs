//! An application's files: its programs and their libraries from Debian's
//! packages, which are unpacked into the cache, and what its data file adds.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tare_rootfs::tree::Node;
use tare_rootfs::{Cache, Tree, package};

use super::LinuxError;
use super::catalog::App;

/// The cache's directory of unpacked packages.
const ENTRIES: &str = "packages";
/// The dynamic linker, in the package libc6.
const LINKER: &str = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
/// Where its name is looked for.
const LINKER_NAME: &str = "lib64/ld-linux-x86-64.so.2";
/// Directories of libraries, in the packages.
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// The guest's files without its first process.
pub(crate) fn tree(app: &App, cache: &Cache) -> Result<Tree, LinuxError> {
    let packages = Packages::unpack(app, cache)?;
    let mut tree = Tree::new();
    for object in app.programs.iter().chain(&app.modules) {
        packages.add(&mut tree, object)?;
        for library in packages.libraries(object)? {
            packages.add(&mut tree, &library)?;
        }
    }
    packages.add_as(&mut tree, LINKER, LINKER_NAME)?;
    for directory in app.directories.iter().map(String::as_str).chain(["/tmp"]) {
        tree.insert(directory.trim_start_matches('/'), Node::directory())?;
    }
    for file in &app.files {
        let node = Node::bytes(file.bytes(), 0o644);
        tree.insert(file.path.trim_start_matches('/'), node)?;
    }
    Ok(tree)
}

/// An application's packages, all in one directory.
struct Packages<'a> {
    app: &'a App,
    dir: PathBuf,
}

impl<'a> Packages<'a> {
    fn unpack(app: &'a App, cache: &Cache) -> Result<Self, LinuxError> {
        let dir = cache.get_or_fill(&Self::entry(app), |dir| {
            for name in &app.packages {
                package::download(name, dir)?;
            }
            Ok::<_, LinuxError>(())
        })?;
        Ok(Self { app, dir })
    }

    /// Another list of packages is another entry.
    fn entry(app: &App) -> String {
        let list = app.packages.join(" ");
        let hash = tare_tailor::lock::sha256(list.as_bytes());
        format!("{ENTRIES}/{}-{}", app.name, &hash[..12])
    }

    fn add(&self, tree: &mut Tree, place: &str) -> Result<(), LinuxError> {
        let name = place.trim_start_matches('/');
        self.add_as(tree, name, name)
    }

    fn add_as(&self, tree: &mut Tree, from: &str, name: &str) -> Result<(), LinuxError> {
        let path = self.resolve(from)?;
        let failed = || LinuxError::file(&path);
        let mode = fs::metadata(&path).map_err(failed())?.permissions().mode();
        let node = Node::host(&path, mode & 0o777).map_err(failed())?;
        Ok(tree.insert(name, node)?)
    }

    /// The file behind a name of the packages; a link must not lead elsewhere.
    fn resolve(&self, name: &str) -> Result<PathBuf, LinuxError> {
        let path = self.dir.join(name).canonicalize();
        let root = self
            .dir
            .canonicalize()
            .map_err(LinuxError::file(&self.dir))?;
        path.ok()
            .filter(|path| path.starts_with(&root) && path.is_file())
            .ok_or_else(|| self.missing(name))
    }

    /// Libraries of a program or shared object, by their places, as the packages'
    /// own dynamic linker finds them.
    fn libraries(&self, object: &str) -> Result<Vec<String>, LinuxError> {
        let linker = self.resolve(LINKER)?;
        let search = LIBRARIES.map(|dir| self.dir.join(dir).display().to_string());
        let output = Command::new(&linker)
            .args([
                "--inhibit-cache",
                "--library-path",
                &search.join(":"),
                "--list",
            ])
            .arg(self.resolve(object.trim_start_matches('/'))?)
            .stdin(Stdio::null())
            .output()
            .map_err(LinuxError::file(&linker))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut places = Vec::new();
        for (name, place) in text
            .lines()
            .filter_map(|line| line.trim().split_once(" => "))
        {
            let place = place.split(" (").next().unwrap_or_default();
            match Path::new(place).strip_prefix(&self.dir) {
                Ok(place) => places.push(place.to_string_lossy().into_owned()),
                Err(_) if name.contains("ld-linux") => {}
                Err(_) => return Err(self.missing(name)),
            }
        }
        Ok(places)
    }

    fn missing(&self, path: &str) -> LinuxError {
        LinuxError::Missing {
            app: self.app.name.to_owned(),
            path: path.to_owned(),
        }
    }
}

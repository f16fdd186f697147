//! An application's packages, unpacked into one directory of the cache, and what a guest takes
//! of them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tare_rootfs::tree::Node;
use tare_rootfs::{Cache, Tree, package};

use crate::linux::LinuxError;
use crate::linux::catalog::App;

/// The cache's directory of unpacked packages.
const ENTRIES: &str = "packages";
/// The dynamic linker, in the package libc6.
pub(super) const LINKER: &str = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
/// Directories of libraries, in the packages.
pub(super) const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// An application's packages, all in one directory.
pub(super) struct Packages<'a> {
    pub(super) app: &'a App,
    dir: PathBuf,
}

impl<'a> Packages<'a> {
    pub(super) fn unpack(app: &'a App, cache: &Cache) -> Result<Self, LinuxError> {
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

    /// The version of one of them.
    pub(super) fn version(&self, package: &str) -> Option<String> {
        package::unpacked_version(&self.dir, package)
    }

    pub(super) fn add(&self, tree: &mut Tree, place: &str) -> Result<(), LinuxError> {
        let name = place.trim_start_matches('/');
        self.add_as(tree, name, name)
    }

    /// Adds a program or shared object with the libraries that it names.
    pub(super) fn add_with_libraries(
        &self,
        tree: &mut Tree,
        object: &str,
    ) -> Result<(), LinuxError> {
        self.add(tree, object)?;
        for library in self.libraries(object)? {
            self.add(tree, &library)?;
        }
        Ok(())
    }

    /// Adds all files below a directory, links as what they lead to. Links into packages that
    /// are not among the application's are left out: of what it needs, its start says so.
    pub(super) fn add_tree(&self, tree: &mut Tree, place: &str) -> Result<(), LinuxError> {
        let name = place.trim_matches('/');
        let path = self.dir.join(name);
        let entries = fs::read_dir(&path).map_err(LinuxError::file(&path))?;
        for entry in entries {
            let entry = entry.map_err(LinuxError::file(&path))?;
            let below = format!("{name}/{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().map_err(LinuxError::file(&path))?;
            if kind.is_dir() {
                self.add_tree(tree, &below)?;
            } else if self.resolve(&below).is_ok() {
                self.add(tree, &below)?;
            }
        }
        Ok(())
    }

    pub(super) fn add_as(&self, tree: &mut Tree, from: &str, name: &str) -> Result<(), LinuxError> {
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
            app: self.app.name.clone(),
            path: path.to_owned(),
        }
    }
}

/// The error of a program that ended badly while files were made: what it said last.
pub(super) fn failed(app: &App, program: &str, said: &[u8]) -> LinuxError {
    let said = String::from_utf8_lossy(said);
    let mut lines = said.lines().rev().map(str::trim);
    let last = lines.find(|line| !line.is_empty());
    LinuxError::Made {
        app: app.name.clone(),
        program: program.to_owned(),
        said: last.unwrap_or("it said nothing").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::catalog;

    /// An application whose one package is there already.
    fn app() -> App {
        App {
            packages: vec!["a-package".to_owned()],
            ..catalog::find("python").unwrap()
        }
    }

    #[test]
    fn a_directory_is_taken_whole_without_links_that_lead_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let app = app();
        let unpacked = dir.path().join(Packages::entry(&app));
        let lib = unpacked.join("usr/lib/a");
        fs::create_dir_all(lib.join("below")).unwrap();
        fs::write(lib.join("one.py"), "1").unwrap();
        fs::write(lib.join("below/two.py"), "2").unwrap();
        std::os::unix::fs::symlink("one.py", lib.join("same.py")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", lib.join("out.py")).unwrap();
        let packages = Packages::unpack(&app, &Cache::at(dir.path())).unwrap();
        let mut tree = Tree::new();
        packages.add_tree(&mut tree, "/usr/lib/a/").unwrap();
        let names: Vec<&str> = tree.entries().map(|(name, _)| name).collect();
        let files = ["below", "below/two.py", "one.py", "same.py"];
        let expected = files.map(|name| format!("usr/lib/a/{name}"));
        assert_eq!(names[3..], expected);
    }

    #[test]
    fn a_program_that_failed_has_the_last_word() {
        let error = failed(&app(), "initdb", b"first\nno space\n\n").to_string();
        assert!(error.ends_with("made: no space"), "{error}");
        let error = failed(&app(), "go", b"").to_string();
        assert!(
            error.contains("go failed while the files of python"),
            "{error}"
        );
    }
}

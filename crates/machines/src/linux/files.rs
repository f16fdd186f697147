//! An application's files: its programs and their libraries from Debian's
//! packages, which are unpacked into the cache, a program that is compiled or a database
//! that is made here, and what its data file adds.

mod compiled;
mod database;
mod packages;

use tare_rootfs::tree::Node;
use tare_rootfs::walk::{Links, walk};
use tare_rootfs::{Cache, Tree};
use tare_tailor::lock::sha256_of_file;

use self::packages::{LINKER, Packages};
use super::LinuxError;
use super::catalog::App;
use crate::versions::Versions;

/// Where programs look for it.
const LINKER_NAME: &str = "lib64/ld-linux-x86-64.so.2";

/// Most bytes of an own application's files.
pub(crate) const MOST_BYTES: u64 = 4 << 30;

/// Versions of the application's own package, and of the compiler of what is compiled here; of an
/// own application its program's digest.
pub fn versions(app: &App, cache: &Cache) -> Versions {
    if let Some((root, program)) = app.root.as_ref().zip(app.command.first()) {
        let digest = sha256_of_file(&root.join(program.trim_start_matches('/')));
        let digest = digest.map(|it| (app.name.clone(), format!("sha256 {it}")));
        return digest.into_iter().collect();
    }
    let own = app.packages.first().and_then(|package| {
        let packages = Packages::unpack(app, cache).ok()?;
        Some((package.clone(), packages.version(package)?))
    });
    let compiler = app.compiled.as_ref().and_then(|it| {
        let version = compiled::version(app, it.by).ok()?;
        Some((it.by.name().to_owned(), version))
    });
    own.into_iter().chain(compiler).collect()
}

/// The guest's files without its first process.
pub fn tree(app: &App, cache: &Cache) -> Result<Tree, LinuxError> {
    if let Some(root) = &app.root {
        return Ok(walk(root, Links::Kept, MOST_BYTES)?.tree);
    }
    let packages = Packages::unpack(app, cache)?;
    let mut tree = Tree::new();
    for object in app.programs.iter().chain(&app.modules) {
        if app.compiled.as_ref().is_none_or(|it| it.place != *object) {
            packages.add_with_libraries(&mut tree, object)?;
        }
    }
    for place in &app.trees {
        packages.add_tree(&mut tree, place)?;
    }
    if let Some(it) = &app.compiled {
        let program = compiled::program(app, it.by, cache)?;
        let node = Node::host(&program, 0o755).map_err(LinuxError::file(&program))?;
        tree.insert(it.place.trim_start_matches('/'), node)?;
    }
    if !app.packages.is_empty() {
        packages.add_as(&mut tree, LINKER, LINKER_NAME)?;
    }
    if let Some(database) = &app.database {
        database::add(&mut tree, database, &packages, cache)?;
    }
    for directory in app.directories.iter().map(String::as_str).chain(["/tmp"]) {
        tree.insert(directory.trim_start_matches('/'), Node::directory())?;
    }
    for file in &app.files {
        let node = Node::bytes(file.bytes(), 0o644);
        tree.insert(file.path.trim_start_matches('/'), node)?;
    }
    Ok(tree)
}

//! Programs of this computer, with the shared libraries that they need, as a
//! guest's files at the same places.
//!
//! A program's libraries are listed by the dynamic linker that the program itself names, and this
//! can be any program: it is confined, writes, connects and signals nothing, and has a limit of time.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use object::Endianness;
use object::elf::{FileHeader64, PN_XNUM, PT_INTERP};
use object::read::ReadCache;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use rustix::fs::{Mode, OFlags};
use tare_confine::{ConfineError, Reads};
use tare_program::names;

use crate::capability::Attributes;
use crate::program::Reader;
use crate::tree::{NameError, Node, Tree};

/// x86-64's, which the ABI names.
const DYNAMIC_LINKER: &str = "/lib64/ld-linux-x86-64.so.2";
/// Most bytes of a path (`PATH_MAX`).
const LONGEST_PATH: u64 = 4096;
/// Most bytes of a list of libraries.
const LONGEST_LIST: u64 = 1 << 20;
/// A list is written within this, on a busy host too: a dynamic linker takes milliseconds.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// A program that cannot be taken along.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No program of that name on the search path.
    #[error("program not found: {0}")]
    Unknown(String),
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its dynamic linker does not start.
    #[error("cannot run {}, the dynamic linker of {}", linker.display(), program.display())]
    Linker {
        /// The program.
        program: PathBuf,
        /// What it names as its dynamic linker.
        linker: PathBuf,
        /// Why.
        source: ConfineError,
    },
    /// Its dynamic linker did not list its libraries.
    #[error("the libraries of {} cannot be listed: {said}", program.display())]
    Libraries {
        /// The program.
        program: PathBuf,
        /// What the dynamic linker said.
        said: String,
    },
    /// A library is missing.
    #[error("{} needs the library {library}, which is not installed", program.display())]
    NoLibrary {
        /// The program.
        program: PathBuf,
        /// The library.
        library: String,
    },
    /// A place that the guest cannot have.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Adds a program, by name or path, with its libraries and interpreter; gives
/// its place in the guest, with a leading `/`.
pub fn add_program(tree: &mut Tree, program: &str) -> Result<String, HostError> {
    let (path, files) = program_files(program)?;
    for file in files {
        add_file(tree, &file)?;
    }
    Ok(path.to_string_lossy().into_owned())
}

/// A program, by name or path, and its files: itself, then its libraries and interpreter.
pub fn program_files(program: &str) -> Result<(PathBuf, Vec<PathBuf>), HostError> {
    let path = find(program)?;
    let mut files = vec![path.clone()];
    files.extend(libraries(&path)?);
    Ok((path, files))
}

/// A program by name or path.
pub fn find(program: &str) -> Result<PathBuf, HostError> {
    if program.contains('/') {
        return Ok(PathBuf::from(program));
    }
    in_path(program).ok_or_else(|| HostError::Unknown(program.to_owned()))
}

/// Adds a file or a whole directory at the same place. A link is added as what
/// it points to.
pub fn add_file(tree: &mut Tree, path: &Path) -> Result<(), HostError> {
    if !fs::metadata(path).map_err(read_error(path))?.is_dir() {
        return Ok(tree.insert(&place(path), file(path)?)?);
    }
    tree.insert(&place(path), Node::directory())?;
    for entry in fs::read_dir(path).map_err(read_error(path))? {
        add_file(tree, &entry.map_err(read_error(path))?.path())?;
    }
    Ok(())
}

/// A file of this computer as an entry; a link is what it points to.
pub fn file(path: &Path) -> Result<Node, HostError> {
    let metadata = fs::metadata(path).map_err(read_error(path))?;
    let permissions = metadata.permissions().mode() & 0o7777;
    let mut node = Node::host(path, permissions).map_err(read_error(path))?;
    let end = path.canonicalize().map_err(read_error(path))?;
    node.capability = Attributes::of(&end).capability;
    Ok(node)
}

fn read_error(path: &Path) -> impl Fn(io::Error) -> HostError {
    move |source| HostError::Read {
        path: path.to_owned(),
        source,
    }
}

/// The interpreter and the libraries of a program; none if it is static or a
/// script.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>, HostError> {
    let file = open_regular(program).map_err(|source| HostError::Read {
        path: program.to_owned(),
        source,
    })?;
    match interpreter(file) {
        None => Ok(Vec::new()),
        Some(interpreter) => list(program, interpreter, LIST_LIMIT),
    }
}

/// A profile may name a file, and so choose what it is: a pipe that no program writes to, or a device.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

/// The libraries of a shared object that programs load by themselves; none of
/// what is not such an object.
pub fn libraries_of_plugin(plugin: &Path) -> Result<Vec<PathBuf>, HostError> {
    let mut magic = [0; 4];
    let read = open_regular(plugin).and_then(|mut file| file.read_exact(&mut magic));
    match read {
        Ok(()) if magic == *b"\x7fELF" => list(plugin, PathBuf::from(DYNAMIC_LINKER), LIST_LIMIT),
        _ => Ok(Vec::new()),
    }
}

fn list(program: &Path, interpreter: PathBuf, limit: Duration) -> Result<Vec<PathBuf>, HostError> {
    let failed = |said| HostError::Libraries {
        program: program.to_owned(),
        said,
    };
    let read = |source: io::Error| match source.kind() {
        ErrorKind::TimedOut => failed(format!(
            "{} did not end within {limit:?}",
            interpreter.display()
        )),
        _ => HostError::Read {
            path: program.to_owned(),
            source,
        },
    };
    let mut command = Command::new(&interpreter);
    command.arg("--list").arg(program).stdin(Stdio::null());
    let mut linker =
        Reader::start(&mut command, Reads::Everything).map_err(|source| HostError::Linker {
            program: program.to_owned(),
            linker: interpreter.clone(),
            source,
        })?;
    let text = linker.read(LONGEST_LIST, limit).map_err(read)?;
    let end = linker.end().map_err(read)?;
    if !end.has_worked() {
        return Err(failed(end.said()));
    }
    let mut needed =
        listed(&String::from_utf8_lossy(&text)).map_err(|library| HostError::NoLibrary {
            program: program.to_owned(),
            library,
        })?;
    needed.push(interpreter);
    needed.dedup();
    Ok(needed)
}

/// Lines `NAME => PATH (ADDRESS)` or `PATH (ADDRESS)`; the vDSO has no path.
/// The error is the first library that was not found.
fn listed(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for line in text.lines().map(str::trim) {
        let (name, place) = match line.split_once(" => ") {
            Some((name, place)) => (name, place),
            None => (line, line),
        };
        let place = place.split(" (").next().unwrap_or_default();
        if place == "not found" {
            return Err(name.to_owned());
        }
        if place.starts_with('/') {
            paths.push(PathBuf::from(place));
        }
    }
    Ok(paths)
}

/// The dynamic linker that a program names. Of the file only headers and that name are read.
pub(crate) fn interpreter(file: impl io::Read + io::Seek) -> Option<PathBuf> {
    let file = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&file).ok()?;
    let endian = header.endian().ok()?;
    // A larger number would stand in a section.
    if header.e_phnum(endian) == PN_XNUM {
        return None;
    }
    let headers = header.program_headers(endian, &file).ok()?;
    let named = headers
        .iter()
        .find(|header| header.p_type(endian) == PT_INTERP)?;
    if named.p_filesz(endian) > LONGEST_PATH {
        return None;
    }
    let path = named.interpreter(endian, &file).ok()??;
    // The kernel would take any other from the working directory.
    let path = std::str::from_utf8(path).ok()?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// The program of that name on the search path and where root's programs are.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// A path without `.`, `..` and the leading `/`: its name in a tree.
pub fn place(path: &Path) -> String {
    use std::path::Component;
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(names::text(part.as_bytes().to_vec())),
            Component::ParentDir => {
                parts.pop();
            }
            _ => {}
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn of_a_program_only_headers_are_read() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let shell = fs::read(fs::canonicalize("/bin/sh").unwrap()).unwrap();
        // A terabyte, of which the disk has what the shell has.
        fs::write(path("large"), &shell).unwrap();
        let large = File::options().write(true).open(path("large")).unwrap();
        large.set_len(1 << 40).unwrap();
        assert!(!libraries(&path("large")).unwrap().is_empty());
        // The name of the dynamic linker as long as the file, and more segments than fit.
        let mut named = shell.clone();
        let table = u64::from_le_bytes(named[32..40].try_into().unwrap()) as usize;
        let count = u16::from_le_bytes([named[56], named[57]]) as usize;
        let of = |at: usize| table + at * 56;
        let interp = (0..count).map(of).find(|at| named[*at] == 3).unwrap();
        named[interp + 32..interp + 40].copy_from_slice(&(1_u64 << 39).to_le_bytes());
        large.write_all_at(&named, 0).unwrap();
        assert!(libraries(&path("large")).unwrap().is_empty());
        named[56..58].copy_from_slice(&[0xff, 0xff]);
        large.write_all_at(&named, 0).unwrap();
        assert!(libraries(&path("large")).unwrap().is_empty());
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), mode).unwrap();
        assert!(libraries(&path("pipe")).is_err());
    }

    #[test]
    fn a_program_brings_its_libraries() {
        let mut tree = Tree::new();
        let place = add_program(&mut tree, "sh").unwrap();
        assert!(tree.get(place.trim_start_matches('/')).is_some());
        let names: Vec<&str> = tree.entries().map(|(name, _)| name).collect();
        assert!(
            names.iter().any(|name| name.ends_with("libc.so.6")),
            "{names:?}"
        );
        assert!(
            names.iter().any(|name| name.contains("ld-linux")),
            "{names:?}"
        );
    }

    #[test]
    fn a_dynamic_linker_that_sleeps_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let linker = place.path().join("linker");
        // Written by another process: a child of a test beside this one could have it open for
        // writing, and then it is not executed.
        let script = r#"printf '#!/bin/sh\ntrap "" INT\nexec sleep 1000\n' > "$1"; chmod 755 "$1""#;
        let mut sh = Command::new("sh");
        let made = sh.args(["-c", script, "sh"]).arg(&linker).status().unwrap();
        assert!(made.success());
        let limit = Duration::from_millis(10);
        let error = list(Path::new("/bin/sh"), linker.clone(), limit).unwrap_err();
        let said = format!("{} did not end within 10ms", linker.display());
        assert!(error.to_string().ends_with(&said), "{error}");
    }

    #[test]
    fn a_script_brings_itself_alone() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(libraries(&script).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_missing_library_is_named() {
        let text =
            "\tlinux-vdso.so.1 (0x7ffc)\n\tliba.so => /lib/liba.so (0x1)\n\t/lib64/ld.so (0x2)\n";
        let paths = ["/lib/liba.so", "/lib64/ld.so"].map(PathBuf::from);
        assert_eq!(listed(text), Ok(paths.to_vec()));
        assert_eq!(
            listed("\tlibb.so => not found\n"),
            Err("libb.so".to_owned())
        );
    }

    #[test]
    fn an_unknown_program_is_named() {
        let error = add_program(&mut Tree::new(), "no-such-program").unwrap_err();
        assert_eq!(error.to_string(), "program not found: no-such-program");
    }
}

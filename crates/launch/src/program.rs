//! `tare run ./program`: a Linux program, alone or in a root, for the image that runs programs (ADR
//! 36). The file is checked here, by the code that the image uses. A dynamically linked program has
//! its loader and libraries in the root.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tare_abi::layout::MIB;
use tare_control::exit::ExitCode;
use tare_init::Task;
use tare_program::elf::{ElfError, Layout, LoadAddress, is_for_this_machine};
use tare_program::script::{self, Interpreter, ScriptError};
use tare_program::{FILE, Start, StartError, names};
use tare_rootfs::Tree;
use tare_rootfs::oci::Words;
use tare_rootfs::root::RootFiles;
use tare_rootfs::tree::{Content, EntryKind, NameError, Node};

use crate::disk_choice;
use crate::environment::{NotAVariable, set, set_all};
use crate::failure::{Explain, Failure};
use crate::image::{self, Image};
use crate::linux::root;
use crate::machine::{Boot, Files};
use crate::machine_size;
use crate::request::Request;

/// The image that runs programs, and the one that has files on a disk too.
const IMAGE: &str = "linux";
const IMAGE_WITH_DISK: &str = "linux-disk";
/// Memory of a machine with a program, unless it is given.
pub(crate) const DEFAULT_MEMORY_MIB: u32 = 512;
/// Largest program, in bytes.
const MOST_BYTES: u64 = 1 << 30;
/// Addresses of programs that are linked at fixed ones (`guests/linux`): from here to this end or
/// half of memory, whichever is smaller.
const FIXED_START: u64 = 4 * MIB;
const FIXED_END: u64 = 256 * MIB;

/// A program that `tare run` cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not a program for this machine.
    #[error("cannot run {path}")]
    Elf {
        /// The program.
        path: String,
        /// Why.
        source: ElfError,
    },
    /// It is linked dynamically.
    #[error("cannot run {path}: it is linked dynamically, for the loader {loader}")]
    Dynamic {
        /// The program.
        path: String,
        /// Its loader.
        loader: String,
    },
    /// The loader lies at fixed addresses.
    #[error("cannot run {path}: its loader {loader} is not position-independent")]
    FixedLoader {
        /// The program.
        path: String,
        /// Its loader.
        loader: String,
    },
    /// Its addresses belong to the library OS.
    #[error(
        "cannot run {path}: it is linked for addresses from {start:#x} to {end:#x}, and \
             {free_start:#x} to {free_end:#x} are free in {memory_mib} MiB of memory"
    )]
    Addresses {
        /// The program.
        path: String,
        /// Its first address.
        start: u64,
        /// The address after its last.
        end: u64,
        /// First address that it may have.
        free_start: u64,
        /// The address after the last.
        free_end: u64,
        /// Memory of the machine.
        memory_mib: u32,
    },
    /// It needs more memory than the machine has before its first instruction.
    #[error(
        "cannot run {path}: its segments need {need_mib} MiB, and the machine has {memory_mib} MiB"
    )]
    TooLarge {
        /// The program.
        path: String,
        /// What it needs.
        need_mib: u64,
        /// Memory of the machine.
        memory_mib: u32,
    },
    /// The root has no such file.
    #[error("the root has no file {0}")]
    Missing(String),
    /// A directory, a device, ...
    #[error("{0} is not a regular file of the root")]
    NotFile(String),
    /// A script that names no interpreter.
    #[error("cannot run the script {path}")]
    Script {
        /// The script.
        path: String,
        /// Why.
        source: ScriptError,
    },
    /// The interpreter of a script is missing.
    #[error("cannot run the script {path}: the root has no interpreter {interpreter}")]
    Interpreter {
        /// The script.
        path: String,
        /// What its first line names.
        interpreter: String,
    },
    /// Interpreters that are scripts.
    #[error("cannot run {0}: it is a script whose interpreter is a script, and so on")]
    Scripts(String),
    /// Arguments or environment.
    #[error("cannot pass the arguments and environment on")]
    Start(#[from] StartError),
    /// Not a variable.
    #[error(transparent)]
    Variable(#[from] NotAVariable),
    /// A name in the root.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The root names no command.
    #[error("--root needs a program: name one after --, as in: tare run --root DIR -- /bin/server")]
    NoCommand,
}

impl Explain for ProgramError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Read { .. } => ExitCode::ImageUnreadable,
            Self::Elf { source, .. } => match source {
                ElfError::Truncated(_) => ExitCode::ImageTruncated,
                ElfError::Overlap(_) | ElfError::Address(_) | ElfError::Alignment(_) => {
                    ExitCode::ImageLayout
                }
                _ => ExitCode::ImageNotElf,
            },
            Self::Dynamic { .. }
            | Self::NotFile(_)
            | Self::Script { .. }
            | Self::Interpreter { .. }
            | Self::Scripts(_) => ExitCode::CannotRun,
            Self::Addresses { .. } | Self::FixedLoader { .. } => ExitCode::ImageLayout,
            Self::TooLarge { .. } => ExitCode::Memory,
            Self::Missing(_) => ExitCode::CommandNotFound,
            Self::Start(_) | Self::Variable(_) | Self::NoCommand => ExitCode::Usage,
            Self::Name(_) => ExitCode::RootImage,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Dynamic { .. } => Some(
                "give its loader and libraries with --root DIR, or link it statically (C: gcc \
                 -static-pie; Go: CGO_ENABLED=0; Rust: -C target-feature=+crt-static)"
                    .to_owned(),
            ),
            Self::Addresses {
                start,
                end,
                free_start,
                ..
            } if start >= free_start && *end <= FIXED_END => {
                Some("give it more memory with --memory, or link it with -static-pie".to_owned())
            }
            Self::Addresses { .. } => Some("link it with -static-pie".to_owned()),
            Self::TooLarge { .. } => Some("give it more memory with --memory".to_owned()),
            Self::Elf {
                source: ElfError::WritableCode(_),
                ..
            } => Some("link it with -z noexecstack and separate segments".to_owned()),
            _ => None,
        }
    }
}

/// Checks that a file is a program that `tare run` takes.
pub fn check_file(path: &Path) -> Result<(), Failure> {
    let image = image::open(path)?;
    let bytes = read(&image.file, path)?;
    let alone = Tree::new();
    Ok(check(
        &path.to_string_lossy(),
        &bytes,
        &alone,
        DEFAULT_MEMORY_MIB,
    )?)
}

/// Whether the image is in fact a program for Linux.
pub(crate) fn is_program(image: &Image) -> bool {
    let mut start = [0; 20];
    let read = image.file.read_at(&mut start, 0);
    let is_candidate = read.is_ok_and(|length| is_for_this_machine(&start[..length]));
    let boots_by_itself = || {
        let file = image.file.try_clone();
        file.is_ok_and(|mut file| tare_boot::boots_by_itself(&mut file))
    };
    is_candidate && !boots_by_itself()
}

fn read(mut file: &File, path: &Path) -> Result<Vec<u8>, ProgramError> {
    let failed = |source| ProgramError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    io::Seek::rewind(&mut file).map_err(failed)?;
    file.take(MOST_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// A program, with its files around it.
pub(crate) fn choose(
    program: Option<Image>,
    request: &Request,
    memory_mib: u32,
    cmdline: String,
) -> Result<Boot, Failure> {
    let mount = request.disks.first().map(|disk| {
        let place = disk.at.as_deref();
        place.unwrap_or(disk_choice::MOUNT).to_owned()
    });
    let own = image::open(Path::new(match mount {
        Some(_) => IMAGE_WITH_DISK,
        None => IMAGE,
    }))?;
    let room = machine_size::room_for_files(memory_mib, own.bytes);
    let RootFiles {
        mut tree,
        mut task,
        stop_signal,
        mut warnings,
    } = match &request.root {
        Some(root) if program.is_some() => root::files(root, Words::default(), room / 2)?,
        Some(root) => root::parts(root, request.words(), room / 2)?,
        None => Default::default(),
    };
    warnings.extend(tree.remove_pipes());
    let (name, shown, path) = match program {
        Some(program) => {
            let file = program
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let path = format!("/{file}");
            let bytes = read(&program.file, &program.path)?;
            check(&path, &bytes, &tree, memory_mib)?;
            let bytes = program.bytes.min(MOST_BYTES);
            tree.insert(&file, Node::open_file(program.file, bytes, 0o755))
                .map_err(ProgramError::from)?;
            task.command = vec![path.clone()];
            task.command.extend(request.command.iter().cloned());
            (image::stem(&program.path), program.path, path)
        }
        None => {
            let (found, bytes, shown) = program_of(&tree, &mut task)?;
            let path = format!("/{found}");
            check(&path, &bytes, &tree, memory_mib)?;
            (image::stem(Path::new(&shown)), PathBuf::from(&shown), path)
        }
    };
    let mut environment = task.environment;
    for (name, value) in [("PATH", tare_init::PATH), ("HOME", "/root")] {
        set(&mut environment, name, value, false);
    }
    set_all(&mut environment, &request.env)?;
    let start = Start {
        path,
        arguments: task.command,
        environment,
        directory: request.workdir.clone().unwrap_or(task.working_directory),
        hostname: request.name.clone().unwrap_or_else(|| name.clone()),
        mount,
    };
    let document = start.to_bytes().map_err(ProgramError::from)?;
    tree.remove(FILE);
    let mut start = Tree::new();
    start
        .insert(FILE, Node::bytes(document, 0o600))
        .map_err(ProgramError::from)?;
    Ok(Boot {
        image: Image { path: shown, ..own },
        name,
        files: Files::Program {
            tree,
            start,
            warnings,
        },
        stop_signal,
        cmdline,
    })
}

/// Refuses what the image would refuse.
fn check(path: &str, bytes: &[u8], tree: &Tree, memory_mib: u32) -> Result<(), ProgramError> {
    let path = path.to_owned();
    let layout = layout(&path, bytes)?;
    if let Some(loader) = &layout.interpreter {
        check_loader(path.clone(), loader.clone(), tree)?;
    }
    let free_end = FIXED_END.min(u64::from(memory_mib) * MIB / 2);
    let pages = layout.pages();
    let bytes = layout.memory_bytes();
    if bytes > u64::from(memory_mib) * MIB {
        return Err(ProgramError::TooLarge {
            path,
            need_mib: bytes.div_ceil(MIB),
            memory_mib,
        });
    }
    if layout.place == LoadAddress::Fixed && (pages.start < FIXED_START || pages.end > free_end) {
        return Err(ProgramError::Addresses {
            path,
            start: pages.start,
            end: pages.end,
            free_start: FIXED_START,
            free_end,
            memory_mib,
        });
    }
    Ok(())
}

fn layout(path: &str, bytes: &[u8]) -> Result<Layout, ProgramError> {
    Layout::parse(bytes).map_err(|source| ProgramError::Elf {
        path: path.to_owned(),
        source,
    })
}

fn check_loader(path: String, loader: String, tree: &Tree) -> Result<(), ProgramError> {
    let found = tree
        .through_all_links(loader.trim_start_matches('/'))
        .ok()
        .filter(|found| tree.get(found).is_some());
    let Some(found) = found else {
        return Err(ProgramError::Dynamic { path, loader });
    };
    match layout(&loader, &content(tree, &found)?)?.place {
        LoadAddress::Relocatable => Ok(()),
        LoadAddress::Fixed => Err(ProgramError::FixedLoader { path, loader }),
    }
}

/// The path of a task's command in the root, without a leading slash.
fn find(tree: &Tree, command: &str, task: &Task) -> Result<String, ProgramError> {
    let resolve = |path: &String| {
        let found = tree.through_all_links(path.trim_start_matches('/')).ok()?;
        tree.get(&found).is_some().then_some(found)
    };
    let found = task.places_of(command).iter().find_map(resolve);
    found.ok_or_else(|| ProgramError::Missing(command.to_owned()))
}

/// The program of a task's command, its content, and the file that the command names: the same, or a
/// script, whose interpreter is the program. Argument 0 stays as the user wrote it.
fn program_of(tree: &Tree, task: &mut Task) -> Result<(String, Vec<u8>, String), ProgramError> {
    let command = task.command.first().ok_or(ProgramError::NoCommand)?;
    let named = find(tree, command, task)?;
    let mut found = named.clone();
    for _ in 0..=script::MOST_SCRIPTS {
        let bytes = content(tree, &found)?;
        let read = script::interpreter(&bytes).map_err(|source| ProgramError::Script {
            path: format!("/{found}"),
            source,
        })?;
        let Some(Interpreter { path, argument }) = read else {
            return Ok((found, bytes, named));
        };
        let text = |bytes: &[u8]| names::text(bytes.to_vec());
        let script = format!("/{found}");
        let words = [Some(text(path)), argument.map(text), Some(script.clone())];
        task.command.splice(..1, words.into_iter().flatten());
        let interpreter = task.command[0].clone();
        found = find(tree, &interpreter, task).map_err(|_| ProgramError::Interpreter {
            path: script,
            interpreter,
        })?;
    }
    Err(ProgramError::Scripts(named))
}

fn content(tree: &Tree, path: &str) -> Result<Vec<u8>, ProgramError> {
    let not_file = || ProgramError::NotFile(path.to_owned());
    let failed = |source| ProgramError::Read {
        path: path.into(),
        source,
    };
    match &tree.get(path).ok_or_else(not_file)?.kind {
        EntryKind::File(Content::Bytes(bytes)) => Ok(bytes.to_vec()),
        EntryKind::File(Content::Host(host)) => host.read(MOST_BYTES).map_err(failed),
        EntryKind::File(Content::Part {
            file,
            offset,
            bytes,
        }) => {
            let mut content = vec![0; (*bytes).min(MOST_BYTES) as usize];
            file.read_exact_at(&mut content, *offset).map_err(failed)?;
            Ok(content)
        }
        _ => Err(not_file()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types of ELF files (`elf.h`).
    const ET_EXEC: u16 = 2;
    const ET_DYN: u16 = 3;

    #[test]
    fn a_loader_is_a_relocatable_file_of_the_root() {
        // This test program is one of the host; with its type changed it counts as linked at fixed
        // addresses.
        let own = std::fs::read("/proc/self/exe").expect("this test");
        let mut tree = Tree::new();
        let check = |tree: &Tree| check_loader("/server".into(), "/lib64/ld.so".into(), tree);
        assert!(matches!(check(&tree), Err(ProgramError::Dynamic { .. })));
        tree.insert("lib64", Node::link("usr/lib64"))
            .expect("a name");
        assert!(matches!(check(&tree), Err(ProgramError::Dynamic { .. })));
        tree.insert("usr/lib64/ld.so", Node::bytes(*b"#!/bin/sh", 0o755))
            .expect("a name");
        assert!(matches!(check(&tree), Err(ProgramError::Elf { .. })));
        for (kind, is_taken) in [(ET_DYN, true), (ET_EXEC, false)] {
            let mut bytes = own.clone();
            bytes[16..18].copy_from_slice(&kind.to_le_bytes());
            tree.remove("usr/lib64/ld.so");
            tree.insert("usr/lib64/ld.so", Node::bytes(bytes, 0o755))
                .expect("a name");
            let checked = check(&tree);
            assert_eq!(checked.is_ok(), is_taken, "{checked:?}");
            let is_fixed = matches!(checked, Err(ProgramError::FixedLoader { .. }));
            assert_eq!(is_fixed, !is_taken);
        }
    }

    #[test]
    fn a_script_is_run_by_its_interpreter() {
        let mut tree = Tree::new();
        let mut put = |path: &str, content: &str| {
            let node = Node::bytes(content.as_bytes().to_vec(), 0o755);
            tree.insert(path, node).expect("a name");
        };
        put("bin/sh", "ELF");
        put("bin/start", "#!/bin/sh -e\necho");
        put("bin/outer", "#!/bin/start\n");
        put("bin/none", "#!/bin/python\n");
        put("bin/empty", "#!\n");
        put("bin/own", "#!/bin/own\n");
        let of = |words: &[&str]| {
            let mut task = Task {
                command: words.iter().map(|word| (*word).to_owned()).collect(),
                ..Task::default()
            };
            program_of(&tree, &mut task).map(|(path, _, shown)| (path, task.command, shown))
        };
        let (path, command, shown) = of(&["/bin/start", "a b"]).expect("a script");
        assert_eq!((path.as_str(), shown.as_str()), ("bin/sh", "bin/start"));
        assert_eq!(command, ["/bin/sh", "-e", "/bin/start", "a b"]);
        let (_, command, _) = of(&["/bin/outer", "a"]).expect("a script of a script");
        assert_eq!(command, ["/bin/sh", "-e", "/bin/start", "/bin/outer", "a"]);
        let (path, command, _) = of(&["/bin/sh", "a"]).expect("a program");
        assert_eq!((path.as_str(), command.len()), ("bin/sh", 2));
        assert!(matches!(
            of(&["/bin/none"]),
            Err(ProgramError::Interpreter { .. })
        ));
        assert!(matches!(
            of(&["/bin/empty"]),
            Err(ProgramError::Script { .. })
        ));
        assert!(matches!(of(&["/bin/own"]), Err(ProgramError::Scripts(_))));
        // Bytes that are not UTF-8 stay what they are.
        let of_bytes = Node::bytes(*b"#!/bin/sh \xe9\n", 0o755);
        tree.insert("bin/bytes", of_bytes).expect("a name");
        let mut task = Task {
            command: vec!["/bin/bytes".to_owned()],
            ..Task::default()
        };
        program_of(&tree, &mut task).expect("a script");
        assert_eq!(*names::bytes(&task.command[1]), *b"\xe9");
    }

    /// Its owner may replace it by a link to a file that only this user may read, or by a pipe.
    #[test]
    fn a_program_that_is_exchanged_after_it_was_listed_is_not_read() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("app");
        let other = place.path().join("secret");
        std::fs::write(&other, "secret").expect("a file");
        std::fs::write(&path, "listed").expect("a file");
        let mut tree = Tree::new();
        let node = Node::host(&path, 0o755).expect("a file");
        tree.insert("app", node).expect("a name");
        assert_eq!(content(&tree, "app").expect("content"), b"listed");
        std::fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(&other, &path).expect("a link");
        let refused = content(&tree, "app");
        assert!(matches!(refused, Err(ProgramError::Read { .. })));
        std::fs::remove_file(&path).expect("removed");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a pipe");
        let refused = content(&tree, "app");
        assert!(matches!(refused, Err(ProgramError::Read { .. })));
    }

    #[test]
    fn a_command_is_found_by_path_and_through_links() {
        let mut tree = Tree::new();
        tree.insert("opt/server", Node::bytes(*b"x", 0o755))
            .expect("a name");
        tree.insert("usr/bin/web", Node::link("/opt/server"))
            .expect("a name");
        let found = |command, task: &Task| find(&tree, command, task).ok();
        let server = Some("opt/server".to_owned());
        let mut task = Task::default();
        assert_eq!(found("/opt/server", &task), server);
        assert_eq!(found("web", &task), server);
        assert_eq!(found("./server", &task), None);
        // As an image says: `WorkingDir` and a command from there.
        task.working_directory = "/opt".to_owned();
        assert_eq!(found("./server", &task), server);
        assert_eq!(found("../opt/./server", &task), server);
        assert_eq!(found("server", &task), None, "not in PATH");
        task.environment = vec!["PATH=/opt".to_owned()];
        assert_eq!(found("web", &task), None);
    }
}

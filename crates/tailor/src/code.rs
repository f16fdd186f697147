//! Bytes of machine code in a built kernel, by directory of the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use object::read::archive::ArchiveFile;
use object::{Object as _, ObjectSection as _, SectionFlags};

use crate::objects;

/// The archives that are linked: a thin one of all objects, and libraries of which the
/// linker takes what is called.
const LINKED: [&str; 3] = ["vmlinux.a", "lib/lib.a", "arch/x86/lib/lib.a"];
/// Largest archive or object that is read, bytes.
const LARGEST: u64 = 256 << 20;
/// `SHF_EXECINSTR` (ELF, figure 4-11).
const EXECUTABLE: u64 = 4;
/// Begins an object of clang's that is compiled as it is linked (LLVM Bitcode File Format).
const BITCODE: &[u8] = b"BC\xc0\xde";

/// Bytes of executable sections of the objects that were linked, by the first directory
/// of their path (`net`, `fs`, ...). Code that only a start needs is counted too.
///
/// # Errors
///
/// When a file of the build cannot be read, or an archive or object is damaged.
pub fn by_directory(build: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut found = BTreeSet::new();
    for archive in LINKED.map(Path::new) {
        let dir = archive.parent().unwrap_or(Path::new(""));
        // Which of them exist is the configuration's choice.
        if build.join(archive).exists() {
            let members = members(build, archive)?;
            found.extend(members.iter().map(|name| dir.join(name)));
        }
    }
    let mut bytes = BTreeMap::new();
    for object in found {
        let first = object.components().next().unwrap_or(Component::CurDir);
        let directory = first.as_os_str().to_string_lossy().into_owned();
        *bytes.entry(directory).or_default() += code(build, &object)?;
    }
    Ok(bytes)
}

/// Paths of a thin archive's members, from its own directory.
fn members(build: &Path, path: &Path) -> io::Result<Vec<String>> {
    let data = objects::read(build, path, LARGEST)?;
    let archive = ArchiveFile::parse(&*data).map_err(damaged(path))?;
    let mut names = Vec::new();
    for member in archive.members() {
        let member = member.map_err(damaged(path))?;
        names.push(String::from_utf8_lossy(member.name()).into_owned());
    }
    Ok(names)
}

/// Bytes of an object's executable sections.
fn code(build: &Path, object: &Path) -> io::Result<u64> {
    let data = objects::read(build, object, LARGEST)?;
    if data.starts_with(BITCODE) {
        return Err(io::Error::other(
            "a kernel that is optimized over all files has no code in its objects",
        ));
    }
    let file = object::File::parse(&*data).map_err(damaged(object))?;
    let is_code =
        |flags| matches!(flags, SectionFlags::Elf { sh_flags } if sh_flags & EXECUTABLE != 0);
    let sections = file.sections().filter(|section| is_code(section.flags()));
    Ok(sections.map(|section| section.size()).sum())
}

fn damaged(path: &Path) -> impl FnOnce(object::Error) -> io::Error {
    let path: PathBuf = path.to_owned();
    move |error| io::Error::other(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn code_is_counted_once_by_the_directory_of_its_object() {
        let dir = tempfile::tempdir().unwrap();
        let run = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            let status = command.args(args).current_dir(dir.path()).status();
            status.is_ok_and(|status| status.success())
        };
        for (object, bytes) in [("net/ipv4/a", 100), ("net/b", 20), ("lib/c", 3)] {
            let source = format!(".text\n.fill {bytes}, 1, 0x90\n.data\n.fill 50\n");
            let file = dir.path().join(object).with_extension("s");
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, source).unwrap();
            let files = [format!("{object}.s"), format!("{object}.o")];
            if !run("cc", &["-c", &files[0], "-o", &files[1]]) {
                tare_vmtest::lacks("no compiler (scripts/setup.sh test)");
                return;
            }
        }
        let thin = "cDPrST";
        assert!(run("ar", &[thin, "lib/lib.a", "lib/c.o"]));
        let all = ["net/ipv4/a.o", "net/b.o", "lib/c.o"];
        assert!(run("ar", &[&[thin, "vmlinux.a"], &all[..]].concat()));
        let code = by_directory(dir.path()).unwrap();
        let expected = [("lib".to_owned(), 3), ("net".to_owned(), 120)];
        assert_eq!(code.into_iter().collect::<Vec<_>>(), expected);
        fs::write(dir.path().join("net/b.o"), b"no object").unwrap();
        assert!(by_directory(dir.path()).is_err());
    }
}

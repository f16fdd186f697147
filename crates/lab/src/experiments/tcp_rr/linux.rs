//! A Linux guest for the same: Debian's kernel, and `tare-rr` with its libraries
//! as all that is in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program, beside `tare`.
const PROGRAM: &str = "tare-rr";

/// Why the guest's files could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestFilesError {
    /// The program is not there.
    #[error("{PROGRAM} is not beside tare; build it with: make build")]
    NoProgram,
    /// A file cannot be copied, or `ldd` not executed.
    #[error("cannot copy {PROGRAM} and its libraries: {0}")]
    Copy(#[from] io::Error),
}

/// Puts the program and its libraries into `root`; the program's place there.
pub(crate) fn fill(root: &Path) -> Result<&'static str, GuestFilesError> {
    let program = program().ok_or(GuestFilesError::NoProgram)?;
    copy(&program, root, Path::new("/bin/tare-rr"))?;
    let said = Command::new("ldd").arg(&program).output()?;
    for library in libraries(&String::from_utf8_lossy(&said.stdout)) {
        copy(&library, root, &library)?;
    }
    Ok("/bin/tare-rr")
}

fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(PROGRAM)).filter(|path| path.is_file())
}

/// The absolute paths that `ldd` names: libraries and the interpreter.
fn libraries(said: &str) -> Vec<PathBuf> {
    let words = said.split_whitespace();
    words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

fn copy(from: &Path, root: &Path, place: &Path) -> io::Result<()> {
    let to = root.join(place.strip_prefix("/").unwrap_or(place));
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::copy(from, to).map(drop)
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_interpreter_are_found() {
        let said = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(libraries(said), expected.map(PathBuf::from));
        assert!(libraries("\tstatically linked\n").is_empty());
    }
}

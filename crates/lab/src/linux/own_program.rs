//! A root with one of the programs beside `tare` (`tare-rr`, `tare-calls`) and its libraries as all
//! that is in it: for a Linux guest, or for the library OS.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why the guest's files could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GuestFilesError {
    /// The program is not there.
    #[error("{0} is not beside tare; build it with: make build")]
    NoProgram(&'static str),
    /// A file cannot be copied, or `ldd` not executed.
    #[error("cannot copy {0} and its libraries: {1}")]
    Copy(&'static str, #[source] io::Error),
}

/// Puts the program into `/bin` of `root`, and its libraries where its loader looks; gives the
/// program's path in the root.
pub(crate) fn fill(root: &Path, program: &'static str) -> Result<String, GuestFilesError> {
    let beside = beside(program).ok_or(GuestFilesError::NoProgram(program))?;
    let copied = || -> io::Result<String> {
        let place = format!("/bin/{program}");
        copy(&beside, root, Path::new(&place))?;
        let said = Command::new("ldd").arg(&beside).output()?;
        for library in libraries(&String::from_utf8_lossy(&said.stdout)) {
            copy(&library, root, &library)?;
        }
        Ok(place)
    };
    copied().map_err(|error| GuestFilesError::Copy(program, error))
}

fn beside(program: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(program)).filter(|path| path.is_file())
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

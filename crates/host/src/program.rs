//! Finding a program by its path or on the search path.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The program was not found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// Nothing has this name.
    #[error("program not found: {0:?}")]
    NotFound(String),
    /// A directory, or without permission.
    #[error("{0} cannot be executed: not a program file with permission to execute")]
    NotExecutable(String),
}

/// The path of a program, by its path or by its name on the search path.
pub fn find_program(name: &str) -> Result<PathBuf, ProgramError> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match (path.exists(), is_executable(&path)) {
            (_, true) => Ok(path),
            (true, false) => Err(ProgramError::NotExecutable(name.to_owned())),
            (false, _) => Err(ProgramError::NotFound(name.to_owned())),
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|path| !name.is_empty() && is_executable(path))
        .ok_or_else(|| ProgramError::NotFound(name.to_owned()))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_the_search_path_or_named() {
        assert!(find_program("sh").unwrap().is_absolute());
        for missing in ["no-such-program", "", "/no/such"] {
            let error = ProgramError::NotFound(missing.to_owned());
            assert_eq!(find_program(missing), Err(error));
        }
        for other in ["/etc/passwd", "/etc"] {
            let error = ProgramError::NotExecutable(other.to_owned());
            assert_eq!(find_program(other), Err(error));
        }
    }
}

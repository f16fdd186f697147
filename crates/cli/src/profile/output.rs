//! The file for a profile: the check that it can be written comes before the command starts, and an
//! old file stays until the new one is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;

use crate::failure::Explain;

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub(super) struct OutputError {
    path: PathBuf,
    source: io::Error,
}

impl Explain for OutputError {
    fn code(&self) -> ExitCode {
        ExitCode::Output
    }
}

/// A file being written.
#[derive(Debug)]
pub(super) struct OutFile {
    path: PathBuf,
    /// The temporary file beside it; `None` where the path is not a regular file, such as a pipe.
    temporary: Option<PathBuf>,
    file: File,
}

impl OutFile {
    /// Creates the file that will become `path`.
    pub(super) fn open(path: &Path) -> Result<Self, OutputError> {
        let failed = |source| OutputError {
            path: path.to_owned(),
            source,
        };
        let special = fs::metadata(path).is_ok_and(|there| !there.is_file());
        let temporary = (!special).then(|| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.with_file_name(format!(".{name}.{}", std::process::id()))
        });
        let mut options = OpenOptions::new();
        options.write(true);
        if temporary.is_some() {
            // A file that may not be changed may not be replaced either.
            if path.exists() {
                options.open(path).map_err(failed)?;
            }
            options.create_new(true);
        }
        let file = options
            .open(temporary.as_deref().unwrap_or(path))
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
            file,
        })
    }

    /// Another handle on the file.
    pub(super) fn file(&self) -> Result<File, OutputError> {
        self.file.try_clone().map_err(|source| OutputError {
            path: self.path.clone(),
            source,
        })
    }

    /// The path as the user wrote it.
    pub(super) fn shown(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// Writes the bytes and moves the file to its path.
    pub(super) fn write(mut self, bytes: &[u8]) -> Result<(), OutputError> {
        self.file.write_all(bytes).map_err(|source| OutputError {
            path: self.path.clone(),
            source,
        })?;
        self.commit()
    }

    /// Moves the file to its path.
    pub(super) fn commit(mut self) -> Result<(), OutputError> {
        let Some(temporary) = self.temporary.take() else {
            return Ok(());
        };
        fs::rename(&temporary, &self.path).map_err(|source| {
            let _ = fs::remove_file(&temporary);
            OutputError {
                path: self.path.clone(),
                source,
            }
        })
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

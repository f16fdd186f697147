//! The run directory of a weighing: what was measured, kept as it comes.
//!
//! `raw.jsonl` is written while the experiment runs, one JSON object a line,
//! each with the field `sample` that says of what; so a run that breaks off
//! keeps what it had. The other files are written at the end.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;
use tare_machines::versions::Versions;

use crate::error::WeighError;

/// The directory and its open raw file.
#[derive(Debug)]
pub struct Recorder {
    directory: PathBuf,
    /// `None` where the raw samples are there already.
    raw: Option<BufWriter<File>>,
    /// What was run, beside the host's programs.
    versions: Versions,
}

impl Recorder {
    /// Makes `directory` and begins `raw.jsonl`. An existing directory must be empty.
    pub fn create(directory: &Path) -> Result<Self, WeighError> {
        fs::create_dir_all(directory).map_err(|e| failed(directory, e))?;
        let mut entries = fs::read_dir(directory).map_err(|e| failed(directory, e))?;
        if entries.next().is_some() {
            return Err(WeighError::OutNotEmpty(directory.to_owned()));
        }
        let path = directory.join("raw.jsonl");
        let raw = File::create_new(&path).map_err(|e| failed(&path, e))?;
        Ok(Self {
            directory: directory.to_owned(),
            raw: Some(BufWriter::new(raw)),
            versions: Versions::new(),
        })
    }

    /// Goes on with the record in `directory`. A last line that was cut off, as by a
    /// loss of power, is closed and stays what it is: no sample.
    pub fn resume(directory: &Path) -> Result<Self, WeighError> {
        let path = directory.join("raw.jsonl");
        let open = File::options().append(true).open(&path);
        let mut raw = open.map_err(|e| failed(&path, e))?;
        let ended = fs::read(&path).map_err(|e| failed(&path, e))?;
        if ended.last().is_some_and(|last| *last != b'\n') {
            raw.write_all(b"\n").map_err(|e| failed(&path, e))?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            raw: Some(BufWriter::new(raw)),
            versions: Versions::new(),
        })
    }

    /// Keeps no samples, and files beside those that are in `directory`.
    pub fn silent(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            raw: None,
            versions: Versions::new(),
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Appends one sample.
    pub fn sample(&mut self, sample: &impl Serialize) -> Result<(), WeighError> {
        let Some(raw) = &mut self.raw else {
            return Ok(());
        };
        serde_json::to_writer(&mut *raw, sample)
            .map_err(io::Error::from)
            .and_then(|()| raw.write_all(b"\n"))
            .map_err(|e| failed(&self.directory.join("raw.jsonl"), e))
    }

    /// Notes the version of an application that is run, once.
    pub fn version(&mut self, program: &str, version: &str) -> Result<(), WeighError> {
        if self.versions.get(program).is_some_and(|it| it == version) {
            return Ok(());
        }
        self.versions.insert(program.to_owned(), version.to_owned());
        self.sample(&json!({"sample": "program", "program": program, "version": version}))
    }

    /// Notes several.
    pub fn versions_of(&mut self, versions: Versions) -> Result<(), WeighError> {
        let mut versions = versions.iter();
        versions.try_for_each(|(program, version)| self.version(program, version))
    }

    /// The versions that were noted.
    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Hands what was appended to the system.
    pub fn flush(&mut self) -> Result<(), WeighError> {
        let path = self.directory.join("raw.jsonl");
        let flushed = self.raw.as_mut().map_or(Ok(()), BufWriter::flush);
        flushed.map_err(|e| failed(&path, e))
    }

    /// Writes a whole file: under another name first, so that a disk that
    /// fills up leaves no half of it.
    pub fn file(&self, name: &str, content: &[u8]) -> Result<(), WeighError> {
        let path = self.directory.join(name);
        let partial = self.directory.join(format!(".{name}.partial"));
        fs::write(&partial, content)
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(|e| {
                let _ = fs::remove_file(&partial);
                failed(&path, e)
            })
    }
}

fn failed(path: &Path, source: io::Error) -> WeighError {
    WeighError::Write {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_lines_of_json() {
        let directory = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::create(&directory.path().join("a/b")).unwrap();
        recorder
            .sample(&serde_json::json!({"sample": "x"}))
            .unwrap();
        recorder
            .sample(&serde_json::json!({"sample": "y"}))
            .unwrap();
        recorder.flush().unwrap();
        let raw = fs::read_to_string(directory.path().join("a/b/raw.jsonl")).unwrap();
        assert_eq!(raw, "{\"sample\":\"x\"}\n{\"sample\":\"y\"}\n");
    }

    #[test]
    fn a_directory_with_something_in_it_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("mine"), "").unwrap();
        let error = Recorder::create(directory.path()).unwrap_err();
        assert!(matches!(error, WeighError::OutNotEmpty(_)), "{error:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Recorder::create(&file.join("below")).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }

    #[test]
    fn a_full_disk_is_an_error_and_not_a_panic() {
        let Ok(full) = File::options().write(true).open("/dev/full") else {
            tare_vmtest::lacks("no /dev/full");
            return;
        };
        let mut recorder = Recorder {
            directory: PathBuf::from("out"),
            raw: Some(BufWriter::new(full)),
            versions: Versions::new(),
        };
        recorder.sample(&serde_json::json!({"sample": 1})).unwrap();
        let error = recorder.flush().unwrap_err();
        assert_eq!(error.to_string(), "cannot write out/raw.jsonl");
        let WeighError::Write { source, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    }
}

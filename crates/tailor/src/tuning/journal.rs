//! Boots that were recorded: an interrupted search, started again with the same command, gets
//! them back instead of booting.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Boot, Trials};

/// The schema of a journal.
const SCHEMA: &str = "tare-search/2";
/// Most bytes of one; a boot takes about a hundred.
const JOURNAL_BYTES: u64 = 64 << 20;

/// The first line.
#[derive(Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Head {
    schema: String,
    /// Of what is searched: another key is another search.
    key: String,
    /// Of the orders of boots.
    seed: u64,
    /// Words that the kernel does not know.
    refused: Vec<String>,
}

/// Each other line.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Record {
    settings: Vec<usize>,
    boot: Boot,
}

/// A journal that cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct JournalError {
    path: PathBuf,
    source: io::Error,
}

/// The file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Not given back yet, the last one first.
    recorded: Vec<Record>,
    /// Boots that were added.
    measured: usize,
    /// Of the orders of boots, by which an interrupted search goes on.
    pub seed: u64,
    /// Words that the kernel does not know.
    pub refused: Vec<String>,
}

impl Journal {
    /// The journal of this search at `path`; `None` if there is none, or one of another search.
    pub fn resume(path: &Path, key: &str) -> Result<Option<Self>, JournalError> {
        let Ok(mut file) = File::options().read(true).write(true).open(path) else {
            return Ok(None);
        };
        let Some((head, mut recorded, bytes)) = read(&file, key) else {
            return Ok(None);
        };
        // A line that was cut off is written again.
        let kept = file
            .set_len(bytes)
            .and_then(|()| file.seek(SeekFrom::Start(bytes)));
        kept.map_err(|source| failed(path, source))?;
        recorded.reverse();
        Ok(Some(Self {
            path: path.to_owned(),
            file,
            recorded,
            measured: 0,
            seed: head.seed,
            refused: head.refused,
        }))
    }

    /// A new one.
    pub fn begin(
        path: &Path,
        key: &str,
        seed: u64,
        refused: Vec<String>,
    ) -> Result<Self, JournalError> {
        let file = File::create(path).map_err(|source| failed(path, source))?;
        let mut journal = Self {
            path: path.to_owned(),
            file,
            recorded: Vec::new(),
            measured: 0,
            seed,
            refused: refused.clone(),
        };
        journal.write(&Head {
            schema: SCHEMA.to_owned(),
            key: key.to_owned(),
            seed,
            refused,
        })?;
        Ok(journal)
    }

    /// How many boots it has that were not given back yet.
    pub fn len(&self) -> usize {
        self.recorded.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.recorded.is_empty()
    }

    /// How many boots it did not have and were measured.
    pub fn measured(&self) -> usize {
        self.measured
    }

    /// The next boot, if it is of these settings. One of others ends the record: it is of an
    /// older version's order.
    fn next(&mut self, settings: &[usize]) -> Option<Boot> {
        let record = self.recorded.pop()?;
        if record.settings == settings {
            return Some(record.boot);
        }
        self.recorded.clear();
        None
    }

    /// Writes a line; gives what will be read of it, since a number that is written and read
    /// may be its neighbour.
    fn write<T: Serialize + DeserializeOwned>(&mut self, line: &T) -> Result<T, JournalError> {
        let mut write = || {
            let text = serde_json::to_string(line)?;
            self.file.write_all(format!("{text}\n").as_bytes())?;
            Ok(serde_json::from_str(&text)?)
        };
        let written: io::Result<T> = write();
        written.map_err(|source| failed(&self.path, source))
    }
}

fn failed(path: &Path, source: io::Error) -> JournalError {
    JournalError {
        path: path.to_owned(),
        source,
    }
}

/// The head, the whole records, and how many bytes they take.
fn read(file: &File, key: &str) -> Option<(Head, Vec<Record>, u64)> {
    let mut lines = BufReader::new(file.take(JOURNAL_BYTES));
    let mut line = Vec::new();
    let mut bytes = lines.read_until(b'\n', &mut line).ok()? as u64;
    let head: Head = serde_json::from_slice(&line).ok()?;
    if head.schema != SCHEMA || head.key != key || line.last() != Some(&b'\n') {
        return None;
    }
    let mut records = Vec::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line).ok()? as u64;
        match serde_json::from_slice(&line) {
            Ok(record) if line.last() == Some(&b'\n') => records.push(record),
            _ => return Some((head, records, bytes)),
        }
        bytes += read;
    }
}

/// Trials that are recorded.
#[derive(Debug)]
pub struct Recorded<'a, T> {
    /// Who boots what is not recorded.
    pub trials: T,
    /// The record.
    pub journal: &'a mut Journal,
}

impl<T: Trials> Trials for Recorded<'_, T>
where
    T::Error: From<JournalError>,
{
    type Error = T::Error;

    fn boot(&mut self, settings: &[usize]) -> Result<Boot, T::Error> {
        if let Some(boot) = self.journal.next(settings) {
            return Ok(boot);
        }
        let boot = self.trials.boot(settings)?;
        let record = self.journal.write(&Record {
            settings: settings.to_vec(),
            boot,
        })?;
        self.journal.measured += 1;
        Ok(record.boot)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tuning::Measure;
    use crate::tuning::elimination::Search;
    use crate::tuning::simulation::Planted;

    /// Ends after some boots.
    struct Ending<'a>(&'a mut Planted, usize);

    #[derive(Debug, thiserror::Error)]
    enum EndingError {
        #[error("ended")]
        Ended,
        #[error(transparent)]
        Journal(#[from] JournalError),
    }

    impl Trials for Ending<'_> {
        type Error = EndingError;

        fn boot(&mut self, settings: &[usize]) -> Result<Boot, EndingError> {
            self.1 = self.1.checked_sub(1).ok_or(EndingError::Ended)?;
            self.0.boot(settings).map_err(|never| match never {})
        }
    }

    #[test]
    fn an_interrupted_search_goes_on_as_if_it_had_not_been() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("search.jsonl");
        let search = |seed| Search {
            measure: Measure::Instructions,
            candidates: 8,
            budget_s: 900.0,
            seed,
        };
        let factors = [1.0, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        let mut journal = Journal::begin(&path, "whole", 2, Vec::new()).unwrap();
        let mut whole = Planted::new(&factors, 0.01, 9);
        let mut recorded = Recorded {
            trials: Ending(&mut whole, 1000),
            journal: &mut journal,
        };
        let expected = search(2).run(&mut recorded, |_| {}).unwrap();
        let mut planted = Planted::new(&factors, 0.01, 9);
        let mut refused = vec!["a=1".to_owned()];
        for boots in [0, 1, 30, 20, 1000] {
            let resumed = Journal::resume(&path, "key").unwrap();
            let mut journal = match resumed {
                Some(journal) => journal,
                None => Journal::begin(&path, "key", 2, std::mem::take(&mut refused)).unwrap(),
            };
            assert_eq!(journal.refused, ["a=1"]);
            let search = search(journal.seed);
            let trials = Ending(&mut planted, boots);
            let mut recorded = Recorded {
                trials,
                journal: &mut journal,
            };
            match search.run(&mut recorded, |_| {}) {
                Ok(found) => {
                    assert_eq!(found, expected);
                    assert!(journal.measured() > 0);
                }
                Err(error) => assert!(boots < 1000, "{error}"),
            }
        }
        assert_eq!(planted.boots, expected.boots);
        // Complete, it measures nothing.
        let mut journal = Journal::resume(&path, "key").unwrap().unwrap();
        let mut recorded = Recorded {
            trials: Ending(&mut planted, 0),
            journal: &mut journal,
        };
        let again = search(2).run(&mut recorded, |_| {}).unwrap();
        assert_eq!((again, journal.measured()), (expected.clone(), 0));
        assert_eq!(expected.settings(), [1]);
    }

    #[test]
    fn a_journal_of_another_search_or_a_damaged_one_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("search.jsonl");
        assert!(Journal::resume(&path, "a").unwrap().is_none());
        drop(Journal::begin(&path, "a", u64::MAX, Vec::new()).unwrap());
        assert!(Journal::resume(&path, "b").unwrap().is_none());
        let head = fs::read_to_string(&path).unwrap();
        let record = "{\"settings\":[],\"boot\":{\"measured\":{\"Ok\":1.0},\"seconds\":2.0}}\n";
        fs::write(&path, format!("{head}{record}{{\"settings\":[1],\"bo")).unwrap();
        let journal = Journal::resume(&path, "a").unwrap().unwrap();
        assert_eq!((journal.len(), journal.seed), (1, u64::MAX));
        drop(journal);
        // The line that was cut off is gone.
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("{head}{record}")
        );
        for wrong in ["", "{}\n", "nonsense", "{\"schema\":\"tare-search/1\"}\n"] {
            fs::write(&path, wrong).unwrap();
            assert!(Journal::resume(&path, "a").unwrap().is_none(), "{wrong}");
        }
    }
}

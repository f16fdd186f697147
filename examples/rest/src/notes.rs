//! The table of notes.

use rusqlite::{Connection, OptionalExtension as _, Result, Row};
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
pub struct Note {
    number: i64,
    text: String,
}

/// A note that has no number yet.
#[derive(Deserialize)]
pub struct Text {
    text: String,
}

pub struct Notes {
    database: Connection,
}

impl Notes {
    /// Opens the database, or makes it. One process has it, so that its write-ahead log needs no shared memory.
    pub fn open(path: &str) -> Result<Self> {
        let database = Connection::open(path)?;
        database.execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE;
             PRAGMA journal_mode = WAL;
             PRAGMA synchronous = NORMAL;
             CREATE TABLE IF NOT EXISTS notes (number INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;",
        )?;
        Ok(Self { database })
    }

    pub fn all(&mut self) -> Result<Vec<Note>> {
        let mut select = self
            .database
            .prepare_cached("SELECT number, text FROM notes ORDER BY number LIMIT 100")?;
        select.query_map([], note)?.collect()
    }

    pub fn one(&mut self, number: i64) -> Result<Option<Note>> {
        let mut select = self
            .database
            .prepare_cached("SELECT number, text FROM notes WHERE number = ?1")?;
        select.query_row([number], note).optional()
    }

    pub fn add(&mut self, new: Text) -> Result<Note> {
        let mut insert = self
            .database
            .prepare_cached("INSERT INTO notes (text) VALUES (?1) RETURNING number, text")?;
        insert.query_row([new.text], note)
    }

    pub fn change(&mut self, number: i64, new: Text) -> Result<Option<Note>> {
        let mut update = self.database.prepare_cached(
            "UPDATE notes SET text = ?2 WHERE number = ?1 RETURNING number, text",
        )?;
        update.query_row((number, new.text), note).optional()
    }

    /// Whether it was there.
    pub fn remove(&mut self, number: i64) -> Result<bool> {
        let mut delete = self
            .database
            .prepare_cached("DELETE FROM notes WHERE number = ?1")?;
        Ok(delete.execute([number])? > 0)
    }

    pub fn count(&mut self) -> Result<i64> {
        self.database
            .query_row("SELECT count(*) FROM notes", [], |row| row.get(0))
    }
}

fn note(row: &Row<'_>) -> Result<Note> {
    Ok(Note {
        number: row.get(0)?,
        text: row.get(1)?,
    })
}

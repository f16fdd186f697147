//! A new root for a server that runs: the guest's side of `tare reload`
//! (`docs/adr/0052-reload-of-a-site.md`; what is on the disk: [`tare_site::reload`]).
//!
//! The archive is read into separate memory and checked as a root is at the start. Only then it
//! is served, as a whole; whatever is wrong with it leaves the one before in its place.
//!
//! Its functions are cold and not inlined: an image has them once, and small.

mod archive;

use alloc::vec::Vec;

use tare_libos::block::Disk;
use tare_site::reload::{
    Answer, REPLY_SECTOR, REQUEST_SECTOR, Refusal, Reply, Request, SECTOR_BYTES,
};
use tare_site::{Log, MOST_BYTES, Table};

use crate::root::Loaded;
use crate::rules::Given;
use crate::server::{Missing, Platform, Server};

/// Most bytes of the different tables of one run. Rules refer to their table's bytes, which
/// therefore stay; a table that was there before takes no memory again.
const MOST_TABLES: usize = 4 * MOST_BYTES;

/// Takes roots from a disk.
pub struct Reload {
    disk: Disk,
    given: Given,
    log: Log,
    tables: Tables,
    /// Generation of the last request.
    last: u64,
}

/// A root that can be served.
struct Fresh {
    files: Loaded,
    missing: Missing,
    site: Option<Table<'static>>,
}

impl Reload {
    /// Takes roots from `disk`. What the command line gives and the access log stay as they are.
    pub fn new(disk: Disk, given: Given, log: Log) -> Self {
        Self {
            disk,
            given,
            log,
            tables: Tables::default(),
            last: 0,
        }
    }

    /// Looks for a new root, and serves it if it is good; `None` if there is none. Roots may take
    /// `room_bytes` beside what is in memory now.
    #[cold]
    #[inline(never)]
    pub fn look<P: Platform>(&mut self, server: &Server<P>, room_bytes: u64) -> Option<Answer> {
        let request = self.request().filter(|it| it.generation != self.last)?;
        let fresh = self.load(&request, room_bytes);
        // Another request has come meanwhile, and what was read may be of both. It is looked at
        // after the change that it ends with.
        if self.request() != Some(request) {
            return None;
        }
        self.last = request.generation;
        let answer = match fresh {
            Ok(fresh) => {
                let files = fresh.files.files();
                server.replace(fresh.files, fresh.missing, fresh.site);
                server.counters.reloads.one();
                Answer::Taken { files }
            }
            Err(refusal) => {
                server.counters.reloads_refused.one();
                Answer::Refused(refusal)
            }
        };
        let reply = Reply {
            generation: request.generation,
            answer,
        };
        // Who asked waits for a bounded time, should the disk take no reply.
        let _ = self.disk.write(REPLY_SECTOR, &reply.to_sector());
        Some(answer)
    }

    #[cold]
    #[inline(never)]
    fn request(&self) -> Option<Request> {
        let mut sector = [0; SECTOR_BYTES];
        self.disk.read(REQUEST_SECTOR, &mut sector).ok()?;
        Request::parse(&sector)
    }

    #[cold]
    #[inline(never)]
    fn load(&mut self, request: &Request, room_bytes: u64) -> Result<Fresh, Refusal> {
        if let missing_bytes @ 1.. = request.memory_bytes().saturating_sub(room_bytes) {
            return Err(Refusal::Memory { missing_bytes });
        }
        let archive::Archive { files, table } = archive::read(&self.disk, request)?;
        let missing = self.missing(table.as_deref(), &files)?;
        let site = table.map(|table| self.tables.parse(table)).transpose()?;
        Ok(Fresh {
            files,
            missing,
            site,
        })
    }

    /// What a path without a file gets, by rules that can be kept with `files`.
    #[cold]
    #[inline(never)]
    fn missing(&self, table: Option<&[u8]>, files: &Loaded) -> Result<Missing, Refusal> {
        let site = table
            .map(Table::parse)
            .transpose()
            .map_err(|_| Refusal::Table)?;
        if site.as_ref().map_or(Log::Off, |site| site.log) != self.log {
            return Err(Refusal::Log);
        }
        let missing = self.given.missing(site.as_ref(), files);
        missing.map_err(|_| Refusal::Named)
    }
}

/// The tables that were served.
#[derive(Default)]
struct Tables {
    known: Vec<&'static [u8]>,
    bytes: usize,
}

impl Tables {
    #[cold]
    #[inline(never)]
    fn parse(&mut self, table: Vec<u8>) -> Result<Table<'static>, Refusal> {
        Table::parse(self.keep(table)?).map_err(|_| Refusal::Table)
    }

    /// The table for good.
    fn keep(&mut self, table: Vec<u8>) -> Result<&'static [u8], Refusal> {
        if let Some(known) = self.known.iter().find(|known| **known == table) {
            return Ok(known);
        }
        if table.len() > MOST_TABLES - self.bytes {
            return Err(Refusal::Tables);
        }
        self.bytes += table.len();
        let kept: &'static [u8] = table.leak();
        self.known.push(kept);
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn tables_stay_in_bounded_memory_and_one_that_comes_again_takes_none() {
        let mut tables = Tables::default();
        for _ in 0..100 {
            assert!(tables.keep(vec![1; MOST_BYTES]).is_ok());
        }
        for number in 2..5 {
            assert!(tables.keep(vec![number; MOST_BYTES]).is_ok());
        }
        assert_eq!(tables.keep(vec![5]), Err(Refusal::Tables));
        assert!(tables.keep(vec![4; MOST_BYTES]).is_ok());
        assert_eq!(tables.bytes, MOST_TABLES);
    }
}

//! How a machine that runs gets another root: what is on the disk that `tare run --reload` gives
//! it (`docs/adr/0052-reload-of-a-site.md`).
//!
//! ```text
//! sector  content
//!  0      the request, written by the host; all zeros while the archive changes
//!  1      the reply, written by the guest
//!  8..    the archive: newc cpio, paths in ascending order of their bytes
//!
//! bytes of a request or a reply, all numbers in little-endian order
//!  0..8   "tareROOT", in a reply "tareDONE"
//!  8      version: 1
//! 12      request: 1 if the archive has a site's table, else 0; reply: 0 taken, else why not
//! 16      request: entries of the archive; reply: files that are served
//! 20      FNV-1a of all other bytes of the sector
//! 24..32  generation: the request's number, never 0 and never that of the one before
//! 32..40  request: bytes of the archive; reply: bytes of memory that are missing
//! ```
//!
//! To the guest the request is hostile, and to the host the reply: what is not exactly so is none.

/// The serial number of the disk.
pub const SERIAL: &str = "tare-reload";
/// `reload=on` on the guest's command line makes it watch the disk.
pub const PARAMETER: &str = "reload";
/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;
/// Sector of the request.
pub const REQUEST_SECTOR: u64 = 0;
/// Sector of the reply.
pub const REPLY_SECTOR: u64 = 1;
/// First sector of the archive.
pub const ARCHIVE_SECTOR: u64 = 8;
/// Memory that an entry takes beside its bytes in the archive: the records of a file, its path
/// and its content, and what the allocator adds to each.
pub const ENTRY_BYTES: u64 = 160;

const VERSION: u32 = 1;
const REQUEST: &[u8; 8] = b"tareROOT";
const REPLY: &[u8; 8] = b"tareDONE";
const CHECK: core::ops::Range<usize> = 20..24;
/// Fewest bytes of an entry: a header, a name and its NUL.
const LEAST_ENTRY: u64 = 112;

/// A sector.
pub type Sector = [u8; SECTOR_BYTES];

/// A root that is to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number.
    pub generation: u64,
    /// Bytes of the archive.
    pub bytes: u64,
    /// Entries of the archive, without its end.
    pub entries: u32,
    /// Whether one of them is a site's table, at [`crate::FILE`].
    pub has_site: bool,
}

impl Request {
    /// Memory that the root takes in the guest, at most.
    pub fn memory_bytes(&self) -> u64 {
        let records = u64::from(self.entries).saturating_mul(ENTRY_BYTES);
        self.bytes.saturating_add(records)
    }

    /// The sector that says so.
    pub fn to_sector(&self) -> Sector {
        let record = Record {
            code: self.has_site.into(),
            count: self.entries,
            generation: self.generation,
            value: self.bytes,
        };
        record.to_sector(REQUEST)
    }

    /// The request in a sector; `None` if it is invalid.
    pub fn parse(sector: &Sector) -> Option<Self> {
        let record = Record::parse(sector, REQUEST)?;
        let entries = u64::from(record.count);
        let fit = entries <= record.value / LEAST_ENTRY;
        (fit && record.code <= 1 && record.generation != 0).then_some(Self {
            generation: record.generation,
            bytes: record.value,
            entries: record.count,
            has_site: record.code == 1,
        })
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's number.
    pub generation: u64,
    /// What became of it.
    pub answer: Answer,
}

/// What became of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its files are served.
    Taken {
        /// How many.
        files: u32,
    },
    /// The one before goes on being served.
    Refused(Refusal),
}

/// Why a root is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The guest has no memory for it beside the one that it serves.
    #[error("not enough memory for a second root: {} KiB more are needed", missing_bytes.div_ceil(1024))]
    Memory {
        /// How much is missing.
        missing_bytes: u64,
    },
    /// The archive is damaged.
    #[error("the archive of the root is damaged")]
    Archive,
    /// The disk cannot be read.
    #[error("the archive of the root cannot be read")]
    Disk,
    /// The site's table is damaged, or of another version.
    #[error("the compiled site.toml is damaged, or of a version that the image does not support")]
    Table,
    /// Too many tables have been served.
    #[error("too many different site.toml files were loaded in this run of the machine")]
    Tables,
    /// The access log would change.
    #[error("[log] cannot change while the machine runs")]
    Log,
    /// A file or directory that the site or the command line names is not in the root, or both
    /// name one for paths without a file.
    #[error(
        "not_found=, fallback= or the site names a file or directory that the root lacks, or both name one"
    )]
    Named,
}

impl Reply {
    /// The sector that says so.
    pub fn to_sector(&self) -> Sector {
        let (code, count, value) = match self.answer {
            Answer::Taken { files } => (0, files, 0),
            Answer::Refused(Refusal::Memory { missing_bytes }) => (1, 0, missing_bytes),
            Answer::Refused(Refusal::Archive) => (2, 0, 0),
            Answer::Refused(Refusal::Disk) => (3, 0, 0),
            Answer::Refused(Refusal::Table) => (4, 0, 0),
            Answer::Refused(Refusal::Tables) => (5, 0, 0),
            Answer::Refused(Refusal::Log) => (6, 0, 0),
            Answer::Refused(Refusal::Named) => (7, 0, 0),
        };
        let record = Record {
            code,
            count,
            generation: self.generation,
            value,
        };
        record.to_sector(REPLY)
    }

    /// The reply in a sector; `None` if it is invalid.
    pub fn parse(sector: &Sector) -> Option<Self> {
        let record = Record::parse(sector, REPLY)?;
        let refusal = match (record.code, record.count, record.value) {
            (0, files, 0) => {
                return Some(Self {
                    generation: record.generation,
                    answer: Answer::Taken { files },
                });
            }
            (1, 0, missing_bytes @ 1..) => Refusal::Memory { missing_bytes },
            (2, 0, 0) => Refusal::Archive,
            (3, 0, 0) => Refusal::Disk,
            (4, 0, 0) => Refusal::Table,
            (5, 0, 0) => Refusal::Tables,
            (6, 0, 0) => Refusal::Log,
            (7, 0, 0) => Refusal::Named,
            _ => return None,
        };
        Some(Self {
            generation: record.generation,
            answer: Answer::Refused(refusal),
        })
    }
}

/// The numbers of a sector.
struct Record {
    code: u32,
    count: u32,
    generation: u64,
    value: u64,
}

impl Record {
    fn to_sector(&self, magic: &[u8; 8]) -> Sector {
        let mut sector = [0; SECTOR_BYTES];
        sector[..8].copy_from_slice(magic);
        sector[8..12].copy_from_slice(&VERSION.to_le_bytes());
        sector[12..16].copy_from_slice(&self.code.to_le_bytes());
        sector[16..20].copy_from_slice(&self.count.to_le_bytes());
        sector[24..32].copy_from_slice(&self.generation.to_le_bytes());
        sector[32..40].copy_from_slice(&self.value.to_le_bytes());
        let check = check(&sector);
        sector[CHECK].copy_from_slice(&check.to_le_bytes());
        sector
    }

    fn parse(sector: &Sector, magic: &[u8; 8]) -> Option<Self> {
        let long = |at: usize| sector[at..].first_chunk().map(|it| u64::from_le_bytes(*it));
        let short = |at: usize| sector[at..].first_chunk().map(|it| u32::from_le_bytes(*it));
        let is_one = sector.starts_with(magic)
            && short(8)? == VERSION
            && short(CHECK.start)? == check(sector);
        is_one.then_some(Self {
            code: short(12)?,
            count: short(16)?,
            generation: long(24)?,
            value: long(32)?,
        })
    }
}

/// A sector that is read while the other side writes it can be half of each.
fn check(sector: &Sector) -> u32 {
    let (before, after) = (&sector[..CHECK.start], &sector[CHECK.end..]);
    before.iter().chain(after).fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANSWERS: [Answer; 8] = [
        Answer::Taken { files: 3 },
        Answer::Refused(Refusal::Memory { missing_bytes: 9 }),
        Answer::Refused(Refusal::Archive),
        Answer::Refused(Refusal::Disk),
        Answer::Refused(Refusal::Table),
        Answer::Refused(Refusal::Tables),
        Answer::Refused(Refusal::Log),
        Answer::Refused(Refusal::Named),
    ];

    fn request() -> Request {
        Request {
            generation: 7,
            bytes: 1120,
            entries: 10,
            has_site: true,
        }
    }

    #[test]
    fn requests_and_replies_come_back_and_are_not_each_other() {
        let sector = request().to_sector();
        assert_eq!(Request::parse(&sector), Some(request()));
        assert_eq!(Reply::parse(&sector), None);
        for answer in ANSWERS {
            let reply = Reply {
                generation: 7,
                answer,
            };
            assert_eq!(Reply::parse(&reply.to_sector()), Some(reply));
            assert_eq!(Request::parse(&reply.to_sector()), None);
        }
        assert_eq!(Request::parse(&[0; SECTOR_BYTES]), None);
        assert_eq!(request().memory_bytes(), 1120 + 10 * ENTRY_BYTES);
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let zero = Request {
            generation: 0,
            ..request()
        };
        let more_entries_than_bytes = Request {
            entries: 11,
            ..request()
        };
        for wrong in [zero, more_entries_than_bytes] {
            assert_eq!(Request::parse(&wrong.to_sector()), None, "{wrong:?}");
        }
        // No memory is missing, an answer of no meaning, and files of a root that is refused.
        for (code, count, value) in [(1, 0, 0), (8, 0, 0), (2, 1, 0), (0, 1, 1)] {
            let record = Record {
                code,
                count,
                generation: 7,
                value,
            };
            assert_eq!(Reply::parse(&record.to_sector(REPLY)), None);
        }
    }

    proptest! {
        #[test]
        fn a_sector_with_a_changed_byte_is_none(at in 0..SECTOR_BYTES, change in 1..=u8::MAX) {
            let mut sector = request().to_sector();
            sector[at] ^= change;
            prop_assert_eq!(Request::parse(&sector), None);
            let answer = Answer::Taken { files: 1 };
            let mut sector = Reply { generation: 1, answer }.to_sector();
            sector[at] ^= change;
            prop_assert_eq!(Reply::parse(&sector), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), SECTOR_BYTES)) {
            let sector = *bytes.first_chunk().unwrap_or(&[0; SECTOR_BYTES]);
            prop_assert_eq!(Request::parse(&sector), None);
            prop_assert_eq!(Reply::parse(&sector), None);
        }
    }
}

//! The newc cpio format (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! An archive is hostile input: every length is checked against what is left,
//! and what does not parse ends the walk with what came before it. Several
//! archives may follow each other with zeros between them, as the kernel allows. Files may have
//! their content behind all names (`tare_rootfs::cpio::Layout::Pages`).

/// Bytes of a header: the magic and 13 fields of eight hexadecimal digits.
pub const HEADER_LEN: usize = 110;
/// The name that ends an archive.
pub const TRAILER: &str = "TRAILER!!!";
const MAGIC: &[u8; 6] = b"070701";
const MAGIC_CRC: &[u8; 6] = b"070702";

/// Bits of a mode that hold the kind of a file.
const MODE_KIND: u32 = 0o170_000;
const MODE_DIRECTORY: u32 = 0o040_000;
const MODE_FILE: u32 = 0o100_000;
const MODE_LINK: u32 = 0o120_000;

/// Where a header says how many names a file has, and that it has one.
const FIELD_LINKS: core::ops::Range<usize> = 38..46;
const ONE_LINK: &[u8; 8] = b"00000001";
/// Where a header has the numbers of a device, or of content elsewhere, and those of neither.
const FIELDS_RDEV: core::ops::Range<usize> = 78..94;
const NO_NUMBERS: &[u8; 16] = b"0000000000000000";
/// Bytes of a page, by which content elsewhere is addressed.
const PAGE: usize = 4096;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link: listed, never opened here.
    Link,
    /// A device, pipe or socket: listed, never opened.
    Other,
}

/// One entry of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Path without leading `/` or `./` and without trailing `/`; empty for the root.
    pub path: &'a str,
    /// Content of a regular file, target of a link; empty for anything else.
    pub data: &'a [u8],
    /// Permissions, twelve bits.
    pub permissions: u32,
    /// File or directory.
    pub kind: EntryKind,
    /// Modification time in seconds since 1970.
    pub modified_s: u32,
    /// The number that a regular file with several names has at each of them. In archives of Linux's form the
    /// first one carries the content.
    pub inode: Option<u32>,
}

/// Why an archive's walk ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// Neither a header's magic nor zeros up to the end.
    #[error("no cpio header at byte {0}")]
    Magic(usize),
    /// A header field is not hexadecimal.
    #[error("a field of the header at byte {0} is not hexadecimal")]
    Digit(usize),
    /// A header, name or content reaches beyond the end.
    #[error("the entry at byte {0} is cut short")]
    Truncated(usize),
}

/// A walk over the entries of an archive. Entries whose names are not UTF-8,
/// are empty or contain `..` are passed over.
#[derive(Clone, Debug)]
pub struct Archive<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Archive<'a> {
    /// Starts at the beginning of `bytes`. Any bytes are an archive: what does
    /// not parse shows as an error item, which ends the walk.
    pub fn parse(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next header's offset: entries are aligned to four bytes, and zeros
    /// may follow a trailer.
    fn skip_padding(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|&&byte| byte == 0).count();
    }

    fn next_raw(&mut self) -> Result<Option<RawEntry<'a>>, ArchiveError> {
        if self.bytes.get(self.at).is_none_or(|&byte| byte == 0) {
            self.skip_padding();
        }
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let start = self.at;
        let raw = RawEntry::parse(self.bytes, start)?;
        self.at = raw.end;
        Ok(Some(raw))
    }
}

impl<'a> Iterator for Archive<'a> {
    type Item = Result<Entry<'a>, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_raw() {
                Ok(None) => return None,
                Ok(Some(raw)) => {
                    if let Some(entry) = raw.entry() {
                        return Some(Ok(entry));
                    }
                }
                Err(error) => {
                    self.at = self.bytes.len();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The fields of a header that mean something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    mode: u32,
    /// Modification time in seconds since 1970.
    pub modified_s: u32,
    /// Bytes of the content.
    pub len: usize,
    /// Bytes of the name, which follows the header, with its NUL.
    pub name_len: usize,
    /// The inode number of a regular file that has other names than this one.
    inode: Option<u32>,
}

impl Header {
    /// Reads a header, for archives that are not in memory as a whole. Header and name, and the
    /// content behind them, are padded to four bytes.
    pub fn parse(header: &[u8; HEADER_LEN]) -> Option<Self> {
        let is_magic = matches!(header.first_chunk::<6>(), Some(MAGIC | MAGIC_CRC));
        is_magic.then(|| Self::fields(header)).flatten()
    }

    #[inline]
    fn fields(header: &[u8; HEADER_LEN]) -> Option<Self> {
        let mode = field(header, 1)?;
        let has_other_names = mode & MODE_KIND == MODE_FILE && !header[FIELD_LINKS].eq(ONE_LINK);
        Some(Self {
            mode,
            modified_s: field(header, 5)?,
            len: field(header, 6)? as usize,
            name_len: field(header, 11)? as usize,
            inode: has_other_names.then(|| field(header, 0)).flatten(),
        })
    }

    /// What the entry is.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        match self.mode & MODE_KIND {
            MODE_FILE => EntryKind::File,
            MODE_DIRECTORY => EntryKind::Directory,
            MODE_LINK => EntryKind::Link,
            _ => EntryKind::Other,
        }
    }
}

/// The path that a name with its NUL means; `None` for the trailer's and for names that no path
/// can mean.
#[inline]
pub fn path(name: &[u8]) -> Option<&str> {
    let name = name.strip_suffix(b"\0")?;
    let name = core::str::from_utf8(name).ok()?;
    if name.is_empty() || name == TRAILER || name.contains('\0') {
        return None;
    }
    normalize(name)
}

struct RawEntry<'a> {
    header: Header,
    name: &'a [u8],
    data: &'a [u8],
    end: usize,
}

impl<'a> RawEntry<'a> {
    fn parse(bytes: &'a [u8], start: usize) -> Result<Self, ArchiveError> {
        let cut = ArchiveError::Truncated(start);
        let rest = &bytes[start..];
        match rest.first_chunk::<6>() {
            Some(magic) if magic == MAGIC || magic == MAGIC_CRC => {}
            _ => return Err(ArchiveError::Magic(start)),
        }
        let raw = rest.first_chunk::<HEADER_LEN>().ok_or(cut)?;
        let header = Header::fields(raw).ok_or(ArchiveError::Digit(start))?;

        let name_end = HEADER_LEN.checked_add(header.name_len).ok_or(cut)?;
        let data_start = name_end.next_multiple_of(4);
        let data_end = data_start.checked_add(header.len).ok_or(cut)?;
        let name = rest.get(HEADER_LEN..name_end).ok_or(cut)?;
        // The last entry's padding may be missing when nothing follows.
        let data = match header.len {
            0 if header.kind() == EntryKind::File => elsewhere(bytes, raw).ok_or(cut)?,
            0 => &[],
            _ => rest.get(data_start..data_end).ok_or(cut)?,
        };
        Ok(Self {
            header,
            name,
            data,
            end: (start + data_end.next_multiple_of(4)).min(bytes.len()),
        })
    }

    /// `None` for trailers and for names that no path can mean.
    fn entry(&self) -> Option<Entry<'a>> {
        let path = path(self.name)?;
        let kind = self.header.kind();
        Some(Entry {
            path,
            data: match kind {
                EntryKind::File | EntryKind::Link => self.data,
                EntryKind::Directory | EntryKind::Other => &[],
            },
            permissions: self.header.mode & 0o7777,
            kind,
            modified_s: self.header.modified_s,
            inode: self.header.inode,
        })
    }
}

/// The content of a regular file that has none behind its name: as `tare run` packs the root of a
/// program, the device's numbers are the page of the archive at which it begins, and its bytes.
fn elsewhere<'a>(bytes: &'a [u8], header: &[u8; HEADER_LEN]) -> Option<&'a [u8]> {
    if header[FIELDS_RDEV].eq(NO_NUMBERS) {
        return Some(&[]);
    }
    let start = (field(header, 9)? as usize).checked_mul(PAGE)?;
    let end = start.checked_add(field(header, 10)? as usize)?;
    bytes.get(start..end)
}

/// Field number `index` of a header.
fn field(header: &[u8; HEADER_LEN], index: usize) -> Option<u32> {
    let at = MAGIC.len() + index * 8;
    let digits = header.get(at..at + 8)?.first_chunk::<8>()?;
    hex(u64::from_be_bytes(*digits))
}

/// Eight hexadecimal digits at once, first digit in the most significant byte.
fn hex(digits: u64) -> Option<u32> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let lower = digits | 0x2020_2020_2020_2020;
    // Bit 6 tells letters from digits; both then have their range checked.
    let letter = (lower >> 6) & ONES;
    let nibbles = (lower & (ONES * 0x0f)) + letter * 9;
    let beyond_nine = ((nibbles + ONES * 6) >> 4) & ONES;
    let range_ok = nibbles & (ONES * 0xf0) == 0 && beyond_nine == letter;
    // Put the digits back together from the nibbles: only digits survive that.
    let is_letter = letter * 0xff;
    let back =
        ((nibbles + ONES * 0x30) & !is_letter) | (nibbles.wrapping_add(ONES * 0x57) & is_letter);
    let spelled = digits | (is_letter & (ONES * 0x20));
    if !(range_ok && back == spelled) {
        return None;
    }
    let pairs = (nibbles | (nibbles >> 4)) & 0x00ff_00ff_00ff_00ff;
    let quads = (pairs | (pairs >> 8)) & 0x0000_ffff_0000_ffff;
    Some((quads | (quads >> 16)) as u32)
}

/// A path as entries have it: no leading `/` or `./`, no trailing `/`, empty
/// for the root; `None` when a component is `..`.
pub(crate) fn normalize(path: &str) -> Option<&str> {
    let mut path = path.trim_end_matches('/');
    loop {
        path = match path.strip_prefix('/').or_else(|| path.strip_prefix("./")) {
            Some(rest) => rest,
            None => break,
        };
    }
    if path == "." {
        path = "";
    }
    let bytes = path.as_bytes();
    if bytes.windows(2).any(|pair| pair == b"..") && path.split('/').any(|part| part == "..") {
        return None;
    }
    Some(path)
}

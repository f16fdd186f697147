//! Records of the kernel side (`bpf/syscalls.bpf.c`), parsed.

/// Words of the bitmap of calls.
pub(super) const MADE_WORDS: usize = 8;

/// The number that calls of 32-bit programs are counted under.
pub(super) const FOREIGN: u32 = 511;

/// The number that numbers of no system call are counted under.
pub(super) const UNKNOWN: u32 = 510;

/// What is reported when it happens, because it is rare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A task ended, or went on under another name.
    Task(TaskRecord),
    /// A program was started by `execve`.
    Program(PathRecord),
    /// A file was opened for the first time.
    Open(PathRecord),
    /// A name below `/proc`, `/sys` or `/dev` was looked at for the first time.
    Path(PathRecord),
    /// Something was mounted.
    Mount(PathRecord),
    /// A path was found, and something was asked of it for the first time.
    Lookup(PathRecord),
}

/// A task under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskRecord {
    /// Whether it ended, or only its name did.
    pub(super) ended: bool,
    /// Thread.
    pub(super) tid: u32,
    /// Process.
    pub(super) tgid: u32,
    /// Calls so far, under any name.
    pub(super) calls: u64,
    /// Which calls it made under this name.
    pub(super) made: [u64; MADE_WORDS],
    /// The program's number.
    pub(super) program: u32,
    /// Its name.
    pub(super) comm: String,
}

/// Something with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathRecord {
    /// Thread.
    pub(super) tid: u32,
    /// Process.
    pub(super) tgid: u32,
    /// The program's number, or the descriptor that the path is relative to.
    pub(super) what: u32,
    /// Key of the count: device (or all ones) and number of the inode (or hash); of a
    /// look-up the directory's that a relative path begins in.
    pub(super) key: [u64; 2],
    /// `i_mode`; of a look-up what was asked (`enum asked`).
    pub(super) mode: u64,
    /// Type of the file system.
    pub(super) file_system: String,
    /// The path as the application wrote it.
    pub(super) path: String,
}

/// One call, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogRecord {
    /// Begin, ns of the monotonic clock.
    pub(super) enter_ns: u64,
    /// Length, ns.
    pub(super) ns: u64,
    /// Thread.
    pub(super) tid: u32,
    /// The call.
    pub(super) number: u32,
    /// What it returned.
    pub(super) result: i64,
    /// Its arguments.
    pub(super) arguments: [u64; 6],
    /// The thread's name.
    pub(super) comm: String,
}

impl Record {
    /// Parses a record; nothing for one of another form.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        Some(match reader.u32()? {
            1 => Self::Task(TaskRecord::parse(&mut reader)?),
            2 => Self::Program(PathRecord::parse(&mut reader)?),
            3 => Self::Open(PathRecord::parse(&mut reader)?),
            4 => Self::Path(PathRecord::parse(&mut reader)?),
            5 => Self::Mount(PathRecord::parse(&mut reader)?),
            6 => Self::Lookup(PathRecord::parse(&mut reader)?),
            _ => return None,
        })
    }
}

impl TaskRecord {
    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let ended = reader.u32()? == 1;
        let (tid, tgid) = (reader.u32()?, reader.u32()?);
        let calls = reader.u64()?;
        let made = reader.words()?;
        let program = reader.u32()?;
        reader.u32()?;
        Some(Self {
            ended,
            tid,
            tgid,
            calls,
            made,
            program,
            comm: reader.text(16)?,
        })
    }
}

impl PathRecord {
    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let (tid, tgid, what) = (reader.u32()?, reader.u32()?, reader.u32()?);
        Some(Self {
            tid,
            tgid,
            what,
            key: reader.words()?,
            mode: reader.u64()?,
            file_system: reader.text(16)?,
            path: reader.text(512)?,
        })
    }
}

impl LogRecord {
    /// Parses a record; nothing for one of another form.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        Some(Self {
            enter_ns: reader.u64()?,
            ns: reader.u64()?,
            tid: reader.u32()?,
            number: reader.u32()?,
            result: reader.u64()?.cast_signed(),
            arguments: reader.words()?,
            comm: reader.text(16)?,
        })
    }
}

/// Takes fields off the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn words<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.u64()?;
        }
        Some(words)
    }

    /// A field of `N` bytes, up to its NUL. Invalid UTF-8 is replaced.
    fn text(&mut self, bytes: usize) -> Option<String> {
        let (field, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        let end = field.iter().position(|byte| *byte == 0);
        Some(String::from_utf8_lossy(&field[..end.unwrap_or(bytes)]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_s_record_has_its_fields_in_order() {
        let mut bytes = Vec::new();
        for word in [1_u32, 1, 7, 6] {
            bytes.extend(word.to_le_bytes());
        }
        for word in [99_u64, 1, 2, 3, 4, 5, 6, 7, 8] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([3, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"sh\0garbage\0\0\0\0\0\0");
        let Some(Record::Task(task)) = Record::parse(&bytes) else {
            panic!("{bytes:?}");
        };
        assert!(task.ended);
        assert_eq!((task.tid, task.tgid, task.calls), (7, 6, 99));
        assert_eq!((task.program, task.comm.as_str()), (3, "sh"));
        assert_eq!(task.made, [1, 2, 3, 4, 5, 6, 7, 8]);
        for end in 0..bytes.len() {
            assert_eq!(Record::parse(&bytes[..end]), None, "{end}");
        }
    }

    #[test]
    fn records_of_no_known_kind_are_nothing() {
        assert_eq!(Record::parse(&[9; 700]), None);
        assert_eq!(LogRecord::parse(&[0; 95]), None);
        assert!(LogRecord::parse(&[0; 96]).is_some());
    }
}

//! The meta commands `mg`, `ms`, `md`, `ma`, `mn` and `me` (memcached 1.6,
//! `doc/protocol.txt`, and `proto_text.c` of 1.6.18 for the words of refusals).
//!
//! A flag is a letter with or without a token behind it; each may be given once. A key
//! with `b` is in base64, and is shown so (memcached shows it so whenever it was stored so).
//! Not here: `l` (time since the last access, which is not kept).

use super::base64;
use super::command::{BAD_FORMAT, Command, ERROR, Parsed, Verb};
use super::words::Words;
use crate::limits::{MAX_KEY, MAX_VALUE};
use crate::number::{signed_32, unsigned_32, unsigned_64};

/// A meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Which one.
    pub kind: MetaCommand,
    /// Its key.
    pub key: Key<'a>,
    /// Its flags in order, as given.
    pub flags: Words<'a>,
    /// The same, understood.
    pub options: Options,
    /// The value of `ms`.
    pub value: &'a [u8],
}

/// A key of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// As it is.
    Plain(&'a [u8]),
    /// In base64, with the flag `b`; at most [`MAX_KEY`] bytes.
    Encoded(&'a [u8]),
}

impl<'a> Key<'a> {
    fn new(key: &'a [u8], options: &Options) -> Self {
        if options.encoded {
            Self::Encoded(key)
        } else {
            Self::Plain(key)
        }
    }

    /// The key's bytes, in `room` if they are not there as they are.
    pub fn bytes(self, room: &'a mut [u8; MAX_KEY]) -> &'a [u8] {
        match self {
            Self::Plain(key) => key,
            // What was parsed can be decoded.
            Self::Encoded(key) => base64::decode(key, room).unwrap_or_default(),
        }
    }
}

/// Which meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaCommand {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Arithmetic,
    /// `me`
    Debug,
}

/// Flags that do more than ask for something to be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `v`: the value.
    pub value: bool,
    /// `b`: the key is in base64.
    pub encoded: bool,
    /// `q`: no answer in the usual case.
    pub quiet: bool,
    /// `u`: the item counts as requested neither by age nor by `h`.
    pub unnoticed: bool,
    /// `I`: invalidate, or store something older as stale.
    pub invalidate: bool,
    /// `C`: only the version with this unique number.
    pub cas: Option<u64>,
    /// `F`: the client's flags.
    pub client_flags: u32,
    /// `T`: the expiry.
    pub expiry: Option<i32>,
    /// `N`: make an item with this expiry if there is none.
    pub vivify: Option<i32>,
    /// `R`: let the first who asks win when less than this is left.
    pub recache_s: Option<i32>,
    /// `J`: the first value of a number.
    pub initial: u64,
    /// `D`: what is added or taken; 1 if it is not given.
    pub delta: Option<u64>,
    /// `M`: the mode, a letter.
    pub mode: Option<u8>,
}

const INVALID_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
const DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
const BAD_ENCODING: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
const INVALID_OR_DUPLICATE: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";
const LONG_OPAQUE: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
const MODE_LENGTH: &[u8] = b"CLIENT_ERROR incorrect length for M token\r\n";
const SET_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
const ARITHMETIC_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";
const MOST_OPAQUE: usize = 32;

impl MetaCommand {
    /// The flags that it takes.
    fn known(self) -> &'static [u8] {
        match self {
            Self::Get => b"bcfhkOqstuvNRT",
            Self::Set => b"bCcFIkMNOqsTtv",
            Self::Delete => b"bCIkOqT",
            Self::Arithmetic => b"bCcDfJkMNOqsTtv",
            Self::Debug => b"b",
        }
    }

    /// `md` and `ma` have one text for whatever is wrong with a flag.
    fn refusal(self, text: &'static [u8]) -> &'static [u8] {
        match self {
            Self::Delete | Self::Arithmetic => INVALID_OR_DUPLICATE,
            Self::Debug => BAD_FORMAT,
            _ => text,
        }
    }
}

/// A meta command without data.
pub(super) fn parse(kind: MetaCommand, mut words: Words<'_>) -> Command<'_> {
    let Some(key) = words.next() else {
        return match kind {
            MetaCommand::Debug => Command::Answer(BAD_FORMAT),
            _ => ERROR,
        };
    };
    if key.len() > MAX_KEY {
        return Command::Answer(BAD_FORMAT);
    }
    match understand(kind, key, words) {
        Err(text) => Command::Answer(text),
        Ok(options) => Command::Meta(Meta {
            kind,
            key: Key::new(key, &options),
            flags: words,
            options,
            value: b"",
        }),
    }
}

/// `ms`, whose data begins at `data`. The data of a refused one passes if its length
/// is known. As in memcached the flags come first: without them it is not known which
/// key is meant.
pub(super) fn parse_set<'a>(mut words: Words<'a>, bytes: &'a [u8], data: usize) -> Parsed<'a> {
    let Some(key) = words.next() else {
        return Parsed::Command(ERROR, data);
    };
    let length = words
        .next()
        .and_then(signed_32)
        .and_then(|length| usize::try_from(length).ok());
    let (Some(length), true) = (length, key.len() <= MAX_KEY) else {
        return Parsed::Command(Command::Answer(BAD_FORMAT), data);
    };
    let (verb, rest) = (Verb::Set, length.saturating_add(2));
    let options = match understand(MetaCommand::Set, key, words) {
        Err(text) => return Parsed::Command(Command::Refused { text, data: rest }, data),
        Ok(options) => options,
    };
    let key = Key::new(key, &options);
    if length > MAX_VALUE {
        let command = Command::TooLarge {
            verb,
            key,
            data: rest,
            reply: super::Reply::Wanted,
        };
        return Parsed::Command(command, data);
    }
    let total = data + rest;
    let Some(chunk) = bytes.get(data..total) else {
        return Parsed::Data { total, verb, key };
    };
    let command = match chunk.split_at(length) {
        (value, b"\r\n") => Command::Meta(Meta {
            kind: MetaCommand::Set,
            key,
            flags: words,
            options,
            value,
        }),
        _ => Command::Answer(super::BAD_CHUNK),
    };
    Parsed::Command(command, total)
}

fn understand(kind: MetaCommand, key: &[u8], flags: Words<'_>) -> Result<Options, &'static [u8]> {
    let mut options = Options::default();
    let mut seen = 0u128;
    for flag in flags {
        let (letter, token) = (flag[0], &flag[1..]);
        if kind == MetaCommand::Debug && letter != b'b' {
            continue;
        }
        if !kind.known().contains(&letter) {
            return Err(kind.refusal(INVALID_FLAG));
        }
        let bit = 1u128 << letter;
        if seen & bit != 0 {
            return Err(kind.refusal(DUPLICATE_FLAG));
        }
        seen |= bit;
        options.take(kind, letter, token)?;
    }
    if options.encoded && base64::decode(key, &mut [0; MAX_KEY]).is_none() {
        return Err(kind.refusal(BAD_ENCODING));
    }
    Ok(options)
}

impl Options {
    fn take(&mut self, kind: MetaCommand, letter: u8, token: &[u8]) -> Result<(), &'static [u8]> {
        let bad = kind.refusal(BAD_TOKEN);
        let seconds = || signed_32(token).ok_or(bad).map(Some);
        match letter {
            b'v' => self.value = true,
            b'b' => self.encoded = true,
            b'q' => self.quiet = true,
            b'u' => self.unnoticed = true,
            b'I' => self.invalidate = true,
            b'C' => self.cas = Some(unsigned_64(token).ok_or(bad)?),
            b'F' => self.client_flags = unsigned_32(token).ok_or(BAD_FORMAT)?,
            b'T' => self.expiry = seconds()?,
            b'N' => self.vivify = seconds()?,
            b'R' => self.recache_s = seconds()?,
            b'J' => self.initial = unsigned_64(token).ok_or(bad)?,
            b'D' => self.delta = Some(unsigned_64(token).ok_or(bad)?),
            b'O' if token.len() > MOST_OPAQUE => return Err(LONG_OPAQUE),
            b'M' => self.mode = Some(mode(kind, token)?),
            _ => {}
        }
        Ok(())
    }
}

fn mode(kind: MetaCommand, token: &[u8]) -> Result<u8, &'static [u8]> {
    let [letter] = token else {
        return Err(kind.refusal(MODE_LENGTH));
    };
    match (kind, letter) {
        (MetaCommand::Set, b'E' | b'A' | b'P' | b'R' | b'S') => Ok(*letter),
        (MetaCommand::Set, _) => Err(SET_MODE),
        (_, b'I' | b'+' | b'i' | b'D' | b'-' | b'd') => Ok(*letter),
        _ => Err(ARITHMETIC_MODE),
    }
}

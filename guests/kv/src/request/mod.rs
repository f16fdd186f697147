//! A command from the start of a connection's bytes.
//!
//! Parsing needs no state: a command is parsed when its line is there and, for
//! the storage commands, its data. Every answer to a malformed command is
//! decided here, in memcached's words (`proto_text.c` of 1.6).

mod base64;
mod command;
mod meta;
mod reply;
mod words;

use memchr::{memchr, memchr2};

use crate::limits::{MAX_GET_LINE, MAX_KEY, MAX_LINE, MAX_VALUE};
use crate::number::{signed_32, unsigned_32, unsigned_64};
use command::{BAD_CHUNK, BAD_DELTA, BAD_EXPTIME, BAD_FORMAT, ERROR};
pub use command::{Command, Direction, Entry, Form, Get, Parsed, Verb};
pub use meta::{Key, Meta, MetaCommand, Options};
pub use reply::Reply;
use words::Arguments;
pub use words::Words;

const BAD_DELETE: &[u8] =
    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
/// First byte of the binary protocol's requests.
const BINARY: u8 = 0x80;

/// Parses the command that `bytes` begin with.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some((line, data)) = split_line(bytes) else {
        return unfinished(bytes);
    };
    let mut words = Words::new(line);
    let command = match words.next().unwrap_or_default() {
        b"get" | b"bget" => get(words, Form::Plain, line),
        b"gets" => get(words, Form::WithCas, line),
        b"set" => return store(words, Verb::Set, bytes, data),
        b"add" => return store(words, Verb::Add, bytes, data),
        b"replace" => return store(words, Verb::Replace, bytes, data),
        b"append" => return store(words, Verb::Append, bytes, data),
        b"prepend" => return store(words, Verb::Prepend, bytes, data),
        b"cas" => return store(words, Verb::Cas(0), bytes, data),
        b"incr" => arithmetic(words, Direction::Up),
        b"decr" => arithmetic(words, Direction::Down),
        b"gat" => get_and_touch(words, Form::Plain, line),
        b"gats" => get_and_touch(words, Form::WithCas, line),
        b"mg" => meta::parse(MetaCommand::Get, words),
        b"ms" => return meta::parse_set(words, bytes, data),
        b"md" => meta::parse(MetaCommand::Delete, words),
        b"ma" => meta::parse(MetaCommand::Arithmetic, words),
        b"me" => meta::parse(MetaCommand::Debug, words),
        b"mn" => Command::Answer(b"MN\r\n"),
        b"delete" => delete(words),
        b"touch" => touch(words),
        b"flush_all" => flush_all(words),
        b"stats" => Command::Stats(words.next().unwrap_or_default()),
        b"version" => Command::Version,
        b"verbosity" => verbosity(words),
        b"quit" => Command::Close,
        name => match unknown(name, words) {
            Command::Metrics => return metrics(bytes),
            command => command,
        },
    };
    Parsed::Command(command, data)
}

/// The line without its end or what follows a NUL, and where the data begins.
/// A line of nothing but CR keeps it, as in memcached.
fn split_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let mut end = memchr2(b'\n', 0, bytes)?;
    let mut visible = end;
    if bytes[end] == 0 {
        end += memchr(b'\n', &bytes[end..])?;
    } else if end > 1 && bytes[end - 1] == b'\r' {
        visible -= 1;
    }
    Some((&bytes[..visible], end + 1))
}

fn unfinished(bytes: &[u8]) -> Parsed<'_> {
    if bytes.first() == Some(&BINARY) {
        return Parsed::Hopeless;
    }
    if bytes.len() <= MAX_LINE {
        return Parsed::Line;
    }
    let blanks = bytes.iter().take_while(|byte| **byte == b' ').count();
    let text = &bytes[blanks..];
    let is_get = text.starts_with(b"get ") || text.starts_with(b"gets ");
    if blanks <= 100 && is_get && bytes.len() <= MAX_GET_LINE {
        Parsed::Line
    } else {
        Parsed::Hopeless
    }
}

fn get<'a>(keys: Words<'a>, form: Form, line: &[u8]) -> Command<'a> {
    match keys.clone().next() {
        None => ERROR,
        Some(_) => get_keys(keys, form, None, line),
    }
}

fn get_and_touch<'a>(mut words: Words<'a>, form: Form, line: &[u8]) -> Command<'a> {
    let Some(exptime) = words.next() else {
        return ERROR;
    };
    match signed_32(exptime) {
        None => Command::Answer(BAD_EXPTIME),
        touch => get_keys(words, form, touch, line),
    }
}

/// A line that is at most as long as a key has no key that is too long.
fn get_keys<'a>(keys: Words<'a>, form: Form, touch: Option<i32>, line: &[u8]) -> Command<'a> {
    if line.len() > MAX_KEY && keys.clone().any(|key| key.len() > MAX_KEY) {
        return Command::Answer(BAD_FORMAT);
    }
    Command::Get(Get { keys, form, touch })
}

fn store<'a>(words: Words<'a>, verb: Verb, bytes: &'a [u8], data: usize) -> Parsed<'a> {
    let arguments = Arguments::new(words);
    let fixed = match verb {
        Verb::Cas(_) => 5,
        _ => 4,
    };
    if !(fixed..=fixed + 1).contains(&arguments.count()) {
        return Parsed::Command(ERROR, data);
    }
    let reply = arguments.reply();
    match head(&arguments, verb) {
        None => Parsed::Command(answer(BAD_FORMAT, reply), data),
        Some((entry, length)) => with_data(entry, length, reply, bytes, data),
    }
}

/// The line of a storage command and the length that it announces.
fn head<'a>(arguments: &Arguments<'a>, verb: Verb) -> Option<(Entry<'a>, usize)> {
    let key = arguments.key()?;
    let flags = unsigned_32(arguments.get(1))?;
    let exptime = signed_32(arguments.get(2))?;
    let length = signed_32(arguments.get(3))?;
    let verb = match verb {
        Verb::Cas(_) => Verb::Cas(unsigned_64(arguments.get(4))?),
        verb => verb,
    };
    let length = usize::try_from(length).ok()?;
    let entry = Entry {
        verb,
        key,
        flags,
        exptime,
        value: b"",
    };
    (length <= i32::MAX as usize - 2).then_some((entry, length))
}

fn with_data<'a>(
    entry: Entry<'a>,
    length: usize,
    reply: Reply,
    bytes: &'a [u8],
    data: usize,
) -> Parsed<'a> {
    let (verb, key) = (entry.verb, Key::Plain(entry.key));
    if length > MAX_VALUE {
        let command = Command::TooLarge {
            verb,
            key,
            data: length + 2,
            reply,
        };
        return Parsed::Command(command, data);
    }
    let total = data + length + 2;
    let Some(chunk) = bytes.get(data..total) else {
        return Parsed::Data { total, verb, key };
    };
    let command = match chunk.split_at(length) {
        (value, b"\r\n") => Command::Store(Entry { value, ..entry }, reply),
        _ => answer(BAD_CHUNK, reply),
    };
    Parsed::Command(command, total)
}

fn arithmetic(words: Words<'_>, direction: Direction) -> Command<'_> {
    let arguments = Arguments::new(words);
    if !(2..=3).contains(&arguments.count()) {
        return ERROR;
    }
    let reply = arguments.reply();
    let Some(key) = arguments.key() else {
        return answer(BAD_FORMAT, reply);
    };
    match unsigned_64(arguments.get(1)) {
        None => answer(BAD_DELTA, reply),
        Some(delta) => Command::Arithmetic {
            key,
            direction,
            delta,
            reply,
        },
    }
}

/// A second word may be 0, which once was a delay.
fn delete(words: Words<'_>) -> Command<'_> {
    let arguments = Arguments::new(words);
    let reply = arguments.reply();
    let valid = match (arguments.count(), reply) {
        (1, _) => true,
        (2, reply) => arguments.get(1) == b"0" || reply == Reply::Unwanted,
        (3, Reply::Unwanted) => arguments.get(1) == b"0",
        (3, Reply::Wanted) => false,
        _ => return ERROR,
    };
    if !valid {
        return answer(BAD_DELETE, reply);
    }
    // A lone word is the key, whatever it says.
    let reply = match arguments.count() {
        1 => Reply::Wanted,
        _ => reply,
    };
    match arguments.key() {
        Some(key) => Command::Delete(key, reply),
        None => answer(BAD_FORMAT, reply),
    }
}

fn touch(words: Words<'_>) -> Command<'_> {
    let arguments = Arguments::new(words);
    if !(2..=3).contains(&arguments.count()) {
        return ERROR;
    }
    let reply = arguments.reply();
    match (arguments.key(), signed_32(arguments.get(1))) {
        (None, _) => answer(BAD_FORMAT, reply),
        (_, None) => answer(BAD_EXPTIME, reply),
        (Some(key), Some(exptime)) => Command::Touch(key, exptime, reply),
    }
}

fn flush_all(words: Words<'_>) -> Command<'_> {
    let arguments = Arguments::new(words);
    let reply = arguments.reply();
    match (arguments.count(), reply) {
        (0, _) | (1, Reply::Unwanted) => Command::FlushAll(0, reply),
        (1 | 2, _) => match signed_32(arguments.get(0)) {
            Some(delay) => Command::FlushAll(delay, reply),
            None => answer(BAD_EXPTIME, reply),
        },
        _ => ERROR,
    }
}

/// Taken as it should be, without effect: there is nothing to say more about.
fn verbosity(words: Words<'_>) -> Command<'_> {
    let arguments = Arguments::new(words);
    if !(1..=2).contains(&arguments.count()) {
        return ERROR;
    }
    let text: &[u8] = match unsigned_32(arguments.get(0)) {
        Some(_) => b"OK\r\n",
        None => BAD_FORMAT,
    };
    answer(text, arguments.reply())
}

/// The request's fields say nothing that matters, but a connection that is closed with bytes
/// unread is reset, and the answer lost.
#[cold]
fn metrics(bytes: &[u8]) -> Parsed<'_> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut len = 0;
    let end = lines.find(|line| {
        len += line.len();
        matches!(**line, [b'\n'] | [b'\r', b'\n'])
    });
    match end {
        Some(_) => Parsed::Command(Command::Metrics, len),
        None if bytes.len() <= MAX_LINE => Parsed::Fields,
        None => Parsed::Hopeless,
    }
}

/// Browsers made to speak to a cache are cut off.
fn unknown<'a>(name: &'a [u8], words: Words<'a>) -> Command<'a> {
    let families = matches!(
        name.first(),
        Some(b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't')
    );
    let is_binary = name.first() == Some(&BINARY);
    let mut rest = words;
    let target = rest.next();
    let is_http = words.last().unwrap_or(name).starts_with(b"HTTP/");
    if is_http && name == b"GET" && target == Some(b"/metrics") {
        Command::Metrics
    } else if is_binary || (!families && is_http) {
        Command::Close
    } else {
        ERROR
    }
}

fn answer(text: &'static [u8], reply: Reply) -> Command<'static> {
    match reply {
        Reply::Wanted => Command::Answer(text),
        Reply::Unwanted => Command::Answer(b""),
    }
}

#[cfg(test)]
mod tests;

//! Meta commands on the store.
//!
//! An item may be stale: invalidated, and still shown to those who ask, of whom the
//! first is to make it anew (it wins) and the others learn that another client does.

use alloc::vec::Vec;

use super::item::{FETCHED, Item, NIL, STALE, WON};
use super::{Clock, Computed, OutputFull, Store, Stored};
use crate::limits::MAX_KEY;
use crate::number::{Digits, push};
use crate::request::{Direction, Entry, Key, Meta, MetaCommand, Verb};

const NOT_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";
const NO_MEMORY_TO_STORE: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";

impl<C: Clock> Store<C> {
    /// Carries out a meta command and appends the answer.
    pub fn meta(&mut self, meta: &Meta<'_>, out: &mut Vec<u8>) -> Result<(), OutputFull> {
        let mut room = [0; MAX_KEY];
        let key = meta.key.bytes(&mut room);
        match meta.kind {
            MetaCommand::Get => return self.meta_get(meta, key, out),
            MetaCommand::Set => self.meta_set(meta, key, out),
            MetaCommand::Delete => self.meta_delete(meta, key, out),
            MetaCommand::Arithmetic => self.meta_arithmetic(meta, key, out),
            MetaCommand::Debug => self.meta_debug(meta.key, key, out),
        }
        Ok(())
    }

    fn meta_get(
        &mut self,
        meta: &Meta<'_>,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), OutputFull> {
        self.counts.cmd_get += 1;
        let (mut at, _) = self.find(key);
        let options = &meta.options;
        self.count_touch(options.expiry, at);
        let mut marks: &[u8] = b"";
        if at == NIL {
            self.counts.get_misses += 1;
            let Some(exptime) = options.vivify else {
                if !options.quiet {
                    self.refuse_meta(b"EN", meta, out);
                }
                return Ok(());
            };
            at = match self.vivify(key, b"", exptime) {
                Ok(at) => at,
                Err(text) => {
                    out.extend_from_slice(text);
                    return Ok(());
                }
            };
            self.slots[at].state |= WON;
            marks = b" W";
        } else {
            self.counts.get_hits += 1;
        }
        let was_fetched = self.slots[at].state & FETCHED != 0;
        if let Some(exptime) = options.expiry {
            self.slots[at].expires_s = self.expiry(exptime);
        }
        if marks.is_empty() {
            marks = self.marks(at, options.recache_s);
        }
        if !options.unnoticed {
            self.slots.touch(at);
            self.slots[at].state |= FETCHED;
        }
        let item = &self.slots[at];
        let value: &[u8] = if options.value { item.value() } else { b"" };
        super::reserve(out, value.len() + 512)?;
        begin(options.value.then_some(value.len()), out);
        self.show_flags(meta, at, was_fetched, out);
        out.extend_from_slice(marks);
        end(options.value.then_some(value), out);
        Ok(())
    }

    /// Who is to make the item anew: no client, the one that asks now, or another.
    fn marks(&mut self, at: u32, recache_s: Option<i32>) -> &'static [u8] {
        let left = self.left_s(at);
        let item = &mut self.slots[at];
        let (won, stale) = (item.state & WON != 0, item.state & STALE != 0);
        let soon = recache_s.is_some_and(|limit| left.is_some_and(|left| left < i64::from(limit)));
        if !won && (stale || soon) {
            item.state |= WON;
        }
        match (won, stale) {
            (true, true) => b" Z X",
            (true, false) => b" Z",
            (false, true) => b" X W",
            (false, false) if soon => b" W",
            (false, false) => b"",
        }
    }

    /// A new item; the error is what to answer.
    fn vivify(&mut self, key: &[u8], value: &[u8], exptime: i32) -> Result<u32, &'static [u8]> {
        let stored = self.store(&Entry {
            verb: Verb::Set,
            key,
            flags: 0,
            exptime,
            value,
        });
        match (stored, self.find(key).0) {
            (Stored::Stored, at) if at != NIL => Ok(at),
            (Stored::Stored, _) => Err(b"EN\r\n"),
            _ => Err(NO_MEMORY_TO_STORE),
        }
    }

    fn meta_set(&mut self, meta: &Meta<'_>, key: &[u8], out: &mut Vec<u8>) {
        let options = &meta.options;
        let (at, _) = self.find(key);
        let known = (at != NIL).then(|| &self.slots[at]);
        let (known_cas, was_won, expires_s) = known.map_or((None, false, 0), |item| {
            (Some(item.cas), item.state & WON != 0, item.expires_s)
        });
        // Something older than what there is, stored as stale on purpose.
        let older = options.invalidate && options.cas.is_some_and(|cas| Some(cas) < known_cas);
        let verb = match (options.mode, options.cas) {
            (Some(b'E'), _) => Verb::Add,
            (Some(b'A'), _) => Verb::Append,
            (Some(b'P'), _) => Verb::Prepend,
            (_, Some(cas)) if !older => Verb::Cas(cas),
            (Some(b'R'), _) => Verb::Replace,
            _ => Verb::Set,
        };
        let extends = matches!(verb, Verb::Append | Verb::Prepend);
        let differs = known_cas.is_some() && options.cas.is_some_and(|cas| Some(cas) != known_cas);
        let stored = if extends && differs {
            Stored::Exists
        } else {
            self.store(&Entry {
                verb,
                key,
                flags: options.client_flags,
                exptime: options.expiry.unwrap_or(0),
                value: meta.value,
            })
        };
        let (at, _) = self.find(key);
        if stored == Stored::Stored && older && at != NIL {
            self.slots[at].state = STALE | if was_won { WON } else { 0 };
            self.slots[at].expires_s = expires_s;
        }
        let text: &[u8] = match stored {
            Stored::Stored if options.quiet => return,
            Stored::Stored => b"HD",
            Stored::NotStored => b"NS",
            Stored::Exists => b"EX",
            Stored::NotFound => b"NF",
            Stored::NoMemory => return out.extend_from_slice(NO_MEMORY_TO_STORE),
        };
        out.extend_from_slice(text);
        for flag in meta.flags {
            match flag[0] {
                b'k' | b'O' => self.show_flag(meta.key, at, flag, false, out),
                b'c' if stored == Stored::Stored => {
                    self.show_flag(meta.key, at, flag, false, out);
                }
                b'c' => out.extend_from_slice(b" c0"),
                _ => {}
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn meta_delete(&mut self, meta: &Meta<'_>, key: &[u8], out: &mut Vec<u8>) {
        let options = &meta.options;
        let (at, _) = self.find(key);
        if at == NIL {
            self.counts.delete_misses += 1;
            out.extend_from_slice(b"NF");
        } else if options.cas.is_some_and(|cas| cas != self.slots[at].cas) {
            out.extend_from_slice(b"EX");
        } else {
            if options.invalidate {
                self.invalidate(at, options.expiry);
            } else {
                self.delete(key);
            }
            if options.quiet {
                return;
            }
            out.extend_from_slice(b"HD");
        }
        self.end_without_item(meta, out);
    }

    /// An answer without an item: clients that pipeline tell it by its key and opaque.
    fn refuse_meta(&self, text: &[u8], meta: &Meta<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(text);
        self.end_without_item(meta, out);
    }

    fn end_without_item(&self, meta: &Meta<'_>, out: &mut Vec<u8>) {
        for flag in meta.flags {
            if matches!(flag[0], b'k' | b'O') {
                self.show_flag(meta.key, NIL, flag, false, out);
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn invalidate(&mut self, at: u32, exptime: Option<i32>) {
        if let Some(exptime) = exptime {
            self.slots[at].expires_s = self.expiry(exptime);
        }
        self.slots[at].cas = self.next_cas();
        let item = &mut self.slots[at];
        item.state = (item.state | STALE) & !WON;
    }

    fn meta_arithmetic(&mut self, meta: &Meta<'_>, key: &[u8], out: &mut Vec<u8>) {
        let options = &meta.options;
        let (at, _) = self.find(key);
        let made = at == NIL;
        let direction = match options.mode {
            Some(b'D' | b'd' | b'-') => Direction::Down,
            _ => Direction::Up,
        };
        if let (true, Some(exptime)) = (made, options.vivify) {
            self.count_computed(direction, NIL);
            let digits = Digits::of(options.initial);
            if let Err(text) = self.vivify(key, digits.as_bytes(), exptime) {
                return out.extend_from_slice(text);
            }
        } else if !made && options.cas.is_some_and(|cas| cas != self.slots[at].cas) {
            return self.refuse_meta(b"EX", meta, out);
        } else {
            match self.compute(key, direction, options.delta.unwrap_or(1)) {
                Computed::NotFound => return self.refuse_meta(b"NF", meta, out),
                Computed::NotNumeric => return out.extend_from_slice(NOT_NUMERIC),
                Computed::NoMemory => return out.extend_from_slice(NO_MEMORY),
                Computed::Value(_) => {}
            }
        }
        let (at, _) = self.find(key);
        if at == NIL || (options.quiet && !made) {
            return;
        }
        if let (Some(exptime), false) = (options.expiry, made) {
            self.slots[at].expires_s = self.expiry(exptime);
        }
        // A number that became shorter is filled up with blanks.
        let value = self.slots[at].value().trim_ascii_end();
        begin(options.value.then_some(value.len()), out);
        for flag in meta.flags {
            if matches!(flag[0], b't' | b'c' | b'k' | b'O') {
                self.show_flag(meta.key, at, flag, false, out);
            }
        }
        end(options.value.then_some(value), out);
    }

    /// What is known about an item. The time of its last access is not. The key is shown as
    /// it was given: decoded it may hold blanks and line ends.
    fn meta_debug(&mut self, given: Key<'_>, key: &[u8], out: &mut Vec<u8>) {
        let (at, _) = self.find(key);
        if at == NIL {
            return out.extend_from_slice(b"EN\r\n");
        }
        out.extend_from_slice(b"ME ");
        let (Key::Plain(shown) | Key::Encoded(shown)) = given;
        out.extend_from_slice(shown);
        out.extend_from_slice(b" exp=");
        self.push_left(at, out);
        let item = &self.slots[at];
        out.extend_from_slice(b" cas=");
        push(out, item.cas);
        out.extend_from_slice(if item.state & FETCHED != 0 {
            b" fetch=yes"
        } else {
            b" fetch=no"
        });
        out.extend_from_slice(b" cls=1 size=");
        push(out, item.cost() as u64);
        out.extend_from_slice(b"\r\n");
    }

    fn show_flags(&self, meta: &Meta<'_>, at: u32, was_fetched: bool, out: &mut Vec<u8>) {
        for flag in meta.flags {
            self.show_flag(meta.key, at, flag, was_fetched, out);
        }
    }

    /// Appends what a flag asks for. Without an item these are the key and the opaque token.
    fn show_flag(&self, key: Key<'_>, at: u32, flag: &[u8], fetched: bool, out: &mut Vec<u8>) {
        let item: Option<&Item> = (at != NIL).then(|| &self.slots[at]);
        match (flag[0], item) {
            (b'O', _) => {
                out.push(b' ');
                out.extend_from_slice(flag);
            }
            (b'k', _) => {
                out.extend_from_slice(b" k");
                match key {
                    Key::Plain(key) => out.extend_from_slice(key),
                    Key::Encoded(key) => {
                        out.extend_from_slice(key);
                        out.extend_from_slice(b" b");
                    }
                }
            }
            (b's', Some(item)) => number(out, b" s", item.value().len() as u64),
            (b'c', Some(item)) => number(out, b" c", item.cas),
            (b'h', Some(_)) => number(out, b" h", u64::from(fetched)),
            (b'f', Some(item)) => {
                out.extend_from_slice(b" f");
                out.extend_from_slice(item.flags());
            }
            (b't', Some(_)) => {
                out.extend_from_slice(b" t");
                self.push_left(at, out);
            }
            _ => {}
        }
    }

    /// Seconds until the item expires, if it does.
    fn left_s(&self, at: u32) -> Option<i64> {
        let expires_s = self.slots[at].expires_s;
        (expires_s != 0).then(|| i64::from(expires_s) - i64::from(self.clock.unix_s()))
    }

    /// -1 for an item that does not expire.
    fn push_left(&self, at: u32, out: &mut Vec<u8>) {
        match self.left_s(at) {
            None => out.extend_from_slice(b"-1"),
            Some(left) => push(out, left.max(0) as u64),
        }
    }
}

fn number(out: &mut Vec<u8>, name: &[u8], value: u64) {
    out.extend_from_slice(name);
    push(out, value);
}

/// With the length of the value that follows, or without one.
fn begin(length: Option<usize>, out: &mut Vec<u8>) {
    match length {
        Some(length) => number(out, b"VA ", length as u64),
        None => out.extend_from_slice(b"HD"),
    }
}

fn end(value: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
    if let Some(value) = value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

//! What a store must do, said as plainly as it can be: a list in order of use.

#![allow(clippy::unwrap_used)]

use tare_guest_kv::request::{Direction, Entry, Form, Verb};
use tare_guest_kv::store::{Computed, OVERHEAD, Stored};

const DAYS_30_S: i32 = 60 * 60 * 24 * 30;

#[derive(Clone, Debug)]
struct Item {
    key: Vec<u8>,
    value: Vec<u8>,
    flags: u32,
    expires_s: u32,
    cas: u64,
    flushed: bool,
}

impl Item {
    fn shown(&self, form: Form) -> Vec<u8> {
        let key = String::from_utf8_lossy(&self.key);
        let cas = match form {
            Form::Plain => String::new(),
            Form::WithCas => format!(" {}", self.cas),
        };
        let head = format!("VALUE {key} {} {}{cas}\r\n", self.flags, self.value.len());
        [head.as_bytes(), &self.value, b"\r\n"].concat()
    }

    fn cost(&self) -> usize {
        self.shown(Form::Plain).len().next_multiple_of(16) + OVERHEAD
    }
}

/// The items, the latest used last, and what happened to those that are gone.
pub(crate) struct Model {
    items: Vec<Item>,
    limit_bytes: usize,
    pub now_s: u32,
    last_cas: u64,
    flush_due_s: u32,
    pub evictions: u64,
    pub reclaimed: u64,
}

impl Model {
    pub(crate) fn new(limit_bytes: usize, now_s: u32) -> Self {
        Self {
            items: Vec::new(),
            limit_bytes,
            now_s,
            last_cas: 0,
            flush_due_s: 0,
            evictions: 0,
            reclaimed: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.items.iter().map(Item::cost).sum()
    }

    pub(crate) fn get(&mut self, key: &[u8], form: Form, touch: Option<i32>) -> Option<Vec<u8>> {
        let mut item = self.take(key)?;
        if let Some(exptime) = touch {
            item.expires_s = self.expiry(exptime);
        }
        let shown = item.shown(form);
        self.items.push(item);
        Some(shown)
    }

    pub(crate) fn touch(&mut self, key: &[u8], exptime: i32) -> bool {
        self.get(key, Form::Plain, Some(exptime)).is_some()
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        self.take(key).is_some()
    }

    pub(crate) fn flush_all(&mut self, delay: i32) {
        self.flush_due_s = self.expiry(delay).max(1);
        if delay == 0 {
            self.flush_due_s = self.now_s;
        }
        self.flush_if_due();
    }

    pub(crate) fn store(&mut self, entry: &Entry<'_>) -> Stored {
        let old = self.find(entry.key);
        match (entry.verb, old) {
            (Verb::Replace | Verb::Append | Verb::Prepend, None) => return Stored::NotStored,
            (Verb::Cas(_), None) => return Stored::NotFound,
            (Verb::Cas(cas), Some(at)) if self.items[at].cas != cas => return Stored::Exists,
            (Verb::Add, Some(at)) => {
                let item = self.items.remove(at);
                self.items.push(item);
                return Stored::NotStored;
            }
            _ => {}
        }
        let old = old.map(|at| self.items.remove(at));
        let stored = self.replace(old, |model, old| model.made(entry, old));
        match (stored, entry.verb) {
            (true, _) => Stored::Stored,
            (false, Verb::Append | Verb::Prepend) => Stored::NotStored,
            (false, Verb::Set) => {
                self.take(entry.key);
                Stored::NoMemory
            }
            (false, _) => Stored::NoMemory,
        }
    }

    fn made(&self, entry: &Entry<'_>, old: Option<&Item>) -> Item {
        let fresh = Item {
            key: entry.key.to_vec(),
            value: entry.value.to_vec(),
            flags: entry.flags,
            expires_s: self.expiry(entry.exptime),
            cas: 0,
            flushed: false,
        };
        let with = |value: Vec<u8>| Item {
            value,
            ..old.unwrap().clone()
        };
        match entry.verb {
            Verb::Append => with([&old.unwrap().value, entry.value].concat()),
            Verb::Prepend => with([entry.value, &old.unwrap().value].concat()),
            _ => fresh,
        }
    }

    /// Puts an item in an old one's place, as the latest used; or the old one, if
    /// the limit does not allow it.
    fn replace(
        &mut self,
        old: Option<Item>,
        make: impl FnOnce(&Self, Option<&Item>) -> Item,
    ) -> bool {
        let mut item = make(self, old.as_ref());
        if item.cost() > self.limit_bytes {
            self.items.extend(old);
            return false;
        }
        while self.used_bytes() + item.cost() > self.limit_bytes {
            let gone = self.items.remove(0);
            if self.is_live(&gone) {
                self.evictions += 1
            } else {
                self.reclaimed += 1
            }
        }
        self.last_cas += 1;
        item.cas = self.last_cas;
        self.items.push(item);
        true
    }

    /// Values here are letters, digits, or a number that became shorter, its blanks and what was
    /// appended: a number ends at a blank, as for memcached's `safe_strtoull`.
    pub(crate) fn compute(&mut self, key: &[u8], direction: Direction, delta: u64) -> Computed {
        let Some(at) = self.find(key) else {
            return Computed::NotFound;
        };
        let text = String::from_utf8_lossy(&self.items[at].value).into_owned();
        let digits = text.split(' ').next().unwrap_or_default();
        let Ok(value) = digits.parse::<u64>() else {
            return Computed::NotNumeric;
        };
        let value = match direction {
            Direction::Up => value.wrapping_add(delta),
            Direction::Down => value.saturating_sub(delta),
        };
        let old = self.items.remove(at);
        let text = format!("{value:<width$}", width = text.len()).into_bytes();
        let made = self.replace(Some(old), |_, old| Item {
            value: text,
            ..old.unwrap().clone()
        });
        if made {
            Computed::Value(value)
        } else {
            Computed::NoMemory
        }
    }

    fn take(&mut self, key: &[u8]) -> Option<Item> {
        let at = self.find(key)?;
        Some(self.items.remove(at))
    }

    /// Where a live item is; a dead one goes.
    fn find(&mut self, key: &[u8]) -> Option<usize> {
        self.flush_if_due();
        let at = self.items.iter().position(|item| item.key == key)?;
        if self.is_live(&self.items[at]) {
            return Some(at);
        }
        self.items.remove(at);
        None
    }

    fn is_live(&self, item: &Item) -> bool {
        !item.flushed && (item.expires_s == 0 || item.expires_s > self.now_s)
    }

    fn flush_if_due(&mut self) {
        if self.flush_due_s != 0 && self.flush_due_s <= self.now_s {
            self.flush_due_s = 0;
            self.items.iter_mut().for_each(|item| item.flushed = true);
        }
    }

    fn expiry(&self, exptime: i32) -> u32 {
        match exptime {
            0 => 0,
            i32::MIN..0 => 1,
            1..=DAYS_30_S => self.now_s + exptime as u32,
            _ => exptime as u32,
        }
    }
}

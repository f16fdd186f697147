//! The cache itself: items by key within a bound on memory, the least recently
//! used going first.
//!
//! It does no I/O and owns no clock but the one that it is given, which it asks
//! only when an item's expiry or a delayed flush makes the time matter.
//! `tests/store.rs` compares it with a model.

mod counts;
mod hash;
mod index;
mod item;
mod meta;
mod slots;

use alloc::vec::Vec;

use tare_libos::heap;

use crate::limits::MAX_RELATIVE_S;
use crate::number::{Digits, push, unsigned_64};
use crate::request::{Direction, Entry, Form, Verb};
pub use counts::Counts;
pub use hash::Seed;
use index::Table;
pub use item::OVERHEAD;
use item::{Item, NIL, NoMemory, Parts};
use slots::Slots;

/// The wall clock.
pub trait Clock {
    /// Seconds since 1970.
    fn unix_s(&self) -> u32;
}

/// What came of a storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Done.
    Stored,
    /// The condition was not met.
    NotStored,
    /// The item has changed since.
    Exists,
    /// There is no such item to compare with.
    NotFound,
    /// It does not fit, or not now.
    NoMemory,
}

/// What came of an arithmetic command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// The new value.
    Value(u64),
    /// The value is not a number.
    NotNumeric,
    /// There is no such item.
    NotFound,
    /// There is no memory for a longer value.
    NoMemory,
}

/// The output could not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for an answer")]
pub struct OutputFull;

/// An expiry that has passed whatever the time is.
const LONG_AGO_S: u32 = 1;

/// All items.
pub struct Store<C> {
    clock: C,
    seed: Seed,
    slots: Slots,
    table: Table,
    limit_bytes: usize,
    used_bytes: usize,
    last_cas: u64,
    /// Items with a number up to this are gone.
    flushed_cas: u64,
    /// When a delayed flush is due; 0 for none.
    flush_due_s: u32,
    counts: Counts,
}

impl<C: Clock> Store<C> {
    /// An empty store whose items take up to `limit_bytes`, as [`OVERHEAD`] and
    /// their own length count.
    pub fn new(clock: C, limit_bytes: usize, seed: Seed) -> Self {
        Self {
            clock,
            seed,
            slots: Slots::new(),
            table: Table::new(),
            limit_bytes,
            used_bytes: 0,
            last_cas: 0,
            flushed_cas: 0,
            flush_due_s: 0,
            counts: Counts::default(),
        }
    }

    /// What has been counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Begins to count anew.
    pub(crate) fn reset_counts(&mut self) {
        self.counts = Counts::default();
    }

    /// How many items there are, expired ones that were not met yet included.
    pub fn len(&self) -> usize {
        self.slots.len() as usize
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the items take, never above the limit.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// What the items may take.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// The clock that it was given.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Appends the item as the protocol shows it, if there is one; with `touch`
    /// it gets that expiry.
    pub fn get(
        &mut self,
        key: &[u8],
        form: Form,
        touch: Option<i32>,
        out: &mut Vec<u8>,
    ) -> Result<bool, OutputFull> {
        self.counts.cmd_get += 1;
        let (at, _) = self.find(key);
        self.count_touch(touch, at);
        if at == NIL {
            self.counts.get_misses += 1;
            return Ok(false);
        }
        self.counts.get_hits += 1;
        if let Some(exptime) = touch {
            self.slots[at].expires_s = self.expiry(exptime);
        }
        self.slots.touch(at);
        self.slots[at].state |= item::FETCHED;
        show(&self.slots[at], form, out)?;
        Ok(true)
    }

    fn count_touch(&mut self, touch: Option<i32>, at: u32) {
        if touch.is_some() {
            self.counts.cmd_touch += 1;
            match at {
                NIL => self.counts.touch_misses += 1,
                _ => self.counts.touch_hits += 1,
            }
        }
    }

    /// Gives an item another expiry; `false` if there is none.
    pub fn touch(&mut self, key: &[u8], exptime: i32) -> bool {
        let (at, _) = self.find(key);
        self.count_touch(Some(exptime), at);
        if at != NIL {
            self.slots[at].expires_s = self.expiry(exptime);
            self.slots.touch(at);
        }
        at != NIL
    }

    /// Carries out a storage command.
    pub fn store(&mut self, entry: &Entry<'_>) -> Stored {
        self.counts.cmd_set += 1;
        let (at, hash) = self.find(entry.key);
        match (entry.verb, at) {
            (Verb::Set, at) => self.write(at, hash, entry),
            (Verb::Add, NIL) => self.write(NIL, hash, entry),
            (Verb::Add, at) => {
                self.slots.touch(at);
                Stored::NotStored
            }
            (Verb::Replace | Verb::Append | Verb::Prepend, NIL) => Stored::NotStored,
            (Verb::Replace, at) => self.write(at, hash, entry),
            (Verb::Append | Verb::Prepend, at) => self.extend(at, entry),
            (Verb::Cas(cas), at) => self.write_unchanged(at, hash, cas, entry),
        }
    }

    fn write_unchanged(&mut self, at: u32, hash: u32, cas: u64, entry: &Entry<'_>) -> Stored {
        if at == NIL {
            self.counts.cas_misses += 1;
            Stored::NotFound
        } else if self.slots[at].cas == cas {
            self.counts.cas_hits += 1;
            self.write(at, hash, entry)
        } else {
            self.counts.cas_badval += 1;
            Stored::Exists
        }
    }

    /// Adds or subtracts. The number keeps its place while its digits fit, and
    /// is then filled up with blanks, as in memcached.
    pub fn compute(&mut self, key: &[u8], direction: Direction, delta: u64) -> Computed {
        let (at, _) = self.find(key);
        self.count_computed(direction, at);
        if at == NIL {
            return Computed::NotFound;
        }
        let Some(value) = unsigned_64(self.slots[at].value()) else {
            return Computed::NotNumeric;
        };
        let value = match direction {
            Direction::Up => value.wrapping_add(delta),
            Direction::Down => value.saturating_sub(delta),
        };
        self.slots.touch(at);
        match self.write_number(at, value) {
            Ok(()) => Computed::Value(value),
            Err(NoMemory) => Computed::NoMemory,
        }
    }

    fn count_computed(&mut self, direction: Direction, at: u32) {
        let count = match (direction, at) {
            (Direction::Up, NIL) => &mut self.counts.incr_misses,
            (Direction::Up, _) => &mut self.counts.incr_hits,
            (Direction::Down, NIL) => &mut self.counts.decr_misses,
            (Direction::Down, _) => &mut self.counts.decr_hits,
        };
        *count += 1;
    }

    fn write_number(&mut self, at: u32, value: u64) -> Result<(), NoMemory> {
        let digits = Digits::of(value);
        let digits = digits.as_bytes();
        let place = self.slots[at].value_mut();
        if let Some(blanks) = place.len().checked_sub(digits.len()) {
            let (number, rest) = place.split_at_mut(place.len() - blanks);
            number.copy_from_slice(digits);
            rest.fill(b' ');
        } else {
            self.rebuild(at, Change::Instead(digits))?;
        }
        self.slots[at].cas = self.next_cas();
        Ok(())
    }

    /// Removes an item; `false` if there is none.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let (at, _) = self.find(key);
        if at == NIL {
            self.counts.delete_misses += 1;
            return false;
        }
        self.counts.delete_hits += 1;
        self.remove(at);
        true
    }

    /// Invalidates every item that there is, now or after `delay`, which is
    /// given as expiries are.
    pub fn flush_all(&mut self, delay: i32) {
        self.counts.cmd_flush += 1;
        self.flush_due_s = 0;
        match self.expiry(delay) {
            0 => self.flushed_cas = self.last_cas,
            due => self.flush_due_s = due,
        }
        self.flush_if_due();
    }

    /// What a storage command does that cannot be carried out: a `set` leaves no
    /// older value behind.
    pub fn refuse(&mut self, verb: Verb, key: &[u8], why: Refusal) {
        match why {
            Refusal::TooLarge => self.counts.store_too_large += 1,
            Refusal::NoMemory => self.counts.store_no_memory += 1,
        }
        if verb == Verb::Set {
            let (at, _) = self.find(key);
            if at != NIL {
                self.remove(at);
            }
        }
    }

    /// The item of that key, or [`NIL`], and the key's hash.
    fn find(&mut self, key: &[u8]) -> (u32, u32) {
        if self.flush_due_s != 0 {
            self.flush_if_due();
        }
        let hash = self.seed.hash(key);
        let at = self.table.find(&self.slots, hash, key);
        if at == NIL {
            return (NIL, hash);
        }
        match self.gone(at) {
            None => (at, hash),
            Some(gone) => {
                match gone {
                    Gone::Expired => self.counts.get_expired += 1,
                    Gone::Flushed => self.counts.get_flushed += 1,
                }
                self.remove(at);
                (NIL, hash)
            }
        }
    }

    /// Why an item that is still there no longer counts.
    fn gone(&self, at: u32) -> Option<Gone> {
        let item = &self.slots[at];
        if item.cas <= self.flushed_cas {
            return Some(Gone::Flushed);
        }
        let expired = item.expires_s != 0 && item.expires_s <= self.clock.unix_s();
        expired.then_some(Gone::Expired)
    }

    fn flush_if_due(&mut self) {
        if self.flush_due_s != 0 && self.flush_due_s <= self.clock.unix_s() {
            self.flush_due_s = 0;
            self.flushed_cas = self.last_cas;
        }
    }

    /// When an item expires that is given `exptime` now.
    fn expiry(&self, exptime: i32) -> u32 {
        match exptime {
            0 => 0,
            ..0 => LONG_AGO_S,
            1..=MAX_RELATIVE_S => self.clock.unix_s().saturating_add(exptime as u32),
            _ => exptime as u32,
        }
    }

    /// Writes an entry over the item `at`, or as a new one.
    fn write(&mut self, at: u32, hash: u32, entry: &Entry<'_>) -> Stored {
        let flags = Digits::of(entry.flags.into());
        let parts = Parts {
            key: entry.key,
            flags: flags.as_bytes(),
            value: [entry.value, b""],
        };
        let written = match at {
            NIL => self.insert(hash, &parts),
            at => self.overwrite(at, &parts),
        };
        match written {
            Ok(at) => {
                self.slots[at].expires_s = self.expiry(entry.exptime);
                self.slots[at].cas = self.next_cas();
                self.slots[at].state = 0;
                self.counts.total_items += 1;
                Stored::Stored
            }
            Err(NoMemory) => {
                self.refuse(entry.verb, entry.key, Refusal::NoMemory);
                Stored::NoMemory
            }
        }
    }

    fn insert(&mut self, hash: u32, parts: &Parts<'_>) -> Result<u32, NoMemory> {
        let written = self.allocate(parts, NIL)?;
        while self.slots.reserve().is_err() {
            self.evict(NIL)?;
        }
        let at = self.slots.take();
        let item = &mut self.slots[at];
        item.hash = hash;
        item.put(written);
        self.used_bytes += item.cost();
        self.table.insert(&mut self.slots, at);
        Ok(at)
    }

    fn overwrite(&mut self, at: u32, parts: &Parts<'_>) -> Result<u32, NoMemory> {
        self.slots.touch(at);
        if self.slots[at].fits(parts.len()) {
            self.slots[at].rewrite(parts);
            return Ok(at);
        }
        let written = self.allocate(parts, at)?;
        self.put(at, written);
        Ok(at)
    }

    /// `append` and `prepend`: flags and expiry stay.
    fn extend(&mut self, at: u32, entry: &Entry<'_>) -> Stored {
        self.slots.touch(at);
        let change = match entry.verb {
            Verb::Prepend => Change::Before(entry.value),
            _ => Change::Behind(entry.value),
        };
        match self.rebuild(at, change) {
            Ok(()) => {
                self.slots[at].cas = self.next_cas();
                self.counts.total_items += 1;
                Stored::Stored
            }
            Err(NoMemory) => Stored::NotStored,
        }
    }

    /// Gives the latest used item another value, made with its present one.
    fn rebuild(&mut self, at: u32, change: Change<'_>) -> Result<(), NoMemory> {
        let len = change.parts(&self.slots[at]).len();
        self.make_room(len, at)?;
        let written = loop {
            match item::write(&change.parts(&self.slots[at]), len) {
                Ok(written) => break written,
                Err(NoMemory) => self.evict(at)?,
            }
        };
        self.put(at, written);
        Ok(())
    }

    fn put(&mut self, at: u32, written: item::Written) {
        let item = &mut self.slots[at];
        self.used_bytes -= item.cost();
        item.put(written);
        self.used_bytes += item.cost();
    }

    /// Makes room for `parts` and puts them together; the item `replaced` (or
    /// none) is to go for it.
    fn allocate(&mut self, parts: &Parts<'_>, replaced: u32) -> Result<item::Written, NoMemory> {
        let len = parts.len();
        self.make_room(len, replaced)?;
        loop {
            match item::write(parts, len) {
                Ok(written) => return Ok(written),
                Err(NoMemory) => self.evict(replaced)?,
            }
        }
    }

    fn make_room(&mut self, len: usize, replaced: u32) -> Result<(), NoMemory> {
        let wanted = item::cost(len);
        if wanted > self.limit_bytes || len > MAX_ITEM {
            return Err(NoMemory);
        }
        let spared = match replaced {
            NIL => 0,
            at => self.slots[at].cost(),
        };
        while self.used_bytes - spared + wanted > self.limit_bytes {
            self.evict(replaced)?;
        }
        Ok(())
    }

    /// Removes the item that was used first, unless it is `kept`.
    #[cold]
    fn evict(&mut self, kept: u32) -> Result<(), NoMemory> {
        let at = self.slots.oldest();
        if at == NIL || at == kept {
            return Err(NoMemory);
        }
        match self.gone(at) {
            Some(_) => self.counts.reclaimed += 1,
            None => self.counts.evictions += 1,
        }
        self.remove(at);
        Ok(())
    }

    fn remove(&mut self, at: u32) {
        self.used_bytes -= self.slots[at].cost();
        self.table.remove(&mut self.slots, at);
        self.slots.release(at);
    }

    fn next_cas(&mut self) -> u64 {
        self.last_cas += 1;
        self.last_cas
    }
}

/// Longest item, an `append` having the limit of a `set`.
const MAX_ITEM: usize = crate::limits::MAX_VALUE + crate::limits::MAX_KEY + 64;

/// Why a storage command was not tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its value is too long.
    TooLarge,
    /// There is no memory to receive it.
    NoMemory,
}

#[derive(Clone, Copy)]
enum Gone {
    Expired,
    Flushed,
}

/// What becomes of a value.
#[derive(Clone, Copy)]
enum Change<'a> {
    Before(&'a [u8]),
    Behind(&'a [u8]),
    Instead(&'a [u8]),
}

impl<'a> Change<'a> {
    fn parts(self, item: &'a Item) -> Parts<'a> {
        let value: [&[u8]; 2] = match self {
            Self::Before(more) => [more, item.value()],
            Self::Behind(more) => [item.value(), more],
            Self::Instead(other) => [other, b""],
        };
        Parts {
            key: item.key(),
            flags: item.flags(),
            value,
        }
    }
}

/// Makes room for an answer, as far as there is memory for answers.
fn reserve(out: &mut Vec<u8>, more: usize) -> Result<(), OutputFull> {
    if out.capacity() - out.len() < more && !heap::has_room(out.len() + more) {
        return Err(OutputFull);
    }
    out.try_reserve(more).map_err(|_| OutputFull)
}

fn show(item: &Item, form: Form, out: &mut Vec<u8>) -> Result<(), OutputFull> {
    /// A blank and the longest number.
    const CAS: usize = 21;
    let bytes = item.plain();
    reserve(out, bytes.len() + CAS)?;
    match form {
        Form::Plain => out.extend_from_slice(bytes),
        Form::WithCas => {
            let (head, rest) = item.around_cas();
            out.extend_from_slice(head);
            out.push(b' ');
            push(out, item.cas);
            out.extend_from_slice(rest);
        }
    }
    Ok(())
}

//! The watches of all instances, and the events that calls report to them (kernel
//! `fs/notify/fsnotify.c`, `include/linux/fsnotify.h`).
//!
//! A call reports its events after it has made its change. Limit: events of calls that run at the
//! same time may be reported in the other order.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use linux_raw_sys::general::{
    IN_ALL_EVENTS, IN_ATTRIB, IN_DELETE_SELF, IN_EXCL_UNLINK, IN_IGNORED, IN_ISDIR, IN_MASK_ADD,
    IN_MASK_CREATE, IN_MOVE_SELF, IN_MOVED_FROM, IN_MOVED_TO, IN_ONESHOT,
};
use tare_libos::sync::SpinLock;
use tare_program::names;

use super::super::node::Node;
use super::queue::{Event, Queue};
use crate::errno::{Errno, Result};

/// Bytes that Linux reckons for a watch, which may all take one part in a hundred of memory
/// (`inotify_user_setup`).
const WATCH_BYTES: usize = 1080;
/// Bounds of the number of watches; Linux has the first too.
const LEAST_LIMIT: usize = 8192;
const MOST_LIMIT: usize = 1 << 16;

/// How many watches there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Under this lock only queues are locked. No node is given back under it.
static WATCHES: SpinLock<Option<Box<Watches>>> = SpinLock::new(None);

/// Most watches of all instances.
pub(crate) fn limit() -> usize {
    let bytes = tare_libos::heap::stats().total as usize;
    (bytes / 100 / WATCH_BYTES).clamp(LEAST_LIMIT, MOST_LIMIT)
}

/// Whether there is any watch. Without one no event is reported.
#[inline]
pub(crate) fn is_watching() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

struct Watch {
    node: Arc<Node>,
    queue: Arc<Queue>,
    number: i32,
    /// Events, and the flags that stay.
    mask: u32,
}

/// What names a node and a queue: neither goes while a watch has it.
type Key = (usize, usize);

fn key(node: &Arc<Node>, queue: &Arc<Queue>) -> Key {
    (Arc::as_ptr(node).addr(), name(queue))
}

fn name(queue: &Arc<Queue>) -> usize {
    Arc::as_ptr(queue).addr()
}

impl Watch {
    fn key(&self) -> Key {
        key(&self.node, &self.queue)
    }
}

/// Lists in order, not trees: a kind of tree is 6 KiB of code, and the longest list is copied in
/// less than 100 µs.
#[derive(Default)]
struct Watches {
    /// By key.
    all: Vec<Watch>,
    /// Queues and numbers of the watches, with the nodes.
    numbers: Vec<(Key, usize)>,
}

/// What is to be done behind the lock.
#[derive(Default)]
struct Behind {
    woken: Vec<Arc<Queue>>,
    removed: Vec<Watch>,
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.woken.iter().for_each(|queue| queue.watchers.wake());
    }
}

/// Works with the watches.
fn with<R>(act: impl FnOnce(&mut Watches, &mut Behind) -> R) -> R {
    let mut behind = Behind::default();
    let mut watches = WATCHES.lock();
    act(watches.get_or_insert_default(), &mut behind)
}

/// The event is of an open file whose name was removed: `IN_EXCL_UNLINK` leaves it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removed;

/// An event of a node or of a name in it.
#[derive(Clone, Copy)]
struct Notice<'a> {
    mask: u32,
    cookie: u32,
    name: &'a str,
    removed: Option<Removed>,
}

impl<'a> Notice<'a> {
    const fn new(mask: u32, name: &'a str) -> Self {
        Self {
            mask,
            cookie: 0,
            name,
            removed: None,
        }
    }
}

impl Watches {
    /// Where the watch with a key is, or is to be.
    fn place(&self, key: Key) -> core::result::Result<usize, usize> {
        self.all.binary_search_by_key(&key, Watch::key)
    }

    fn number(&self, queue: usize, number: i32) -> core::result::Result<usize, usize> {
        let key = (queue, number as usize);
        self.numbers.binary_search_by_key(&key, |number| number.0)
    }

    /// Those of a node.
    fn of_node(&self, node: &Arc<Node>) -> &[Watch] {
        let wanted = Arc::as_ptr(node).addr();
        let node_of = |watch: &Watch| Arc::as_ptr(&watch.node).addr();
        let start = self.all.partition_point(|watch| node_of(watch) < wanted);
        let rest = &self.all[start..];
        let count = rest.iter().take_while(|watch| node_of(watch) == wanted);
        &rest[..count.count()]
    }

    fn add(&mut self, watch: Watch) {
        let (key, number) = (watch.key(), watch.number);
        if let (Err(place), Err(at)) = (self.place(key), self.number(key.1, number)) {
            self.all.insert(place, watch);
            let number = (key.1, number as usize);
            self.numbers.insert(at, (number, key.0));
            COUNT.store(self.all.len(), Ordering::Relaxed);
        }
    }

    /// Adds an event to the queues of the watches of a node that ask for it.
    fn notify(&mut self, node: &Arc<Node>, notice: Notice<'_>, behind: &mut Behind) {
        let mut spent = Vec::new();
        for watch in self.of_node(node) {
            let is_excluded = notice.removed.is_some() && watch.mask & IN_EXCL_UNLINK != 0;
            if watch.mask & notice.mask & IN_ALL_EVENTS == 0 || is_excluded {
                continue;
            }
            let name = names::bytes(notice.name);
            let event = Event::new(watch.number, notice.mask, notice.cookie, &name);
            if watch.queue.add(&event) {
                behind.woken.push(watch.queue.clone());
            }
            if watch.mask & IN_ONESHOT != 0 {
                spent.push(watch.key());
            }
        }
        for key in spent {
            self.remove(key, behind);
        }
    }

    /// Removes a watch; its queue gets `IN_IGNORED`.
    fn remove(&mut self, key: Key, behind: &mut Behind) {
        let Ok(place) = self.place(key) else {
            return;
        };
        let watch = self.all.remove(place);
        if let Ok(at) = self.number(key.1, watch.number) {
            self.numbers.remove(at);
        }
        COUNT.store(self.all.len(), Ordering::Relaxed);
        if watch
            .queue
            .add(&Event::new(watch.number, IN_IGNORED, 0, &[]))
        {
            behind.woken.push(watch.queue.clone());
        }
        behind.removed.push(watch);
    }

    /// A number that no watch of a queue has, behind the last one (`idr_alloc_cyclic`).
    fn next_number(&self, queue: &Arc<Queue>) -> i32 {
        let mut number = queue.last_number.load(Ordering::Relaxed);
        loop {
            number = number.checked_add(1).unwrap_or(1);
            if self.number(name(queue), number).is_err() {
                queue.last_number.store(number, Ordering::Relaxed);
                return number;
            }
        }
    }
}

/// Watches a node for events, or changes what is watched for; gives the number of the watch.
///
/// # Errors
/// EEXIST with `IN_MASK_CREATE` for one that is watched, ENOSPC where there are too many watches.
pub(super) fn add(queue: &Arc<Queue>, node: &Arc<Node>, flags: u32) -> Result<i32> {
    let limit = limit();
    let mask = flags & (IN_ALL_EVENTS | IN_ONESHOT | IN_EXCL_UNLINK);
    with(|watches, _| {
        if let Ok(place) = watches.place(key(node, queue)) {
            let watch = &mut watches.all[place];
            if flags & IN_MASK_CREATE != 0 {
                return Err(Errno::EEXIST);
            }
            let kept = if flags & IN_MASK_ADD != 0 {
                watch.mask
            } else {
                0
            };
            watch.mask = kept | mask;
            return Ok(watch.number);
        }
        if watches.all.len() >= limit {
            return Err(Errno::ENOSPC);
        }
        let number = watches.next_number(queue);
        watches.add(Watch {
            node: node.clone(),
            queue: queue.clone(),
            number,
            mask,
        });
        Ok(number)
    })
}

/// Removes the watch of a number; EINVAL for none.
pub(super) fn remove(queue: &Arc<Queue>, number: i32) -> Result<()> {
    with(|watches, behind| {
        let place = watches.number(name(queue), number);
        let (_, node) = watches.numbers[place.map_err(|_| Errno::EINVAL)?];
        watches.remove((node, name(queue)), behind);
        Ok(())
    })
}

/// Removes all watches of a queue whose instance was closed.
pub(super) fn remove_all(queue: &Arc<Queue>) {
    with(|watches, behind| {
        let own = |watch: &mut Watch| Arc::ptr_eq(&watch.queue, queue);
        behind.removed.extend(watches.all.extract_if(.., own));
        watches.numbers.retain(|number| number.0.0 != name(queue));
        COUNT.store(watches.all.len(), Ordering::Relaxed);
    });
}

const fn kind(node: &Node) -> u32 {
    if node.is_directory() { IN_ISDIR } else { 0 }
}

/// Reports an event of a node to the watches of its directory, then to those of the node
/// (`fsnotify_parent`).
pub(crate) fn notify_child(
    node: &Arc<Node>,
    entry: Option<(&Arc<Node>, &str)>,
    event: u32,
    removed: Option<Removed>,
) {
    if !is_watching() {
        return;
    }
    let notice = |name| Notice {
        removed,
        ..Notice::new(event | kind(node), name)
    };
    // The top of a volume is not known to the directory where it is.
    let entry = entry.filter(|_| !node.is_mounted());
    with(|watches, behind| {
        if let Some((directory, name)) = entry {
            watches.notify(directory, notice(name), behind);
        }
        watches.notify(node, notice(""), behind);
    });
}

/// Reports that a directory got or lost a name. `event` has `IN_ISDIR` if it is a directory's.
pub(crate) fn notify_entry(directory: &Arc<Node>, name: &str, event: u32) {
    if is_watching() {
        with(|watches, behind| watches.notify(directory, Notice::new(event, name), behind));
    }
}

/// Reports an event of a node to its own watches.
pub(crate) fn notify_node(node: &Arc<Node>, event: u32) {
    notify_entry(node, "", event | kind(node));
}

/// Reports that a node has another name, which `replaced` had before (`fsnotify_move`).
pub(crate) fn notify_moved(
    node: &Arc<Node>,
    from: (&Arc<Node>, &str),
    to: (&Arc<Node>, &str),
    replaced: Option<&Arc<Node>>,
) {
    static LAST: AtomicU32 = AtomicU32::new(0);
    if !is_watching() {
        return;
    }
    let cookie = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    with(|watches, behind| {
        for (event, (directory, name)) in [(IN_MOVED_FROM, from), (IN_MOVED_TO, to)] {
            let notice = Notice {
                cookie,
                ..Notice::new(event | kind(node), name)
            };
            watches.notify(directory, notice, behind);
        }
        if let Some(replaced) = replaced {
            let notice = Notice::new(IN_ATTRIB | kind(replaced), "");
            watches.notify(replaced, notice, behind);
        }
        watches.notify(node, Notice::new(IN_MOVE_SELF, ""), behind);
    });
}

/// Reports that a node is deleted, once it has no name and is not open, and removes its watches.
pub(crate) fn notify_gone(node: &Arc<Node>) {
    if !is_watching() || with(|watches, _| watches.of_node(node).is_empty()) {
        return;
    }
    // Not under the lock: a volume may wait for its device.
    if node.is_open() || node.has_name() {
        return;
    }
    with(|watches, behind| {
        watches.notify(node, Notice::new(IN_DELETE_SELF, ""), behind);
        let keys: Vec<_> = watches.of_node(node).iter().map(Watch::key).collect();
        for key in keys {
            watches.remove(key, behind);
        }
    });
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use linux_raw_sys::general::{IN_CREATE, IN_MODIFY};

    use super::super::super::Bytes;
    use super::*;

    fn file() -> Arc<Node> {
        Node::file(Bytes::new(&[]), 0o644)
    }

    /// Numbers of watches and masks of all events.
    fn events(queue: &Queue) -> Vec<(i32, u32)> {
        let mut bytes = vec![0; 4096];
        let count = queue.read(&mut bytes).unwrap_or(0);
        let mut rest = &bytes[..count];
        let mut events = Vec::new();
        while !rest.is_empty() {
            let field = |at: usize| u32::from_le_bytes(rest[4 * at..][..4].try_into().unwrap());
            events.push((field(0) as i32, field(1)));
            rest = &rest[16 + field(3) as usize..];
        }
        events
    }

    #[test]
    fn each_queue_hears_of_what_it_watches() {
        let (one, other) = (Arc::<Queue>::default(), Arc::<Queue>::default());
        let (directory, child) = (Node::directory(), file());
        assert_eq!(add(&one, &directory, IN_MODIFY | IN_CREATE), Ok(1));
        assert_eq!(add(&one, &child, IN_MODIFY), Ok(2));
        assert_eq!(add(&other, &child, IN_MODIFY | IN_EXCL_UNLINK), Ok(1));
        let entry = Some((&directory, "name"));
        notify_child(&child, entry, IN_MODIFY, None);
        notify_child(&child, entry, IN_MODIFY, Some(Removed));
        notify_child(&child, None, IN_ATTRIB, None);
        notify_entry(&directory, "name", IN_CREATE);
        let modified = [(1, IN_MODIFY), (2, IN_MODIFY)];
        let all = [&modified[..], &modified[..], &[(1, IN_CREATE)]].concat();
        assert_eq!(events(&one), all);
        assert_eq!(events(&other), [(1, IN_MODIFY)]);
        remove_all(&one);
        remove_all(&other);
        notify_child(&child, entry, IN_MODIFY, None);
        assert_eq!(events(&one), []);
    }

    #[test]
    fn a_node_is_gone_when_it_has_no_name_and_is_not_open() {
        let queue = Arc::<Queue>::default();
        let node = file();
        assert_eq!(add(&queue, &node, IN_DELETE_SELF), Ok(1));
        node.open();
        notify_gone(&node);
        node.unlink();
        notify_gone(&node);
        assert_eq!(events(&queue), []);
        node.close();
        notify_gone(&node);
        notify_gone(&node);
        assert_eq!(events(&queue), [(1, IN_DELETE_SELF), (1, IN_IGNORED)]);
        assert_eq!(remove(&queue, 1), Err(Errno::EINVAL));
        assert_eq!(Arc::strong_count(&node), 1);
    }

    #[test]
    fn numbers_begin_anew_only_behind_the_last_of_all() {
        let queue = Arc::<Queue>::default();
        let nodes = [file(), file(), file()];
        assert_eq!(add(&queue, &nodes[0], IN_MODIFY), Ok(1));
        assert_eq!(add(&queue, &nodes[1], IN_MODIFY), Ok(2));
        assert_eq!(remove(&queue, 2), Ok(()));
        assert_eq!(add(&queue, &nodes[1], IN_MODIFY), Ok(3));
        queue.last_number.store(i32::MAX, Ordering::Relaxed);
        assert_eq!(add(&queue, &nodes[2], IN_MODIFY), Ok(2));
        remove_all(&queue);
    }
}

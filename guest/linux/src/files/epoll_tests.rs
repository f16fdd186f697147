//! Event queues of pipes, and of files that count how often they are looked at.

use core::sync::atomic::{AtomicU32, Ordering};

use super::super::Watchers;
use super::super::endpoint::SocketKind;
use super::super::pipe::Pipe;
use super::super::unix::Unix;
use super::*;

/// What most entries are for.
const INPUT: Interest = Interest {
    events: POLLIN,
    data: 0,
};

fn queue(events: u32) -> (Epoll, Arc<Open>, Pipe) {
    let (reader, writer) = Pipe::pair();
    let open = Open::new(Arc::new(reader), 0);
    let epoll = Epoll::default();
    let interest = Interest { events, data: 7 };
    assert_eq!(epoll.add(3, &open, interest), Ok(()));
    (epoll, open, writer)
}

fn ready() -> Vec<Interest> {
    let interest = Interest {
        events: POLLIN,
        data: 7,
    };
    alloc::vec![interest]
}

#[test]
fn a_level_is_reported_until_it_is_gone() {
    let (epoll, open, writer) = queue(POLLIN);
    assert!(epoll.take(10).is_empty());
    writer.write(b"xy").expect("room");
    assert_eq!(epoll.take(10), ready());
    assert_eq!(epoll.take(10), ready());
    open.read(&mut [0; 8]).expect("data");
    assert!(epoll.take(10).is_empty());
}

#[test]
fn an_edge_is_reported_once_and_again_after_a_use() {
    let (epoll, open, writer) = queue(POLLIN | EPOLLET);
    writer.write(b"xy").expect("room");
    assert_eq!(epoll.take(10), ready());
    assert!(epoll.take(10).is_empty());
    open.read(&mut [0; 1]).expect("data");
    assert_eq!(epoll.take(10), ready());
    writer.write(b"z").expect("room");
    assert_eq!(epoll.take(10), ready());
    assert!(epoll.take(10).is_empty());
    open.read(&mut [0; 2]).expect("data");
    assert!(epoll.take(10).is_empty());
    writer.write(b"z").expect("room");
    assert_eq!(epoll.take(10), ready());
}

#[test]
fn one_shot_waits_for_a_change_and_closed_files_leave() {
    let (epoll, open, writer) = queue(POLLIN | EPOLLONESHOT);
    writer.write(b"xy").expect("room");
    assert_eq!(epoll.take(10), ready());
    assert!(epoll.take(10).is_empty());
    let interest = Interest {
        events: POLLIN,
        data: 7,
    };
    assert_eq!(epoll.modify(3, &open, interest), Ok(()));
    assert_eq!(epoll.take(10), ready());
    assert_eq!(epoll.add(3, &open, interest), Err(Errno::EEXIST));
    drop(open);
    assert!(epoll.take(10).is_empty());
}

#[test]
fn an_entry_is_of_its_open_file_also_when_the_number_is_used_again() {
    let (epoll, open, _writer) = queue(POLLIN);
    drop(open);
    let (reader, writer) = Pipe::pair();
    let open = Open::new(Arc::new(reader), 0);
    let interest = Interest {
        events: POLLIN,
        data: 7,
    };
    assert_eq!(epoll.modify(3, &open, interest), Err(Errno::ENOENT));
    assert_eq!(epoll.remove(3, &open), Err(Errno::ENOENT));
    assert_eq!(epoll.add(3, &open, interest), Ok(()));
    writer.write(b"x").expect("room");
    assert_eq!(epoll.take(10), ready());
    assert_eq!(epoll.remove(3, &open), Ok(()));
    assert!(epoll.take(10).is_empty());
}

#[test]
fn an_end_is_reported_to_those_who_ask_for_nothing() {
    for events in [0, EPOLLET, EPOLLONESHOT] {
        let (epoll, _open, writer) = queue(events);
        writer.write(b"x").expect("room");
        assert!(epoll.take(10).is_empty());
        drop(writer);
        let found = epoll.take(10);
        let found: Vec<u32> = found.iter().map(|one| one.events).collect();
        assert_eq!(found, [POLLHUP], "{events:#x}");
        let again = usize::from(events == 0);
        assert_eq!(epoll.take(10).len(), again, "{events:#x}");
    }
}

#[test]
fn a_busy_file_does_not_starve_those_behind_it() {
    let epoll = Epoll::default();
    let pairs: Vec<_> = (0..3)
        .map(|number| {
            let (reader, writer) = Pipe::pair();
            let open = Open::new(Arc::new(reader), 0);
            let interest = Interest {
                events: POLLIN,
                data: number,
            };
            assert_eq!(epoll.add(number, &open, interest), Ok(()));
            writer.write(b"x").expect("room");
            (open, writer)
        })
        .collect();
    let mut seen = [0; 3];
    (0..6).for_each(|_| {
        epoll
            .take(1)
            .iter()
            .for_each(|one| seen[one.data as usize] += 1)
    });
    assert_eq!(seen, [2, 2, 2]);
    drop(pairs);
}

#[test]
fn a_call_reports_a_part_of_a_few_files_and_all_of_many() {
    let epoll = Epoll::default();
    let parts: Vec<usize> = (1..=40)
        .map(|number| {
            let open = Open::new(Arc::new(Counted::default()), 0);
            let interest = Interest { events: 0, data: 0 };
            assert_eq!(epoll.add(number, &open, interest), Ok(()));
            epoll.part_of(30)
        })
        .collect();
    assert_eq!(
        parts[..16],
        [2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
    );
    assert!(parts[16..].iter().all(|part| *part == 30));
    assert_eq!(epoll.take(epoll.part_of(1)).len(), 0);
    assert_eq!(epoll.part_of(1), 1);
}

/// A file that counts how often it is looked at.
#[derive(Default)]
struct Counted {
    looks: AtomicU32,
    watchers: Watchers,
}

impl File for Counted {
    fn status(&self) -> Result<Status> {
        Ok(Status::anonymous())
    }

    fn ready(&self) -> u32 {
        self.looks.fetch_add(1, Ordering::Relaxed);
        0
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.watchers)
    }
}

#[test]
fn only_files_that_may_have_changed_are_looked_at() {
    let epoll = Epoll::default();
    let files: Vec<Arc<Counted>> = (0..100).map(|_| Arc::default()).collect();
    let open = |file: &Arc<Counted>| Open::new(file.clone(), 0);
    let opened: Vec<_> = files.iter().map(open).collect();
    for (open, number) in opened.iter().zip(0..) {
        assert_eq!(epoll.add(number, open, INPUT), Ok(()));
    }
    assert!(epoll.take(1).is_empty());
    let looks = || -> Vec<u32> {
        let each = files.iter();
        each.map(|file| file.looks.swap(0, Ordering::Relaxed))
            .collect()
    };
    assert!(looks().iter().all(|count| *count > 0));
    for _ in 0..3 {
        files[40].watchers.wake();
        assert!(epoll.take(1).is_empty());
        assert!(epoll.take(1).is_empty());
        let looked = looks();
        assert!(looked[40] > 0);
        assert_eq!(looked.iter().filter(|count| **count > 0).count(), 1);
    }
}

#[test]
fn entries_of_closed_files_leave_without_a_look() {
    let (epoll, _open, _writer) = queue(POLLIN);
    for number in 0..10_000 {
        let open = Open::new(Arc::new(Counted::default()), 0);
        assert_eq!(epoll.add(number, &open, INPUT), Ok(()));
    }
    let entries = epoll.entries.lock();
    assert!(entries.all.len() <= LEAST_SWEEP, "{}", entries.all.len());
}

#[test]
fn a_file_forgets_entries_that_were_removed_and_queues_that_were_closed() {
    let file: Arc<Counted> = Arc::default();
    let open = Open::new(file.clone(), 0);
    for _ in 0..100 {
        let epoll = Epoll::default();
        for _ in 0..100 {
            assert_eq!(epoll.add(1, &open, INPUT), Ok(()));
            assert!(epoll.take(1).is_empty());
            assert_eq!(epoll.remove(1, &open), Ok(()));
        }
        assert_eq!(epoll.add(1, &open, INPUT), Ok(()));
    }
    assert!(file.watchers.armed() <= 2, "{}", file.watchers.armed());
}

/// A random number below a bound (Marsaglia, "Xorshift RNGs", 2003).
fn below(state: &mut u64, bound: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % bound as u64) as usize
}

/// A pipe's end in the queue, its other end, and the bits that are waited for.
type Watched = (Arc<Open>, Arc<Open>, u32);

/// What is level-triggered is reported exactly while it is ready, whatever was read, written,
/// closed or changed since the last look.
#[test]
fn levels_are_those_of_a_look_at_every_file() {
    const FILES: usize = 12;
    let mut random = 0x2545_f491_4f6c_dd1d;
    let epoll = Epoll::default();
    let mut files: Vec<Option<Watched>> = (0..FILES).map(|_| None).collect();
    for _ in 0..5_000 {
        let at = below(&mut random, FILES);
        let events = [0, POLLIN, POLLOUT, POLLIN | POLLOUT][below(&mut random, 4)];
        let interest = Interest {
            events,
            data: at as u64,
        };
        let slot = &mut files[at];
        match (slot.as_mut(), below(&mut random, 8)) {
            (None, _) => {
                let (reader, writer) = Pipe::pair();
                let ends = [
                    Open::new(Arc::new(reader), 0),
                    Open::new(Arc::new(writer), 1),
                ];
                let [one, other] = ends;
                let (open, peer) = match below(&mut random, 2) {
                    0 => (one, other),
                    _ => (other, one),
                };
                assert_eq!(epoll.add(at as u64, &open, interest), Ok(()));
                *slot = Some((open, peer, events));
            }
            (Some(_), 0) => *slot = None,
            (Some((open, _, wanted)), 1 | 2) => {
                assert_eq!(epoll.modify(at as u64, open, interest), Ok(()));
                *wanted = events;
            }
            (Some((open, peer, _)), _) => {
                let mut bytes = [0; 70_000];
                for end in [open, peer] {
                    end.write(&bytes[..1 + below(&mut random, 2) * 65_000]).ok();
                    if below(&mut random, 2) == 0 {
                        end.read(&mut bytes).ok();
                    }
                }
            }
        }
        if below(&mut random, 3) > 0 {
            continue;
        }
        let mut all = files.iter().flatten();
        let ready =
            |(open, _, wanted): &Watched| open.file.ready() & (wanted | POLLERR | POLLHUP) != 0;
        assert_eq!(File::ready(&epoll) != 0, all.any(ready));
        let mut found: Vec<u64> = epoll.take(FILES).iter().map(|one| one.data).collect();
        found.sort_unstable();
        let expected = files.iter().zip(0..);
        let expected = expected.filter(|(file, _)| file.as_ref().is_some_and(ready));
        let expected: Vec<u64> = expected.map(|(_, at)| at).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn queues_do_not_hold_themselves() {
    let queue = || Open::new(Arc::new(Epoll::default()), 0);
    let (outer, middle, inner) = (queue(), queue(), queue());
    let add = |to: &Open, open: &Arc<Open>| {
        let epoll = to.file.as_kind::<Epoll>().expect("a queue");
        epoll.add(1, open, INPUT)
    };
    assert_eq!(add(&outer, &middle), Ok(()));
    assert_eq!(add(&middle, &inner), Ok(()));
    for holder in [&outer, &middle, &inner] {
        assert_eq!(add(&inner, holder), Err(Errno::ELOOP));
    }
    assert_eq!(outer.file.ready(), 0);
}

/// A queue in an edge-triggered one is reported again once someone took what it had.
#[test]
fn a_queue_in_a_queue_has_an_edge_after_each_take() {
    let (inner, open, writer) = queue(POLLIN);
    let outer = Epoll::default();
    let inner = Open::new(Arc::new(inner), 0);
    let interest = Interest {
        events: POLLIN | EPOLLET,
        data: 7,
    };
    assert_eq!(outer.add(1, &inner, interest), Ok(()));
    let inner = inner.file.as_kind::<Epoll>().expect("a queue");
    for _ in 0..2 {
        writer.write(b"x").expect("room");
        assert_eq!(outer.take(1), ready());
        assert!(outer.take(1).is_empty());
        assert_eq!(inner.take(1), ready());
        open.read(&mut [0; 1]).expect("data");
    }
    assert!(outer.take(1).is_empty());
}

/// Each queue is put in before it has one itself: what is above counts too.
#[test]
fn queues_nest_no_deeper_from_the_top_than_from_the_bottom() {
    let queues = || -> Vec<Arc<Open>> {
        let open = |_| Open::new(Arc::new(Epoll::default()), 0);
        (0..10).map(open).collect()
    };
    let add = |to: &Open, open: &Arc<Open>| {
        let epoll = to.file.as_kind::<Epoll>().expect("a queue");
        epoll.add(1, open, INPUT).is_ok()
    };
    let (from_top, from_bottom, joined) = (queues(), queues(), queues());
    let added = from_top.windows(2).take_while(|two| add(&two[0], &two[1]));
    assert_eq!(added.count() + 1, MOST_LEVELS);
    let added = from_bottom.windows(2).rev();
    let first: Vec<bool> = added
        .take(MOST_LEVELS)
        .map(|two| add(&two[0], &two[1]))
        .collect();
    assert_eq!(first, [true, true, true, true, false]);
    // Two chains of three make none of six.
    for chain in [&joined[..3], &joined[3..6]] {
        assert!(chain.windows(2).all(|two| add(&two[0], &two[1])));
    }
    assert!(!add(&joined[2], &joined[3]));
    assert_eq!(from_top[0].file.ready(), 0);
}

#[test]
fn what_is_added_and_removed_without_a_look_leaves_nothing() {
    let epoll = Epoll::default();
    let open = Open::new(Arc::new(Counted::default()), 0);
    for _ in 0..10_000 {
        assert_eq!(epoll.add(1, &open, INPUT), Ok(()));
        assert_eq!(epoll.remove(1, &open), Ok(()));
    }
    assert_eq!(epoll.ready.len(), 0);
    for number in 0..10_000 {
        let open = Open::new(Arc::new(Counted::default()), 0);
        assert_eq!(epoll.add(number, &open, INPUT), Ok(()));
    }
    assert!(
        epoll.ready.len() <= 2 * LEAST_SWEEP,
        "{}",
        epoll.ready.len()
    );
}

/// A datagram that finds no room is one try behind the note of that: room that comes later is an
/// edge.
#[test]
fn room_after_a_message_that_found_none_is_an_edge() {
    let (one, other) = Unix::pair(SocketKind::Packets);
    let [one, other] = [one, other].map(|end| Open::new(Arc::new(end), 0));
    let epoll = Epoll::default();
    let interest = Interest {
        events: POLLOUT | EPOLLET,
        data: 7,
    };
    assert_eq!(epoll.add(1, &one, interest), Ok(()));
    assert_eq!(epoll.take(1).len(), 1);
    let send = || one.send(|| one.file.write(b"x"));
    while send().is_ok() {}
    assert!(epoll.take(1).is_empty());
    while other.file.read(&mut [0; 8]).is_ok() {}
    assert_eq!(epoll.take(1).len(), 1);
}

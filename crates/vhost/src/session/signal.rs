//! Signals to eventfds of the front-end's that cannot wait.
//!
//! write(2) of an eventfd waits while its counter is full, unless O_NONBLOCK is set, and
//! the front-end holds the same open file and can clear that flag at any time. An eventfd
//! has no RWF_NOWAIT for writes, and cannot be opened anew. So the kernel writes it: an
//! io_uring signals the eventfd that is registered with it when a request completes, and
//! that never waits (`eventfd_signal`, Linux `fs/eventfd.c`). The request is a NOP.
//!
//! One ring for each queue, made before the thread is confined, and restricted to NOPs and
//! to the change of its eventfd. Where io_uring is not allowed, a look at the counter
//! precedes a plain write: there a front-end that fills the counter in between stops its
//! own disk.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, squeue};

use super::notifier;

/// `IORING_REGISTER_EVENTFD` and `IORING_UNREGISTER_EVENTFD` (`linux/io_uring.h`).
const CHANGE_EVENTFD: [u8; 2] = [4, 5];

/// Signals one eventfd at a time.
pub(crate) struct Signal {
    ring: Option<IoUring>,
    bound: Bound,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    No,
    Yes,
}

impl Signal {
    /// Signals nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            ring: ring().ok(),
            bound: Bound::No,
        }
    }

    /// Signals `file` from now on, or nothing. An error: it is not an eventfd.
    pub(crate) fn bind(&mut self, file: Option<&File>) -> io::Result<()> {
        let Some(ring) = &self.ring else {
            return Ok(());
        };
        if self.bound == Bound::Yes {
            ring.submitter().unregister_eventfd()?;
            self.bound = Bound::No;
        }
        if let Some(file) = file {
            ring.submitter().register_eventfd(file.as_raw_fd())?;
            self.bound = Bound::Yes;
        }
        Ok(())
    }

    /// Signals `file`, which was given to [`Self::bind`].
    pub(crate) fn send(&mut self, file: &File) {
        if let Some(ring) = &mut self.ring
            && self.bound == Bound::Yes
            && complete_one(ring).is_ok()
        {
            return;
        }
        notifier::send(file);
    }
}

fn ring() -> io::Result<IoUring> {
    let ring: IoUring = IoUring::builder().setup_r_disabled().build(1)?;
    let mut allowed = vec![
        Restriction::sqe_op(opcode::Nop::CODE),
        Restriction::sqe_flags_allowed(squeue::Flags::empty().bits()),
    ];
    allowed.extend(CHANGE_EVENTFD.map(Restriction::register_op));
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

fn complete_one(ring: &mut IoUring) -> io::Result<()> {
    let nop = opcode::Nop::new().build();
    // No room: the kernel did not take the last NOP, which serves as well.
    // SAFETY: a NOP refers to no memory.
    let _ = unsafe { ring.submission().push(&nop) };
    let submitted = loop {
        match ring.submit() {
            // Before anything was taken.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            submitted => break submitted,
        }
    };
    ring.completion().for_each(drop);
    submitted.map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// An eventfd as a front-end leaves it: full, and without O_NONBLOCK.
    fn full() -> File {
        let file = File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        rustix::io::write(&file, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        file
    }

    fn count(file: &File) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(file, &mut count).unwrap();
        u64::from_ne_bytes(count)
    }

    /// The ring's way, which must not look whether there is room.
    #[test]
    fn a_signal_to_a_full_eventfd_does_not_wait() {
        let mut signal = Signal::new();
        if signal.ring.is_none() {
            return tare_vmtest::lacks("io_uring is not allowed here");
        }
        let file = full();
        signal.bind(Some(&file)).unwrap();
        let (sender, receiver) = mpsc::channel();
        let other = file.try_clone().unwrap();
        std::thread::spawn(move || {
            for _ in 0..100 {
                signal.send(&other);
            }
            let _ = sender.send(signal);
        });
        let mut signal = receiver
            .recv_timeout(Duration::from_secs(20))
            .expect("it waits");
        assert!(count(&file) >= u64::MAX - 1);
        signal.send(&file);
        signal.send(&file);
        assert_eq!(count(&file), 2);
    }

    #[test]
    fn a_signal_goes_to_the_eventfd_that_was_bound_last() {
        let mut signal = Signal::new();
        let event = || File::from(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let (first, second) = (event(), event());
        signal.bind(Some(&first)).unwrap();
        signal.send(&first);
        signal.bind(Some(&second)).unwrap();
        signal.send(&second);
        assert_eq!((count(&first), count(&second)), (1, 1));
        signal.bind(None).unwrap();
        signal.bind(Some(&first)).unwrap();
        signal.send(&first);
        assert_eq!(count(&first), 1);
    }

    #[test]
    fn what_the_kernel_did_not_take_is_signalled_with_the_next() {
        let mut signal = Signal::new();
        let file = File::from(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        signal.bind(Some(&file)).unwrap();
        if let Some(ring) = &mut signal.ring {
            // As a submission leaves it that the kernel refuses.
            let nop = opcode::Nop::new().build();
            // SAFETY: a NOP refers to no memory.
            unsafe { ring.submission().push(&nop) }.unwrap();
        }
        signal.send(&file);
        assert_eq!(count(&file), 1);
        signal.send(&file);
        assert_eq!(count(&file), 1);
    }
}

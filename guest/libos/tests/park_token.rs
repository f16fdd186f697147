//! The code of `sched::token` itself, in all interleavings of a thread with the one that
//! notifies it, by loom: a thread that parks although it was notified is a deadlock, which
//! loom reports.

use std::sync::Arc;

use loom::sync::Notify;
use loom::sync::atomic::AtomicBool;
use loom::thread;

mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicU8, Ordering};
}
#[path = "../src/sched/token.rs"]
mod token;

use atomics::Ordering;
use token::Token;

/// A thread that parks until a flag is set, as that of a disk request does, and the handler that
/// sets it and notifies.
struct Parties {
    token: Token,
    done: AtomicBool,
    /// The queue of the thread's core.
    ready: Notify,
}

#[test]
fn a_thread_with_an_old_notification_gets_the_next_one() {
    loom::model(|| {
        let parties = Arc::new(Parties {
            token: Token::new(),
            done: AtomicBool::new(false),
            ready: Notify::new(),
        });
        // Left over from a request that completed before the thread parked for it.
        assert!(!parties.token.notify());
        let handler = {
            let parties = Arc::clone(&parties);
            thread::spawn(move || {
                parties.done.store(true, Ordering::Release);
                if parties.token.notify() {
                    parties.ready.notify();
                }
            })
        };
        while !parties.done.load(Ordering::Acquire) {
            if parties.token.prepare() {
                parties.ready.wait();
                parties.token.finish();
            }
        }
        handler.join().unwrap();
    });
}

use core::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::io::Write;
use crate::net::{TcpListener, TcpStream};

/// Counts wake-ups.
#[derive(Default)]
struct Counting(AtomicU32);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counting {
    fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection over the loopback: the end that connected, and the other.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (peer, _) = listener.accept().unwrap();
    (stream, peer)
}

/// Waits with the thread until a byte has come, so that whoever watches was called before.
fn arrives(stream: &TcpStream) {
    stream.peek(&mut [0]).unwrap();
}

#[test]
fn a_future_that_is_dropped_leaves_no_waiter() {
    let (stream, mut peer) = pair();
    let wakes = Arc::new(Counting::default());
    let waker = wakes.waker();
    {
        let mut waiting = pin!(ready(&stream, Interests::READ));
        let mut context = Context::from_waker(&waker);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(Arc::strong_count(&wakes), 2, "this test and its waker");
    peer.write_all(b"x").unwrap();
    arrives(&stream);
    assert_eq!(wakes.count(), 0);
}

#[test]
fn the_last_waker_is_woken_once_and_no_earlier_one() {
    let (stream, mut peer) = pair();
    let (first, last) = (Arc::<Counting>::default(), Arc::<Counting>::default());
    let mut waiting = pin!(ready(&stream, Interests::READ));
    for wakes in [&first, &last, &last] {
        let waker = wakes.waker();
        let mut context = Context::from_waker(&waker);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
    }
    peer.write_all(b"xy").unwrap();
    arrives(&stream);
    assert_eq!((first.count(), last.count()), (0, 1));
    let waker = last.waker();
    let mut context = Context::from_waker(&waker);
    assert!(waiting.as_mut().poll(&mut context).is_ready());
}

#[test]
fn futures_of_two_connections_wait_on_one_thread() {
    let (one, mut peer_of_one) = pair();
    let (other, mut peer_of_other) = pair();
    let sending = thread::spawn(move || {
        peer_of_other.write_all(b"b").unwrap();
        peer_of_one.write_all(b"a").unwrap();
        (peer_of_one, peer_of_other)
    });
    let (mut of_one, mut of_other) = (
        pin!(ready(&one, Interests::READ)),
        pin!(ready(&other, Interests::READ)),
    );
    let (mut one_is, mut other_is) = (false, false);
    let both = core::future::poll_fn(|context| {
        one_is = one_is || of_one.as_mut().poll(context).is_ready();
        other_is = other_is || of_other.as_mut().poll(context).is_ready();
        if one_is && other_is {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    block_on(both);
    sending.join();
    assert!(one.readable() && other.readable());
}

#[test]
fn a_refused_connection_ends_its_future() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = listener.local_addr().unwrap();
    drop(listener);
    let error = block_on(TcpStream::connect_async(remote)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

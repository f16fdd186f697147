//! Async code on threads: [`block_on`] runs a future on the current thread, [`ready`] waits for a
//! socket. A core whose threads all wait halts, as with blocking calls.
//!
//! With the feature `embedded-io` sockets implement `embedded-io-async`'s traits by it, so that crates that are written
//! against these run here. An executor for many tasks on one thread is the application's choice;
//! a thread for each connection (32 KiB of stack) often does.
//!
//! ```
//! use embedded_io_async::{Read, Write};
//! use tare_libos::net::{TcpListener, TcpStream};
//! use tare_libos::{task, thread};
//!
//! let listener = TcpListener::bind("0.0.0.0:4007")?;
//! let echo = thread::spawn(move || {
//!     task::block_on(async {
//!         let (mut stream, _) = listener.accept_async().await?;
//!         let mut buf = [0; 5];
//!         let n = Read::read(&mut stream, &mut buf).await?;
//!         Write::write_all(&mut stream, &buf[..n]).await
//!     })
//! });
//! let answer = task::block_on(async {
//!     let mut stream = TcpStream::connect_async(([127, 0, 0, 1], 4007).into()).await?;
//!     Write::write_all(&mut stream, b"hello").await?;
//!     let mut answer = [0; 5];
//!     let n = Read::read(&mut stream, &mut answer).await?;
//!     Ok::<_, tare_libos::io::Error>(answer[..n].to_vec())
//! })?;
//! assert_eq!(answer, b"hello");
//! echo.join()?;
//! # Ok::<(), tare_libos::io::Error>(())
//! ```

use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

use crate::io::{ErrorKind, Result};
use crate::net::{Interests, Observer, Source};
use crate::thread::{self, Thread};

/// Runs a future to its end on this thread, which is parked while the future waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits until `source` is ready for `interests`, or has ended. Its waker is called while the
/// network is locked, maybe on another core: no lock that it takes may be held while the network
/// is called.
pub fn ready<S: Source + ?Sized>(source: &S, interests: Interests) -> Ready<'_, S> {
    Ready {
        source,
        interests,
        watch: None,
    }
}

/// The future of [`ready`].
#[must_use = "futures do nothing unless awaited"]
pub struct Ready<'a, S: Source + ?Sized> {
    source: &'a S,
    interests: Interests,
    watch: Option<Watch>,
}

/// Who is woken, once as a waker and once as the network knows it.
struct Watch {
    waker: Waker,
    observer: Arc<dyn Observer>,
}

impl Watch {
    fn of(waker: &Waker) -> Self {
        Self {
            waker: waker.clone(),
            observer: Arc::new(WakesTask(waker.clone())),
        }
    }
}

struct WakesTask(Waker);

impl Observer for WakesTask {
    fn ready(&self, _token: u64) {
        self.0.wake_by_ref();
    }
}

impl<S: Source + ?Sized> Ready<'_, S> {
    fn unwatch(&mut self) {
        if let Some(watch) = self.watch.take() {
            self.source.unwatch(&watch.observer, 0);
        }
    }
}

impl<S: Source + ?Sized> Future for Ready<'_, S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker();
        if matches!(&self.watch, Some(watch) if !watch.waker.will_wake(waker)) {
            self.unwatch();
        }
        let Self {
            source,
            interests,
            watch,
        } = &mut *self;
        let watch = watch.get_or_insert_with(|| Watch::of(waker));
        let readiness = source.watch(*interests, &watch.observer, 0);
        if !readiness.matches(*interests) {
            return Poll::Pending;
        }
        self.unwatch();
        Poll::Ready(())
    }
}

impl<S: Source + ?Sized> Drop for Ready<'_, S> {
    fn drop(&mut self) {
        self.unwatch();
    }
}

/// Tries until the result is another than `WouldBlock`; between two attempts waits for `source`.
/// Dropped while it waits, it has done nothing.
pub(crate) async fn attempt<S: Source + ?Sized, R>(
    source: &S,
    interests: Interests,
    mut attempt: impl FnMut() -> Result<R>,
) -> Result<R> {
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => ready(source, interests).await,
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests;

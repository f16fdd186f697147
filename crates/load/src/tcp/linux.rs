//! Linux's ends of the wire: each a thread in its own namespace.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_congestion;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use tare_host::tap_namespace as tap;

/// Longest wait in one system call: how soon an end notices that it must stop.
const SLICE: Duration = Duration::from_millis(200);
/// Bytes of a write and a read.
const CHUNK: usize = 64 << 10;

/// The sender's congestion control: Tare's and Linux's own default. Hosts have others as
/// theirs, which answer loss otherwise: BBR does not slow down for it.
pub(super) const CONGESTION: &str = "cubic";

/// What the receiver got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// From before the connection to the last byte.
    pub took: Duration,
    /// How many came.
    pub bytes: usize,
    /// Every byte was the one that belongs there.
    pub is_right: bool,
}

/// A thread with its end of the wire. Dropping it ends the thread, and with it the namespace.
pub(super) struct End<T> {
    pub(super) tap: File,
    /// None once it was waited for.
    thread: Option<JoinHandle<io::Result<T>>>,
    stop: Arc<AtomicBool>,
}

impl<T: Send + 'static> End<T> {
    fn start(
        address: &'static str,
        act: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (made, tap): (_, Receiver<File>) = channel();
        let thread = thread::Builder::new()
            .name("wire-end".to_owned())
            .spawn(move || {
                go_before_others()?;
                let file = tap::enter(address)?;
                made.send(file).map_err(io::Error::other)?;
                act(&stopped)
            })?;
        match tap.recv() {
            Ok(tap) => Ok(Self {
                tap,
                thread: Some(thread),
                stop,
            }),
            // It failed before that, and says why.
            Err(_) => Err(join(thread).err().unwrap_or(io::ErrorKind::Other.into())),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end, which comes soon.
    pub(super) fn stop(mut self) -> io::Result<T> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        thread.map_or(Err(io::ErrorKind::Other.into()), join)
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Whoever drops it has its own error.
            let _ = thread.join();
        }
    }
}

/// Gives the calling thread the highest priority that is not real-time.
pub(super) fn go_before_others() -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, -20)?)
}

fn join<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    let panicked = |_| io::Error::other("an end of the wire panicked");
    thread.join().map_err(panicked)?
}

/// The byte at `at` of every transfer.
pub(super) fn byte(at: usize) -> u8 {
    (at.wrapping_mul(31) ^ at >> 8 ^ at >> 16) as u8
}

/// Sends `bytes` bytes to the first who connects.
pub(super) fn sender(address: &'static str, at: SocketAddr, bytes: usize) -> io::Result<End<()>> {
    End::start(address, move |stop| {
        let listener = TcpListener::bind(at)?;
        // What it accepts has the same.
        set_tcp_congestion(&listener, CONGESTION)?;
        listener.set_nonblocking(true)?;
        let Some(mut stream) = accept(&listener, stop)? else {
            return Ok(());
        };
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(SLICE))?;
        stream.set_read_timeout(Some(SLICE))?;
        let mut sent = 0;
        while sent < bytes && !stop.load(Ordering::Relaxed) {
            let chunk: Vec<u8> = (sent..bytes.min(sent + CHUNK)).map(byte).collect();
            match stream.write(&chunk) {
                Ok(n) => sent += n,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        stream.shutdown(std::net::Shutdown::Write)?;
        // Until the receiver has it all: the wire must not lose its last segments' end.
        while !stop.load(Ordering::Relaxed) {
            match stream.read(&mut [0; 16]) {
                Err(error) if is_timeout(&error) => {}
                _ => break,
            }
        }
        Ok(())
    })
}

fn accept(listener: &TcpListener, stop: &AtomicBool) -> io::Result<Option<TcpStream>> {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(error) if is_timeout(&error) => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Connects and receives until the end, at most for `limit`.
pub(super) fn receiver(
    address: &'static str,
    from: SocketAddr,
    limit: Duration,
) -> io::Result<End<Received>> {
    End::start(address, move |stop| {
        let begin = Instant::now();
        let mut stream = connect(from, limit, stop)?;
        stream.set_read_timeout(Some(SLICE))?;
        let mut received = Received {
            took: Duration::ZERO,
            bytes: 0,
            is_right: true,
        };
        let mut buf = vec![0; CHUNK];
        while !stop.load(Ordering::Relaxed) {
            match stream.read(&mut buf) {
                Ok(0) => return Ok(received),
                Ok(n) => {
                    let mut got = buf[..n].iter().zip(received.bytes..);
                    received.is_right &= got.all(|(value, at)| *value == byte(at));
                    received.bytes += n;
                    received.took = begin.elapsed();
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{} bytes after {} s", received.bytes, limit.as_secs()),
        ))
    })
}

/// Connects to `to`, at most for `limit`, and until `stop`. One attempt: a new one would lose
/// the answers to the first.
fn connect(to: SocketAddr, limit: Duration, stop: &AtomicBool) -> io::Result<TcpStream> {
    let begin = Instant::now();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let stream = TcpStream::from(socket);
    while !stop.load(Ordering::Relaxed) && begin.elapsed() < limit {
        let mut files = [PollFd::new(&stream, PollFlags::OUT)];
        let slice = Timespec::try_from(SLICE).ok();
        match poll(&mut files, slice.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => {
                stream.take_error()?.map_or(Ok(()), Err)?;
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    let s = begin.elapsed().as_secs_f64();
    let why = format!("no connection after {s:.1} s");
    Err(io::Error::new(io::ErrorKind::TimedOut, why))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "192.0.2.1:80";

    fn can_run() -> bool {
        let why = super::super::obstacle();
        if let Some(why) = &why {
            tare_vmtest::lacks(why);
        }
        why.is_none()
    }

    #[test]
    fn a_dropped_end_has_ended_its_thread() {
        if !can_run() {
            return;
        }
        let end = sender("192.0.2.1/24", AT.parse().unwrap(), 1).unwrap();
        let stop = Arc::clone(&end.stop);
        assert_eq!(Arc::strong_count(&stop), 3, "the end, its thread, the test");
        drop(end);
        assert_eq!(Arc::strong_count(&stop), 1);
    }

    #[test]
    fn a_receiver_without_an_answer_stops_on_request() {
        if !can_run() {
            return;
        }
        // No process reads the tap: the connection would wait for the whole limit.
        let limit = Duration::from_secs(3600);
        let end = receiver("192.0.2.2/24", AT.parse().unwrap(), limit).unwrap();
        assert!(!end.is_finished());
        assert_eq!(end.stop().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

//! System calls, each timed: what the guests of `tailor` and `calls` run.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

/// Kinds of calls, by the names of their figures.
pub const KINDS: [&str; 6] = [
    "getppid",
    "read",
    "write",
    "stat",
    "open_close",
    "send_recv",
];

/// Makes `count` calls of each kind and prints how long each took, ns: a JSON object a kind.
pub fn print(count: usize) -> io::Result<()> {
    for kind in KINDS {
        println!("{{\"{kind}\":{:?}}}", measure(kind, count)?);
    }
    Ok(())
}

/// Makes `count` calls of a kind of [`KINDS`] on files and connections that it opens; gives how
/// long each took, ns, without reading the clock.
pub fn measure(kind: &str, count: usize) -> io::Result<Vec<u64>> {
    let empty = cost_of(count, || Ok(()))?;
    let overhead = empty.iter().min().copied().unwrap_or(0);
    let times = times(kind, count)?.into_iter();
    Ok(times.map(|time| time.saturating_sub(overhead)).collect())
}

fn times(kind: &str, count: usize) -> io::Result<Vec<u64>> {
    let mut byte = [0; 1];
    match kind {
        "getppid" => cost_of(count, || {
            let _ = rustix::process::getppid();
            Ok(())
        }),
        "read" => {
            let mut zero = File::open("/dev/zero")?;
            cost_of(count, || zero.read_exact(&mut byte))
        }
        "write" => {
            let mut null = File::create("/dev/null")?;
            cost_of(count, || null.write_all(b"x"))
        }
        "stat" => cost_of(count, || std::fs::metadata("/dev/null").map(drop)),
        "open_close" => cost_of(count, || File::open("/dev/null").map(drop)),
        "send_recv" => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let mut near = TcpStream::connect(listener.local_addr()?)?;
            let (mut far, _) = listener.accept()?;
            near.set_nodelay(true)?;
            cost_of(count, || {
                near.write_all(b"x")?;
                far.read_exact(&mut byte)
            })
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("no kind of call is named {kind:?}"),
        )),
    }
}

fn cost_of(count: usize, mut call: impl FnMut() -> io::Result<()>) -> io::Result<Vec<u64>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        call()?;
        let took = begin.elapsed();
        times.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_measured_by_its_name() -> io::Result<()> {
        for kind in KINDS {
            assert_eq!(measure(kind, 3)?.len(), 3, "{kind}");
        }
        assert!(measure("fork", 1).is_err());
        Ok(())
    }

    #[test]
    fn each_call_is_made_so_often() -> io::Result<()> {
        let mut made = 0;
        let times = cost_of(7, || {
            made += 1;
            Ok(())
        })?;
        assert_eq!((times.len(), made), (7, 7));
        Ok(())
    }
}

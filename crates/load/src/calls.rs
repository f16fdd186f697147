//! System calls, each timed: what the guests of `tailor` run.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

/// Makes `count` calls of each kind and prints how long each took, ns: a JSON object a kind.
pub fn print(count: usize) -> io::Result<()> {
    let mut zero = File::open("/dev/zero")?;
    let mut null = File::create("/dev/null")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    let empty = cost_of(count, || Ok(()))?;
    let overhead = empty.iter().min().copied().unwrap_or(0);
    let report = |name: &str, mut times: Vec<u64>| {
        times
            .iter_mut()
            .for_each(|time| *time = time.saturating_sub(overhead));
        println!("{{\"{name}\":{times:?}}}");
    };
    let mut byte = [0; 1];
    report(
        "getppid",
        cost_of(count, || {
            let _ = rustix::process::getppid();
            Ok(())
        })?,
    );
    report("read", cost_of(count, || zero.read_exact(&mut byte))?);
    report("write", cost_of(count, || null.write_all(b"x"))?);
    report(
        "stat",
        cost_of(count, || std::fs::metadata("/dev/null").map(drop))?,
    );
    report(
        "open_close",
        cost_of(count, || File::open("/dev/null").map(drop))?,
    );
    report(
        "send_recv",
        cost_of(count, || {
            near.write_all(b"x")?;
            far.read_exact(&mut byte)
        })?,
    );
    Ok(())
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

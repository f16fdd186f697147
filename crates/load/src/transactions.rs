//! One byte each way over the host's loopback, between two threads that are pinned to one CPU
//! or to two.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

use crate::pin;

/// Transactions that are not counted.
const WARM_UP: usize = 20;

/// Times of transactions in ns, client and server on `cpus` CPUs.
pub fn measure(count: usize, cpus: usize) -> io::Result<Vec<f64>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    // A client that has gone ends the server.
    let server = || drop(serve(&listener));
    pin::pair(cpus, server, || ask(TcpStream::connect(address)?, count))
}

fn serve(listener: &TcpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut byte = [0];
    while stream.read(&mut byte)? > 0 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

fn ask(mut stream: TcpStream, count: usize) -> io::Result<Vec<f64>> {
    stream.set_nodelay(true)?;
    let mut last = Instant::now();
    let mut times = Vec::with_capacity(count);
    for transaction in 0..WARM_UP + count {
        stream.write_all(b"?")?;
        stream.read_exact(&mut [0])?;
        let now = Instant::now();
        if transaction >= WARM_UP {
            times.push(now.duration_since(last).as_nanos() as f64);
        }
        last = now;
    }
    Ok(times)
}

/// Does the transactions and prints them as the image does, a tick being a ns.
pub fn print(transactions: usize, cpus: usize) -> io::Result<()> {
    println!("{{\"khz\":1000000}}");
    let times = measure(transactions, cpus)?;
    let times: Vec<String> = times.iter().map(|ns| format!("{ns}")).collect();
    for batch in times.chunks(100) {
        println!("{{\"rr\":[{}]}}", batch.join(","));
    }
    println!("{{\"transactions\":{transactions}}}");
    println!("{{\"done\":true}}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transaction_takes_some_time() {
        let times = measure(100, 1).unwrap();
        assert_eq!(times.len(), 100);
        assert!(times.iter().all(|ns| *ns > 0.0), "{times:?}");
    }
}

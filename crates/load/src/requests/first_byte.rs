//! The first byte of the first answer of a machine that just came up.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::request::Target;
use crate::interrupt::{Interrupt, Interrupted};

/// How long one attempt may take: a forwarder may accept a connection that the
/// machine never sees, so a silent one is given up soon.
const ATTEMPT: Duration = Duration::from_millis(500);
/// Pause after an attempt that failed at once.
const PAUSE: Duration = Duration::from_millis(2);

/// Asks until the first byte of an answer comes, and says when it came; `None`
/// if none did within `timeout`.
pub fn first_byte(
    target: &Target,
    timeout: Duration,
    interrupt: &Interrupt,
) -> Result<Option<Instant>, Interrupted> {
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline {
        interrupt.check()?;
        match attempt(target) {
            Ok(at) => return Ok(Some(at)),
            Err(_) => interrupt.sleep(PAUSE)?,
        }
    }
    Ok(None)
}

fn attempt(target: &Target) -> std::io::Result<Instant> {
    let mut stream = TcpStream::connect_timeout(&target.address, ATTEMPT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ATTEMPT))?;
    let (path, address) = (&target.path, target.address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    let at = Instant::now();
    let mut rest = Vec::new();
    // To the end, so that the server is not reset in the middle of its answer.
    let _ = stream.take(1 << 20).read_to_end(&mut rest);
    Ok(at)
}

//! The filter of frames for the QEMU engine: QEMU cannot filter by address, so its network socket
//! leads here, and from here to passt.
//!
//! One blocking thread for each direction. Frames have QEMU's framing, a 32-bit big-endian length
//! before each. The relay ends when either side closes.

use std::io;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tare_frames::{Filter, Rules, Verdict};
use tare_passt::framing::{PREFIX, sent_together};

/// Longest frame that QEMU sends (`NET_BUFSIZE` is 4096 + 65536).
const MAX_FRAME: usize = 69_632;
/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// Starts to relay between a guest's socket and passt's.
pub(crate) fn start(guest: UnixStream, network: UnixStream, rules: Rules) -> io::Result<()> {
    let filter = Arc::new(Mutex::new(Filter::new(rules)));
    let (from_guest, to_network) = (guest.try_clone()?, network.try_clone()?);
    let outgoing = Arc::clone(&filter);
    thread::Builder::new()
        .name("net-out".to_owned())
        .spawn(move || {
            relay(from_guest, to_network, |frame| {
                let filter = outgoing.lock().unwrap_or_else(PoisonError::into_inner);
                filter.check_outgoing(frame)
            });
        })?;
    thread::Builder::new()
        .name("net-in".to_owned())
        .spawn(move || {
            relay(network, guest, |frame| {
                let mut filter = filter.lock().unwrap_or_else(PoisonError::into_inner);
                filter.note_incoming(frame);
                Verdict::Pass
            });
        })?;
    Ok(())
}

/// Forwards the frames that `check` lets pass, until an end closes.
fn relay(mut from: UnixStream, mut to: UnixStream, mut check: impl FnMut(&[u8]) -> Verdict) {
    let mut pending = Vec::new();
    let mut chunk = vec![0; CHUNK];
    let mut forward = || -> io::Result<bool> {
        let count = from.read(&mut chunk)?;
        pending.extend_from_slice(&chunk[..count]);
        send(&mut to, &passing(&mut pending, &mut check)?)?;
        Ok(count > 0)
    };
    loop {
        match forward() {
            Ok(true) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(false) | Err(_) => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn send(to: &mut UnixStream, mut frames: &[u8]) -> io::Result<()> {
    while !frames.is_empty() {
        let (first, rest) = frames.split_at(sent_together(frames));
        to.write_all(first)?;
        frames = rest;
    }
    Ok(())
}

/// Removes the complete frames from `pending`; returns those that pass, with their lengths.
fn passing(pending: &mut Vec<u8>, check: &mut impl FnMut(&[u8]) -> Verdict) -> io::Result<Vec<u8>> {
    let mut passed = Vec::with_capacity(pending.len());
    let mut rest = pending.as_slice();
    while let Some((prefix, after)) = rest.split_first_chunk::<PREFIX>() {
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > MAX_FRAME {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some((frame, after)) = after.split_at_checked(length) else {
            break;
        };
        if check(frame) == Verdict::Pass {
            passed.extend_from_slice(prefix);
            passed.extend_from_slice(frame);
        }
        rest = after;
    }
    let taken = pending.len() - rest.len();
    pending.drain(..taken);
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;

    /// An ARP request for `target`.
    fn arp(target: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0; 42];
        frame[12..22].copy_from_slice(&[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame[28..32].copy_from_slice(&[10, 0, 2, 15]);
        frame[38..42].copy_from_slice(&target);
        let mut framed = 42_u32.to_be_bytes().to_vec();
        framed.extend(frame);
        framed
    }

    #[test]
    fn a_frame_to_loopback_ends_here_and_the_next_passes() {
        let (mut guest, ours) = UnixStream::pair().expect("a pair");
        let (theirs, mut network) = UnixStream::pair().expect("a pair");
        start(ours, theirs, Rules::default()).expect("a relay");
        let (closed, open) = (arp([127, 0, 0, 1]), arp([10, 0, 2, 2]));
        guest.write_all(&closed).expect("written");
        for byte in &open {
            guest.write_all(&[*byte]).expect("written");
        }
        let mut got = vec![0; open.len()];
        network.read_exact(&mut got).expect("a frame");
        assert_eq!(got, open);
        network.write_all(&closed).expect("written");
        guest.read_exact(&mut got).expect("a frame");
        assert_eq!(got, closed, "what comes in is not filtered");
        drop(guest);
        assert_eq!(network.read(&mut got).expect("the end"), 0);
    }

    #[test]
    fn no_write_ends_within_a_frame() {
        // Packets show what is written at once.
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair");
        let all = arp([10, 0, 2, 2]).repeat(1000);
        send(&mut ours.into(), &all).expect("sent");
        let (mut received, mut chunk) = (0, vec![0; all.len()]);
        while received < all.len() {
            let (count, _) = recv(&theirs, &mut chunk[..], RecvFlags::DONTWAIT).expect("a packet");
            assert_eq!(count % 46, 0);
            received += count;
        }
    }

    #[test]
    fn a_length_that_no_frame_has_ends_the_relay() {
        let (mut guest, ours) = UnixStream::pair().expect("a pair");
        let (theirs, mut network) = UnixStream::pair().expect("a pair");
        start(ours, theirs, Rules::default()).expect("a relay");
        guest.write_all(&[0xff; 8]).expect("written");
        assert_eq!(network.read(&mut [0]).expect("the end"), 0);
    }
}

//! A stream socket with QEMU's framing: a 32-bit big-endian length before each
//! Ethernet frame (QEMU `net/socket.c`, passt `tap.c`).
//!
//! One buffer each way: one `recv` brings as many frames as there are, one `send` takes a batch. A
//! `recv` that leaves room in the buffer has emptied the socket: there is none after it until the
//! socket is readable again. An impossible length means that the stream has lost its framing, which
//! cannot be recovered: the link closes.
//!
//! passt connects to any address, so what the guest may not reach is dropped
//! here ([`tare_frames::Filter`]) and counted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tare_devices::net::{Link, LinkError, LinkFeatures, LinkOffload, NetHeader, RxFrame};
use tare_frames::{Filter, Rules, Verdict};
use tare_passt::framing::{PREFIX, sent_together};

use super::dropped::FilterCounters;
use crate::complaint::complain;

/// Bytes of each buffer beyond one frame: a batch of TCP segments.
const BATCH: usize = 64 << 10;

/// The link.
pub struct StreamLink {
    socket: OwnedFd,
    max_frame: usize,
    rx: Window,
    /// Whether the last `recv` emptied the socket.
    emptied: Emptied,
    tx: Window,
    /// Bytes of `tx` that are left of those that are sent together.
    sending: usize,
    /// Length of the frame being written to `tx`.
    reserved: usize,
    /// None for frames to a guest.
    filter: Option<Filter>,
    dropped: Arc<FilterCounters>,
    peer: Peer,
    /// What its end means; `None` if nothing is to be said of it.
    down: Option<&'static str>,
}

/// A buffer and the range of it in use.
struct Window {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emptied {
    Yes,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    There,
    Gone,
}

impl Window {
    fn new(size: usize) -> Self {
        Self {
            bytes: vec![0; size].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    fn used(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn drop_front(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Moves the used part to the front if less than `room` bytes are free behind it.
    fn make_room(&mut self, room: usize) -> usize {
        if self.bytes.len() - self.end < room && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        self.bytes.len() - self.end
    }
}

impl StreamLink {
    /// A link over a connected stream socket; `max_frame` is the longest Ethernet frame, `rules`
    /// say which frames of the guest are dropped.
    pub fn new(socket: OwnedFd, max_frame: usize, rules: Rules) -> io::Result<Self> {
        rustix::net::getpeername(&socket)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let size = BATCH.max(2 * (max_frame + PREFIX));
        Ok(Self {
            socket,
            max_frame,
            rx: Window::new(size),
            emptied: Emptied::Unknown,
            tx: Window::new(size),
            sending: 0,
            reserved: 0,
            filter: Some(Filter::new(rules)),
            dropped: Arc::default(),
            peer: Peer::There,
            down: Some("the network is down"),
        })
    }

    /// A link whose peer is QEMU with a guest: nothing is dropped, and its end is expected.
    pub(crate) fn to_guest(socket: OwnedFd, max_frame: usize) -> io::Result<Self> {
        Ok(Self {
            filter: None,
            down: None,
            ..Self::new(socket, max_frame, Rules::default())?
        })
    }

    /// One that has published ports beside it, which do not end with it.
    pub(super) fn beside_ports(mut self) -> Self {
        self.down = Some(
            "passt has ended or did not start (see passt.log in the run directory), connections \
             of the guest are refused, and published ports go on",
        );
        self
    }

    /// Counts the guest's frames that the filter dropped.
    pub(crate) fn dropped(&self) -> Arc<FilterCounters> {
        Arc::clone(&self.dropped)
    }

    /// Whether the link is down.
    pub(super) fn is_gone(&self) -> bool {
        self.peer == Peer::Gone
    }

    /// The frame that was written to the room last reserved.
    pub(super) fn reserved(&mut self) -> &mut [u8] {
        let start = self.tx.end + PREFIX;
        &mut self.tx.bytes[start..start + self.reserved]
    }

    /// Length of the first frame in the receive buffer, if all of it is there.
    fn first_frame(&self) -> Result<Option<usize>, LinkError> {
        let Some((prefix, rest)) = self.rx.used().split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length == 0 || length > self.max_frame {
            let reason = format!("a frame of {length} bytes, {} at most", self.max_frame);
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason).into());
        }
        Ok((rest.len() >= length).then_some(length))
    }

    fn receive(&mut self) -> Result<usize, LinkError> {
        self.rx.make_room(self.max_frame + PREFIX);
        let free = &mut self.rx.bytes[self.rx.end..];
        let room = free.len();
        match recv(&self.socket, free, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(LinkError::Closed),
            Ok((count, _)) => {
                if count < room {
                    self.emptied = Emptied::Yes;
                }
                self.rx.end += count;
                Ok(count)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(of_errno(errno)),
        }
    }

    /// Reports once that the link is down.
    fn note<T>(&mut self, result: Result<T, LinkError>) -> Result<T, LinkError> {
        result.inspect_err(|error| {
            if self.peer == Peer::There {
                self.peer = Peer::Gone;
                if let Some(down) = self.down {
                    let error = tare_control::sentence::chain(error);
                    complain(format_args!("{down}: {error}"));
                }
            }
        })
    }

    fn fill(&mut self) -> Result<Option<usize>, LinkError> {
        loop {
            if let Some(length) = self.first_frame()? {
                return Ok(Some(length));
            }
            // Data that has arrived meanwhile makes the socket readable, and so does the peer's
            // end.
            let emptied = std::mem::replace(&mut self.emptied, Emptied::Unknown);
            if emptied == Emptied::Yes || self.receive()? == 0 {
                return Ok(None);
            }
        }
    }

    fn drain(&mut self) -> Result<(), LinkError> {
        while self.has_unsent() {
            if self.sending == 0 {
                self.sending = sent_together(self.tx.used());
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &self.tx.used()[..self.sending], flags) {
                Ok(count) => {
                    self.sending -= count;
                    self.tx.drop_front(count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(of_errno(errno)),
            }
        }
        Ok(())
    }
}

fn of_errno(errno: Errno) -> LinkError {
    match errno {
        Errno::PIPE | Errno::CONNRESET => LinkError::Closed,
        _ => LinkError::Io(errno.into()),
    }
}

impl AsFd for StreamLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link for StreamLink {
    fn features(&self) -> LinkFeatures {
        LinkFeatures {
            max_frame: self.max_frame,
            offload: LinkOffload::TrustedRx,
        }
    }

    fn peek(&mut self) -> Result<Option<RxFrame<'_>>, LinkError> {
        let filled = self.fill();
        let Some(length) = self.note(filled)? else {
            return Ok(None);
        };
        let start = self.rx.start + PREFIX;
        let bytes = &mut self.rx.bytes[start..start + length];
        if let Some(filter) = &mut self.filter {
            filter.note_incoming(bytes);
        }
        Ok(Some(RxFrame {
            header: NetHeader::default(),
            bytes,
        }))
    }

    fn consume(&mut self) {
        if let Ok(Some(length)) = self.first_frame() {
            self.rx.drop_front(PREFIX + length);
        }
    }

    fn reserve(&mut self, len: usize) -> Result<Option<&mut [u8]>, LinkError> {
        let needed = PREFIX + len;
        if self.tx.make_room(needed) < needed {
            let drained = self.drain();
            self.note(drained)?;
            if self.tx.make_room(needed) < needed {
                return Ok(None);
            }
        }
        self.reserved = len;
        let start = self.tx.end + PREFIX;
        Ok(Some(&mut self.tx.bytes[start..start + len]))
    }

    fn commit(&mut self, _header: &NetHeader) -> Result<(), LinkError> {
        let at = self.tx.end;
        let length = std::mem::take(&mut self.reserved);
        let end = at + PREFIX + length;
        // The frame is a copy, which the guest cannot change any more.
        let frame = &self.tx.bytes[at + PREFIX..end];
        let verdict = self.filter.as_mut().map(|it| it.check_outgoing(frame));
        match verdict.unwrap_or(Verdict::Pass) {
            Verdict::Pass => {
                let prefix = (length as u32).to_be_bytes();
                self.tx.bytes[at..at + PREFIX].copy_from_slice(&prefix);
                self.tx.end = end;
            }
            Verdict::Drop(reason) => self.dropped.count(reason),
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        let drained = self.drain();
        self.note(drained)
    }

    fn has_unsent(&self) -> bool {
        self.tx.start < self.tx.end
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    const MAX: usize = 1514;
    /// A protocol that always passes the filter.
    const RARP: [u8; 2] = [0x80, 0x35];

    fn pair() -> (StreamLink, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (
            StreamLink::new(ours.into(), MAX, Rules::default()).unwrap(),
            theirs,
        )
    }

    /// Another process, since a test's own messages go to the harness.
    #[test]
    fn a_closed_standard_error_does_not_end_the_process() {
        const AGAIN: &str = "TARE_TEST_CLOSED_STDERR";
        if std::env::var_os(AGAIN).is_some() {
            let (mut link, peer) = pair();
            drop(peer);
            return assert!(matches!(link.peek(), Err(LinkError::Closed)));
        }
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let name = "link::stream::tests::a_closed_standard_error_does_not_end_the_process";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name, "--nocapture"]).env(AGAIN, "1");
        assert!(again.stderr(writer).status().unwrap().success());
    }

    fn framed(frame: &[u8]) -> Vec<u8> {
        let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(frame);
        bytes
    }

    fn send(link: &mut StreamLink, frame: &[u8]) {
        let room = link.reserve(frame.len()).unwrap();
        room.unwrap().copy_from_slice(frame);
        link.commit(&NetHeader::default()).unwrap();
        link.flush().unwrap();
    }

    fn peeked(link: &mut StreamLink) -> Option<Vec<u8>> {
        link.peek().unwrap().map(|frame| frame.bytes.to_vec())
    }

    #[test]
    fn a_frame_that_comes_in_pieces_is_put_together() {
        let (mut link, mut peer) = pair();
        for byte in framed(b"hello") {
            assert_eq!(peeked(&mut link), None);
            peer.write_all(&[byte]).unwrap();
        }
        assert_eq!(peeked(&mut link).unwrap(), b"hello");
        assert_eq!(peeked(&mut link).unwrap(), b"hello", "until it is consumed");
        link.consume();
        assert_eq!(peeked(&mut link), None);
    }

    #[test]
    fn many_frames_survive_the_end_of_the_buffer() {
        let (mut link, mut peer) = pair();
        let frames: Vec<Vec<u8>> = (0..200u8)
            .map(|n| vec![n; 60 + usize::from(n) * 7])
            .collect();
        let sent = frames.clone();
        let writer = std::thread::spawn(move || {
            sent.iter()
                .for_each(|f| peer.write_all(&framed(f)).unwrap());
            peer
        });
        for frame in &frames {
            let got = loop {
                match peeked(&mut link) {
                    Some(got) => break got,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(&got, frame);
            link.consume();
        }
        drop(writer.join().unwrap());
    }

    #[test]
    fn lengths_that_no_frame_has_close_the_link() {
        for length in [0, MAX as u32 + 1, u32::MAX] {
            let (mut link, mut peer) = pair();
            peer.write_all(&length.to_be_bytes()).unwrap();
            assert!(matches!(link.peek(), Err(LinkError::Io(_))), "{length}");
        }
    }

    #[test]
    fn the_peers_end_closes_the_link_after_its_last_frame() {
        let (mut link, mut peer) = pair();
        peer.write_all(&framed(b"last")).unwrap();
        drop(peer);
        assert_eq!(peeked(&mut link).unwrap(), b"last");
        link.consume();
        assert_eq!(peeked(&mut link), None, "the socket is still readable");
        assert!(matches!(link.peek(), Err(LinkError::Closed)));
    }

    #[test]
    fn a_full_socket_refuses_room_until_it_drains() {
        let (mut link, mut peer) = pair();
        let mut sent = 0;
        while let Some(room) = link.reserve(1000).unwrap() {
            room.fill(7);
            room[12..14].copy_from_slice(&RARP);
            link.commit(&NetHeader::default()).unwrap();
            link.flush().unwrap();
            sent += 1;
        }
        assert!(link.has_unsent());
        let mut received = vec![0; sent * 1004];
        let reader = std::thread::spawn(move || peer.read_exact(&mut received).map(|()| received));
        while link.has_unsent() {
            link.flush().unwrap();
        }
        let received = reader.join().unwrap().unwrap();
        for frame in received.chunks(1004) {
            assert_eq!(frame[..4], 1000u32.to_be_bytes());
            assert!(frame[18..].iter().all(|byte| *byte == 7));
        }
        assert!(link.reserve(1000).unwrap().is_some());
    }

    #[test]
    fn no_send_ends_within_a_frame() {
        // Packets show what is sent at once.
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let mut link = StreamLink::new(ours, MAX, Rules::default()).unwrap();
        let mut sent = 0;
        for length in (60..MAX).step_by(13) {
            let room = link.reserve(length).unwrap().unwrap();
            room.fill(7);
            room[12..14].copy_from_slice(&RARP);
            link.commit(&NetHeader::default()).unwrap();
            sent += PREFIX + length;
        }
        let mut packet = vec![0; sent];
        while sent > 0 {
            link.flush().unwrap();
            let (count, _) = recv(&theirs, &mut packet[..], RecvFlags::DONTWAIT).unwrap();
            let mut frames = &packet[..count];
            while let Some((prefix, rest)) = frames.split_first_chunk::<PREFIX>() {
                frames = &rest[u32::from_be_bytes(*prefix) as usize..];
            }
            assert!(frames.is_empty());
            sent -= count;
        }
    }

    #[test]
    fn room_that_is_not_committed_is_not_sent() {
        let (mut link, mut peer) = pair();
        link.reserve(100).unwrap().unwrap().fill(1);
        send(&mut link, b"twelve bytes\x80\x35");
        drop(link);
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        assert_eq!(received, framed(b"twelve bytes\x80\x35"));
    }

    #[test]
    fn a_frame_that_the_filter_drops_is_counted_and_not_sent() {
        let (mut link, mut peer) = pair();
        send(&mut link, b"twelve bytes\x08\x00 short");
        send(&mut link, b"twelve bytes\x80\x35");
        assert_eq!(link.dropped().tx_filtered_malformed.get(), 1);
        drop(link);
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        assert_eq!(received, framed(b"twelve bytes\x80\x35"));
    }
}

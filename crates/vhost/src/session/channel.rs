//! The back-end's own channel to its front-end (QEMU `docs/interop/vhost-user.rst`,
//! `VHOST_USER_SET_BACKEND_REQ_FD`), for one message: the configuration has changed.
//!
//! The `vhost` crate 0.18 checks the descriptor, keeps it, and has no call for that message.
//! So a copy is taken when the front-end's message is looked at, before the crate reads it,
//! and used once the crate has accepted it. What is sent never waits: where the front-end
//! does not read, the message is left out and counted.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::IoSliceMut;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg,
    sendmsg,
};

/// `VHOST_USER_SET_BACKEND_REQ_FD`.
const SET_BACKEND_REQ_FD: u32 = 21;
/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
const CONFIG_CHANGE: u32 = 2;
/// Version 1 of the protocol, no reply wanted.
const FLAGS: u32 = 1;

/// The channel, from the moment when the front-end has given it.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// The channel that comes with the message at the head of `socket`, if that is the message
    /// which gives one. The message stays there.
    pub(crate) fn look(socket: BorrowedFd<'_>) -> Option<Self> {
        // Descriptors of other messages are not copied: to close a copy can take a while.
        let mut none = RecvAncillaryBuffer::default();
        if peek(socket, &mut none)? != SET_BACKEND_REQ_FD {
            return None;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut descriptors = RecvAncillaryBuffer::new(&mut space);
        peek(socket, &mut descriptors)?;
        let given = descriptors.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut given) => given.next(),
            _ => None,
        });
        given.map(Self)
    }

    /// Tells the front-end to read the configuration again. Never waits.
    pub(crate) fn config_changed(&self) -> io::Result<()> {
        let mut message = [0; 12];
        message[..4].copy_from_slice(&CONFIG_CHANGE.to_le_bytes());
        message[4..8].copy_from_slice(&FLAGS.to_le_bytes());
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let nothing = &mut SendAncillaryBuffer::default();
        let sent = sendmsg(&self.0, &[IoSlice::new(&message)], nothing, flags)?;
        match sent {
            12 => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// The request of the message at the head of `socket`, and copies of its descriptors.
fn peek(socket: BorrowedFd<'_>, descriptors: &mut RecvAncillaryBuffer<'_>) -> Option<u32> {
    let mut request = [0; 4];
    let buffer = &mut [IoSliceMut::new(&mut request)];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let seen = recvmsg(socket, buffer, descriptors, flags).ok()?.bytes;
    (seen == request.len()).then(|| u32::from_le_bytes(request))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::{AsFd as _, AsRawFd as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_front_end_that_does_not_read_is_not_waited_for() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let channel = Channel(ours.into());
        channel.config_changed().unwrap();
        let mut message = [0xff; 12];
        theirs.read_exact(&mut message).unwrap();
        assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let refused = std::iter::repeat_with(|| channel.config_changed())
            .find_map(Result::err)
            .unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(theirs);
        assert!(channel.config_changed().is_err(), "and no signal");
    }

    #[test]
    fn only_its_message_gives_a_channel_and_the_message_stays() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(Channel::look(ours.as_fd()).is_none(), "nothing there");
        (&theirs).write_all(&[21, 0, 0, 0]).unwrap();
        assert!(Channel::look(ours.as_fd()).is_none(), "no descriptor");
        let mut request = [0; 4];
        (&ours).read_exact(&mut request).unwrap();
        let (given, mut other) = UnixStream::pair().unwrap();
        for code in [20u32, 21] {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut with = SendAncillaryBuffer::new(&mut space);
            let given = [given.as_fd()];
            assert!(with.push(rustix::net::SendAncillaryMessage::ScmRights(&given)));
            let body = code.to_le_bytes();
            sendmsg(
                &theirs,
                &[IoSlice::new(&body)],
                &mut with,
                SendFlags::empty(),
            )
            .unwrap();
            let seen = Channel::look(ours.as_fd());
            assert_eq!(seen.is_some(), code == 21);
            if let Some(channel) = seen {
                assert_ne!(channel.0.as_raw_fd(), given[0].as_raw_fd());
                channel.config_changed().unwrap();
                other.read_exact(&mut [0; 12]).unwrap();
            }
            (&ours).read_exact(&mut request).unwrap();
            assert_eq!(request, body);
        }
    }
}

//! Frames on a stream socket, as QEMU has them there (`net/socket.c`): a 32-bit big-endian length
//! before each.

/// Bytes of the length.
pub const PREFIX: usize = 4;
/// Most bytes that are sent together, unless one frame is longer.
const MOST: usize = 32 << 10;

/// Bytes at the front of `frames`, which begin with a length, to be sent by one call: whole frames.
///
/// Debian 12's passt (`tap_handler_passt` in tap.c at 7c7625d) drops a length that a read cuts, takes what
/// follows for a length, and waits in a read for a frame that does not exist: all of its connections
/// stop until the guest sends more, which it drops too. Linux keeps what one call sends together up to 36 KiB (`unix_stream_sendmsg` in
/// net/unix/af_unix.c), and a read takes all of it.
pub fn sent_together(frames: &[u8]) -> usize {
    let mut end = 0;
    while let Some(prefix) = frames[end..].first_chunk::<PREFIX>() {
        let next = end + PREFIX + u32::from_be_bytes(*prefix) as usize;
        if end > 0 && next > MOST {
            break;
        }
        end = next;
    }
    end.min(frames.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(lengths: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for length in lengths {
            bytes.extend((*length as u32).to_be_bytes());
            bytes.resize(bytes.len() + length, 7);
        }
        bytes
    }

    #[test]
    fn whole_frames_are_sent_together() {
        for (lengths, together) in [
            (&[][..], 0),
            (&[60], 1),
            (&[60, 1514, 60], 3),
            (&[16_380, 16_380, 1], 2),
            (&[16_380, 16_381], 1),
            (&[65_550, 60], 1),
            (&[60, 65_550], 1),
        ] {
            let expected: usize = lengths[..together].iter().map(|len| PREFIX + len).sum();
            assert_eq!(sent_together(&frames(lengths)), expected, "{lengths:?}");
        }
    }
}

//! Layers compressed by zstd: frames one after another, with frames between
//! that are to be skipped, as containers' tools write them for lazy pulling.
//!
//! The decoder is plain safe Rust. It keeps a window of 128 MiB at most, as
//! zstd's own program does.
//! Reference: RFC 8878.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const MAX_WINDOW_BYTES: u64 = 128 << 20;

/// The plain bytes of all frames of `source`.
pub(super) struct ZstdReader<R> {
    source: R,
    decoder: FrameDecoder,
    frame: Frame,
}

#[derive(PartialEq, Eq)]
enum Frame {
    Begun,
    Between,
}

impl<R: BufRead> ZstdReader<R> {
    pub(super) fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW_BYTES);
        Self {
            source,
            decoder,
            frame: Frame::Between,
        }
    }

    /// Decodes until there are bytes to read; `false` at the end.
    fn fill(&mut self) -> io::Result<bool> {
        while self.decoder.can_collect() == 0 {
            match self.frame {
                Frame::Between if self.source.fill_buf()?.is_empty() => return Ok(false),
                Frame::Between => self.begin()?,
                Frame::Begun if self.decoder.is_finished() => self.end()?,
                Frame::Begun => {
                    let one = BlockDecodingStrategy::UptoBlocks(1);
                    let decoded = self.decoder.decode_blocks(&mut self.source, one);
                    decoded.map_err(io::Error::other)?;
                }
            }
        }
        Ok(true)
    }

    fn begin(&mut self) -> io::Result<()> {
        match self.decoder.init(&mut self.source) {
            Ok(()) => {
                self.frame = Frame::Begun;
                Ok(())
            }
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => self.skip(length.into()),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.source.by_ref().take(bytes), &mut io::sink())?;
        if skipped == bytes {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.frame = Frame::Between;
        let said = self.decoder.get_checksum_from_data();
        if said.is_none() || said == self.decoder.get_calculated_checksum() {
            Ok(())
        } else {
            Err(io::Error::other("a frame is not what its checksum says"))
        }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() || !self.fill()? {
            Ok(0)
        } else {
            self.decoder.read(to)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::testing::zstd;

    fn plain(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        ZstdReader::new(packed).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn frames_follow_each_other_and_some_are_skipped() {
        let long = b"abc".repeat(100_000);
        let skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00xyz";
        let packed = [&zstd(&long)[..], skipped, &zstd(b""), &zstd(b"end")].concat();
        assert_eq!(plain(&packed).unwrap(), [&long[..], b"end"].concat());
        assert_eq!(plain(b"").unwrap(), b"");
    }

    #[test]
    fn damage_is_noticed() {
        let packed = zstd(&b"abc".repeat(1000));
        for length in [1, 4, 8, packed.len() - 1] {
            assert!(plain(&packed[..length]).is_err(), "{length}");
        }
        let mut changed = packed;
        let last = changed.len() - 1;
        changed[last] ^= 1;
        assert!(plain(&changed).is_err());
        assert!(plain(b"\x50\x2a\x4d\x18\x04\x00\x00\x00xyz").is_err());
    }
}

//! Digests of an image's parts (OCI image specification, `descriptor.md`).

use std::io::{self, Read};

use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};

use super::ImageError;

/// Bytes hashed at a time.
const HASH_CHUNK: usize = 256 << 10;

/// A digest of an image's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    algorithm: Algorithm,
    digits: String,
    bytes: Vec<u8>,
}

/// An algorithm that the specification registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Sha256,
    Sha512,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

impl Digest {
    pub(super) fn parse(text: &str) -> Result<Self, ImageError> {
        let bad = || ImageError::BadDigest(text.to_owned());
        let (name, digits) = text.split_once(':').ok_or_else(bad)?;
        let algorithm = [Algorithm::Sha256, Algorithm::Sha512]
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(bad)?;
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        };
        let lower = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        if digits.len() != 2 * algorithm.bytes() || !digits.chars().all(lower) {
            return Err(bad());
        }
        Ok(Self {
            algorithm,
            bytes: digits.as_bytes().chunks(2).filter_map(byte).collect(),
            digits: digits.to_owned(),
        })
    }

    /// The blob's name in an image.
    pub(super) fn path(&self) -> String {
        format!("blobs/{}/{}", self.algorithm.name(), self.digits)
    }

    /// Reads `from` and compares it, at its end, with this digest.
    pub(super) fn comparing<R: Read>(&self, from: R) -> Comparing<'_, R> {
        let hash: Box<dyn DynDigest> = match self.algorithm {
            Algorithm::Sha256 => Box::<Sha256>::default(),
            Algorithm::Sha512 => Box::<Sha512>::default(),
        };
        Comparing {
            from,
            hash,
            digest: self,
        }
    }

    /// Whether it is the digest of what `part` reads.
    pub(super) fn matches(&self, part: impl Read) -> io::Result<bool> {
        self.comparing(part).matches()
    }
}

/// Hashes what is read through it.
pub(super) struct Comparing<'a, R> {
    from: R,
    hash: Box<dyn DynDigest>,
    digest: &'a Digest,
}

impl<R: Read> Comparing<'_, R> {
    /// Reads what is left; whether all of it has the digest.
    pub(super) fn matches(mut self) -> io::Result<bool> {
        let mut chunk = vec![0; HASH_CHUNK];
        while self.read(&mut chunk)? > 0 {}
        let mut found = vec![0; self.hash.output_size()];
        let is_complete = self.hash.finalize_into_reset(&mut found).is_ok();
        Ok(is_complete && found == self.digest.bytes)
    }
}

impl<R: Read> Read for Comparing<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(to)?;
        self.hash.update(&to[..n]);
        Ok(n)
    }
}

/// The hash of all that `part` reads.
pub(crate) fn hash<H: sha2::Digest>(mut part: impl Read) -> io::Result<Vec<u8>> {
    let mut hash = H::new();
    let mut chunk = vec![0; HASH_CHUNK];
    loop {
        match part.read(&mut chunk)? {
            0 => return Ok(hash.finalize().to_vec()),
            n => hash.update(&chunk[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digests_of_known_algorithms_become_names() {
        let digits = "0123456789abcdef".repeat(4);
        for (name, digits) in [("sha256", digits.clone()), ("sha512", digits.repeat(2))] {
            let digest = Digest::parse(&format!("{name}:{digits}")).unwrap();
            assert_eq!(digest.path(), format!("blobs/{name}/{digits}"));
            assert!(!digest.matches(&b""[..]).unwrap());
        }
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let empty = Digest::parse(&format!("sha256:{empty}")).unwrap();
        assert!(empty.matches(&b""[..]).unwrap() && !empty.matches(&b"x"[..]).unwrap());
        for bad in [
            "",
            "sha256:",
            "sha256:../../etc/passwd",
            "sha512:00",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            &format!("sha512:{digits}"),
            &digits,
        ] {
            assert!(Digest::parse(bad).is_err(), "{bad}");
        }
    }
}

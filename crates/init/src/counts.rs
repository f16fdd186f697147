//! Execution counts of a kernel that gcc has instrumented (`CONFIG_GCOV_KERNEL`): how the first process sends them
//! to the host.
//!
//! A line ([`header`]) with the number of bytes that follow, then files one after the other: length of the
//! name (u16) and name, length (u32) and content, little-endian. Most counters are small
//! numbers of eight bytes, or 0: a run of zeros is sent as one zero and its length (1 to 255).

/// The host's request for them, on the second serial port; nothing else is sent there.
pub const REQUEST: u8 = b'\n';
/// The port in the guest.
pub const PORT: &str = "/dev/ttyS1";
/// Begin of the first line.
const BEGIN: &str = "tare-counts/1 ";
/// Longest first line, bytes.
pub const HEADER_BYTES: usize = BEGIN.len() + 21;

/// The first line, for that many bytes.
pub fn header(bytes: usize) -> String {
    format!("{BEGIN}{bytes}\n")
}

/// The number of bytes that a first line announces; `None` of another line.
pub fn announced(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    let number = line.strip_prefix(BEGIN)?.strip_suffix('\n')?;
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| number.parse().ok())?
}

/// Adds a file to a list of them. One whose name or content is too long for its length is left out.
pub fn add(list: &mut Vec<u8>, name: &[u8], content: &[u8]) {
    let (Ok(name_bytes), Ok(bytes)) = (u16::try_from(name.len()), u32::try_from(content.len()))
    else {
        return;
    };
    list.extend(name_bytes.to_le_bytes());
    list.extend(name);
    list.extend(bytes.to_le_bytes());
    list.extend(content);
}

/// Bytes with runs of zeros as their length.
pub fn shortened(bytes: &[u8]) -> Vec<u8> {
    let mut short = Vec::new();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        short.push(first);
        rest = after;
        if first == 0 {
            let more = rest.iter().take(254).take_while(|byte| **byte == 0).count();
            // 1 to 255.
            short.push(u8::try_from(more + 1).unwrap_or(u8::MAX));
            rest = &rest[more..];
        }
    }
    short
}

/// The bytes that [`shortened`] made so; `None` for what it did not make, and for more than `most`.
pub fn restored(short: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = short.iter();
    while let Some(&byte) = rest.next() {
        let count = match byte {
            0 => usize::from(*rest.next().filter(|count| **count > 0)?),
            _ => 1,
        };
        if count > most - bytes.len() {
            return None;
        }
        bytes.resize(bytes.len() + count, byte);
    }
    Some(bytes)
}

/// The next file of a list, and what follows it; `None` where the list is damaged.
pub fn next(list: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (bytes, list) = list.split_first_chunk()?;
    let (name, list) = list.split_at_checked(u16::from_le_bytes(*bytes).into())?;
    let (bytes, list) = list.split_first_chunk()?;
    let bytes = usize::try_from(u32::from_le_bytes(*bytes)).ok()?;
    let (content, list) = list.split_at_checked(bytes)?;
    Some((name, content, list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_sent_as_their_number() {
        let long = [vec![0; 600], vec![7], vec![0]].concat();
        for bytes in [&b""[..], b"abc", b"\0", b"a\0\0\0b\0", &long] {
            let short = shortened(bytes);
            assert_eq!(restored(&short, bytes.len()).as_deref(), Some(bytes));
            if !bytes.is_empty() {
                assert_eq!(restored(&short, bytes.len() - 1), None, "more than allowed");
            }
        }
        assert_eq!(shortened(&long), [0, 255, 0, 255, 0, 90, 7, 0, 1]);
        assert_eq!(restored(&[0], 9), None, "without a number");
        assert_eq!(restored(&[0, 0], 9), None, "no zeros");
    }

    #[test]
    fn files_are_read_as_they_were_added() {
        let mut list = Vec::new();
        add(&mut list, b"a/b.gcda", b"12");
        add(&mut list, b"c", b"");
        let (name, content, rest) = next(&list).unwrap();
        assert_eq!((name, content), (&b"a/b.gcda"[..], &b"12"[..]));
        assert_eq!(next(rest), Some((&b"c"[..], &b""[..], &b""[..])));
        for cut in 0..rest.len() {
            assert_eq!(next(&rest[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_first_line_announces_a_number_of_bytes() {
        assert_eq!(announced(header(77).as_bytes()), Some(77));
        assert!(header(usize::MAX).len() <= HEADER_BYTES);
        for line in [
            "tare-counts/1 +7\n",
            "tare-counts/1 7",
            "tare-counts/2 7\n",
            "7\n",
        ] {
            assert_eq!(announced(line.as_bytes()), None, "{line}");
        }
    }
}

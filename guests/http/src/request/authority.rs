//! The authority of a request: what `Host` and an absolute target may name (RFC
//! 9110, 4.2 and 7.2; RFC 3986, 3.2). User information is not allowed, nor is an
//! empty host, nor one of dots alone.

/// Whether `bytes` are a host with or without a port.
pub(crate) fn is_valid(bytes: &[u8]) -> bool {
    let (host, port) = match bytes.first() {
        None => return false,
        Some(b'[') => match bytes.iter().position(|byte| *byte == b']') {
            Some(end) if is_ip_literal(&bytes[1..end]) => (&bytes[..1], &bytes[end + 1..]),
            _ => return false,
        },
        Some(_) => {
            let end = bytes.iter().position(|byte| !is_name(*byte));
            bytes.split_at(end.unwrap_or(bytes.len()))
        }
    };
    // Most hosts end at once in a letter or a digit.
    let named = host.iter().any(|byte| *byte != b'.');
    named && is_port(port)
}

/// The host of an authority that is valid, without its port and the dot behind a name.
pub(crate) fn name(authority: &[u8]) -> &[u8] {
    // A port has no bracket, so that the last colon outside of them is the port's.
    let colon = authority
        .iter()
        .rposition(|byte| matches!(byte, b':' | b']'));
    let host = match colon {
        Some(at) if authority[at] == b':' => &authority[..at],
        _ => authority,
    };
    host.strip_suffix(b".").unwrap_or(host)
}

fn is_name(byte: u8) -> bool {
    NAME[usize::from(byte)]
}

/// The unreserved characters and sub-delimiters, and the percent sign.
static NAME: [bool; 256] = {
    let mut table = [false; 256];
    let extra = b"-._~%!$&'()*+,;=";
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < extra.len() {
        table[extra[at] as usize] = true;
        at += 1;
    }
    table
};

fn is_ip_literal(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| is_name(*byte) || *byte == b':')
}

/// Nothing, or a colon and digits, which may be missing.
fn is_port(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports_are_valid() {
        for good in [
            "a",
            "a.example:80",
            "127.0.0.1",
            "[::1]",
            "[::1]:8080",
            "a:",
            "a_b",
            "a%20b",
            "a..b",
        ] {
            assert!(is_valid(good.as_bytes()), "{good}");
        }
    }

    #[test]
    fn a_name_is_a_host_without_its_port() {
        for (authority, host) in [
            ("a.example", "a.example"),
            ("a.example:80", "a.example"),
            ("a.example.:80", "a.example"),
            ("a.example.", "a.example"),
            ("a:", "a"),
            ("[::1]", "[::1]"),
            ("[::1]:8080", "[::1]"),
        ] {
            assert_eq!(name(authority.as_bytes()), host.as_bytes(), "{authority}");
        }
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for bad in [
            "",
            ".",
            "..",
            ":80",
            "a:b",
            "a:123456",
            "user@a",
            "user:pass@a",
            "a b",
            "a/b",
            "[]",
            "[::1",
            "[::1]x",
            "a,b c",
            "a\0",
            "a\u{e9}",
            "a:80:80",
            "http://a",
        ] {
            assert!(!is_valid(bad.as_bytes()), "{bad:?}");
        }
    }
}

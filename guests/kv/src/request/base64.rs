//! Base64 with its padding (RFC 4648, 4), as far as keys need it: decoding. A library's
//! engines and error types would be larger than this.

/// Decodes `text` into `room`; `None` for text that is not base64, is empty, or is too long.
pub(super) fn decode<'a>(text: &[u8], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let (chunks, rest) = text.as_chunks::<4>();
    if chunks.is_empty() || !rest.is_empty() {
        return None;
    }
    let mut len = 0;
    for (at, chunk) in chunks.iter().enumerate() {
        let padding = match chunk {
            [_, _, b'=', b'='] => 2,
            [_, _, _, b'='] => 1,
            _ => 0,
        };
        if padding > 0 && at + 1 < chunks.len() {
            return None;
        }
        let digits = &chunk[..4 - padding];
        let mut bits = 0;
        for digit in digits {
            bits = bits << 6 | u32::from(value(*digit)?);
        }
        let bytes = (bits << (6 * padding)).to_be_bytes();
        let bytes = &bytes[1..4 - padding];
        room.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
        len += bytes.len();
    }
    Some(&room[..len])
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rfcs_examples_are_decoded_and_others_refused() {
        let decoded = |text: &[u8]| decode(text, &mut [0; 6]).map(<[u8]>::to_vec);
        // RFC 4648, 10.
        for (text, bytes) in [
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decoded(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(decoded(b"+/+/").as_deref(), Some(&[0xfb, 0xff, 0xbf][..]));
        let bad: [&[u8]; 9] = [
            b"",
            b"Zg",
            b"Zm9vY",
            b"Zm9vYmFyZg==",
            b"Zg==Zg==",
            b"=Zg=",
            b"Z===",
            b"Z-_v",
            b"Zm9\xff",
        ];
        for text in bad {
            assert_eq!(decoded(text), None, "{text:?}");
        }
    }
}

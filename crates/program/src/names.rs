//! Names of files as text. Linux takes any bytes but `/` and NUL for a name; paths here are
//! [`String`]s. So a byte that is not UTF-8 is one of 128 characters for private use, and the way
//! back gives the same bytes for every name.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// The characters U+10FF80 to U+10FFFF stand for the bytes 0x80 to 0xFF. Where a name has one of
/// them itself, each of its four bytes is replaced.
const BASE: u32 = 0x10_FF00;
/// First byte in UTF-8 of those characters, and of others beyond U+FFFFF.
const FIRST: u8 = 0xF4;

/// The text of a name.
pub fn text(name: Vec<u8>) -> String {
    match String::from_utf8(name) {
        Ok(text) if !text.as_bytes().contains(&FIRST) => text,
        Ok(text) => replaced(text.as_bytes()),
        Err(error) => replaced(error.as_bytes()),
    }
}

/// The bytes of a name's text.
pub fn bytes(text: &str) -> Cow<'_, [u8]> {
    if !text.as_bytes().contains(&FIRST) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match stands_for(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// Whether a text stands for a name that is not UTF-8, or is written as one.
pub fn is_of_bytes(text: &str) -> bool {
    text.chars()
        .any(|character| stands_for(character).is_some())
}

fn replaced(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len() + 3);
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match stands_for(character) {
                Some(_) => replace(character.encode_utf8(&mut [0; 4]).as_bytes(), &mut text),
                None => text.push(character),
            }
        }
        replace(chunk.invalid(), &mut text);
    }
    text
}

/// Adds the characters that stand for bytes, all of them 0x80 or larger.
fn replace(bytes: &[u8], text: &mut String) {
    let characters = bytes
        .iter()
        .filter_map(|byte| char::from_u32(BASE + u32::from(*byte)));
    text.extend(characters);
}

fn stands_for(character: char) -> Option<u8> {
    let byte = u8::try_from((character as u32).checked_sub(BASE)?).ok()?;
    (byte >= 0x80).then_some(byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_utf_8_are_their_own_text() {
        for name in ["", "etc/passwd", "café", "日本", "\u{10FF7F}", "\u{10000}"] {
            assert_eq!(text(name.into()), name);
            assert_eq!(*bytes(name), *name.as_bytes());
        }
    }

    #[test]
    fn a_byte_that_is_not_utf_8_is_one_character() {
        assert_eq!(text(b"caf\xe9".to_vec()), "caf\u{10FFE9}");
        assert_eq!(*bytes("caf\u{10FFE9}"), *b"caf\xe9");
        assert!(is_of_bytes("caf\u{10FFE9}") && !is_of_bytes("caf\u{e9}\u{10FF7F}"));
        // A character of ours in a name is not taken for such a byte.
        assert_eq!(text("\u{10FFE9}".into()).chars().count(), 4);
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in proptest::collection::vec(
            prop_oneof![Just(b'a'), Just(0xF4), Just(0x8F), Just(0xBF), Just(0xBE), 1u8..],
            0..20,
        )) {
            let text = text(name.clone());
            prop_assert_eq!(&*bytes(&text), name.as_slice());
            // Slashes are where they were.
            prop_assert_eq!(
                text.matches('/').count(),
                name.iter().filter(|byte| **byte == b'/').count()
            );
        }
    }
}

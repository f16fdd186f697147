//! Text that others control (names of processes, fields of archives, a guest's
//! console), made safe for a terminal: escape sequences there set titles, fill the
//! clipboard and move the cursor.

use std::borrow::Cow;

/// Stands for a character that a terminal could act on.
const REPLACEMENT: char = '\u{fffd}';
const NEWLINE: u8 = b'\n';

/// Text of one line: every control character and every character that changes the
/// direction of text is replaced.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_active) {
        text.chars().map(shown).collect::<String>().into()
    } else {
        text.into()
    }
}

/// Text of several lines: newlines and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let active = |c: char| is_active(c) && !matches!(c, '\n' | '\t');
    if text.chars().any(active) {
        let keep = |c| if active(c) { REPLACEMENT } else { c };
        text.chars().map(keep).collect::<String>().into()
    } else {
        text.into()
    }
}

fn shown(c: char) -> char {
    if is_active(c) { REPLACEMENT } else { c }
}

/// C0 and C1 controls (`Cc`), and the marks and overrides of direction.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A console's output, cleaned as it comes in pieces of any size: whole escape
/// sequences (`ECMA-48`: CSI, OSC and the other strings) are dropped, other control
/// characters but newline and tab replaced or, for a carriage return, dropped.
#[derive(Debug, Default)]
pub struct ConsoleFilter {
    state: State,
    /// Bytes of a character that is not whole yet.
    partial: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte, such as `(`.
    Intermediate,
    /// After ESC `[`, until a byte from `@` to `~`.
    Csi,
    /// After ESC and `]`, `P`, `X`, `^` or `_`, until BEL or ESC `\`.
    String,
    /// After ESC in such a string.
    StringEscape,
}

impl ConsoleFilter {
    /// The text of the next bytes.
    pub fn clean(&mut self, bytes: &[u8]) -> String {
        let mut kept = std::mem::take(&mut self.partial);
        for &byte in bytes {
            self.state = match (self.state, byte) {
                // A guest that dies in a sequence must not hide what follows.
                (_, NEWLINE) => {
                    kept.push(NEWLINE);
                    State::Text
                }
                (State::Text, 0x1b) => State::Escape,
                (State::Text, b'\r') => State::Text,
                (State::Text, byte) => {
                    kept.push(byte);
                    State::Text
                }
                (State::Escape, b'[') => State::Csi,
                (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::String,
                (State::Escape | State::Intermediate, 0x20..=0x2f) => State::Intermediate,
                (State::Escape | State::Csi, 0x1b) => State::Escape,
                (State::Escape | State::Intermediate, _) | (State::Csi, 0x40..=0x7e) => State::Text,
                (State::Csi, _) => State::Csi,
                (State::String, 0x07) | (State::StringEscape, b'\\') => State::Text,
                (State::String | State::StringEscape, 0x1b) => State::StringEscape,
                (State::String | State::StringEscape, _) => State::String,
            };
        }
        self.partial = split_partial(&mut kept);
        printable_lines(&String::from_utf8_lossy(&kept)).into_owned()
    }

    /// What is left when nothing more comes.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.partial);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// Takes a character off the end whose later bytes are still to come.
fn split_partial(bytes: &mut Vec<u8>) -> Vec<u8> {
    let first = (1..=bytes.len().min(3)).find(|back| bytes[bytes.len() - back] >= 0xc0);
    let Some(back) = first else {
        return Vec::new();
    };
    let start = bytes.len() - back;
    let whole = match bytes[start] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    if back < whole {
        bytes.split_off(start)
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_command_a_terminal() {
        assert_eq!(printable("qemu-1 ä"), "qemu-1 ä");
        for text in ["a\x1b]0;x\x07", "a\u{9b}31m", "a\rb", "a\nb", "a\u{202e}b"] {
            let shown = printable(text);
            assert!(!shown.chars().any(is_active), "{shown:?}");
            assert!(shown.starts_with('a'));
        }
        assert_eq!(printable_lines("a\n\tb\x1b[m"), "a\n\tb\u{fffd}[m");
    }

    const CONSOLE: &[u8] = b"a\x1b[1;31mred\x1b[0m\r\n\x1b]0;title\x07b\x1b]52;c;eA==\x1b\\c\x1b(B\xc3\xa4\x1bPq\x1bx\x1b\\d\x07";

    #[test]
    fn a_console_loses_its_sequences_and_keeps_its_text() {
        let mut filter = ConsoleFilter::default();
        assert_eq!(filter.clean(CONSOLE), "ared\nbcäd\u{fffd}");
        assert_eq!(filter.finish(), "");
    }

    #[test]
    fn pieces_of_any_size_give_the_same_text() {
        for size in 1..CONSOLE.len() {
            let mut filter = ConsoleFilter::default();
            let pieces = CONSOLE.chunks(size);
            let text: String = pieces.map(|piece| filter.clean(piece)).collect();
            assert_eq!(text + &filter.finish(), "ared\nbcäd\u{fffd}", "{size}");
        }
    }

    #[test]
    fn a_sequence_that_does_not_end_hides_its_line_only() {
        let mut filter = ConsoleFilter::default();
        assert_eq!(filter.clean(b"\x1b]0;x\npanic\n"), "\npanic\n");
        assert_eq!(filter.clean(b"\xc3"), "");
        assert_eq!(filter.finish(), "\u{fffd}");
    }
}

//! Text from images and archives, safe to print: quoted, escaped, and short.

use tare_host::printable::printable;

/// Most characters of foreign text in a message.
const MAX_CHARS: usize = 200;

/// `text` in quotes with control characters escaped, cut after 200 characters.
pub(crate) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(MAX_CHARS).collect();
    let end = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{end}")
}

/// `text` without characters that a terminal acts on, cut after 200 characters.
pub(crate) fn escaped(text: &str) -> String {
    let short: String = text.chars().take(MAX_CHARS).collect();
    let end = if short.len() < text.len() { "..." } else { "" };
    format!("{}{end}", printable(&short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_escaped_and_short() {
        assert_eq!(quoted("a\u{1b}[2J"), r#""a\u{1b}[2J""#);
        assert_eq!(escaped("\u{1b}]0;x\u{7} y"), "\u{fffd}]0;x\u{fffd} y");
        assert_eq!(quoted(&"x".repeat(201)).len(), 200 + 2 + 3);
        assert_eq!(escaped(&"x".repeat(200_000)).len(), 203);
    }
}

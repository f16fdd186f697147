//! Text into HTML.

use std::fmt::Write as _;

/// Text that HTML takes as text, also within quotes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A table whose first column is text and whose others are numbers. Cells are text.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<div class=\"scroll\"><table><thead><tr>");
    for cell in head {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(cell));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let tag = if column == 0 {
                "th scope=\"row\""
            } else {
                "td"
            };
            let end = if column == 0 { "th" } else { "td" };
            let _ = write!(out, "<{tag}>{}</{end}>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// Sentences as a list; nothing for none.
pub(crate) fn list(sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let items = sentences
        .iter()
        .map(|s| format!("<li>{}</li>\n", escape(s)));
    format!("<ul>\n{}</ul>\n", items.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_says_cannot_become_markup() {
        assert_eq!(
            escape("<b a='\"&\u{1b}"),
            "&lt;b a=&#39;&quot;&amp;\u{fffd}"
        );
        let table = table(&["<i>"], &[vec!["<script>".into()]]);
        assert!(!table.contains("<i>") && !table.contains("<script>"));
    }
}

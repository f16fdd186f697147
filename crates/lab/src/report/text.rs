//! Text into HTML.

use std::fmt::Write as _;

/// Text that HTML takes as text, also within quotes.
pub fn escape(text: &str) -> String {
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

/// A table whose first column is text. Cells are text; columns of words are set as such,
/// the others as numbers.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let words: Vec<bool> = (0..head.len())
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .any(|cell| is_words(cell))
        })
        .collect();
    let class = |column: usize| match words.get(column) {
        Some(true) => " class=\"words\"",
        _ => "",
    };
    let mut out = String::from("<div class=\"scroll\"><table><thead><tr>");
    for (column, cell) in head.iter().enumerate() {
        let class = class(column);
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape(cell));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let (tag, scope) = match column {
                0 => ("th", " scope=\"row\""),
                _ => ("td", ""),
            };
            let class = class(column);
            let _ = write!(out, "<{tag}{scope}{class}>{}</{tag}>", content(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// A cell's text; the interval behind a figure can be set smaller than the figure.
fn content(cell: &str) -> String {
    match cell.split_once(" (") {
        Some((figure, ends)) if ends.contains(" .. ") && ends.ends_with(')') => {
            let (figure, ends) = (escape(figure), escape(ends));
            format!("{figure} <span class=\"ends\">({ends}</span>")
        }
        _ => escape(cell),
    }
}

/// Whether a cell is a sentence, which may be broken into lines, and no figure.
fn is_words(cell: &str) -> bool {
    let is_word = |piece: &&str| piece.chars().filter(|c| c.is_alphabetic()).count() > 1;
    cell.split_whitespace().filter(is_word).count() > 3
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
    fn an_interval_is_set_apart_from_its_figure() {
        assert_eq!(
            content("3.1 (2 .. 4 range)"),
            "3.1 <span class=\"ends\">(2 .. 4 range)</span>"
        );
        assert_eq!(content("1 (of 2)"), "1 (of 2)");
    }

    #[test]
    fn columns_of_words_differ_from_figures() {
        let row = ["a", "0.407 .. 0.41", "cannot be told from here"].map(str::to_owned);
        let table = table(&["place", "95 %", "finding"], &[row.to_vec()]);
        assert!(table.contains("<td>0.407 .. 0.41</td>"), "{table}");
        let sentence = "<td class=\"words\">cannot be told from here</td>";
        assert!(table.contains(sentence), "{table}");
    }

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

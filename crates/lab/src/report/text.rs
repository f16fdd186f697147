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

/// What stands in a cell without a value.
pub(crate) const NOTHING: &str = "–";

/// A table whose first column is text. Cells are text; columns of words are set as such,
/// the others as numbers, and those without any value are left out.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |row: &Vec<String>| row.iter().map(|cell| content(cell)).collect();
    let html: Vec<_> = rows.iter().map(|row| ("", cells(row))).collect();
    table_of_html(head, &html, |column| {
        let mut cells = rows.iter().filter_map(|row| row.get(column));
        cells.any(|cell| is_words(cell))
    })
}

/// The same of rows whose cells are HTML, each with its class.
pub(crate) fn table_of_html(
    head: &[&str],
    rows: &[(&str, Vec<String>)],
    is_of_words: impl Fn(usize) -> bool,
) -> String {
    let has_value = |column: usize| {
        let mut cells = rows.iter().filter_map(|(_, row)| row.get(column));
        cells.any(|cell| !matches!(cell.as_str(), "" | "-" | NOTHING))
    };
    let shown = (0..head.len()).filter(|&column| column == 0 || has_value(column));
    let class_of = |name: &str| match name {
        "" => String::new(),
        name => format!(" class=\"{name}\""),
    };
    let class = |column| class_of(if is_of_words(column) { "words" } else { "" });
    let columns: Vec<(usize, String)> = shown.map(|column| (column, class(column))).collect();
    // What can be scrolled can be reached by the keyboard.
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table\">\
         <table><thead><tr>",
    );
    for (column, class) in &columns {
        let label = match head[*column] {
            "" => " aria-label=\"row\"",
            _ => "",
        };
        let _ = write!(
            out,
            "<th scope=\"col\"{class}{label}>{}</th>",
            escape(head[*column])
        );
    }
    out.push_str("</tr></thead><tbody>\n");
    for (name, row) in rows {
        let _ = write!(out, "<tr{}>", class_of(name));
        for (column, class) in &columns {
            let (tag, scope) = match column {
                0 => ("th", " scope=\"row\""),
                _ => ("td", ""),
            };
            let cell = row.get(*column).map_or("", String::as_str);
            let _ = write!(out, "<{tag}{scope}{class}>{cell}</{tag}>");
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
    fn a_column_without_a_value_is_left_out_unless_it_names_the_rows() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let head = ["", "p50", "p99", "goal"];
        let rows = [row(["-", "1", NOTHING, ""]), row(["b", "-", "-", ""])];
        let table = table(&head, &rows);
        assert!(!table.contains("p99") && !table.contains("goal"), "{table}");
        assert!(
            table.contains("<th scope=\"row\">-</th><td>1</td></tr>"),
            "{table}"
        );
        assert!(
            table.contains("<th scope=\"row\">b</th><td>-</td></tr>"),
            "{table}"
        );
    }

    #[test]
    fn a_table_is_reached_by_the_keyboard_and_each_head_has_a_name() {
        let row = vec!["a".to_owned(), "1".to_owned()];
        let table = table(&["", "p50"], &[row]);
        assert!(
            table.starts_with("<div class=\"scroll\" tabindex=\"0\""),
            "{table}"
        );
        let heads = "<th scope=\"col\" aria-label=\"row\"></th><th scope=\"col\">p50</th>";
        assert!(table.contains(heads), "{table}");
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

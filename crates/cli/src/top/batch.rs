//! The table as lines of text, where standard output is not a terminal.

use std::fmt::Write as _;

use super::row::{Column, Row, sort};

/// The table, sorted.
pub(super) fn table(mut rows: Vec<Row>, by: Column) -> String {
    sort(&mut rows, by);
    let mut text = String::new();
    line(|column, title| (column, title.to_owned()), &mut text);
    for row in &rows {
        line(|column, _| (column, row.cell(column)), &mut text);
    }
    text
}

fn line(cell: impl Fn(Column, &'static str) -> (Column, String), text: &mut String) {
    let cells = Column::ALL.map(|(column, title, width)| {
        let width = usize::from(width);
        let (column, content) = cell(column, title);
        let content: String = content.chars().take(width).collect();
        if column.is_number() {
            format!("{content:>width$}")
        } else {
            format!("{content:<width$}")
        }
    });
    let _ = writeln!(text, "{}", cells.join(" ").trim_end());
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn lines_have_all_columns_and_one_is_one_machine() {
        let long = "a-machine-with-a-very-long-name";
        let text = table(vec![row("m", 1, 0.1), row(long, 2, 12.0)], Column::Cpu);
        for (_, title, _) in Column::ALL {
            assert!(text.contains(title), "{title} in {text}");
        }
        assert_eq!(text.lines().count(), 3, "{text}");
        let busiest = text.lines().nth(1);
        assert!(busiest.is_some_and(|line| line.starts_with("a-machine-with ")));
    }
}

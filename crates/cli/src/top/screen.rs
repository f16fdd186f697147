//! Draws a view.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row as Cells, Table, TableState, Wrap};

use super::row::{Column, Row};
use super::view::{Flow, Page, View};

const HELP: &str = "\
Sort by a column:
  n name      p process    c CPU       g guest     e exits
  H halts     i interrupts s steal     d disk      w network
  f faults    t cause      < > the column beside

Up, Down      select a machine; its cause is shown below
Space         pause, go on
q, Ctrl-C     quit

CPU%, GUEST and STEAL are per cent of one core: all threads of the
machine; its own code; time that its vCPUs waited for a CPU. DISK/S
and NET/S are bytes from and to block devices and its tap devices
(- without one), FAULT/S page faults; they need 100 columns.
~ stands before what was counted for a part of the time and may be
off by more than a tenth, ? after a cause that may not be the largest.
`tare why NAME` says more.

Any key closes this page.";

/// Lines for the sentence about one machine.
const SENTENCE_LINES: u16 = 3;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let [title, table, sentence, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(SENTENCE_LINES),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::from(title_text(view)).style(bold()), title);
    machines(frame, view, table);
    frame.render_widget(about(view), sentence);
    let help = "q quit  h help  < > sort  space pause";
    frame.render_widget(Line::from(help).style(dim()), keys);
    if view.page == Page::Help {
        show_help(frame);
    }
}

fn title_text(view: &View) -> String {
    let count = match view.rows.len() {
        1 => "1 machine".to_owned(),
        count => format!("{count} machines"),
    };
    let cost = match view.cost {
        Some(cost) => format!("; watching costs {:.1} % of a core", cost * 100.0),
        None => String::new(),
    };
    let paused = match view.flow {
        Flow::Live => "",
        Flow::Paused => ", paused",
    };
    format!(
        "tare top: {count}, every {:.1} s{paused}{cost}",
        view.interval_s
    )
}

fn machines(frame: &mut Frame<'_>, view: &View, area: Rect) {
    if view.rows.is_empty() {
        let text = match view.cost {
            Some(_) => "No virtual machine runs on this host.",
            None => "Looking ...",
        };
        frame.render_widget(Paragraph::new(text).style(dim()), area);
        return;
    }
    let columns = Column::fitting(area.width);
    let header = Cells::new(columns.iter().map(|&(column, title, _)| {
        let style = if column == view.sort {
            bold().add_modifier(Modifier::UNDERLINED)
        } else {
            bold()
        };
        cell(title.to_owned(), column).style(style)
    }));
    let cells = |row: &Row| {
        let cells = columns
            .iter()
            .map(|(column, ..)| cell(row.cell(*column), *column));
        Cells::new(cells.collect::<Vec<_>>())
    };
    let rows = view.rows.iter().map(cells);
    let table = Table::new(rows, widths(&columns))
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(view.index());
    frame.render_stateful_widget(table, area, &mut state);
}

fn widths(columns: &[(Column, &str, u16)]) -> Vec<Constraint> {
    let width = |&(column, _, width): &(Column, &str, u16)| match column {
        Column::Name => Constraint::Min(width),
        _ => Constraint::Length(width),
    };
    columns.iter().map(width).collect()
}

fn cell(text: String, column: Column) -> Cell<'static> {
    let alignment = if column.is_number() {
        Alignment::Right
    } else {
        Alignment::Left
    };
    Cell::new(Text::from(text).alignment(alignment))
}

/// The cause of the chosen machine, else of the first one, or what is missing.
fn about(view: &View) -> Paragraph<'_> {
    let row = view.rows.get(view.index().unwrap_or(0));
    let text = match row.filter(|row| !row.sentence.is_empty()) {
        Some(row) => format!("{}: {}", row.cell(Column::Name), row.sentence),
        None => view.note.clone(),
    };
    Paragraph::new(text).wrap(Wrap { trim: true })
}

fn show_help(frame: &mut Frame<'_>) {
    let lines = HELP.lines().count() as u16 + 2;
    let area = frame.area();
    let width = 72.min(area.width);
    let height = lines.min(area.height);
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    let help = Paragraph::new(HELP).block(Block::bordered().title(" tare top "));
    frame.render_widget(help, place);
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::row::tests::row;
    use super::*;

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    fn two_machines() -> View {
        let mut view = View::new(Column::Cpu, 1.0);
        let rows = vec![row("http-1", 4711, 0.1), row("storm-2", 4_194_304, 1.99)];
        view.show(rows, 0.004, String::new());
        view
    }

    #[test]
    fn all_columns_fit_100_and_the_busiest_comes_first() {
        let text = drawn(&two_machines(), 100, 12);
        for (_, title, _) in Column::ALL {
            assert!(text.contains(title), "{title} in {text}");
        }
        assert!(text.find("storm-2") < text.find("http-1"), "{text}");
        assert!(text.contains("polling loses"), "{text}");
        assert!(text.contains("2 machines"), "{text}");
    }

    #[test]
    fn a_narrow_screen_cuts_no_number() {
        let text = drawn(&two_machines(), 40, 10);
        assert!(text.contains(" 199 ") && text.contains("CPU%"), "{text}");
        assert!(!text.contains("EXITS"), "{text}");
    }

    #[test]
    fn no_machine_is_said_so() {
        let mut view = View::new(Column::Cpu, 1.0);
        assert!(drawn(&view, 80, 8).contains("Looking"));
        view.show(Vec::new(), 0.0, String::new());
        assert!(drawn(&view, 80, 8).contains("No virtual machine runs"));
    }

    #[test]
    fn any_size_of_terminal_is_drawn() {
        let mut view = two_machines();
        for page in [Page::Machines, Page::Help] {
            view.page = page;
            for (width, height) in [(1, 1), (20, 4), (300, 90)] {
                drawn(&view, width, height);
            }
        }
        assert!(drawn(&view, 80, 24).contains("Any key closes"));
    }
}

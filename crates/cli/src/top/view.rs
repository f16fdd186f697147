//! The state of the screen and the effect of keys, independent of the terminal.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::row::{Column, Row, sort};

/// The state of the screen.
#[derive(Debug)]
pub(super) struct View {
    pub(super) rows: Vec<Row>,
    pub(super) sort: Column,
    /// Process ID of the chosen machine, since rows move.
    pub(super) chosen: Option<u32>,
    pub(super) page: Page,
    pub(super) flow: Flow,
    /// What could not be observed, or failed last time.
    pub(super) note: String,
    /// Cost of watching as a share of a core; `None` before the first interval.
    pub(super) cost: Option<f64>,
    /// Length of the interval; before the first, the requested one.
    pub(super) interval_s: f64,
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Machines,
    Help,
}

/// Whether new figures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Live,
    Paused,
}

/// What a key requests of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Stay,
    Quit,
}

impl View {
    /// The state before the first interval.
    pub(super) fn new(sort: Column, interval_s: f64) -> Self {
        Self {
            rows: Vec::new(),
            sort,
            chosen: None,
            page: Page::Machines,
            flow: Flow::Live,
            note: String::new(),
            cost: None,
            interval_s,
        }
    }

    /// Shows an interval's figures, unless the view is paused.
    pub(super) fn show(&mut self, rows: Vec<Row>, cost: f64, note: String) {
        if self.flow == Flow::Paused {
            return;
        }
        let lengths = rows.iter().map(|row| row.seconds);
        self.interval_s = lengths.reduce(f64::max).unwrap_or(self.interval_s);
        self.rows = rows;
        self.cost = Some(cost);
        self.note = note;
        sort(&mut self.rows, self.sort);
    }

    /// Index of the chosen machine.
    pub(super) fn index(&self) -> Option<usize> {
        let pid = self.chosen?;
        self.rows.iter().position(|row| row.pid == pid)
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> KeyAction {
        if key.kind == KeyEventKind::Release {
            return KeyAction::Stay;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return KeyAction::Quit,
            KeyCode::Char('q') => return KeyAction::Quit,
            KeyCode::Esc if self.page == Page::Machines => return KeyAction::Quit,
            _ if self.page == Page::Help => self.page = Page::Machines,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.page = Page::Help,
            KeyCode::Left | KeyCode::Char('<') => self.sort_by(self.sort.beside(-1)),
            KeyCode::Right | KeyCode::Char('>') => self.sort_by(self.sort.beside(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Char(' ') => self.flow = self.flow.other(),
            KeyCode::Char(letter) => {
                if let Some(column) = by_letter(letter) {
                    self.sort_by(column);
                }
            }
            _ => {}
        }
        KeyAction::Stay
    }

    fn sort_by(&mut self, column: Column) {
        self.sort = column;
        sort(&mut self.rows, column);
    }

    fn choose(&mut self, steps: isize) {
        let Some(last) = self.rows.len().checked_sub(1) else {
            return;
        };
        let next = match self.index() {
            Some(here) => here.saturating_add_signed(steps).min(last),
            None => 0,
        };
        self.chosen = Some(self.rows[next].pid);
    }
}

impl Flow {
    fn other(self) -> Self {
        match self {
            Self::Live => Self::Paused,
            Self::Paused => Self::Live,
        }
    }
}

/// The column for a letter.
fn by_letter(letter: char) -> Option<Column> {
    Some(match letter {
        'n' => Column::Name,
        'p' => Column::Pid,
        'c' => Column::Cpu,
        'g' => Column::Guest,
        'e' => Column::Exits,
        'H' => Column::Halts,
        'i' => Column::Irqs,
        's' => Column::Steal,
        'd' => Column::Disk,
        'w' => Column::Net,
        'f' => Column::Faults,
        't' => Column::Cause,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    fn press(view: &mut View, code: KeyCode) -> KeyAction {
        view.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn view() -> View {
        let mut view = View::new(Column::Cpu, 1.0);
        let rows = vec![row("a", 1, 0.1), row("b", 2, 0.9)];
        view.show(rows, 0.001, String::new());
        view
    }

    #[test]
    fn letters_and_arrows_sort() {
        let mut view = view();
        assert_eq!(view.rows[0].pid, 2);
        press(&mut view, KeyCode::Char('n'));
        assert_eq!((view.sort, view.rows[0].pid), (Column::Name, 1));
        press(&mut view, KeyCode::Right);
        assert_eq!(view.sort, Column::Pid);
    }

    #[test]
    fn the_chosen_machine_stays_chosen_when_rows_move() {
        let mut view = view();
        press(&mut view, KeyCode::Down);
        assert_eq!((view.chosen, view.index()), (Some(2), Some(0)));
        view.show(vec![row("a", 1, 1.9), row("b", 2, 0.9)], 0.0, String::new());
        assert_eq!(view.index(), Some(1));
        press(&mut view, KeyCode::Down);
        assert_eq!(view.chosen, Some(2), "the last one is the last");
        view.show(Vec::new(), 0.0, String::new());
        press(&mut view, KeyCode::Up);
        assert_eq!(view.index(), None);
    }

    #[test]
    fn a_paused_view_keeps_its_figures() {
        let mut view = view();
        press(&mut view, KeyCode::Char(' '));
        view.show(Vec::new(), 0.0, String::new());
        assert_eq!(view.rows.len(), 2);
    }

    #[test]
    fn help_closes_on_any_key_and_q_escape_and_control_c_quit() {
        let mut view = view();
        press(&mut view, KeyCode::Char('?'));
        assert_eq!(view.page, Page::Help);
        assert_eq!(press(&mut view, KeyCode::Esc), KeyAction::Stay);
        assert_eq!(view.page, Page::Machines);
        assert_eq!(press(&mut view, KeyCode::Char('q')), KeyAction::Quit);
        assert_eq!(press(&mut view, KeyCode::Esc), KeyAction::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.key(interrupt), KeyAction::Quit);
    }
}

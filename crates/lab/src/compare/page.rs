//! A comparison as a section of the second run's page: the earlier run beside it.

use std::fmt::Write as _;

use super::{Change, Compared, KeptRun, Row, compared};
use crate::experiment::Entry;
use crate::report::{Section, escape, table_of_html};
use crate::summary::Summary;

impl KeptRun {
    /// The run as it is kept beside one that is compared with it.
    pub(crate) fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.0).unwrap_or_default();
        text.push('\n');
        text
    }

    /// This run beside a later one of the experiment; `None` where nothing compares.
    pub(crate) fn beside(&self, later: &Summary, entry: Entry) -> Option<Section> {
        let compared = compared(&self.0, later, &[entry]).ok()?;
        Some(Section {
            title: "Beside the earlier run".to_owned(),
            lead: compared.lead(&self.0),
            html: compared.html(),
        })
    }
}

impl Compared {
    fn lead(&self, earlier: &Summary) -> String {
        let mut lead = format!(
            "Before is the run of {}, revision {}. ",
            earlier.started.replace('T', " ").replace('Z', " UTC"),
            earlier.revision
        );
        for warning in &self.warnings {
            let _ = write!(lead, "Warning: {warning}. ");
        }
        let _ = write!(lead, "{}. {}", self.correction(), self.alone());
        lead.trim_end().to_owned()
    }

    /// All figures; those that changed are first, and those that cannot be told apart pale.
    fn html(&self) -> String {
        let pale = |row: &&Row| matches!(row.change, Change::None | Change::Undecided);
        let (same, changed): (Vec<&Row>, Vec<&Row>) = self.figures.iter().partition(pale);
        let row = |class| {
            move |row: &Row| {
                let [before, after] = &row.texts;
                let mut cells = vec![format!("<code>{}</code>", escape(&row.figure))];
                let texts = [&row.unit, before, after, &row.ratio_text()].map(|it| escape(it));
                cells.extend(texts);
                cells.push(row.change.text().to_owned());
                (class, cells)
            }
        };
        let changed = changed.into_iter().map(row(""));
        let rows: Vec<_> = changed.chain(same.into_iter().map(row("soft"))).collect();
        let head = [
            "figure",
            "unit",
            "before",
            "after",
            "after over before",
            "change",
        ];
        table_of_html(&head, &rows, |_| false)
    }
}

//! An experiment's part of a report.

/// An experiment's part of the report, beside figures and machine.
#[derive(Clone, Debug, Default)]
pub struct ReportText {
    /// Title of the report.
    pub title: String,
    /// The question: a paragraph.
    pub question: String,
    /// The answer at a glance: a small table, as safe HTML.
    pub glance: String,
    /// The answer in a few sentences.
    pub answer: Vec<String>,
    /// Charts and further tables.
    pub sections: Vec<Section>,
    /// How it was measured: a sentence each.
    pub method: Vec<String>,
    /// Limitations: a sentence each.
    pub limitations: Vec<String>,
}

/// A part of a report: a title, a sentence, and HTML that is safe already.
#[derive(Clone, Debug)]
pub struct Section {
    /// Title.
    pub title: String,
    /// How to read it.
    pub lead: String,
    /// Chart or table.
    pub html: String,
}

//! `report.html`: one file that opens without a network. The page and its
//! style are the same for every experiment; the [`ReportText`] is the experiment's.

pub(crate) mod coalescing;
mod page;
pub(crate) mod svg;
mod text;

use std::time::Duration;

use crate::experiments::ReportText;
use crate::goal::Goal;
use crate::outcome::Ending;
use crate::summary::Summary;

pub(crate) use page::html;
pub use text::{escape, table};

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

/// All that a report is made from.
pub(crate) struct Report<'a> {
    pub summary: &'a Summary,
    pub goals: &'a [Goal],
    pub text: ReportText,
    pub failures: &'a [String],
    pub ending: Ending,
    pub command: &'a str,
    pub took: Duration,
}

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
pub(crate) use text::{escape, table};

/// A part of a report: a title, a sentence, and HTML that is safe already.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// Title.
    pub(crate) title: String,
    /// How to read it.
    pub(crate) lead: String,
    /// Chart or table.
    pub(crate) html: String,
}

/// All that a report is made from.
pub(crate) struct Report<'a> {
    pub(crate) summary: &'a Summary,
    pub(crate) goals: &'a [Goal],
    pub(crate) text: ReportText,
    pub(crate) failures: &'a [String],
    pub(crate) ending: Ending,
    pub(crate) command: &'a str,
    pub(crate) took: Duration,
}

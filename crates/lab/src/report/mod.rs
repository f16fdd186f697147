//! `report.html`: one file that opens without a network. The page and its
//! style are the same for every experiment; the [`ReportText`] is the experiment's.

mod page;
mod section;
pub(crate) mod svg;
mod template;
mod text;

use std::path::Path;

use crate::goal::Goal;
use crate::summary::Summary;

pub(crate) use page::{AGAINST, bare, html};
pub use section::{ReportText, Section};
pub use template::ONCE;
pub use template::{Row, Template, row};
pub(crate) use text::table_of_html;
pub use text::{escape, table};

/// All that a report is made from.
pub(crate) struct Report<'a> {
    pub summary: &'a Summary,
    pub goals: &'a [Goal],
    pub text: ReportText,
    pub command: &'a str,
    /// Where the page's neighbours are.
    pub directory: &'a Path,
}

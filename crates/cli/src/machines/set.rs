//! `tare set`: changes settings of a running machine.

use std::fmt::Write as _;

use tare_control::client::{Client, ClientError};
use tare_control::exit::ExitCode;
use tare_control::rundir::RunRoot;
use tare_control::settings::{Row, Settings, SettingsChange, SettingsError};
use tare_launch::record::Record;

use crate::args::SetArgs;
use crate::failure::{CommandResult, Explain, Failure};
use crate::output::print;

/// Columns of a terminal.
const WIDTH: usize = 80;

/// Settings that cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetError {
    /// An invalid argument.
    #[error(transparent)]
    Word(#[from] SettingsError),
    /// QEMU has other settings.
    #[error(
        "tare set works with Tare's own monitor only, and {0:?} runs in QEMU: start it with --engine tare"
    )]
    Qemu(String),
    /// The machine refused the value.
    #[error("{0}")]
    Refused(String),
    /// The machine did not answer.
    #[error("cannot query the machine {name:?}")]
    Ask {
        /// The machine.
        name: String,
        /// Why.
        source: ClientError,
    },
}

impl Explain for SetError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Word(_) | Self::Refused(_) => ExitCode::Usage,
            Self::Qemu(_) | Self::Ask { .. } => ExitCode::ControlFailed,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::Word(_) | Self::Refused(_))
            .then(|| "`tare set NAME` lists the settings".to_owned())
    }
}

/// Changes settings of a machine, or lists them.
pub(crate) fn set(args: &SetArgs) -> CommandResult {
    let mut change = SettingsChange::default();
    for word in &args.pairs {
        change.set(word).map_err(SetError::Word)?;
    }
    let dir = RunRoot::open_default()?.find(&args.name)?;
    if Record::read(&dir).is_ok_and(|record| !record.engine.answers()) {
        return Err(SetError::Qemu(args.name.clone()).into());
    }
    let mut client = Client::new(dir.control_socket());
    let settings = if args.pairs.is_empty() {
        client.settings()
    } else {
        client.set(&change)
    };
    let settings = settings.map_err(|error| failed(&args.name, error))?;
    if args.json {
        let json = serde_json::to_string_pretty(&settings)
            .map_err(|error| Failure::new(ExitCode::Internal, error))?;
        return print(&(json + "\n"));
    }
    print(&text(&settings, &args.pairs))
}

fn failed(name: &str, error: ClientError) -> SetError {
    match error {
        ClientError::Refused { status: 400, error } => SetError::Refused(error),
        source => SetError::Ask {
            name: name.to_owned(),
            source,
        },
    }
}

/// The settings that `pairs` name, or all with their meaning.
fn text(settings: &Settings, pairs: &[String]) -> String {
    let rows = settings.rows();
    let named = |row: &&Row| {
        let key = |pair: &String| pair.split_once('=').map(|(key, _)| key.to_owned());
        pairs.is_empty() || pairs.iter().filter_map(key).any(|key| key == row.key)
    };
    let rows: Vec<_> = rows.iter().filter(named).collect();
    if rows.is_empty() {
        return "nothing can be set\n".to_owned();
    }
    let widest = |length: fn(&Row) -> usize| rows.iter().map(|row| length(row)).max().unwrap_or(0);
    let (key, value) = (widest(|row| row.key.len()), widest(|row| row.value.len()));
    let meaning = widest(|row| row.meaning.len());
    // Next to the values where that fits a terminal, else below.
    let beside = key + value + meaning + 4 < WIDTH;
    let mut text = String::new();
    for row in rows {
        let set = format!("{:<key$}  {:<value$}", row.key, row.value);
        let _ = if beside {
            writeln!(text, "{set}  {}", row.meaning)
        } else {
            writeln!(text, "{}\n    {}", set.trim_end(), row.meaning)
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use tare_control::settings::{Coalesce, DiskSettings};

    use super::*;

    fn example() -> Settings {
        let coalesce = Coalesce::from(&tare_policy::coalesce::Settings::default());
        let disk = DiskSettings {
            path: "data.img".to_owned(),
            coalesce,
            iops: 0,
            bytes_per_s: 0,
            size: 512,
        };
        let mut settings = Settings::default();
        settings.disks.insert("disk0".to_owned(), disk);
        settings
    }

    #[test]
    fn every_setting_is_listed_with_its_meaning_below_80_columns() {
        let text = text(&example(), &[]);
        assert!(text.lines().all(|line| line.len() < 80), "{text}");
        for row in example().rows() {
            assert!(
                text.contains(&row.key) && text.contains(row.meaning),
                "{text}"
            );
        }
    }

    #[test]
    fn what_was_set_is_said_and_nothing_else() {
        let text = text(&example(), &["disk0.coalesce.epoch_us=200000".to_owned()]);
        assert!(
            text.starts_with("disk0.coalesce.epoch_us  200000  "),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

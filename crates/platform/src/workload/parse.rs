//! From a file's text to a [`Workload`], or to the line that is wrong.

use std::path::{Path, PathBuf};

use super::{GIVEN, Workload};

/// Longer than any sensible run, s.
const MAX_TIMEOUT_S: u32 = 24 * 3600;

/// A workload file with a mistake.
#[derive(Debug, thiserror::Error)]
#[error("{}:{line}:{column}: {what}", file.display())]
pub struct ParseError {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What is wrong there.
    pub what: String,
}

/// Reads a workload called `name` from the text of `file`.
pub fn parse(name: &str, file: &Path, text: &str) -> Result<Workload, ParseError> {
    let wrong = |at: usize, what: String| {
        let (line, column) = position(text, at);
        ParseError {
            file: file.to_owned(),
            line,
            column,
            what,
        }
    };
    let mut workload: Workload = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        wrong(at, error.message().to_owned())
    })?;
    workload.name = name.to_owned();
    workload.text = text.to_owned();
    match mistake(&workload) {
        Some((key, what)) => Err(wrong(place_of(text, key), what)),
        None => Ok(workload),
    }
}

/// What TOML allows and a workload does not: the key and a sentence.
fn mistake(workload: &Workload) -> Option<(&'static str, String)> {
    let plain = |name: &str, more: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        !name.is_empty() && !name.starts_with(['-', '.']) && name.chars().all(known)
    };
    if !plain(&workload.name, "-_") {
        let what = format!(
            "'{}' is not a name: letters, digits, - and _",
            workload.name
        );
        return Some(("about", what));
    }
    if !(1..=MAX_TIMEOUT_S).contains(&workload.timeout_s) {
        return Some((
            "timeout_s",
            format!("timeout_s must be 1 to {MAX_TIMEOUT_S}"),
        ));
    }
    for (key, script) in [("run", &workload.run), ("check", &workload.check)] {
        if script.trim().is_empty() {
            return Some((key, format!("{key} is empty: nothing would be {key}")));
        }
    }
    if let Some(program) = &workload.appliance {
        if !plain(program, "-_+.") {
            return Some(("appliance", format!("'{program}' is not a program's name")));
        }
        if !workload.run.contains(&format!("app {program} ")) {
            let what = format!("run does not start the appliance's program: app {program} ...");
            return Some(("run", what));
        }
    }
    if let Some(package) = workload.install.iter().find(|p| !plain(p, "-+.:")) {
        return Some(("install", format!("'{package}' is not a package's name")));
    }
    if let Some(file) = workload.files.keys().find(|f| !plain(f, "-_.")) {
        return Some(("files", format!("'{file}' is not a file name")));
    }
    let forms = [
        ("quick", workload.quick.as_ref()),
        ("standard", workload.standard.as_ref()),
        ("full", Some(&workload.full)),
    ];
    for (form, parameters) in forms {
        let mut names = parameters.into_iter().flatten().map(|(name, _)| name);
        if let Some(name) = names.clone().find(|n| !plain(n, "_")) {
            return Some((form, format!("'{name}' is not a variable's name")));
        }
        if let Some(name) = names.find(|name| GIVEN.contains(&name.as_str())) {
            let what = format!("'{name}' is set by Tare: give the parameter another name");
            return Some((form, what));
        }
    }
    None
}

/// Where the line of a key or a table begins.
fn place_of(text: &str, key: &str) -> usize {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_start_matches('[');
        let rest = bare.strip_prefix(key).map(str::trim_start);
        if rest.is_some_and(|rest| rest.starts_with(['=', ']'])) {
            return at;
        }
        at += line.len();
    }
    0
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[begin..].chars().count() + 1)
}

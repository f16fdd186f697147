//! A profile as text: a table of calls, then what they request.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use tare_host::printable::printable;
use tare_profile::{Argument, Asked, Call, Features, Observer, Profile};

use super::units::{time, time_or_none};
use crate::output::width;

/// System calls of x86-64 in a current kernel.
const ALL_CALLS: usize = 381;
/// Below this number of calls, constant arguments are chance.
const OFTEN: u64 = 10;
/// Most items of a list that are printed.
const MOST: usize = 24;

/// The whole text; `file` is where the profile was written.
pub(super) fn of(profile: &Profile, file: Option<&Path>) -> String {
    let mut text = table(profile);
    text.push('\n');
    for (name, items) in lists(profile) {
        paragraph(&mut text, name, &items);
    }
    let observer = observer(profile);
    if !profile.phases.is_empty() {
        paragraph(&mut text, "Observing", &[observer]);
    }
    paragraph(&mut text, "Complete", &[completeness(profile)]);
    for missing in &profile.unavailable {
        paragraph(&mut text, "Missing", std::slice::from_ref(missing));
    }
    text.push('\n');
    text.push_str(&hint(profile, file));
    text
}

fn table(profile: &Profile) -> String {
    let all_ns: u64 = profile.calls.values().map(|call| call.time.total_ns).sum();
    let mut calls: Vec<(&String, &Call)> = profile.calls.iter().collect();
    calls.sort_by_key(|(_, call)| std::cmp::Reverse((call.time.total_ns, call.count)));
    let mut text = row(
        "CALL",
        "COUNT",
        "ERRORS",
        "TIME%",
        ["SHORT", "FAST30", "MEAN", "P99", "LONG"].map(str::to_owned),
    );
    for (name, call) in calls {
        let failed: u64 = call.errors.values().sum();
        let share = 100.0 * call.time.total_ns as f64 / all_ns.max(1) as f64;
        let times = &call.time;
        let is_timed = times.count() > 0;
        text.push_str(&row(
            name,
            &call.count.to_string(),
            &match failed {
                0 => String::new(),
                failed => failed.to_string(),
            },
            &format!("{share:.1}"),
            [
                time_or_none(is_timed.then_some(times.shortest_ns)),
                time_or_none(times.mean_of_fastest_ns()),
                time_or_none(times.mean_ns()),
                time_or_none(times.quantile_bound_ns(0.99)),
                time_or_none(is_timed.then_some(times.longest_ns)),
            ],
        ));
    }
    let failed: u64 = profile
        .calls
        .values()
        .flat_map(|call| call.errors.values())
        .sum();
    let _ = writeln!(
        text,
        "{} calls of {} kinds in {}, {failed} refused",
        profile.call_count(),
        profile.calls.len(),
        time(all_ns),
    );
    text
}

fn row(name: &str, count: &str, errors: &str, share: &str, times: [String; 5]) -> String {
    let [short, fast, mean, p99, long] = times;
    // Names come from the application, or from who edited the file.
    let name = printable(name);
    let line = format!(
        "{name:<18.18}{count:>10}{errors:>8}{share:>7}{short:>7}{fast:>7}{mean:>7}{p99:>7}{long:>7}"
    );
    line.trim_end().to_owned() + "\n"
}

fn lists(profile: &Profile) -> Vec<(&'static str, Vec<String>)> {
    let features = &profile.features;
    vec![
        ("Tasks", tasks(profile)),
        ("Sockets", sockets(features)),
        (
            "Socket options",
            names(features.socket_options.iter().map(|it| &it.name)),
        ),
        (
            "File systems",
            names(features.files.iter().map(|it| &it.file_system)),
        ),
        ("Paths", paths(profile)),
        ("Kernel files", kernel_files(features)),
        ("Devices", profile.devices.clone()),
        ("ioctl", names(features.ioctls.iter().map(|it| &it.request))),
        (
            "clone",
            names(features.clones.iter().flat_map(|it| &it.flags)),
        ),
        (
            "prctl",
            names(features.prctls.iter().map(|it| &it.operation)),
        ),
        (
            "Mounts",
            names(features.mounts.iter().map(|it| &it.file_system)),
        ),
        ("Modules", profile.modules.clone()),
        ("Errors", errors(profile)),
        ("Constants", constants(profile)),
    ]
}

fn names<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let unique: BTreeSet<&String> = all.filter(|name| !name.is_empty()).collect();
    unique.into_iter().cloned().collect()
}

fn tasks(profile: &Profile) -> Vec<String> {
    let names: BTreeSet<&str> = profile
        .tasks
        .iter()
        .map(|task| task.name.as_str())
        .collect();
    let processes: BTreeSet<u32> = profile.tasks.iter().map(|task| task.pid).collect();
    let listed: Vec<&str> = names.into_iter().take(MOST).collect();
    vec![format!(
        "{} in {} processes ({})",
        profile.tasks.len(),
        processes.len(),
        listed.join(", ")
    )]
}

fn sockets(features: &Features) -> Vec<String> {
    let sockets = features.sockets.iter();
    sockets
        .map(|it| match it.protocol {
            0 => format!("{} {} ({})", it.family, it.kind, it.count),
            protocol => format!(
                "{} {} protocol {protocol} ({})",
                it.family, it.kind, it.count
            ),
        })
        .collect()
}

/// How many paths there are, by the most demanding operation on each.
fn paths(profile: &Profile) -> Vec<String> {
    let (mut opened, mut listed, mut looked_at) = (0_usize, 0_usize, 0_usize);
    for asked in profile.paths.values() {
        if asked.contains(&Asked::List) {
            listed += 1;
        } else if asked
            .iter()
            .any(|it| matches!(it, Asked::Open | Asked::Write | Asked::Execute))
        {
            opened += 1;
        } else {
            looked_at += 1;
        }
    }
    vec![
        format!("{} found", profile.paths.len()),
        format!("{opened} opened or run"),
        format!("{listed} directories listed"),
        format!("{looked_at} only looked at"),
    ]
}

/// States whether anything is missing that a kernel or a root needs.
fn completeness(profile: &Profile) -> String {
    match profile.unavailable.len() {
        0 => "every call, every path that was found, no event lost".to_owned(),
        1 => "no: one thing is missing (below)".to_owned(),
        more => format!("no: {more} things are missing (below)"),
    }
}

fn kernel_files(features: &Features) -> Vec<String> {
    let is_kernel = |path: &&String| path.starts_with("/proc/") || path.starts_with("/sys/");
    names(
        features
            .files
            .iter()
            .map(|file| &file.path)
            .filter(is_kernel),
    )
}

fn errors(profile: &Profile) -> Vec<String> {
    let mut found = Vec::new();
    for (name, call) in &profile.calls {
        for (error, count) in &call.errors {
            found.push((*count, format!("{name} {error} ({count})")));
        }
    }
    found.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    found.into_iter().map(|(_, text)| text).collect()
}

fn constants(profile: &Profile) -> Vec<String> {
    let mut found = Vec::new();
    for (name, call) in profile.calls.iter().filter(|(_, call)| call.count >= OFTEN) {
        let values = call.arguments.iter().enumerate();
        let constant: Vec<String> = values
            .filter_map(|(position, argument)| match argument {
                Argument::Constant(value) => Some(format!("{}={value:#x}", position + 1)),
                Argument::Varies => None,
            })
            .collect();
        if !constant.is_empty() {
            found.push(format!("{name} {}", constant.join(" ")));
        }
    }
    found
}

fn observer(profile: &Profile) -> String {
    let all = profile.phases.iter().map(|phase| phase.observer);
    let sum = all.fold(Observer::default(), |sum, one| Observer {
        events: sum.events + one.events,
        kernel_ns: sum.kernel_ns + one.kernel_ns,
        user_ns: sum.user_ns + one.user_ns,
        lost: sum.lost + one.lost,
    });
    let each = sum.kernel_ns.checked_div(sum.events).unwrap_or(0);
    let length: u64 = profile.phases.iter().map(|it| it.taken.duration_ns).sum();
    let share = 100.0 * (sum.kernel_ns + sum.user_ns) as f64 / length.max(1) as f64;
    format!(
        "{} events of {each} ns, {} in the kernel and {} outside ({share:.1}% of a CPU \
         for {}), {} lost",
        sum.events,
        time(sum.kernel_ns),
        time(sum.user_ns),
        time(length),
        sum.lost
    )
}

fn hint(profile: &Profile, file: Option<&Path>) -> String {
    let used = profile.calls.len();
    let next = match file {
        Some(file) => format!("tare tailor {}", file.display()),
        None => "write the profile with --out FILE, then tare tailor FILE".to_owned(),
    };
    format!("{used} of {ALL_CALLS} system calls are in use. A kernel for them:\n  {next}\n")
}

pub(super) fn paragraph(text: &mut String, name: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let mut shown: Vec<String> = items.iter().take(MOST).cloned().collect();
    if items.len() > MOST {
        shown.push(format!("and {} more", items.len() - MOST));
    }
    let line = format!("{name}: {}", printable(&shown.join(", ")));
    let options = textwrap::Options::new(width()).subsequent_indent("  ");
    for line in textwrap::wrap(&line, options) {
        text.push_str(&line);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_profile::{Durations, SocketUse, Task};

    fn seen() -> Profile {
        let mut profile = Profile::empty();
        let mut time = Durations::default();
        (0..100).for_each(|n| time.add(1_000 + n));
        let call = Call {
            count: 1_000_000_000,
            errors: [("EAGAIN".to_owned(), 12_345_678)].into(),
            time,
            arguments: vec![Argument::Constant(7), Argument::Varies],
            ..Call::default()
        };
        profile
            .calls
            .insert("a_call_with_a_very_long_name".to_owned(), call);
        for number in 0..40 {
            profile.features.sockets.push(SocketUse {
                family: format!("AF_{number}"),
                kind: "SOCK_STREAM".to_owned(),
                protocol: 0,
                count: 1,
            });
        }
        profile.tasks.push(Task {
            pid: 1,
            tid: 1,
            name: "evil\u{1b}[2J\u{202e}".to_owned(),
            program: String::new(),
            calls: 1,
        });
        profile.devices.push("/dev/\u{2066}null".to_owned());
        profile
    }

    #[test]
    fn the_text_fits_a_terminal_and_steers_none() {
        let text = of(&seen(), None);
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
        for steers in ['\u{1b}', '\u{202e}', '\u{2066}'] {
            assert!(!text.contains(steers), "{text:?}");
        }
        assert!(text.contains("Devices: /dev/\u{fffd}null"), "{text}");
        assert!(text.contains("and 16 more"), "{text}");
        assert!(text.contains("1=0x7"), "{text}");
        assert!(text.contains("EAGAIN (12345678)"), "{text}");
    }
}

//! The applications of the profiles, and the check that shows that each works.

use tare_control::exit::ExitCode;
use tare_profile::{Profile, Way};
use tare_tailor::check::Check;

use crate::failure::Failure;

/// Most characters of a name.
const NAME_CHARS: usize = 40;

/// An application of the profiles.
#[derive(Clone, Debug)]
pub(super) struct Profiled {
    /// Its name, unique among them.
    pub(super) name: String,
    /// Its profiles, merged.
    pub(super) profile: Profile,
}

/// The applications of profiles, in order. Profiles of one command, container or image are merged.
/// A profile of a process that was already running is merged with those of the application before
/// it, as another phase.
pub(super) fn grouped(profiles: &[Profile]) -> Vec<Profiled> {
    let mut groups: Vec<(Option<&Way>, Profile)> = Vec::new();
    for profile in profiles {
        let way = way(profile);
        let same = match (way, groups.last()) {
            (None, _) | (Some(_), Some((None, _))) => groups.len().checked_sub(1),
            (way, _) => groups.iter().position(|(known, _)| *known == way),
        };
        match same.and_then(|at| groups.get_mut(at)) {
            Some((known, merged)) => {
                *known = known.or(way);
                merged.merge(profile);
            }
            None => {
                let mut merged = Profile::empty();
                merged.merge(profile);
                groups.push((way, merged));
            }
        }
    }
    let mut applications: Vec<Profiled> = Vec::new();
    for (_, profile) in groups {
        let plain = name(&profile);
        let taken = |name: &str| applications.iter().any(|it| it.name == name);
        let numbered = (2..).map(|number| format!("{plain}-{number}"));
        let mut names = std::iter::once(plain.clone()).chain(numbered);
        let name = names.find(|name| !taken(name)).unwrap_or_default();
        applications.push(Profiled { name, profile });
    }
    applications
}

/// A check for each application; the default is that it runs.
pub(super) fn checks(applications: &[Profiled], given: &[Check]) -> Result<Vec<Check>, Failure> {
    let count = applications.len();
    match given.len() {
        0 => Ok(vec![Check::Runs; count]),
        checks if checks == count => Ok(given.to_vec()),
        checks => {
            let names: Vec<&str> = applications.iter().map(|it| it.name.as_str()).collect();
            let sentence = format!(
                "{count} applications ({}) need a --check each, in this order, or none: {checks} \
                 given",
                names.join(", ")
            );
            Err(Failure::new(ExitCode::Usage, sentence))
        }
    }
}

/// The target of the first observation; `None` for a process that was already running, since its
/// number does not identify the application.
fn way(profile: &Profile) -> Option<&Way> {
    let mut ways = profile.phases.iter().map(|phase| &phase.taken.way);
    ways.find(|way| match way {
        Way::Command(words) => !words.is_empty(),
        Way::Pid(_) => false,
        Way::Container(_) | Way::Guest(_) => true,
    })
}

/// The arguments of the first observation that started a command.
fn command(profile: &Profile) -> Option<&[String]> {
    profile
        .phases
        .iter()
        .find_map(|phase| match &phase.taken.way {
            Way::Command(words) if !words.is_empty() => Some(words.as_slice()),
            _ => None,
        })
}

/// The application's name: from its command, else from its profile's first task.
fn name(profile: &Profile) -> String {
    let command = command(profile).and_then(|words| words.first().map(String::as_str));
    let task = || profile.tasks.first().map(|task| task.name.as_str());
    let name = command
        .or_else(task)
        .unwrap_or_default()
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
    match name
        .chars()
        .filter(plain)
        .take(NAME_CHARS)
        .collect::<String>()
    {
        name if name.is_empty() => "application".to_owned(),
        name => name,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tare_profile::{Observer, Phase, Taken};

    use super::*;

    fn profile(way: Way) -> Profile {
        let mut profile = Profile::empty();
        profile.phases.push(Phase {
            label: "phase".to_owned(),
            taken: Taken {
                way,
                start_unix_s: 0,
                duration_ns: 1,
                kernel_release: String::new(),
                tare_version: String::new(),
            },
            observer: Observer::default(),
        });
        profile
    }

    fn of(words: &[&str]) -> Profile {
        profile(Way::Command(
            words.iter().map(|word| (*word).to_owned()).collect(),
        ))
    }

    fn names(profiles: &[Profile]) -> Vec<(String, usize)> {
        let groups = grouped(profiles);
        let of = |it: Profiled| (it.name, it.profile.phases.len());
        groups.into_iter().map(of).collect()
    }

    fn right(all: &[(&str, usize)]) -> Vec<(String, usize)> {
        let own = |(name, phases): &(&str, usize)| ((*name).to_owned(), *phases);
        all.iter().map(own).collect()
    }

    #[test]
    fn phases_of_one_application_are_merged_and_others_stand_alone() {
        let (nginx, redis) = (of(&["/usr/sbin/nginx", "-g"]), of(&["redis-server"]));
        let peak = profile(Way::Pid(7));
        let both = [nginx.clone(), peak.clone(), redis.clone(), nginx.clone()];
        assert_eq!(names(&both), right(&[("nginx", 3), ("redis-server", 1)]));
        assert_eq!(
            names(&[peak.clone(), peak, redis]),
            right(&[("redis-server", 3)])
        );
        let scripts = [of(&["python3", "a.py"]), of(&["python3", "b.py"])];
        assert_eq!(names(&scripts), right(&[("python3", 1), ("python3-2", 1)]));
        let containers = ["web", "db", "web"].map(|it| profile(Way::Container(it.to_owned())));
        let both = right(&[("application", 2), ("application-2", 1)]);
        assert_eq!(names(&containers), both);
        assert_eq!(names(&[Profile::empty()]), right(&[("application", 0)]));
    }

    #[test]
    fn each_application_has_its_check_or_none_has() {
        let two = grouped(&[of(&["a"]), of(&["b"])]);
        let http: Check = "http:80/".parse().unwrap();
        assert_eq!(checks(&two, &[]).ok(), Some(vec![Check::Runs; 2]));
        let given = [http.clone(), Check::Runs];
        assert_eq!(checks(&two, &given).ok(), Some(given.to_vec()));
        let refused = checks(&two, &[http]).unwrap_err().sentence();
        assert!(refused.contains("(a, b)"), "{refused}");
    }
}

//! The applications of the profiles, and the check that shows that each works.

use std::path::PathBuf;

use tare_control::exit::ExitCode;
use tare_profile::{Profile, Way};
use tare_tailor::check::Check;
use tare_tailor::root::RootFrom;

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
            let sentence = format!(
                "{count} applications ({}) need a --check each, in this order, or none: {checks} \
                 given",
                names_of(applications)
            );
            Err(Failure::new(ExitCode::Usage, sentence))
        }
    }
}

/// Where the files of each application are; the default is this computer.
pub(super) fn roots(
    applications: &[Profiled],
    given: &[PathBuf],
) -> Result<Vec<RootFrom>, Failure> {
    let count = applications.len();
    let refused = |sentence: String| Err(Failure::new(ExitCode::Usage, sentence));
    match given {
        [] => Ok(vec![RootFrom::Profile; count]),
        roots if roots.len() == count => Ok(roots.iter().cloned().map(RootFrom::Path).collect()),
        [root] => match RootFrom::Path(root.clone()) {
            image if image.is_image() => refused(format!(
                "the image {} starts one command, and there are {count} applications: give a \
                 --root for each, in this order: {}",
                root.display(),
                names_of(applications)
            )),
            root => Ok(vec![root; count]),
        },
        roots => refused(format!(
            "{count} applications ({}) need a --root each, in this order, or one, or none: {} given",
            names_of(applications),
            roots.len()
        )),
    }
}

fn names_of(applications: &[Profiled]) -> String {
    let names: Vec<&str> = applications.iter().map(|it| it.name.as_str()).collect();
    names.join(", ")
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

/// The application's name: from its command, else from its profile's first task.
fn name(profile: &Profile) -> String {
    let command = profile
        .command()
        .and_then(|words| words.first().map(String::as_str));
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
mod tests {
    use tare_profile::{GuestRun, Observer, Phase, Taken};

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
    fn profiles_of_guests_are_grouped_by_root_and_command() {
        let guest = |root: &str, command: &str| {
            profile(Way::Guest(GuestRun {
                root: root.to_owned(),
                command: vec![format!("/usr/sbin/{command}")],
            }))
        };
        let all = [
            guest("/srv/a", "httpd"),
            guest("/srv/b", "httpd"),
            guest("/srv/a", "redis"),
            guest("/srv/a", "httpd"),
        ];
        let expected = [("httpd", 2), ("httpd-2", 1), ("redis", 1)];
        assert_eq!(names(&all), right(&expected));
    }

    #[test]
    fn each_application_has_its_root_or_all_have_one() {
        let two = grouped(&[of(&["a"]), of(&["b"])]);
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::write(path("image.tar"), "").unwrap();
        let from = |name: &str| RootFrom::Path(path(name));
        assert_eq!(
            roots(&two, &[]).ok(),
            Some(vec![RootFrom::Profile, RootFrom::Profile])
        );
        assert_eq!(
            roots(&two, &[path("x")]).ok(),
            Some(vec![from("x"), from("x")])
        );
        let both = ["x", "image.tar"];
        assert_eq!(
            roots(&two, &both.map(path)).ok(),
            Some(both.map(from).into())
        );
        let refused = |given: &[PathBuf]| roots(&two, given).unwrap_err().sentence();
        assert!(refused(&[path("image.tar")]).contains("order: a, b"));
        let three = ["x", "y", "z"].map(path);
        assert!(refused(&three).contains("(a, b) need a --root each"));
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

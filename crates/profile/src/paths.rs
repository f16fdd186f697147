//! How a path stands in the profile: whole below `/proc`, `/sys` and `/dev`, with
//! `self` for process IDs; else its directory, which of a directory is itself.

/// Where kernel features show as files, and the file system there.
const KERNEL: &[(&str, &str)] = &[
    ("/proc/sys/fs/binfmt_misc", "binfmt_misc"),
    ("/proc", "proc"),
    ("/sys/kernel/debug", "debugfs"),
    ("/sys/kernel/tracing", "tracefs"),
    ("/sys/fs/cgroup", "cgroup2"),
    ("/sys/fs/bpf", "bpf"),
    ("/sys", "sysfs"),
    ("/dev/pts", "devpts"),
    ("/dev/shm", "tmpfs"),
    ("/dev/mqueue", "mqueue"),
    ("/dev/hugepages", "hugetlbfs"),
    ("/dev", "devtmpfs"),
];

/// The path as the profile has it.
pub fn in_profile(path: &str) -> String {
    let path = normal(path);
    if file_system(&path).is_some() {
        return without_ids(&path);
    }
    match path.rsplit_once('/') {
        Some(("", _)) => "/".to_owned(),
        Some((directory, _)) => directory.to_owned(),
        None => ".".to_owned(),
    }
}

/// The path of a directory as the profile has it.
pub fn directory_in_profile(path: &str) -> String {
    let path = normal(path);
    match path.as_str() {
        "" => ".".to_owned(),
        of_kernel if file_system(of_kernel).is_some() => without_ids(of_kernel),
        _ => path,
    }
}

/// The file system that a path leads to by its name, if it is one of the kernel's.
pub fn file_system(path: &str) -> Option<&'static str> {
    let below = |place: &str| {
        path.strip_prefix(place)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    KERNEL
        .iter()
        .find(|(place, _)| below(place))
        .map(|(_, name)| *name)
}

/// Without `.`, `..` and doubled slashes; links are not followed.
pub fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if path.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    if path.starts_with('/') {
        format!("/{joined}")
    } else {
        joined
    }
}

/// Without `.` and doubled slashes; `..` stays, since a link may stand before it.
pub fn plain(path: &str) -> String {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    let start = if path.starts_with('/') { "/" } else { "" };
    format!("{start}{}", parts.join("/"))
}

fn without_ids(path: &str) -> String {
    let Some(rest) = path.strip_prefix("/proc/") else {
        return path.to_owned();
    };
    let mut parts: Vec<&str> = rest.split('/').collect();
    let is_id = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if is_id(parts[0]) {
        parts[0] = "self";
    }
    if let ["self" | "thread-self", "task", id, ..] = parts[..]
        && is_id(id)
    {
        parts[2] = "self";
    }
    format!("/proc/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_paths_are_whole_and_process_ids_are_self() {
        assert_eq!(in_profile("/proc/4711/stat"), "/proc/self/stat");
        assert_eq!(
            in_profile("/proc/self/task/12/comm"),
            "/proc/self/task/self/comm"
        );
        assert_eq!(in_profile("/proc/sys/kernel/../vm/x"), "/proc/sys/vm/x");
        assert_eq!(in_profile("/dev//null"), "/dev/null");
    }

    #[test]
    fn other_paths_are_their_directory() {
        assert_eq!(in_profile("/etc/passwd"), "/etc");
        assert_eq!(in_profile("/a"), "/");
        assert_eq!(in_profile("a"), ".");
        assert_eq!(in_profile("/process/1/a"), "/process/1");
        assert_eq!(in_profile("/../../etc/x"), "/etc");
        assert_eq!(in_profile("../../x"), "../..");
    }

    #[test]
    fn a_directory_stands_for_itself() {
        for (path, right) in [
            ("/srv/www/", "/srv/www"),
            ("/", "/"),
            (".", "."),
            ("/proc/12/fd", "/proc/self/fd"),
        ] {
            assert_eq!(directory_in_profile(path), right);
        }
    }

    #[test]
    fn the_longest_place_names_the_file_system() {
        assert_eq!(file_system("/dev/pts/3"), Some("devpts"));
        assert_eq!(file_system("/sys/devices"), Some("sysfs"));
        assert_eq!(file_system("/system"), None);
    }
}

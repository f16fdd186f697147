//! What the library OS lacks for a program, from what the program requested of this kernel: calls
//! (`tare_program::Call`), further processes, sockets and options, kernel files
//! (`tare_program::offered`), and files that its machine has only with `--root`.
//!
//! Limits: operations of `arch_prctl` are not compared, and a profile does not have flags of other
//! calls.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tare_profile::{Asked, CloneUse, Features, Profile, names, paths, table};
use tare_program::offered::{
    DIRECTORIES, Fcntl, Ioctl, MapFlag, OpenFlag, Prctl, SocketOption, SocketType, ThreadFlag,
    has_kernel_path,
};
use tare_program::{Answer, Call};

use super::text::paragraph;

/// Types of mappings, all supported.
const MAP_TYPES: [&str; 3] = ["MAP_PRIVATE", "MAP_SHARED", "MAP_SHARED_VALIDATE"];

/// Names with how often each was used.
type Counts = BTreeMap<String, u64>;

/// What is missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lacks {
    calls: Counts,
    processes: Counts,
    sockets: Counts,
    /// Socket options that are accepted without effect.
    options: Counts,
    /// Requests of `ioctl`, operations of `prctl`, commands of `fcntl`.
    requests: Counts,
    /// Flags of `open`, `mmap` and `clone`.
    flags: Counts,
    kernel_files: Counts,
    files: Vec<String>,
}

/// Compares with a program's profile that begins before its start.
pub(super) fn of(profile: &Profile) -> Lacks {
    let mut lacks = Lacks::default();
    for (name, call) in &profile.calls {
        let known = table::number(name).and_then(Call::of);
        let (list, count) = match known.map(Call::answer) {
            Some(Answer::Served | Answer::Spared) => continue,
            // The first execve starts the program.
            Some(Answer::OneProcess) if known == Some(Call::execve) => {
                (&mut lacks.processes, call.count.saturating_sub(1))
            }
            Some(Answer::OneProcess) => (&mut lacks.processes, call.count),
            None => (&mut lacks.calls, call.count),
        };
        if count > 0 {
            list.insert(name.clone(), count);
        }
    }
    for clone in &profile.features.clones {
        if !is_thread(clone) {
            let name = "clone without CLONE_THREAD".to_owned();
            count(&mut lacks.processes, name, clone.count);
        }
    }
    lacks.compare(&profile.features);
    let is_read = |asked: &Asked| matches!(asked, Asked::Open | Asked::List);
    let paths = profile.paths.iter();
    lacks.files = paths
        .filter(|(path, asked)| asked.iter().any(is_read) && !DIRECTORIES.contains(&path.as_str()))
        .map(|(path, _)| path.clone())
        .collect();
    lacks
}

impl Lacks {
    /// Records what is used of sockets, options, requests and kernel files and not supported. The
    /// names in the profile are those of [`names`].
    fn compare(&mut self, used: &Features) {
        let types: Vec<_> = SocketType::ALL
            .iter()
            .map(|it| it.value())
            .map(|(family, kind)| (names::family(family.into()), names::kind(kind.into())))
            .collect();
        for socket in &used.sockets {
            let (family, kind) = (&socket.family, &socket.kind);
            let is_known = types
                .iter()
                .any(|known| (&known.0, &known.1) == (family, kind));
            // Of netlink, NETLINK_ROUTE is served, which is protocol 0.
            let other_netlink = family == "AF_NETLINK" && socket.protocol != 0;
            if !is_known {
                count(&mut self.sockets, format!("{family} {kind}"), socket.count);
            } else if other_netlink {
                let name = format!("{family} protocol {}", socket.protocol);
                count(&mut self.sockets, name, socket.count);
            }
        }
        let options: Vec<_> = SocketOption::ALL
            .iter()
            .map(|it| it.value())
            .map(|(level, option)| names::option(level.into(), option.into()))
            .collect();
        for option in &used.socket_options {
            let (level, name) = (&option.level, &option.name);
            if !options
                .iter()
                .any(|known| (&known.0, &known.1) == (level, name))
            {
                count(&mut self.options, name.clone(), option.count);
            }
        }
        let requests: Vec<String> = Ioctl::ALL
            .iter()
            .map(|it| names::ioctl(it.value().into()))
            .collect();
        for ioctl in &used.ioctls {
            if !requests.contains(&ioctl.request) {
                count(&mut self.requests, ioctl.request.clone(), ioctl.count);
            }
        }
        let operations: Vec<String> = Prctl::ALL
            .iter()
            .map(|it| names::prctl(it.value().into()))
            .collect();
        for prctl in &used.prctls {
            // Those of arch_prctl stand beside them.
            let is_prctl = !prctl.operation.starts_with("ARCH_");
            if is_prctl && !operations.contains(&prctl.operation) {
                count(&mut self.requests, prctl.operation.clone(), prctl.count);
            }
        }
        self.compare_flags(used);
        for file in &used.files {
            let path = &file.path;
            if paths::file_system(path).is_some() && !has_kernel_path(path) {
                count(&mut self.kernel_files, path.clone(), file.count);
            }
        }
    }

    fn compare_flags(&mut self, used: &Features) {
        let known = |mask: u32, flags: fn(u64) -> Vec<String>| flags(mask.into());
        let open = known(OpenFlag::MASK, names::open_flags);
        let map = known(MapFlag::MASK, |flags| names::map_flags(flags, 0));
        let thread = known(ThreadFlag::MASK, names::clone_flags);
        let commands: Vec<String> = Fcntl::ALL
            .iter()
            .map(|it| names::fcntl(it.value().into()))
            .collect();
        for one in &used.flags {
            let has = |flag: &str| one.flags.iter().any(|it| it == flag);
            let (list, known): (_, &[String]) = match one.call.as_str() {
                "open" => (&mut self.flags, &open),
                "mmap" => (&mut self.flags, &map),
                "fcntl" => (&mut self.requests, &commands),
                _ => continue,
            };
            let is_kind_or_protection =
                |flag: &str| MAP_TYPES.contains(&flag) || flag.starts_with("PROT_");
            for flag in &one.flags {
                if !known.contains(flag) && !is_kind_or_protection(flag) {
                    count(list, flag.clone(), one.count);
                }
            }
            let is_shared = has("MAP_SHARED") || has("MAP_SHARED_VALIDATE");
            if is_shared && has("PROT_WRITE") && !has("MAP_ANONYMOUS") {
                let name = "MAP_SHARED with PROT_WRITE of a file".to_owned();
                count(list, name, one.count);
            }
        }
        let threads = used.clones.iter().filter(|it| is_thread(it));
        for clone in threads {
            for flag in clone.flags.iter().filter(|flag| !thread.contains(flag)) {
                count(&mut self.flags, flag.clone(), clone.count);
            }
        }
    }

    /// The text for the reader.
    pub(super) fn text(&self, program: &str, kinds: usize) -> String {
        let mut text = format!("\nOn the library OS (tare run {program}):\n");
        if *self == Self::default() {
            let _ = writeln!(
                text,
                "nothing is missing: {kinds} kinds of calls are served"
            );
        }
        paragraph(&mut text, "Missing", &counted(&self.calls));
        paragraph(&mut text, "Processes", &counted(&self.processes));
        paragraph(&mut text, "Sockets", &counted(&self.sockets));
        paragraph(&mut text, "Options", &counted(&self.options));
        paragraph(&mut text, "Requests", &counted(&self.requests));
        paragraph(&mut text, "Flags", &counted(&self.flags));
        paragraph(&mut text, "Kernel files", &counted(&self.kernel_files));
        paragraph(&mut text, "Files", &self.files);
        for (is_there, remedy) in [
            (
                !self.calls.is_empty(),
                "Missing calls return ENOSYS: many programs go on without.",
            ),
            (
                !self.processes.is_empty(),
                "There is one process: set the program to run as one, without children.",
            ),
            (
                !self.sockets.is_empty(),
                "Sockets of other kinds are refused, as by a kernel without them.",
            ),
            (
                !self.options.is_empty(),
                "Options are taken, and have no effect.",
            ),
            (
                !self.requests.is_empty(),
                "Requests of ioctl return ENOTTY, commands of fcntl and prctl EINVAL.",
            ),
            (
                !self.flags.is_empty(),
                "Flags are ignored; writes to a shared mapping stay in the mapping.",
            ),
            (
                !self.kernel_files.is_empty(),
                "Kernel files are not found, unless --root DIR has them as files.",
            ),
            (
                !self.files.is_empty(),
                "Files come with --root DIR, at the same paths below DIR.",
            ),
        ] {
            if is_there {
                let _ = writeln!(text, "{remedy}");
            }
        }
        text
    }
}

fn is_thread(clone: &CloneUse) -> bool {
    clone.flags.iter().any(|flag| flag == "CLONE_THREAD")
}

fn count(counts: &mut Counts, name: String, times: u64) {
    let sum = counts.entry(name).or_default();
    *sum = sum.saturating_add(times);
}

fn counted(counts: &Counts) -> Vec<String> {
    let items = counts.iter();
    items
        .map(|(name, count)| format!("{name} ({count})"))
        .collect()
}

#[cfg(test)]
mod tests {
    use tare_profile::{Call as Seen, FileUse, FlagsUse, IoctlUse, OptionUse, PrctlUse, SocketUse};

    use super::*;

    /// A profile with these calls.
    fn profile(calls: &[(&str, u64)]) -> Profile {
        let mut profile = Profile::empty();
        for (name, count) in calls {
            let call = Seen {
                count: *count,
                ..Seen::default()
            };
            profile.calls.insert((*name).to_owned(), call);
        }
        profile
    }

    fn named(counts: &Counts) -> Vec<&str> {
        counts.keys().map(String::as_str).collect()
    }

    #[test]
    fn calls_that_the_guest_does_not_serve_are_missing() {
        let seen = [
            ("read", 9),
            ("fanotify_init", 2),
            ("rseq", 1),
            ("execve", 1),
        ];
        let lacks = of(&profile(&seen));
        assert_eq!(named(&lacks.calls), ["fanotify_init"]);
        assert!(
            lacks.processes.is_empty(),
            "the start of the program itself"
        );
        assert!(lacks.text("./server", 4).contains("fanotify_init (2)"));
    }

    #[test]
    fn further_processes_are_named_by_how_they_are_made() {
        let mut profile = profile(&[("execve", 2), ("vfork", 1)]);
        let clone = |flags: &[&str]| CloneUse {
            flags: flags.iter().map(|it| (*it).to_owned()).collect(),
            count: 3,
        };
        profile.features.clones = vec![clone(&["CLONE_THREAD", "CLONE_VM"]), clone(&[])];
        let lacks = of(&profile);
        let found = named(&lacks.processes);
        assert_eq!(found, ["clone without CLONE_THREAD", "execve", "vfork"]);
        assert!(lacks.text("./server", 3).contains("one process"));
    }

    #[test]
    fn what_sockets_and_requests_lack_is_named() {
        let mut profile = profile(&[("socket", 4)]);
        let features = &mut profile.features;
        features.sockets = vec![
            SocketUse::of(2, 1, 6, 2),
            SocketUse::of(16, 3, 0, 2),
            SocketUse::of(16, 3, 9, 1),
            SocketUse::of(17, 3, 0, 1),
            SocketUse::of(2, 5, 0, 1),
        ];
        features.socket_options = vec![
            OptionUse::of(1, 2, 9),
            OptionUse::of(6, 1, 9),
            OptionUse::of(6, 23, 2),
            OptionUse::of(1, 6, 3),
        ];
        features.ioctls = vec![IoctlUse::of(0x5421, 1), IoctlUse::of(0x5412, 4)];
        features.prctls = vec![
            PrctlUse::of(15, 1),
            PrctlUse::of(22, 5),
            PrctlUse::of_arch(0x3001, 1),
        ];
        let file = |path: &str| FileUse {
            file_system: "proc".to_owned(),
            path: path.to_owned(),
            count: 6,
        };
        let paths = [
            "/proc/meminfo",
            "/proc/self/smaps",
            "/dev/null",
            "/dev/kvm",
            "/etc",
        ];
        features.files = paths.map(file).into();
        let lacks = of(&profile);
        assert_eq!(
            named(&lacks.sockets),
            [
                "AF_INET SOCK_SEQPACKET",
                "AF_NETLINK protocol 9",
                "AF_PACKET SOCK_RAW"
            ]
        );
        assert_eq!(named(&lacks.options), ["SO_BROADCAST", "TCP_FASTOPEN"]);
        assert_eq!(named(&lacks.requests), ["PR_SET_SECCOMP", "TIOCSTI"]);
        assert_eq!(named(&lacks.kernel_files), ["/dev/kvm", "/proc/self/smaps"]);
        let text = lacks.text("./server", 1);
        for line in [
            "Sockets: AF_INET SOCK_SEQPACKET (1), AF_NETLINK protocol 9 (1), AF_PACKET\n  SOCK_RAW (1)\n",
            "Options: SO_BROADCAST (3), TCP_FASTOPEN (2)\n",
            "Requests: PR_SET_SECCOMP (5), TIOCSTI (4)\n",
            "Kernel files: /dev/kvm (6), /proc/self/smaps (6)\n",
            "Options are taken, and have no effect.\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn flags_that_are_ignored_are_named() {
        let mut profile = profile(&[("openat", 4)]);
        let features = &mut profile.features;
        features.flags = vec![
            FlagsUse::of_open(0o2_000_102, 9),
            FlagsUse::of_open(0o10_000_000, 2),
            FlagsUse::of_mmap(0x22, 3, 9),
            FlagsUse::of_mmap(0x40022, 3, 1),
            FlagsUse::of_mmap(0x1, 3, 4),
            FlagsUse::of_mmap(0x1, 1, 9),
            FlagsUse::of_mmap(0x21, 3, 9),
            FlagsUse::of_fcntl(4, 9),
            FlagsUse::of_fcntl(1024, 5),
        ];
        features.clones = vec![CloneUse::of(0x3d_0f00, 9), CloneUse::of(0x1_1900, 3)];
        let lacks = of(&profile);
        let flags = [
            "CLONE_PIDFD",
            "MAP_HUGETLB",
            "MAP_SHARED with PROT_WRITE of a file",
            "O_PATH",
        ];
        assert_eq!(named(&lacks.flags), flags);
        assert_eq!(named(&lacks.requests), ["F_SETLEASE"]);
        let text = lacks.text("./server", 1);
        assert!(
            text.contains("Flags: CLONE_PIDFD (3), MAP_HUGETLB (1),"),
            "{text}"
        );
    }

    #[test]
    fn files_that_are_read_come_with_the_root() {
        let mut profile = profile(&[("read", 1)]);
        for (path, asked) in [
            ("/etc/app.conf", Asked::Open),
            ("/tmp/log", Asked::Write),
            ("/etc", Asked::Stat),
            // Opened by SQLite, to make a new file durable.
            ("/tmp", Asked::Open),
            ("/srv/server", Asked::Execute),
        ] {
            profile.paths.insert(path.to_owned(), [asked].into());
        }
        let lacks = of(&profile);
        assert_eq!(lacks.files, ["/etc/app.conf"]);
        assert!(lacks.text("./server", 1).contains("--root DIR"));
        let nothing = of(&Profile::empty());
        assert!(nothing.text("./server", 0).contains("nothing is missing"));
    }
}

//! What the program says about itself, and what scripts and people read: help,
//! completions, manual pages, the table of exit codes.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;

use support::TestDir;

const VERBS: [&str; 26] = [
    "run",
    "new",
    "build",
    "ps",
    "stop",
    "kill",
    "rm",
    "logs",
    "stats",
    "set",
    "reload",
    "blk",
    "why",
    "profile",
    "top",
    "pin",
    "tailor",
    "advise",
    "doctor",
    "check",
    "weigh",
    "compare",
    "report",
    "exit-codes",
    "completions",
    "man",
];

/// The help of each verb as it is kept in `tests/help/`; TARE_BLESS=1 rewrites it.
#[test]
fn help_is_as_reviewed() {
    let place = TestDir::new();
    let mut args = vec![vec!["--help"]];
    args.extend(VERBS.map(|verb| vec![verb, "--help"]));
    // One of each kind of experiment.
    let experiments = ["http-bursts", "tcp", "tailor", "platforms"];
    args.extend(experiments.map(|experiment| vec!["weigh", experiment, "--help"]));
    for args in args {
        let help = place.run(&args);
        help.expect(0, "Usage: tare");
        let verbs = &args[..args.len() - 1];
        // Which experiments there are is the lab's to say.
        let fixed = help.out.split("\nExperiments:").next().unwrap();
        let name = verbs.join("-");
        compare(if verbs.is_empty() { "tare" } else { &name }, fixed);
    }
}

fn compare(name: &str, help: &str) {
    for line in help.lines() {
        assert!(line.chars().count() < 80, "{name}: {line}");
    }
    let trimmed: String = help
        .lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/help")
        .join(name)
        .with_extension("txt");
    if std::env::var_os("TARE_BLESS").is_some() {
        fs::write(&path, &trimmed).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        kept,
        trimmed,
        "{}: TARE_BLESS=1 rewrites it",
        path.display()
    );
}

#[test]
fn only_verbs_that_exist_are_listed() {
    let help = TestDir::new().run(&["--help"]).out;
    let listed: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert_eq!(listed, VERBS);
}

#[test]
fn exit_codes_are_printed_by_verb_and_by_help() {
    let place = TestDir::new();
    place
        .run(&["exit-codes"])
        .expect(0, "  60  This user may not open /dev/kvm");
    place
        .run(&["help", "exit-codes"])
        .expect(0, "  60  This user may not open /dev/kvm");
}

#[test]
fn completions_know_the_verbs() {
    let place = TestDir::new();
    for shell in ["bash", "zsh", "fish"] {
        place.run(&["completions", shell]).expect(0, "doctor");
    }
}

#[test]
fn completions_know_the_values_of_closed_options() {
    let place = TestDir::new();
    let bash = place.run(&["completions", "bash"]);
    for values in [
        "lighttpd nginx redis memcached apache",
        "bare container vm vm-container appliance",
        "runc podman",
        "memcached redis nginx go axum",
    ] {
        bash.expect(0, &format!("compgen -W \"{values}"));
    }
    for name in ["ffmpeg-many", "mpich-prime", "thin-lto"] {
        bash.expect(0, name);
    }
    // A file is as good as a name.
    let own = ["weigh", "platforms", "--workload", "own.toml"];
    let wrong = [&own[..], &["--budget", "x"]].concat();
    let said = place.run(&wrong).err;
    assert!(
        said.contains("--budget") && !said.contains("own.toml"),
        "{said}"
    );
}

#[test]
fn manual_pages_are_written_for_each_verb() {
    let place = TestDir::new();
    place.run(&["man"]).expect(0, ".TH tare 1");
    let out = place.path().join("man");
    place
        .run(&["man", "--out", out.to_str().unwrap()])
        .expect(0, "");
    for page in ["tare.1", "tare-run.1", "tare-doctor.1"] {
        assert!(
            fs::read_to_string(out.join(page)).unwrap().contains(".TH"),
            "{page}"
        );
    }
    let file = place.file("file", b"");
    place
        .run(&["man", "--out", &file])
        .expect(76, "cannot write");
}

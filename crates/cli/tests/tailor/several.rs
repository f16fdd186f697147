//! One kernel for several applications.

use std::fs;

use tare_profile::{Observer, Phase, Profile, Taken, Way};

use super::support::end;
use super::{Bench, ready, works_with};

#[test]
fn one_kernel_is_made_for_several_applications() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    bench.makes(&works_with(
        &bench,
        "EPOLL",
        "app: epoll_wait: Function not implemented",
    ));
    for name in ["one", "other"] {
        fs::write(bench.path("root/bin").join(name), "").unwrap();
    }
    let profiles =
        [("a", "/bin/one"), ("b", "/bin/other"), ("c", "/bin/app")].map(|(file, program)| {
            let mut profile = Profile::empty();
            profile.phases.push(Phase {
                label: String::new(),
                taken: Taken {
                    way: Way::Command(vec![program.to_owned()]),
                    start_unix_s: 0,
                    duration_ns: 1,
                    kernel_release: String::new(),
                    tare_version: String::new(),
                },
                observer: Observer::default(),
            });
            let json = serde_json::to_vec(&profile).unwrap();
            bench.place.file(&format!("{file}.json"), &json)
        });
    let [tree, root, out] = ["tree", "root", "out"].map(|name| bench.word(name));
    let args = ["--source", &tree, "--root", &root, "--out", &out];
    let tailor = |profiles: &[String], more: &[&str]| {
        let profiles: Vec<&str> = profiles.iter().map(String::as_str).collect();
        let all = [&["tailor"], &profiles[..], &args[..], more].concat();
        end(bench.tare(&all).spawn().unwrap())
    };
    let ended = tailor(&profiles[..2], &["--check-timeout", "60"]);
    ended.expect(0, "Proven by one: it runs, other: it runs");
    let report = bench.report();
    // What the first one lacked is there for the second.
    assert_eq!(report["kernels"], 2);
    assert_eq!(report["added"].as_array().unwrap().len(), 1);
    for name in ["one", "other"] {
        assert!(
            bench
                .path("out/logs")
                .join(name)
                .join("proof-1.log")
                .exists()
        );
    }
    let checks = ["/bin/app", "tcp:9", "tcp:9"].map(|check| ["--check", check]);
    // The second one waits in vain for as long.
    let ended = tailor(
        &profiles,
        &[&["--check-timeout", "20"], &checks.concat()[..]].concat(),
    );
    ended.expect(78, "other: ");
    let report = bench.report();
    let failure = |at: usize| report["applications"][at]["failure"].to_string();
    assert_eq!(failure(0), "null");
    assert!(failure(2).contains("not tried"), "{}", failure(2));
    let ended = tailor(&profiles, &["--check", "tcp:9"]);
    ended.expect(2, "3 applications (one, other, app) need a --check each");
    let ended = tailor(&profiles, &["--", "/bin/app"]);
    ended.expect(2, "each has the command of its profile");
}

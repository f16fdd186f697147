//! Roots of programs.

use std::fs;

use crate::can_run;
use crate::support::compile::c;
use crate::support::TestDir;

#[test]
fn hard_links_of_a_root_are_one_file_in_the_machine() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "same_file.c", &["-static"]) else {
        return;
    };
    let root = place.path().join("root");
    fs::create_dir_all(root.join("usr")).unwrap();
    fs::rename(program, root.join("same")).unwrap();
    for (first, other, content) in [
        ("large", "usr/large", "abcd".repeat(3000)),
        ("small", "usr/small", "abcd".to_owned()),
    ] {
        fs::write(root.join(first), content).unwrap();
        fs::hard_link(root.join(first), root.join(other)).unwrap();
        let words = ["--root", root.to_str().unwrap(), "--net", "none", "--"];
        let command = ["/same", first, other].map(|word| format!("/{}", word.trim_matches('/')));
        let command = command.each_ref().map(String::as_str);
        let ended = place.run(&[&["run"], &words[..], &command].concat());
        ended.expect(0, &format!("/{first} 1 2 abcd"));
        ended.expect(0, &format!("/{other} 1 2 abcd"));
    }
}

use std::fs;

use super::*;

/// Circles in a crate of these files below `src`; the first is its root.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let made = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = made.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    circles(&made.path().join(files[0].0), made.path()).unwrap()
}

/// A circle of three files, of which `third` is the last.
fn three(third: &str) -> Vec<String> {
    found(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "use super::c::C; pub struct B(C);"),
        ("c.rs", third),
    ])
}

#[test]
fn files_in_layers_have_no_circle() {
    assert!(three("pub struct C;").is_empty());
}

#[test]
fn two_files_may_depend_on_each_other() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "use crate::a::A; pub struct B(A);"),
    ];
    assert!(found(&files).is_empty());
}

#[test]
fn a_circle_of_three_is_printed_with_its_files_and_the_names_they_use() {
    let expected =
        "circle of 3 files:\n    a.rs -> b.rs: B\n    b.rs -> c.rs: C\n    c.rs -> a.rs: A";
    assert_eq!(three("use crate::a::A; pub struct C(A);"), [expected]);
}

#[test]
fn two_circles_are_two_violations() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "use crate::c::C; pub struct B(C);"),
        ("c.rs", "use crate::a::A; pub struct C(A);"),
        (
            "d.rs",
            "use crate::e::E; use crate::a::A; pub struct D(E, A);",
        ),
        ("e.rs", "use crate::f::F; pub struct E(F);"),
        ("f.rs", "use crate::d::D; pub struct F(D);"),
    ];
    assert_eq!(found(&files).len(), 2);
}

#[test]
fn paths_in_code_and_in_macros_count() {
    assert_eq!(three("pub struct C(crate::a::A);").len(), 1);
    assert_eq!(
        three("pub struct C; fn f() -> Vec<C> { vec![super::a::A::make()] }").len(),
        1
    );
    assert_eq!(
        three("macro_rules! make { ($x:expr) => { $crate::a::A($x) } }").len(),
        1
    );
    assert_eq!(
        three("#[arg(value_parser = crate::a::A::parse)] pub struct C;").len(),
        1
    );
}

#[test]
fn grouped_nested_and_renamed_imports_count() {
    assert_eq!(
        three("use crate::{a::{self, A as First}, b}; pub struct C(First);").len(),
        1
    );
    assert_eq!(three("use {super::{a::{A}}}; pub struct C(A);").len(), 1);
    assert_eq!(three("use crate::a; pub struct C(a::A);").len(), 1);
    assert_eq!(three("use crate::a::A as _; pub struct C;").len(), 1);
    assert_eq!(three("pub struct C; fn f() { use crate::a::A; }").len(), 1);
}

#[test]
fn an_import_of_a_module_is_a_use_of_what_is_named_in_it() {
    assert!(three("use crate::a; pub struct C;").is_empty());
    let files = [
        ("lib.rs", "mod a; mod b; pub mod d; pub struct Root(b::B);"),
        ("a.rs", "use crate::d; pub struct A(d::D);"),
        ("b.rs", "use crate::a::A; pub struct B(A);"),
        ("d/mod.rs", "mod e; pub use self::e::D;"),
        ("d/e.rs", "use crate::b::B; pub struct D(B);"),
    ];
    assert_eq!(found(&files).len(), 1);
    assert!(found(&files)[0].contains("a.rs -> d/e.rs: D"));
}

#[test]
fn a_re_exported_name_counts_for_the_file_that_defines_it() {
    let through = |b: &'static str| {
        [
            ("lib.rs", "mod a; mod dir;"),
            ("a.rs", "use crate::dir::B; pub struct A(B);"),
            ("dir/mod.rs", b),
            ("dir/b.rs", "use super::c::C; pub struct B(C);"),
            ("dir/c.rs", "use crate::a::A; pub struct C(A);"),
        ]
    };
    let circle = "circle of 3 files:\n    a.rs -> dir/b.rs: B\n    dir/b.rs -> dir/c.rs: C\n    \
                  dir/c.rs -> a.rs: A";
    assert_eq!(
        found(&through("mod b; mod c; pub use self::b::B;")),
        [circle]
    );
    assert_eq!(
        found(&through("mod b; mod c; pub(crate) use b::*;")),
        [circle]
    );
}

#[test]
fn a_re_export_that_its_own_file_uses_is_a_use() {
    let lib = |root: &'static str| {
        [
            ("lib.rs", root),
            ("a.rs", "use crate::Shared; pub struct A(Shared);"),
            ("b.rs", "use crate::a::A; pub struct B(A);"),
        ]
    };
    let only = lib("mod a; mod b; pub use b::B; pub struct Shared;");
    assert!(found(&only).is_empty());
    let used = lib("mod a; mod b; pub use b::B; pub struct Shared; pub fn f() -> B { B::new() }");
    assert_eq!(found(&used).len(), 1);
}

#[test]
fn a_glob_is_a_use_of_the_names_taken_from_it() {
    let with = |c: &'static str| {
        [
            (
                "lib.rs",
                "mod a; mod b; mod c; use b::B; pub struct Root(B);",
            ),
            ("a.rs", "use super::*; pub struct A(Root);"),
            ("b.rs", "use crate::c::C; pub struct B(C);"),
            ("c.rs", c),
        ]
    };
    let circle = found(&with("use super::*; pub struct C(Root);"));
    assert_eq!(circle.len(), 1);
    assert!(circle[0].contains("c.rs -> lib.rs: Root"), "{}", circle[0]);
    assert!(found(&with("use super::*; pub struct C;")).is_empty());
}

#[test]
fn code_for_tests_does_not_count() {
    assert!(three("pub struct C; #[cfg(test)] mod tests { use crate::a::A; }").is_empty());
    assert!(three("pub struct C; #[cfg(test)] use crate::a::A;").is_empty());
    assert!(three("pub struct C; #[cfg(all(test, unix))] fn f() { crate::a::f() }").is_empty());
    assert!(three("pub struct C; impl C { #[cfg(test)] fn f() { crate::a::f() } }").is_empty());
    let fuzzed = "pub struct C; #[cfg(any(test, fuzzing))] mod fuzz { use crate::a::A; }";
    assert_eq!(three(fuzzed).len(), 1);
    assert_eq!(
        three("pub struct C; #[cfg(not(test))] use crate::a::A;").len(),
        1
    );
}

#[test]
fn a_module_in_braces_belongs_to_its_file_and_mod_lines_are_no_use() {
    let files = [
        (
            "lib.rs",
            "mod a; mod b { pub mod inner { pub mod c; pub struct B(super::super::a::A); } }",
        ),
        ("a.rs", "use crate::b::inner::c::C; pub struct A(C);"),
        ("b/inner/c.rs", "use super::B; pub struct C(B);"),
    ];
    let found = found(&files);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].contains("b/inner/c.rs -> lib.rs: B"),
        "{}",
        found[0]
    );
}

#[test]
fn a_module_depends_on_the_children_that_it_calls() {
    let files = [
        (
            "lib.rs",
            "mod a; mod b; pub struct Error; fn f() { a::f(); b::f() }",
        ),
        ("a.rs", "use crate::Error; pub fn f() -> Error { Error }"),
        ("b.rs", "use crate::Error; pub fn f() -> Error { Error }"),
    ];
    let found = found(&files);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("lib.rs -> a.rs: f"), "{}", found[0]);
}

#[test]
fn an_import_under_its_own_modules_name_ends() {
    let files = [
        (
            "lib.rs",
            "mod a; pub use a::a; use self::*; fn f() { a(); lost() }",
        ),
        ("a.rs", "use super::*; pub fn a() {}"),
    ];
    assert!(found(&files).is_empty());
}

#[test]
fn a_module_without_a_file_is_an_error() {
    let made = tempfile::tempdir().unwrap();
    let root = made.path().join("lib.rs");
    fs::write(&root, "mod lost;").unwrap();
    let error = circles(&root, made.path()).unwrap_err().to_string();
    assert!(error.contains("lost"), "{error}");
}

#[test]
fn a_crate_may_be_undone_only_while_it_has_circles() {
    let circle = || vec!["circle".to_owned()];
    assert_eq!(judge("a", circle(), &[]), ["circle"]);
    assert!(judge("a", circle(), &["a"]).is_empty());
    assert!(judge("a", Vec::new(), &["a"])[0].contains("take it out"));
    assert!(judge("a", Vec::new(), &["b"]).is_empty());
}

#[test]
fn every_undone_crate_exists() {
    let packages = crate::workspace::metadata().unwrap().packages;
    for name in UNDONE {
        assert!(
            packages.iter().any(|package| package.name == *name),
            "{name} is gone"
        );
    }
}

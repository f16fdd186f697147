//! Kernels that are built again by the counts of an instrumented one, which here is a guest of a few bytes.

use std::fs;

use tare_abi::exit::STATUS_LINE;
use tare_init::counts;

use super::support::guest::{Then, image, image_that_sends};
use super::{Bench, end, ready};

/// A function's counters as gcc 12 stores them, of which one ran seven times.
fn gcda() -> Vec<u8> {
    let words: [u32; 15] = [
        0x6763_6461,
        u32::from_be_bytes(*b"B22*"),
        1,
        2,
        0x0100_0000,
        12,
        1,
        2,
        3,
        0x01a1_0000,
        16,
        7,
        0,
        0,
        0,
    ];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Has the tree make an instrumented kernel that sends these bytes, and another that works.
fn makes(bench: &Bench, sent: &[u8]) {
    let line = format!("{STATUS_LINE}0");
    let counted = image_that_sends(sent, &line, Then::Exit(0x10));
    let counted = bench.place.file("tree/counted", &counted);
    let works = bench
        .place
        .file("tree/works", &image(&line, Then::Exit(0x10)));
    let is_counted = "grep -q GCOV_KERNEL=y $(O)/.config";
    bench.makes(&format!(
        "echo '$(KCFLAGS)' > $(O)/flags; if {is_counted}; then cp {counted} $(OUT); \
         else cp {works} $(OUT); fi"
    ));
}

#[test]
fn a_kernel_is_built_again_by_what_an_instrumented_one_counts() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    let objects = bench.path("").canonicalize().unwrap();
    let objects = objects.join("out/instrumented/build");
    let name = objects.join("kernel/fork.gcda");
    let mut list = Vec::new();
    let name = name.to_str().unwrap().trim_start_matches('/');
    counts::add(&mut list, name.as_bytes(), &gcda());
    let short = counts::shortened(&list);
    makes(
        &bench,
        &[counts::header(short.len()).as_bytes(), &short].concat(),
    );
    let profile = bench.profile(&["read"], &[]);
    let ended = bench.tailor(&profile, &["--cut", "pgo"]);
    ended.expect(0, "Proven by");
    assert!(
        ended.err.contains("what ran in 1 of 1 object files"),
        "{}",
        ended.err
    );
    assert_eq!(bench.report()["kernels"], 2);
    let flags = fs::read_to_string(bench.path("out/build/flags")).unwrap();
    let place = flags
        .split(' ')
        .find_map(|flag| flag.strip_prefix("-fprofile-use="));
    let place = bench.path("out/build").join(place.unwrap());
    // With the record that the kernel does not write.
    let given = fs::read(place.join("kernel#fork.gcda")).unwrap();
    assert_eq!(given.len(), gcda().len() + 16);

    let [lock, tree, again] = ["out/kernel.lock", "tree", "again"].map(|name| bench.word(name));
    let args = [
        "tailor", "--lock", &lock, "--source", &tree, "--out", &again,
    ];
    end(bench.tare(&args).spawn().unwrap()).expect(0, "Equal bit for bit");
    fs::remove_file(bench.path("out/kernel.counts")).unwrap();
    let ended = end(bench.tare(&args).spawn().unwrap());
    assert!(ended.err.contains("kernel.counts"), "{}", ended.err);
}

#[test]
fn a_kernel_that_counts_nothing_optimizes_none() {
    if !ready() {
        return;
    }
    let bench = Bench::new("");
    let profile = bench.profile(&["read"], &[]);
    for (sent, why) in [
        (&b""[..], "the guest ended before it had sent them"),
        (
            b"tare-counts/1 0\n",
            "the instrumented kernel counted nothing",
        ),
        (b"\x7fELF", "the guest ended before it had sent them"),
    ] {
        makes(&bench, sent);
        let ended = bench.tailor(&profile, &["--cut", "pgo"]);
        ended.expect(78, why);
        assert!(ended.err.contains("leave out --cut pgo"), "{}", ended.err);
        assert!(!bench.path("out/bzImage").exists());
    }
}

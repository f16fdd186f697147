//! Replays a target's corpus, on any toolchain.

use std::path::Path;

/// Gives each file of `fuzz/corpus/{target}` to `judge`.
pub(crate) fn replay(target: &str, judge: impl Fn(&[u8])) {
    let this = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpus = this.join("fuzz/corpus").join(target);
    let files = std::fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{corpus:?}: {error}"));
    let mut count = 0;
    for file in files {
        let path = file.expect("a directory entry").path();
        println!("{}", path.display());
        judge(&std::fs::read(&path).expect("a file"));
        count += 1;
    }
    assert!(count > 0, "the corpus of {target} is empty");
}

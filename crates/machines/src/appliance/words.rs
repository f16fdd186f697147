//! The command line of `tare run`.

/// The words of `tare run`: an image, options with their values, and a program that a Linux kernel
/// or the library OS runs.
pub(super) fn run_words<'a>(
    image: Option<&str>,
    options: impl IntoIterator<Item = (&'a str, &'a str)>,
    program: &[String],
) -> Vec<String> {
    let options = options.into_iter().flat_map(|(name, value)| [name, value]);
    let words = ["run"].into_iter().chain(image).chain(options);
    let mut words: Vec<String> = words.map(str::to_owned).collect();
    if !program.is_empty() {
        words.push("--".to_owned());
        words.extend_from_slice(program);
    }
    words
}

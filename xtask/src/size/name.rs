//! Which crate and module a symbol's name belongs to.
//!
//! Names are demangled Rust: `<tare_libos::net::Port<L>>::poll`, `core::ptr::drop_in_place::<T>`.
//! A function of `core` or `alloc` that was compiled for a type of another crate counts for that
//! crate: without it the function would not be in the image.

/// The standard library's crates, which are compiled for types of others.
const STANDARD: [&str; 2] = ["core", "alloc"];
/// What a symbol without a path counts for: assembly, `memcpy`.
pub(super) const NO_CRATE: &str = "(no crate)";

/// The readable form of a linker's name; one that is not Rust's stays as it is.
pub(super) fn demangled(symbol: &str) -> String {
    // The linker adds a suffix to copies.
    let plain = symbol.split(".llvm.").next().unwrap_or(symbol);
    format!("{:#}", rustc_demangle::demangle(plain))
}

/// The crate that a name counts for.
pub(super) fn krate(name: &str) -> &str {
    owner(name).map_or(NO_CRATE, |path| path.split("::").next().unwrap_or(NO_CRATE))
}

/// The module that a name counts for, at most `depth` components with the crate's.
pub(super) fn module(name: &str, depth: usize) -> String {
    let Some(path) = owner(name) else {
        return NO_CRATE.to_owned();
    };
    let parts: Vec<&str> = path.split("::").collect();
    // The last one is the function, or the type whose function it is.
    let modules = parts.len().saturating_sub(1).clamp(1, depth.max(1));
    parts[..modules].join("::")
}

/// The name without types that it was compiled for: the same for all copies of one function.
pub(super) fn without_types(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut depth = 0_u32;
    let mut before = ' ';
    for letter in name.chars() {
        match letter {
            '<' if depth > 0 || before.is_alphanumeric() || before == '_' || before == ':' => {
                depth += 1;
            }
            // An arrow of a function's type closes nothing.
            '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
        before = letter;
    }
    // `call::<u8>` leaves the separator before its types.
    let plain = plain.replace("::::", "::");
    plain.strip_suffix("::").unwrap_or(&plain).to_owned()
}

/// The path that a name counts for: the first of a crate that is not the standard library's, else
/// the first.
fn owner(name: &str) -> Option<&str> {
    let standard = |path: &&str| {
        let first = path.split("::").next();
        first.is_some_and(|first| STANDARD.contains(&first))
    };
    paths(name)
        .find(|path| !standard(path))
        .or_else(|| paths(name).next())
}

/// Paths in a name that begin with a crate, in order.
fn paths(name: &str) -> impl Iterator<Item = &str> {
    let part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    name.split(move |letter| !part(letter))
        .filter(|word| !word.starts_with(':'))
        .map(|word| word.trim_end_matches(':'))
        .filter(|word| word.contains("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHOD: &str = "<tare_libos::net::port::Port<tare_libos::net::link::Loopback>>::poll";
    const DROP: &str = "core::ptr::drop_in_place::<alloc::vec::Vec<tare_site::table::Rule>>";

    #[test]
    fn a_function_counts_for_the_crate_and_module_of_its_path() {
        assert_eq!(krate("tare_tcp::wire::parse"), "tare_tcp");
        assert_eq!(krate(METHOD), "tare_libos");
        assert_eq!(module(METHOD, 2), "tare_libos::net");
        assert_eq!(module(METHOD, 3), "tare_libos::net::port");
        let closure = "tare_libos::rt::start::<()>::{closure#0}";
        assert_eq!(module(closure, 3), "tare_libos::rt");
        let of_trait = "<&tare_tcp::Options as core::fmt::Debug>::fmt";
        assert_eq!(module(of_trait, 3), "tare_tcp");
    }

    #[test]
    fn a_function_of_core_counts_for_the_crate_whose_type_it_was_compiled_for() {
        assert_eq!(module(DROP, 3), "tare_site::table");
        assert_eq!(krate("<u32 as core::fmt::Display>::fmt"), "core");
        assert_eq!(krate("core::slice::sort::heapsort::<u8>"), "core");
    }

    #[test]
    fn what_has_no_path_counts_for_no_crate() {
        for name in ["memcpy", "tare_start64", ""] {
            assert_eq!(krate(name), NO_CRATE);
            assert_eq!(module(name, 2), NO_CRATE);
        }
    }

    #[test]
    fn copies_of_a_function_have_one_name_without_types() {
        assert_eq!(without_types(METHOD), "<tare_libos::net::port::Port>::poll");
        assert_eq!(without_types(DROP), "core::ptr::drop_in_place");
        let function = "a::call::<fn(u8) -> b::C<u8>>::{closure#0}";
        assert_eq!(without_types(function), "a::call::{closure#0}");
        assert_eq!(without_types("<a::B as c::D<u8>>::e"), "<a::B as c::D>::e");
    }

    #[test]
    fn names_of_the_linker_are_demangled_without_their_hashes() {
        assert_eq!(
            demangled("_RNvNtCsbmNqQUJIY6D_8tare_tcp4wire5parse"),
            "tare_tcp::wire::parse"
        );
        let old = "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.77";
        assert_eq!(demangled(old), "core::fmt::Formatter::pad");
        assert_eq!(demangled("memcpy"), "memcpy");
    }
}

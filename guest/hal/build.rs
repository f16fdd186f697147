//! Lets the linker find `link.ld`, which guest images name in their link flags.

fn main() {
    println!("cargo:rerun-if-changed=link.ld");
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(here) = std::env::var("CARGO_MANIFEST_DIR") {
        println!("cargo:rustc-link-search={here}");
    }
}

//! How code for the guest's target is compiled on this host.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The guest's target.
pub const GUEST_TARGET: &str = "x86_64-unknown-none";
/// Where Debian's compiler is installed.
const DEBIAN: &str = "/usr";

/// Where the core library of the guest's target comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreLibrary {
    /// The toolchain has it compiled, as rustup installs it.
    Installed(PathBuf),
    /// Debian has its sources (`rust-web-src`).
    Sources,
}

/// Why nothing can be compiled.
#[derive(Debug)]
pub enum ToolchainError {
    /// The compiler cannot be started.
    NoCompiler(io::Error),
    /// The compiler failed; the last line of its output.
    Failed(String),
    /// The toolchain lacks the core library for the guest's target.
    NoTarget(PathBuf),
}

impl fmt::Display for ToolchainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCompiler(_) => f.write_str("cannot run rustc"),
            Self::Failed(line) => write!(f, "rustc --print sysroot failed: {line}"),
            Self::NoTarget(sysroot) => write!(
                f,
                "Rust's target {GUEST_TARGET} is not installed in {}",
                sysroot.display()
            ),
        }
    }
}

impl std::error::Error for ToolchainError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoCompiler(error) => Some(error),
            Self::Failed(_) | Self::NoTarget(_) => None,
        }
    }
}

impl ToolchainError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoCompiler(_) => Some(
                "install Rust (https://rustup.rs), then `rustup target add x86_64-unknown-none`",
            ),
            Self::NoTarget(sysroot) if sysroot == Path::new(DEBIAN) => {
                Some("run `apt-get install rust-web-src lld`")
            }
            Self::NoTarget(_) => Some("run `rustup target add x86_64-unknown-none`"),
            Self::Failed(_) => None,
        }
    }
}

impl CoreLibrary {
    /// The core library of the compiler that cargo uses in `directory`.
    pub fn find(directory: &Path) -> Result<Self, ToolchainError> {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "sysroot"]).stdin(Stdio::null());
        let output = rustc
            .current_dir(directory)
            .output()
            .map_err(ToolchainError::NoCompiler)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.trim_end().lines().last().unwrap_or_default();
            return Err(ToolchainError::Failed(last.to_owned()));
        }
        let sysroot = String::from_utf8_lossy(&output.stdout);
        Self::in_sysroot(Path::new(sysroot.trim()))
    }

    fn in_sysroot(sysroot: &Path) -> Result<Self, ToolchainError> {
        let rustlib = sysroot.join("lib/rustlib");
        if rustlib.join(GUEST_TARGET).is_dir() {
            return Ok(Self::Installed(sysroot.to_owned()));
        }
        if sysroot == Path::new(DEBIAN) && rustlib.join("src/rust/library/core").is_dir() {
            return Ok(Self::Sources);
        }
        Err(ToolchainError::NoTarget(sysroot.to_owned()))
    }

    /// Adds the arguments and variables that `cargo build` needs for the guest's target.
    pub fn prepare(&self, cargo: &mut Command) {
        cargo.args(["--target", GUEST_TARGET]);
        if *self == Self::Sources {
            cargo
                .args([
                    "-Zbuild-std=core,alloc,compiler_builtins",
                    "-Zbuild-std-features=compiler-builtins-mem",
                    "--config",
                    "target.x86_64-unknown-none.rustflags=['-Clinker-flavor=ld.lld']",
                ])
                .env("RUSTC", "/usr/bin/rustc")
                .env("RUSTC_BOOTSTRAP", "1")
                .env("CARGO_TARGET_X86_64_UNKNOWN_NONE_LINKER", "ld.lld");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_toolchain_without_the_target_differs_from_one_with_it() {
        let place = tempfile::tempdir().unwrap();
        let missing = CoreLibrary::in_sysroot(place.path()).unwrap_err();
        assert!(missing.hint().unwrap().contains("rustup target add"));
        fs::create_dir_all(place.path().join("lib/rustlib").join(GUEST_TARGET)).unwrap();
        let found = CoreLibrary::in_sysroot(place.path()).unwrap();
        assert_eq!(found, CoreLibrary::Installed(place.path().to_owned()));
    }

    #[test]
    fn on_debian_the_hint_names_debians_packages() {
        let missing = ToolchainError::NoTarget(PathBuf::from(DEBIAN));
        assert!(missing.hint().unwrap().contains("apt-get install"));
    }

    #[test]
    fn only_debian_compiles_the_core_library() {
        let shown = |library: CoreLibrary| {
            let mut cargo = Command::new("cargo");
            library.prepare(&mut cargo);
            format!("{cargo:?}")
        };
        assert!(shown(CoreLibrary::Sources).contains("-Zbuild-std"));
        assert!(!shown(CoreLibrary::Installed(PathBuf::new())).contains("-Z"));
    }
}

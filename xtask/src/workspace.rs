//! The workspace as cargo describes it.

use anyhow::Result;
use serde::Deserialize;

use crate::shell;

/// `cargo metadata`, as far as it is needed here.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub packages: Vec<Package>,
}

/// One package of the dependency graph.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub name: String,
    pub version: String,
    pub license: Option<String>,
    /// `None` for a member of the workspace.
    pub source: Option<String>,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
    pub manifest_path: String,
}

/// One line of a package's dependencies.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub name: String,
    /// `None` for a normal dependency, `dev` or `build`.
    pub kind: Option<String>,
}

/// What a package builds.
#[derive(Deserialize)]
pub(crate) struct Target {
    pub name: String,
    pub kind: Vec<String>,
    /// Its root file.
    pub src_path: String,
}

impl Package {
    /// Whether this is one of the images in `guests/`.
    pub(crate) fn is_guest(&self) -> bool {
        self.source.is_none() && self.name.starts_with("tare-guest-")
    }

    /// Names of the programs that this package builds.
    pub(crate) fn bins(&self) -> impl Iterator<Item = &str> {
        self.of_kind("bin")
    }

    /// Whether the package has a library.
    pub(crate) fn has_lib(&self) -> bool {
        self.of_kind("lib").next().is_some()
    }

    /// Root files of its library and programs; tests and benches are left out.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &str> {
        self.targets
            .iter()
            .filter(|target| {
                target
                    .kind
                    .iter()
                    .any(|kind| kind == "lib" || kind == "bin")
            })
            .map(|target| target.src_path.as_str())
    }

    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a str> {
        self.targets
            .iter()
            .filter(move |target| target.kind.iter().any(|have| have == kind))
            .map(|target| target.name.as_str())
    }
}

/// Reads the whole graph; dependencies from a registry included.
pub(crate) fn metadata() -> Result<Metadata> {
    let text = shell::output(&mut shell::cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    Ok(serde_json::from_str(&text)?)
}

/// The workspace's own packages.
pub(crate) fn members() -> Result<Vec<Package>> {
    let mut packages = metadata()?.packages;
    packages.retain(|package| package.source.is_none());
    Ok(packages)
}

/// The images in `guests/`.
pub(crate) fn guests() -> Result<Vec<Package>> {
    let mut packages = members()?;
    packages.retain(Package::is_guest);
    Ok(packages)
}

/// Packages for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Dependency, Package};

    /// A member of the workspace with dependencies and their kinds.
    pub(crate) fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependencies = dependencies.iter().map(|(name, kind)| Dependency {
            name: (*name).to_owned(),
            kind: kind.map(str::to_owned),
        });
        Package {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            license: Some("Apache-2.0".to_owned()),
            source: None,
            dependencies: dependencies.collect(),
            targets: Vec::new(),
            manifest_path: String::new(),
        }
    }
}

//! Landlock: no file of any kind can be opened, made or changed any more,
//! except that the main thread removes the run directory; no TCP either.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetStatus,
};

use super::ConfineError;

/// Newest Landlock whose rights are asked for; an older kernel gives what it has.
const NEWEST: ABI = ABI::V5;

/// Rules for one thread.
#[derive(Debug)]
pub struct Files {
    rules: RulesetCreated,
    quiet: bool,
}

impl Files {
    /// No files at all.
    pub fn none() -> Result<Self, ConfineError> {
        let rules = Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .create()?;
        Ok(Self { rules, quiet: true })
    }

    /// Files in `run_dir` may be removed, and the empty directory itself.
    /// This one speaks for the process if the kernel has no Landlock.
    pub fn remove_only(run_dir: &Path) -> Result<Self, ConfineError> {
        let mut rules = Self::none()?.rules;
        let inside = AccessFs::RemoveFile;
        rules = rules.add_rule(PathBeneath::new(PathFd::new(run_dir)?, inside))?;
        if let Some(root) = run_dir.parent() {
            let itself = AccessFs::RemoveDir;
            rules = rules.add_rule(PathBeneath::new(PathFd::new(root)?, itself))?;
        }
        Ok(Self {
            rules,
            quiet: false,
        })
    }

    pub(super) fn restrict(self) -> Result<(), ConfineError> {
        let status = self.rules.restrict_self()?;
        if status.ruleset == RulesetStatus::NotEnforced && !self.quiet {
            eprintln!(
                "tare-monitor: this kernel has no Landlock; the monitor is confined by its system call filter alone"
            );
        }
        Ok(())
    }
}

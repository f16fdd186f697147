//! One kernel for several applications: each is proven on it in its own guest, and
//! what one of them lacks is built in for all.

use std::time::{Duration, Instant};

use crate::prove::Proof;
use crate::spec::KernelSpec;
use crate::tailoring::{Step, TailorError, Tailored, Tailoring};

/// A kernel and the proofs of all applications on it.
#[derive(Debug)]
pub struct TailoredForAll {
    /// The kernel, with what all tailorings took; its proof is the last one.
    pub tailored: Tailored,
    /// A proof for each application, in their order; `None` for one that was not tried,
    /// since another's had failed.
    pub proofs: Vec<Option<Proof>>,
}

impl TailoredForAll {
    /// Whether the kernel is proven with every application.
    pub fn passed(&self) -> bool {
        let mut proofs = self.proofs.iter();
        proofs.all(|proof| proof.as_ref().is_some_and(Proof::passed))
    }
}

/// Tailors one kernel, in the one directory of these tailorings; `limit` is for all of
/// them. `None` without an application.
pub fn run(
    tailorings: &[Tailoring<'_>],
    mut spec: KernelSpec,
    limit: Duration,
    mut progress: impl FnMut(Step<'_>),
) -> Result<Option<TailoredForAll>, TailorError> {
    let begin = Instant::now();
    let mut proofs: Vec<Option<Proof>> = tailorings.iter().map(|_| None).collect();
    let mut all: Option<Tailored> = None;
    while let Some(next) = proofs.iter().position(Option::is_none) {
        let tailoring = Tailoring {
            limit: limit.saturating_sub(begin.elapsed()),
            ..tailorings[next]
        };
        if tailorings.len() > 1 {
            progress(Step::Application(next));
        }
        let found = tailoring.run(spec.clone(), &mut progress);
        let found = found.map_err(|error| within(limit, error))?;
        for added in &found.added {
            spec.add.insert(added.symbol.clone(), added.why.clone());
        }
        if !found.added.is_empty() {
            // The others were proven on a kernel without these options.
            proofs.fill(None);
        }
        let passed = found.proof.passed();
        proofs[next] = Some(found.proof.clone());
        all = Some(match all {
            None => found,
            Some(before) => joined(before, found),
        });
        if !passed {
            break;
        }
    }
    Ok(all.map(|tailored| TailoredForAll { tailored, proofs }))
}

/// Names the limit of all tailorings where one of them ran out of what was left of it.
fn within(limit: Duration, error: TailorError) -> TailorError {
    match error {
        TailorError::OutOfTime { logs, .. } => TailorError::OutOfTime { limit, logs },
        other => other,
    }
}

/// What two tailorings in one directory took. The first build of the second compiled
/// nothing: the kernel was there.
fn joined(before: Tailored, found: Tailored) -> Tailored {
    let mut added = before.added;
    added.extend(found.added);
    Tailored {
        added,
        kernels: before.kernels + found.kernels.saturating_sub(1),
        build_time: before.build_time + found.build_time,
        ..found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_was_given_is_named_and_not_what_was_left_of_it() {
        let left = Duration::from_millis(59_900);
        let error = TailorError::OutOfTime {
            limit: left,
            logs: "logs".into(),
        };
        let told = within(Duration::from_secs(60), error).to_string();
        assert!(told.contains("found within 1 min;"), "{told}");
    }
}

//! `tare weigh`: the experiments of `crates/lab`.

use std::fmt::Write as _;
use std::time::Duration;

use tare_control::exit::ExitCode;
use tare_lab::{Depth, PlatformOptions, WeighError, WeighRequest};

use crate::args::WeighArgs;
use crate::failure::{Explain, Outcome};
use crate::why::prices;

impl Explain for WeighError {
    fn code(&self) -> ExitCode {
        self.exit_code()
    }
}

/// Runs the experiment; its table goes to standard output.
pub(crate) fn weigh(args: WeighArgs) -> Outcome {
    let experiment = args.experiment.clone();
    let mut request = WeighRequest::new(args.experiment);
    request.depth = match (args.quick, args.full) {
        (true, _) => Depth::Quick,
        (false, true) => Depth::Full,
        (false, false) => Depth::Standard,
    };
    request.fail_on_missed = args.fail_on_missed;
    request.out = args.out;
    request.image = args.image;
    request.app = args.app;
    request.cuts = args.cuts;
    let platforms = args.platforms;
    request.platforms = PlatformOptions {
        workloads: platforms.workloads,
        platforms: platforms.platforms,
        sizes: platforms.sizes,
        container_engine: platforms.container_engine,
        resume: platforms.resume,
        shard: platforms.shard,
        merge: platforms.merge,
        seed: platforms.seed,
        budget: platforms
            .budget
            .map(|minutes| Duration::from_secs(u64::from(minutes) * 60)),
    };
    let outcome = tare_lab::weigh(request)?;
    crate::print(&outcome.to_string())?;
    if outcome.exit_code() == ExitCode::Success
        && let Err(error) = prices::remember(&experiment, &outcome.directory)
    {
        crate::warn(&format!("cannot keep these costs for tare why: {error}"));
    }
    Ok(outcome.exit_code())
}

/// The experiments that there are, for the verb's help.
pub(crate) fn list() -> String {
    let mut text = String::from("Experiments:");
    for (name, about) in tare_lab::experiments() {
        let _ = write!(text, "\n  {name}: {about}");
    }
    text
}

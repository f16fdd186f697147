//! What a request costs in counts: guest instructions, exits and interrupts, and the sizes of
//! images. `crates/cli/tests/counts.rs` compares them with `lab/counts.json`: sizes, and the
//! least of the instructions.
//!
//! Each machine runs in ring 0 on a KVM that emulates it, which counts every instruction.
//! Only the images' bytes are exact. Load on the host adds to the other counts: a timer that
//! expires during the boot, a later acknowledgement, one more wake-up.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::Kvm;
use tare_lab::kit::{
    Bench, Depth, Entry, Experiment, Figure, Make, Record, ReportText, RunError, Statistic,
};

use super::HttpBursts;
use super::arms::Arm;
use super::metrics::METRICS;

/// What a machine is planned to take.
const MACHINE: Duration = Duration::from_secs(3);
/// Figures of the web server that are counts.
const COUNTED: [&str; 7] = [
    "boot_insns",
    "insns_per_request",
    "exits_per_request",
    "interrupts_per_request",
    "insns_per_connection",
    "exits_per_connection",
    "interrupts_per_connection",
];
/// How figures of images begin.
const IMAGE: &str = "image_bytes.";

/// The experiment among the others.
pub(crate) const COUNTS: Entry = Entry {
    name: "counts",
    about: "instructions, exits and interrupts of a request, and sizes of images",
    metrics: METRICS,
    goals: &[],
    make: Make::OfImage(|depth, image| Box::new(Counts::new(depth, image))),
};

/// The experiment.
pub(crate) struct Counts {
    server: HttpBursts,
    machines: usize,
}

impl Counts {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        Self {
            server: HttpBursts::new(Depth::Standard, image),
            machines: depth.of([3, 6, 20]),
        }
    }

    /// Sizes of the images beside the one that ran.
    fn images(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        let image = self.server.data.image.clone();
        let beside = image.and_then(|image| fs::read_dir(image.parent()?).ok());
        for entry in beside.into_iter().flatten().flatten() {
            let size = entry.metadata().ok().filter(fs::Metadata::is_file);
            let name = entry.file_name().into_string();
            if let (Some(size), Ok(name)) = (size, name) {
                let figure = format!("{IMAGE}{name}");
                let bytes = size.len() as f64;
                let data = &mut self.server.data;
                data.value(bench.recorder, None, &figure, bytes)?;
            }
        }
        Ok(())
    }
}

impl Experiment for Counts {
    fn planned(&self) -> Duration {
        MACHINE * u32::try_from(self.machines).unwrap_or(u32::MAX)
    }

    fn plan(&self) -> Value {
        json!({"image": self.server.plan.image, "machines": self.machines})
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        self.server.data.replay(record);
        Ok(())
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        let root = super::make_root(bench.recorder.directory()).map_err(RunError::Root)?;
        for machine in 0..self.machines {
            let step = format!("machine {} of {}", machine + 1, self.machines);
            bench.progress.step(&step);
            let turn = self.server.turn(Arm::Tare, machine);
            self.server.session(bench).counted(&root, turn)?;
            bench.progress.done(MACHINE);
        }
        self.images(bench)
    }

    fn kvm(&self) -> Kvm {
        self.server.data.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        let figures = self.server.data.figures();
        let counts = figures.into_iter().filter(|figure| {
            COUNTED.contains(&figure.name.as_str()) || figure.name.starts_with(IMAGE)
        });
        counts
            .map(|figure| {
                let values = self.server.data.samples.values(&figure.name);
                match values.first() {
                    Some(bytes) if figure.name.starts_with(IMAGE) => {
                        let Figure { name, unit, n, .. } = &figure;
                        Figure::bare(name, unit, *bytes, Statistic::Exact, *n)
                    }
                    _ => figure,
                }
            })
            .collect()
    }

    fn failures(&self) -> Vec<String> {
        self.server.data.failures()
    }

    fn report(&self, _: &[Figure]) -> ReportText {
        ReportText {
            title: "What a request costs in counts".to_owned(),
            question: "Guest instructions, exits and interrupts of a web server, and the sizes of \
                       the images."
                .to_owned(),
            method: vec![format!(
                "{} machines in ring 0, in each batches of requests one after the other. Sizes \
                 are exact; load on the host adds to the other counts.",
                self.machines
            )],
            ..ReportText::default()
        }
    }
}

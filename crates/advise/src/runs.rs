//! Figures of the lab's runs that say what pinning brought.

use serde::Serialize;

/// A figure and the run it is from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Median, %.
    pub value: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The run's folder.
    pub run: String,
}

/// What a figure about pinning compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Bound to CPUs, and not.
    Pinning,
    /// A container that a set of CPUs bounds, and one that a quota bounds.
    QuotaToSet,
}

impl Comparison {
    /// By the name of a figure. Both arms of `pin_control_pct` are bound alike, so it compares nothing.
    fn of(name: &str) -> Option<Self> {
        match name.split('.').next()? {
            "pin_gain_pct" => Some(Self::Pinning),
            "quota_to_set_pct" => Some(Self::QuotaToSet),
            _ => None,
        }
    }

    /// In words.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Pinning => "pinned against not pinned",
            Self::QuotaToSet => {
                "a set of CPUs against a quota, another mechanism than pinning alone"
            }
        }
    }
}

impl Figure {
    pub(crate) fn comparison(&self) -> Option<Comparison> {
        Comparison::of(&self.name)
    }

    /// The size that it is of, if it is about pinning this workload on this platform. Figures without
    /// a size pooled quotas and sets of CPUs; they do not count.
    fn size(&self, workload: &str, platform: &str) -> Option<u32> {
        self.comparison()?;
        let (_, rest) = self.name.split_once('.')?;
        let rest = rest.strip_prefix(workload)?.strip_prefix('.')?;
        rest.strip_prefix(platform)?.strip_prefix('.')?.parse().ok()
    }
}

/// All figures about pinning, the latest run's last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runs {
    figures: Vec<Figure>,
}

impl Runs {
    /// How the names of the figures that are wanted begin.
    pub const PREFIXES: [&str; 2] = ["pin_gain_pct.", "quota_to_set_pct."];

    /// These figures, the latest run's last.
    pub fn new(figures: Vec<Figure>) -> Self {
        Self { figures }
    }

    /// What pinning, or a set of CPUs instead of a quota, brought for a workload on a platform at
    /// the largest size of the latest run.
    pub fn pin_gain(&self, workload: &str, platform: &str) -> Option<&Figure> {
        let size = |figure: &Figure| figure.size(workload, platform);
        let latest = self.figures.iter().rfind(|figure| size(figure).is_some())?;
        let of_run = self
            .figures
            .iter()
            .filter(|figure| figure.run == latest.run);
        of_run
            .filter(|figure| size(figure).is_some())
            .max_by_key(|figure| size(figure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_run_s_figure_counts() {
        let figure = |run: &str, name: &str, value| Figure {
            name: name.to_owned(),
            value,
            low: 1.0,
            high: 9.0,
            run: run.to_owned(),
        };
        let name = "pin_gain_pct.ffmpeg.container";
        let runs = Runs::new(vec![
            figure("b", &format!("{name}.4"), 3.0),
            figure("a", &format!("{name}.16"), 5.0),
            figure("a", &format!("{name}.2"), 4.0),
            figure("a", name, 9.0),
            figure("a", "x", 1.0),
            figure("a", "pin_control_pct.ffmpeg.container.32", 0.0),
        ]);
        let found = runs
            .pin_gain("ffmpeg", "container")
            .map(|figure| (figure.value, figure.run.as_str()));
        assert_eq!(found, Some((5.0, "a")));
        assert_eq!(runs.pin_gain("ffmpeg", "vm"), None);
    }
}

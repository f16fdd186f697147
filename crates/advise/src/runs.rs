//! Figures of the lab's runs that say what pinning brought.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Largest `summary.json` that is read.
const MOST_BYTES: u64 = 4 << 20;

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

/// All figures about pinning, the latest run's last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runs {
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Summary {
    started: String,
    figures: Vec<SummaryFigure>,
}

#[derive(Deserialize)]
struct SummaryFigure {
    name: String,
    value: f64,
    low: f64,
    high: f64,
}

impl Runs {
    /// Of every `summary.json` one folder below these. What is missing or no summary
    /// is left out.
    pub fn read(folders: &[&Path]) -> Self {
        let mut found = Vec::new();
        let runs = folders
            .iter()
            .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        for run in runs {
            let path = run.path().join("summary.json");
            let small = fs::metadata(&path).is_ok_and(|file| file.len() <= MOST_BYTES);
            let text = small.then(|| fs::read_to_string(&path).ok()).flatten();
            let summary = text.and_then(|text| serde_json::from_str::<Summary>(&text).ok());
            let Some(summary) = summary else { continue };
            let name = run.file_name().to_string_lossy().into_owned();
            found.push((summary.started, name, summary.figures));
        }
        found.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let figures = found.into_iter().flat_map(|(_, run, figures)| {
            let about = figures
                .into_iter()
                .filter(|figure| figure.name.starts_with("pin_gain_pct."));
            about.map(move |figure| Figure {
                name: figure.name,
                value: figure.value,
                low: figure.low,
                high: figure.high,
                run: run.clone(),
            })
        });
        Self {
            figures: figures.collect(),
        }
    }

    /// What pinning brought for a workload on a platform, in the latest run.
    pub fn pin_gain(&self, workload: &str, platform: &str) -> Option<&Figure> {
        let name = format!("pin_gain_pct.{workload}.{platform}");
        self.figures.iter().rfind(|figure| figure.name == name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_latest_run_s_figure_counts() {
        let dir = tempfile::tempdir().unwrap();
        for (run, started, value) in [("a", "2026-02-01", 5.0), ("b", "2026-01-01", 3.0)] {
            fs::create_dir(dir.path().join(run)).unwrap();
            let text = format!(
                "{{\"started\":\"{started}\",\"experiment\":\"platforms\",\"figures\":[\
                 {{\"name\":\"pin_gain_pct.ffmpeg.container\",\"unit\":\"%\",\"value\":{value},\"low\":1,\
                 \"high\":9,\"n\":6}},{{\"name\":\"x\",\"value\":1,\"low\":1,\"high\":1}}]}}"
            );
            fs::write(dir.path().join(run).join("summary.json"), text).unwrap();
        }
        fs::create_dir(dir.path().join("c")).unwrap();
        fs::write(dir.path().join("c/summary.json"), "{").unwrap();
        let runs = Runs::read(&[dir.path(), Path::new("/nonexistent")]);
        let figure = runs.pin_gain("ffmpeg", "container").unwrap();
        assert_eq!((figure.value, figure.run.as_str()), (5.0, "a"));
        assert_eq!(runs.pin_gain("ffmpeg", "vm"), None);
    }
}
